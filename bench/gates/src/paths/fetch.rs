//! Prepares `build-fetch`: slices of eight logs found and put into the frame of a Fetch answer.

use std::sync::Arc;

use tarn_log::PartitionLog;
use tarn_wire::messages::FetchResponse;
use tarn_wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use tarn_wire::{ApiKey, FileRange, Records, Uuid, response_frame};
use tempfile::TempDir;

use super::append::{append, empty_log};
use super::{Prepared, Shape, batch};

const VERSION: i16 = 17;
const PARTITIONS: usize = 8;
const BATCHES: usize = 64;
const ANSWERS: u64 = 200;
/// What a client asks of one partition.
const PARTITION_BYTES_MAX: u64 = 1 << 20;

pub(super) fn prepare(shape: Shape) -> Prepared {
    let (mut bytes, records) = batch(0, shape);
    let logs: Vec<(Arc<PartitionLog>, TempDir)> = (0..PARTITIONS)
        .map(|_| {
            let (log, scratch) = empty_log();
            for _ in 0..BATCHES {
                append(&log, &mut bytes);
            }
            log.set_high_watermark(log.log_end_offset());
            (log, scratch)
        })
        .collect();
    let step = records * BATCHES as i64 / 4;
    let work = move || {
        for turn in 0..ANSWERS {
            let offset = step * (turn % 4) as i64;
            let partitions = logs.iter().enumerate();
            let partitions = partitions.map(|(index, (log, _))| partition(index, log, offset));
            let response = FetchResponse {
                session_id: 9,
                responses: vec![FetchableTopicResponse {
                    topic_id: Uuid([7; 16]),
                    partitions: partitions.collect(),
                    ..FetchableTopicResponse::default()
                }],
                ..FetchResponse::default()
            };
            let frame = response_frame(ApiKey::FETCH, 1, VERSION, &response);
            std::hint::black_box(frame.expect("a valid answer"));
        }
    };
    Prepared {
        work: Box::new(work),
        units: ANSWERS,
        _scratch: None,
    }
}

fn partition(index: usize, log: &PartitionLog, offset: i64) -> PartitionData {
    let high_watermark = log.high_watermark();
    let slice = log
        .read(offset, PARTITION_BYTES_MAX, high_watermark, true)
        .expect("an offset in range")
        .expect("records are there");
    PartitionData {
        partition_index: index as i32,
        high_watermark,
        last_stable_offset: log.last_stable_offset(),
        log_start_offset: log.log_start_offset(),
        preferred_read_replica: -1,
        records: Some(Records::File(FileRange {
            file: slice.file,
            offset: slice.position,
            len: slice.len,
        })),
        ..PartitionData::default()
    }
}
