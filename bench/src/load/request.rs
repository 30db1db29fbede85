//! Produce requests made once: the segments of each frame, and what an answer to it must say.
//!
//! The hot loop changes the correlation id (and, when asked, stamps) and nothing else. Does not
//! touch sockets.

use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::{ProduceRequest, ProduceResponse};
use tarn_wire::{Records, Segment, Str, decode_exact, decode_response_header, request_frame};

use super::batch::Batch;
use super::cluster::{CLIENT_ID, Topic};

/// Place of the correlation id in a frame: behind length, key and version.
const CORRELATION_AT: usize = 8;
/// What a broker may take for one request.
const TIMEOUT_MS: i32 = 30_000;
/// Frames up to this size are copied into the connection's buffer and leave with one call; larger
/// ones are written from where they are.
pub(crate) const COPY_BYTES_MAX: usize = 64 * 1024;

/// One request, ready but for its correlation id.
#[derive(Debug)]
pub(crate) struct Template {
    /// The frame up to the first batch; a private copy because the correlation id in it changes.
    head: Vec<u8>,
    /// What follows; batches are shared by all templates.
    rest: Vec<Bytes>,
    /// Bytes of the whole frame.
    pub(crate) len: usize,
    /// Where each batch starts and ends in the frame.
    batches: Vec<(usize, usize)>,
    stamp_at: usize,
}

impl Template {
    /// A request with one batch for each of `partitions`.
    pub(crate) fn new(
        topic: &Topic,
        version: i16,
        acks: i16,
        partitions: &[i32],
        batches: &[&Batch],
    ) -> Result<Self> {
        let data = partitions
            .iter()
            .zip(batches)
            .map(|(index, batch)| PartitionProduceData {
                index: *index,
                records: Some(Records::from(batch.bytes.clone())),
                ..Default::default()
            });
        let request = ProduceRequest {
            acks,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: Str::from(topic.name.clone()),
                partition_data: data.collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let frame = request_frame(0, Some(CLIENT_ID), version, &request)?;
        let mut pieces = Vec::with_capacity(frame.segments.len());
        for segment in frame.segments {
            match segment {
                Segment::Bytes(bytes) => pieces.push(bytes),
                Segment::File(_) => bail!("a produce request lies in a file"),
            }
        }
        let mut places = Vec::with_capacity(batches.len());
        let mut at = 0;
        let mut left = batches.iter();
        let mut next = left.next();
        for piece in &pieces {
            if next.is_some_and(|batch| batch.bytes.as_ptr() == piece.as_ptr()) {
                places.push((at, at + piece.len()));
                next = left.next();
            }
            at += piece.len();
        }
        ensure!(places.len() == batches.len(), "the codec copied a batch");
        let head = pieces.remove(0).to_vec();
        ensure!(head.len() >= CORRELATION_AT + 4, "a frame without a header");
        Ok(Self {
            head,
            rest: pieces,
            len: at,
            batches: places,
            stamp_at: batches.first().map_or(0, |b| b.stamp_at),
        })
    }

    /// Whether it is small enough to be copied.
    pub(crate) fn is_small(&self) -> bool {
        self.len <= COPY_BYTES_MAX
    }

    /// Sets the id that the answer will carry.
    pub(crate) fn set_correlation_id(&mut self, id: i32) {
        self.head[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&id.to_be_bytes());
    }

    /// Appends the whole frame to `out`, with the time `stamp_ns` in each batch if its batches have
    /// a place for it.
    pub(crate) fn copy_to(&self, out: &mut Vec<u8>, stamp_ns: u64) {
        let from = out.len();
        out.extend_from_slice(&self.head);
        for piece in &self.rest {
            out.extend_from_slice(piece);
        }
        if self.stamp_at > 0 {
            for (start, end) in &self.batches {
                super::batch::stamp(&mut out[from + start..from + end], self.stamp_at, stamp_ns);
            }
        }
    }

    /// The pieces of the frame.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.head.as_slice()).chain(self.rest.iter().map(|piece| &piece[..]))
    }
}

/// Checks one answer (without its length) to a request of `partitions` partitions, without decoding
/// it when all went well.
pub(crate) fn check_answer(answer: &[u8], id: i32, version: i16, partitions: usize) -> Result<()> {
    let given = answer
        .first_chunk::<4>()
        .map(|b| i32::from_be_bytes(*b))
        .ok_or_else(|| anyhow!("an answer without a correlation id"))?;
    ensure!(given == id, "answer to request {given} instead of {id}");
    if errors(&answer[4..], version).is_some_and(|(seen, wrong)| seen == partitions && !wrong) {
        return Ok(());
    }
    explain(answer, version)
}

/// How many partitions the body names, and whether one of them has an error; `None` when its layout
/// is not the plain one.
fn errors(mut body: &[u8], version: i16) -> Option<(usize, bool)> {
    // Header tags, then the list of topics.
    (take(&mut body, 1)? == [0]).then_some(())?;
    let topics = uvarint(&mut body)?.checked_sub(1)?;
    let (mut seen, mut wrong) = (0, false);
    for _ in 0..topics {
        let name = uvarint(&mut body)?.checked_sub(1)?;
        take(&mut body, name)?;
        for _ in 0..uvarint(&mut body)?.checked_sub(1)? {
            let fixed = take(&mut body, 30)?;
            wrong |= fixed[4..6] != [0, 0];
            // No record errors, no message, no tags.
            (take(&mut body, 3)? == [1, 0, 0]).then_some(())?;
            seen += 1;
        }
        (take(&mut body, 1)? == [0]).then_some(())?;
    }
    (version >= 9).then_some((seen, wrong))
}

fn take<'a>(body: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = body.split_at_checked(len)?;
    *body = rest;
    Some(taken)
}

fn uvarint(body: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for shift in (0..35).step_by(7) {
        let byte = take(body, 1)?[0];
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Decodes an answer that was not the plain one, and fails when it has an error.
#[cold]
fn explain(answer: &[u8], version: i16) -> Result<()> {
    let (_, body) = decode_response_header(Bytes::copy_from_slice(answer), 1)?;
    let response: ProduceResponse = decode_exact(body, version)?;
    for topic in &response.responses {
        for partition in &topic.partition_responses {
            ensure!(
                partition.error_code == 0,
                "produce to {}-{} answers error {} {}",
                topic.name.as_str(),
                partition.index,
                partition.error_code,
                partition.error_message.as_ref().map_or("", Str::as_str)
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::batch::Shape;
    use tarn_wire::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
    use tarn_wire::{ApiKey, Uuid, decode_request_header, response_frame};

    fn topic() -> Topic {
        Topic {
            name: "t".into(),
            id: Uuid::ZERO,
            leaders: Vec::new(),
        }
    }

    #[test]
    fn a_template_decodes_to_its_batches_with_right_checksums() {
        let batch = Shape::of(100, 2).build(1, true).unwrap();
        let mut template = Template::new(&topic(), 12, -1, &[3, 4], &[&batch, &batch]).unwrap();
        template.set_correlation_id(77);
        let mut out = b"earlier".to_vec();
        template.copy_to(&mut out, 42);
        assert_eq!(out.len(), 7 + template.len);
        assert_eq!(
            template.pieces().map(<[u8]>::len).sum::<usize>(),
            template.len
        );
        let (header, body) = decode_request_header(Bytes::from(out.split_off(11))).unwrap();
        assert_eq!(header.correlation_id, 77);
        let request: ProduceRequest = decode_exact(body, 12).unwrap();
        for (data, index) in request.topic_data[0].partition_data.iter().zip([3, 4]) {
            assert_eq!(data.index, index);
            let records = data.records.as_ref().and_then(Records::as_bytes).unwrap();
            tarn_records::BatchView::first(records)
                .unwrap()
                .check_crc()
                .unwrap();
        }
    }

    fn answer(error_code: i16) -> Vec<u8> {
        let partition = |index| PartitionProduceResponse {
            index,
            error_code,
            base_offset: 1_000_000,
            ..Default::default()
        };
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: Str::from("topic".to_owned()),
                partition_responses: vec![partition(0), partition(1)],
                ..Default::default()
            }],
            ..Default::default()
        };
        let frame = response_frame(ApiKey::PRODUCE, 5, 12, &response).unwrap();
        frame.to_bytes().unwrap()[4..].to_vec()
    }

    #[test]
    fn a_good_answer_passes_undecoded_and_a_bad_one_is_named() {
        assert_eq!(errors(&answer(0)[4..], 12), Some((2, false)));
        check_answer(&answer(0), 5, 12, 2).unwrap();
        let text = check_answer(&answer(6), 5, 12, 2).unwrap_err().to_string();
        assert!(text.contains("topic-0 answers error 6"), "{text}");
        assert!(check_answer(&answer(0), 6, 12, 2).is_err());
        assert!(check_answer(&[0, 0, 0, 5], 5, 12, 2).is_err());
    }
}
