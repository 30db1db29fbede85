//! Taking records out of a batch for compaction: what stays keeps its bytes, its offset and its
//! timestamp. Not here: which records stay.

use std::borrow::Cow;

use crate::batch::DELETE_HORIZON_BIT;
use crate::record::nullable;
use crate::varint::{Cursor, put_i32, put_i64};
use crate::{
    BatchHeader, BatchView, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, RecordsError, crc32c,
};

/// A record as compaction sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRecord<'a> {
    /// Absolute offset.
    pub offset: i64,
    /// Key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// False for a tombstone.
    pub has_value: bool,
}

/// A batch with its records decompressed.
#[derive(Debug)]
pub struct OpenedBatch<'a> {
    header: BatchHeader,
    records: Cow<'a, [u8]>,
}

/// One record in its bytes.
struct Raw<'a> {
    whole: &'a [u8],
    attributes: u8,
    timestamp_delta: i64,
    /// Everything behind the timestamp delta.
    rest: &'a [u8],
    seen: KeyedRecord<'a>,
}

impl<'a> BatchView<'a> {
    /// Decompresses the records, to at most `limit` bytes.
    pub fn opened(&self, limit: usize) -> Result<OpenedBatch<'a>, RecordsError> {
        let records = match self.header.compression()? {
            Compression::None => Cow::Borrowed(self.payload()),
            codec => Cow::Owned(codec.decompress(self.payload(), limit)?),
        };
        Ok(OpenedBatch {
            header: self.header,
            records,
        })
    }

    /// The batch without any record: it still holds its offsets and what is known of its producer.
    pub fn emptied(&self) -> Result<Vec<u8>, RecordsError> {
        let header = BatchHeader {
            attributes: self.header.attributes & !0x07,
            record_count: 0,
            ..self.header
        };
        finish(header, vec![0; HEADER_BYTES])
    }
}

impl OpenedBatch<'_> {
    /// Gives every record to `see`, in order.
    pub fn for_each(&self, mut see: impl FnMut(KeyedRecord<'_>)) -> Result<(), RecordsError> {
        let mut at = 0;
        for index in 0..self.header.record_count {
            let (raw, next) = self.raw(at, index)?;
            see(raw.seen);
            at = next;
        }
        Ok(())
    }

    /// The batch with those records for which `keep` says yes, in its own codec; `None` when there
    /// is none. With a `horizon`, it is also marked with that delete horizon (epoch milliseconds,
    /// KIP-534), which takes the place of the base timestamp.
    pub fn filtered(
        &self,
        horizon: Option<i64>,
        mut keep: impl FnMut(KeyedRecord<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>, RecordsError> {
        let h = &self.header;
        let base = horizon.unwrap_or(h.base_timestamp);
        let (mut payload, mut body) = (Vec::new(), Vec::new());
        let (mut at, mut kept, mut largest) = (0, 0, i64::MIN);
        for index in 0..h.record_count {
            let (raw, next) = self.raw(at, index)?;
            at = next;
            if !keep(raw.seen) {
                continue;
            }
            kept += 1;
            let timestamp = h.base_timestamp.wrapping_add(raw.timestamp_delta);
            largest = largest.max(timestamp);
            if base == h.base_timestamp {
                payload.extend_from_slice(raw.whole);
                continue;
            }
            body.clear();
            body.push(raw.attributes);
            put_i64(&mut body, timestamp.wrapping_sub(base));
            body.extend_from_slice(raw.rest);
            put_i32(&mut payload, body.len() as i32);
            payload.extend_from_slice(&body);
        }
        if kept == 0 {
            return Ok(None);
        }
        let mut header = BatchHeader {
            record_count: kept,
            base_timestamp: base,
            ..*h
        };
        if horizon.is_some() {
            header.attributes |= DELETE_HORIZON_BIT;
        }
        if !h.is_log_append_time() {
            header.max_timestamp = largest;
        }
        let mut bytes = vec![0; HEADER_BYTES];
        match h.compression()? {
            Compression::None => bytes.extend_from_slice(&payload),
            codec => bytes.extend_from_slice(&codec.compress(&payload)?),
        }
        finish(header, bytes).map(Some)
    }

    fn raw(&self, at: usize, index: i32) -> Result<(Raw<'_>, usize), RecordsError> {
        let read = || {
            let mut outer = Cursor::new(&self.records, at);
            let size = usize::try_from(outer.i32()?).ok()?;
            let body = outer.take(size)?;
            let mut c = Cursor::new(body, 0);
            let attributes = c.u8()?;
            let timestamp_delta = c.i64()?;
            let rest = &body[c.pos()..];
            let offset = self.header.base_offset.checked_add(i64::from(c.i32()?))?;
            let (key, value) = (nullable(&mut c)?, nullable(&mut c)?);
            let seen = KeyedRecord {
                offset,
                key,
                has_value: value.is_some(),
            };
            let raw = Raw {
                whole: &self.records[at..outer.pos()],
                attributes,
                timestamp_delta,
                rest,
                seen,
            };
            Some((raw, outer.pos()))
        };
        read().ok_or(RecordsError::InvalidRecord {
            index,
            reason: "not a whole record",
        })
    }
}

/// Writes `header` with the right length and CRC in front of the records in `bytes`.
fn finish(mut header: BatchHeader, mut bytes: Vec<u8>) -> Result<Vec<u8>, RecordsError> {
    let length = i32::try_from(bytes.len() - LENGTH_PREFIX_BYTES);
    header.length = length.map_err(|_| RecordsError::TooLarge {
        limit: i32::MAX as usize,
    })?;
    header.write_to(&mut bytes);
    header.crc = crc32c(&bytes[BatchHeader::CRC_FROM..]);
    header.write_to(&mut bytes);
    Ok(bytes)
}
