//! Prepares `decode-produce`: request header and ProduceRequest out of a frame, as a connection of
//! the server does it.

use bytes::Bytes;
use tarn_wire::messages::ProduceRequest;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::{Message, Reader, Records, Uuid, decode_request_header, request_frame};

use super::{Prepared, Shape, batch};

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;
const VERSION: i16 = 13;
const PARTITIONS: i32 = 8;
const REQUESTS: u64 = 200;

pub(super) fn prepare(shape: Shape) -> Prepared {
    let partition_data = (0..PARTITIONS).map(|index| PartitionProduceData {
        index,
        records: Some(Records::Bytes(Bytes::from(batch(0, shape).0))),
        ..PartitionProduceData::default()
    });
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            topic_id: Uuid([7; 16]),
            partition_data: partition_data.collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let frame = request_frame(1, Some("producer-1"), VERSION, &request).expect("a valid request");
    let body = frame
        .to_bytes()
        .expect("it lies in memory")
        .slice(LENGTH_BYTES..);
    let work = move || {
        for _ in 0..REQUESTS {
            let (header, body) = decode_request_header(body.clone()).expect("our own header");
            let request = ProduceRequest::decode(&mut Reader::new(body), header.version);
            std::hint::black_box(request.expect("our own request"));
        }
    };
    Prepared {
        work: Box::new(work),
        units: REQUESTS,
        _scratch: None,
    }
}
