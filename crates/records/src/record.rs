//! Single records inside a batch. Headers are a raw ordered list: keys are bytes, repeated keys
//! stay, values may be null.

use bytes::Bytes;

use crate::varint::Cursor;
use crate::{BatchHeader, BatchView, Compression, HEADER_BYTES, RecordsError};

/// One record header, in order of appearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Key, bytes as sent (UTF-8 is not required).
    pub key: Bytes,
    /// Value, may be null.
    pub value: Option<Bytes>,
}

/// One record with its absolute offset and timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Absolute offset.
    pub offset: i64,
    /// Timestamp in epoch milliseconds (the append time in LogAppendTime batches).
    pub timestamp: i64,
    /// Attribute bits, unused by Kafka so far.
    pub attributes: i8,
    /// Key, may be null.
    pub key: Option<Bytes>,
    /// Value, may be null.
    pub value: Option<Bytes>,
    /// Headers.
    pub headers: Vec<Header>,
}

/// Iterator over the records of one batch; ends after the first error.
#[derive(Debug)]
pub struct RecordIter {
    header: BatchHeader,
    payload: Bytes,
    pos: usize,
    index: i32,
    over: bool,
}

/// Records of the batch at the start of `batch`. Uncompressed keys and values share the buffer;
/// compressed ones are decompressed to at most `limit` bytes.
pub fn records(batch: &Bytes, limit: usize) -> Result<RecordIter, RecordsError> {
    let view = BatchView::first(batch)?;
    let (header, end) = (view.header, view.bytes.len());
    iter(&header, batch.slice(HEADER_BYTES..end), limit)
}

pub(crate) fn iter(
    header: &BatchHeader,
    payload: Bytes,
    limit: usize,
) -> Result<RecordIter, RecordsError> {
    let payload = match header.compression()? {
        Compression::None => payload,
        codec => Bytes::from(codec.decompress(&payload, limit)?),
    };
    Ok(RecordIter {
        header: *header,
        payload,
        pos: 0,
        index: 0,
        over: false,
    })
}

impl RecordIter {
    fn shared(&self, part: Option<&[u8]>) -> Option<Bytes> {
        part.map(|p| {
            if p.is_empty() {
                Bytes::new()
            } else {
                self.payload.slice_ref(p)
            }
        })
    }

    fn read(&self) -> Result<(Record, usize), &'static str> {
        let mut outer = Cursor::new(&self.payload, self.pos);
        let size = outer.i32().ok_or("bad length")?;
        let start = outer.pos();
        let body = outer
            .take(usize::try_from(size).map_err(|_| "negative length")?)
            .ok_or("length past the end")?;
        let mut c = Cursor::new(body, 0);
        let attributes = c.u8().ok_or("no attributes")? as i8;
        let timestamp_delta = c.i64().ok_or("bad timestamp delta")?;
        let offset_delta = c.i32().ok_or("bad offset delta")?;
        let key = nullable(&mut c).ok_or("bad key")?;
        let value = nullable(&mut c).ok_or("bad value")?;
        let count = c.i32().ok_or("bad header count")?;
        if count < 0 || count as usize > body.len() {
            return Err("impossible header count");
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let key = nullable(&mut c)
                .ok_or("bad header key")?
                .ok_or("null header key")?;
            let value = nullable(&mut c).ok_or("bad header value")?;
            headers.push(Header {
                key: self.shared(Some(key)).unwrap_or_default(),
                value: self.shared(value),
            });
        }
        if c.pos() != body.len() {
            return Err("bytes left over");
        }
        let h = &self.header;
        let timestamp = match h.is_log_append_time() {
            true => h.max_timestamp,
            false => h.base_timestamp.wrapping_add(timestamp_delta),
        };
        let offset = h
            .base_offset
            .checked_add(i64::from(offset_delta))
            .ok_or("offset overflows")?;
        if offset < h.base_offset || offset > h.last_offset() {
            return Err("offset outside its batch");
        }
        let (key, value) = (self.shared(key), self.shared(value));
        Ok((
            Record {
                offset,
                timestamp,
                attributes,
                key,
                value,
                headers,
            },
            start + body.len(),
        ))
    }
}

pub(crate) fn nullable<'a>(c: &mut Cursor<'a>) -> Option<Option<&'a [u8]>> {
    // Kafka takes every negative length for null.
    match usize::try_from(c.i32()?) {
        Ok(n) => c.take(n).map(Some),
        Err(_) => Some(None),
    }
}

impl Iterator for RecordIter {
    type Item = Result<Record, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over || self.index >= self.header.record_count {
            return None;
        }
        match self.read() {
            Ok((record, next)) => {
                self.pos = next;
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                self.over = true;
                Some(Err(RecordsError::InvalidRecord {
                    index: self.index,
                    reason,
                }))
            }
        }
    }
}
