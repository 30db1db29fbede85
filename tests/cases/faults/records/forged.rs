//! Batches made by hand, good ones and bad ones.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

/// A v2 batch whose fields can be set at will.
#[derive(Clone)]
pub(in crate::faults) struct Forged {
    pub(in crate::faults) base_offset: i64,
    pub(in crate::faults) leader_epoch: i32,
    pub(in crate::faults) magic: i8,
    pub(in crate::faults) attributes: i16,
    pub(in crate::faults) last_delta: i32,
    pub(in crate::faults) base_timestamp: i64,
    pub(in crate::faults) max_timestamp: i64,
    pub(in crate::faults) producer: (i64, i16, i32),
    pub(in crate::faults) count: i32,
    pub(in crate::faults) payload: Vec<u8>,
}

impl Forged {
    /// `count` records with keys, stamped `at`.
    pub(in crate::faults) fn new(at: i64, count: i32) -> Self {
        let record = |i: i32| record(i, 0, Some(b"key"), b"a value");
        Self {
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            attributes: 0,
            last_delta: count - 1,
            base_timestamp: at,
            max_timestamp: at,
            producer: (-1, -1, -1),
            count,
            payload: (0..count).flat_map(record).collect(),
        }
    }

    pub(in crate::faults) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(in crate::faults) fn bytes(&self) -> Vec<u8> {
        let mut tail = Vec::new();
        tail.extend(self.attributes.to_be_bytes());
        tail.extend(self.last_delta.to_be_bytes());
        tail.extend(self.base_timestamp.to_be_bytes());
        tail.extend(self.max_timestamp.to_be_bytes());
        tail.extend(self.producer.0.to_be_bytes());
        tail.extend(self.producer.1.to_be_bytes());
        tail.extend(self.producer.2.to_be_bytes());
        tail.extend(self.count.to_be_bytes());
        tail.extend(&self.payload);
        let mut out = Vec::new();
        out.extend(self.base_offset.to_be_bytes());
        out.extend((tail.len() as i32 + 9).to_be_bytes());
        out.extend(self.leader_epoch.to_be_bytes());
        out.extend(self.magic.to_be_bytes());
        out.extend(crc32c::crc32c(&tail).to_be_bytes());
        out.extend(tail);
        out
    }
}

fn varint(out: &mut Vec<u8>, v: i64) {
    let mut v = ((v << 1) ^ (v >> 63)) as u64;
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub(in crate::faults) fn record(
    offset: i32,
    timestamp: i64,
    key: Option<&[u8]>,
    value: &[u8],
) -> Vec<u8> {
    record_with(
        offset,
        timestamp,
        key.map_or(-1, |k| k.len() as i64),
        key,
        value,
        &[0],
    )
}

pub(in crate::faults) fn record_with(
    offset: i32,
    timestamp: i64,
    key_length: i64,
    key: Option<&[u8]>,
    value: &[u8],
    headers: &[u8],
) -> Vec<u8> {
    let mut body = vec![0];
    varint(&mut body, timestamp);
    varint(&mut body, i64::from(offset));
    varint(&mut body, key_length);
    body.extend(key.unwrap_or_default());
    varint(&mut body, value.len() as i64);
    body.extend(value);
    body.extend(headers);
    let mut out = Vec::new();
    varint(&mut out, body.len() as i64);
    out.extend(body);
    out
}

/// A good batch of `codec`, from an encoder that knows nothing of Tarn: a record of each value, the
/// first one stamped `at`, the next ones a millisecond later each.
pub(in crate::faults) fn compressed(
    at: i64,
    codec: Compression,
    keyed: bool,
    values: &[Vec<u8>],
) -> Vec<u8> {
    let record = |(i, value): (i64, &Vec<u8>)| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: TimestampType::Creation,
        offset: i,
        // The encoder begins a new batch where sequences do not follow.
        sequence: i as i32 - 1,
        timestamp: at + i,
        key: keyed.then(|| Bytes::from_static(b"key")),
        value: Some(Bytes::copy_from_slice(value)),
        headers: Default::default(),
    };
    let records: Vec<Record> = (0..).zip(values).map(record).collect();
    let mut out = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: codec,
    };
    RecordBatchEncoder::encode(&mut out, records.iter(), &options).unwrap();
    out.to_vec()
}

/// The batch with some bytes changed and its length and CRC made right again.
pub(in crate::faults) fn altered(mut batch: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut batch);
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

pub(in crate::faults) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}
