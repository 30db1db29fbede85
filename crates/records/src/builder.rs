//! Builds one v2 batch in memory.

use crate::varint::{put_i32, put_i64};
use crate::{
    BatchHeader, Compression, HEADER_BYTES, Header, LENGTH_PREFIX_BYTES, NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, RecordsError, crc32c,
};

/// Builder of one batch: plain, idempotent, transactional or control, compressed or not. Records
/// are encoded as they are added. Offsets are consecutive unless [`BatchBuilder::add_at`] is used.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    base_offset: i64,
    leader_epoch: i32,
    compression: Compression,
    append_time: Option<i64>,
    producer: (i64, i16, i32),
    transactional: bool,
    control: bool,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    last_delta: i32,
    payload: Vec<u8>,
    scratch: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty plain batch at offset 0, leader epoch −1, uncompressed.
    pub fn new() -> Self {
        BatchBuilder {
            base_offset: 0,
            leader_epoch: NO_LEADER_EPOCH,
            compression: Compression::None,
            append_time: None,
            producer: (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
            transactional: false,
            control: false,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            count: 0,
            last_delta: -1,
            payload: Vec::new(),
            scratch: Vec::new(),
        }
    }
    /// Offset of the first record.
    pub fn base_offset(mut self, offset: i64) -> Self {
        self.base_offset = offset;
        self
    }
    /// Partition leader epoch.
    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.leader_epoch = epoch;
        self
    }
    /// Codec of the records part.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
    /// Marks the batch LogAppendTime with this time.
    pub fn log_append_time(mut self, now_ms: i64) -> Self {
        self.append_time = Some(now_ms);
        self
    }
    /// Makes it idempotent.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }
    /// Makes it part of a transaction.
    pub fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }
    /// Makes it a control batch.
    pub fn control(mut self) -> Self {
        self.control = true;
        self
    }
    /// Last offset − base offset when it is more than the last record's (compacted or emptied
    /// batches).
    pub fn last_offset_delta(mut self, delta: i32) -> Self {
        self.last_delta = self.last_delta.max(delta);
        self
    }
    /// Number of records so far.
    pub fn len(&self) -> usize {
        self.count as usize
    }
    /// No record so far.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Uncompressed size of the batch so far, in bytes.
    pub fn size(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
    /// Adds a record at the next offset.
    pub fn add(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> &mut Self {
        let delta = self.last_delta.saturating_add(1);
        self.add_at(delta, timestamp, key, value, headers)
    }
    /// Adds a record at `base offset + delta`; deltas must rise.
    pub fn add_at(
        &mut self,
        delta: i32,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> &mut Self {
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.scratch.clear();
        let s = &mut self.scratch;
        s.push(0);
        put_i64(s, timestamp.wrapping_sub(self.base_timestamp));
        put_i32(s, delta);
        put_nullable(s, key);
        put_nullable(s, value);
        put_i32(s, headers.len() as i32);
        for h in headers {
            put_nullable(s, Some(&h.key));
            put_nullable(s, h.value.as_deref());
        }
        put_i32(&mut self.payload, s.len() as i32);
        self.payload.extend_from_slice(s);
        self.last_delta = self.last_delta.max(delta);
        self.count += 1;
        self
    }
    /// The finished batch. Error only when the codec fails or the batch passes 2 GiB.
    pub fn build(&self) -> Result<Vec<u8>, RecordsError> {
        let mut out = vec![0u8; HEADER_BYTES];
        match self.compression {
            Compression::None => out.extend_from_slice(&self.payload),
            codec => out.extend_from_slice(&codec.compress(&self.payload)?),
        }
        let length =
            i32::try_from(out.len() - LENGTH_PREFIX_BYTES).map_err(|_| RecordsError::TooLarge {
                limit: i32::MAX as usize,
            })?;
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let attributes = BatchHeader::attribute_bits(
            self.compression,
            self.append_time.is_some(),
            self.transactional,
            self.control,
        );
        let mut header = BatchHeader {
            base_offset: self.base_offset,
            length,
            leader_epoch: self.leader_epoch,
            crc: 0,
            attributes,
            last_offset_delta: self.last_delta.max(0),
            base_timestamp: self.base_timestamp,
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id,
            producer_epoch,
            base_sequence,
            record_count: self.count,
        };
        header.write_to(&mut out);
        header.crc = crc32c(&out[BatchHeader::CRC_FROM..]);
        header.write_to(&mut out);
        Ok(out)
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_i32(out, -1),
        Some(b) => {
            put_i32(out, b.len() as i32);
            out.extend_from_slice(b);
        }
    }
}
