//! Prepares `mirror-append` (pieces pushed into a verbatim append) and `mirror-stream` (the same
//! through the parser of Fetch answers).

use std::sync::Arc;

use bytes::Bytes;
use tarn_log::PartitionLog;
use tarn_wire::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use tarn_wire::messages::FetchResponse;
use tarn_wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use tarn_wire::{Records, Uuid, encode_body};

use super::append::empty_log;
use super::{NOW_MS, Prepared, Shape, batch};

const VERSION: i16 = 17;
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces of one answer.
const ANSWER_PIECES: usize = 4;
const ANSWERS: usize = 10;

/// The records of one answer: whole batches and a cut one at the end, exactly [`ANSWER_PIECES`]
/// pieces long.
fn records(next_offset: &mut i64, shape: Shape) -> Bytes {
    let mut bytes = Vec::with_capacity(PIECE_BYTES * ANSWER_PIECES * 2);
    loop {
        let (batch, records) = batch(*next_offset, shape);
        bytes.extend_from_slice(&batch);
        if bytes.len() > PIECE_BYTES * ANSWER_PIECES {
            bytes.truncate(PIECE_BYTES * ANSWER_PIECES);
            return bytes.into();
        }
        *next_offset += records;
    }
}

fn pieces(bytes: &Bytes) -> Vec<Bytes> {
    let starts = (0..bytes.len()).step_by(PIECE_BYTES);
    starts
        .map(|at| bytes.slice(at..bytes.len().min(at + PIECE_BYTES)))
        .collect()
}

pub(super) fn prepare_append(shape: Shape) -> Prepared {
    let (log, scratch) = empty_log();
    let mut next_offset = 0;
    let mut append = move |pieces: Vec<Bytes>| {
        let end = log.log_end_offset();
        let mut append = log.mirror_append(end, NOW_MS).expect("the log end");
        for piece in pieces {
            append.push(&piece).expect("good batches");
        }
        std::hint::black_box(append.finish().expect("a live append"));
    };
    append(pieces(&records(&mut next_offset, shape)));
    let mut answers: Vec<Vec<Bytes>> = (0..ANSWERS)
        .map(|_| pieces(&records(&mut next_offset, shape)))
        .collect();
    let work = move || answers.drain(..).for_each(&mut append);
    Prepared {
        work: Box::new(work),
        units: (ANSWERS * ANSWER_PIECES) as u64,
        _scratch: Some(scratch),
    }
}

pub(super) fn prepare_stream(shape: Shape) -> Prepared {
    let (log, scratch) = empty_log();
    let mut next_offset = 0;
    let mut bodies: Vec<Bytes> = (0..=ANSWERS)
        .map(|_| answer(records(&mut next_offset, shape)))
        .collect();
    take_answer(&log, &bodies.remove(0));
    let work = move || bodies.drain(..).for_each(|body| take_answer(&log, &body));
    Prepared {
        work: Box::new(work),
        units: (ANSWERS * ANSWER_PIECES) as u64,
        _scratch: Some(scratch),
    }
}

fn answer(records: Bytes) -> Bytes {
    let response = FetchResponse {
        session_id: 9,
        responses: vec![FetchableTopicResponse {
            topic_id: Uuid([7; 16]),
            partitions: vec![PartitionData {
                high_watermark: i64::MAX,
                records: Some(Records::Bytes(records)),
                ..PartitionData::default()
            }],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    let frame = encode_body(&response, VERSION).expect("a valid answer");
    frame.to_bytes().expect("it lies in memory")
}

fn take_answer(log: &Arc<PartitionLog>, body: &Bytes) {
    let mut parser = FetchStream::new(VERSION, body.len() as u64, FetchLimits::default())
        .expect("a known version");
    let mut append = None;
    for piece in pieces(body) {
        parser.push(piece).expect("not more than announced");
        while let Some(event) = parser.next_event().expect("a valid answer") {
            match event {
                FetchEvent::PartitionStart(_) => {
                    let end = log.log_end_offset();
                    append = Some(log.mirror_append(end, NOW_MS).expect("the log end"));
                }
                FetchEvent::Records(bytes) => {
                    let append = append.as_mut().expect("a partition has begun");
                    append.push(&bytes).expect("good batches");
                }
                FetchEvent::PartitionEnd(_) => {
                    let append = append.take().expect("a partition has begun");
                    std::hint::black_box(append.finish().expect("a live append"));
                }
                FetchEvent::Header(_) | FetchEvent::Topic { .. } | FetchEvent::End { .. } => {}
            }
        }
    }
    assert!(parser.is_done(), "the whole answer was pushed");
}
