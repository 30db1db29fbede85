//! [`Writer`]: encoding of primitives into one growing buffer with record sets spliced in by
//! reference.

use bytes::{BufMut, Bytes, BytesMut};

use crate::frame::{Frame, Segment};
use crate::{Records, WireError};

/// Byte fields of at least this size become a segment of their own instead of being copied.
const SPLICE_BYTES_MIN: usize = 4096;

/// Writes values one after another and ends as a [`Frame`].
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
    /// Foreign pieces and the position in `buffer` they belong in front of, ascending.
    splices: Vec<(usize, Segment)>,
    spliced_len: u64,
    /// Depth of tagged fields; their size must be known, so nothing is spliced inside.
    tag_depth: u32,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// An empty writer with room for `capacity` bytes that are not record sets.
    pub fn with_capacity(capacity: usize) -> Writer {
        Writer {
            buffer: BytesMut::with_capacity(capacity),
            ..Writer::default()
        }
    }

    /// Bytes written so far, spliced ones included.
    pub fn len(&self) -> u64 {
        self.buffer.len() as u64 + self.spliced_len
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the writing without a length in front.
    pub fn finish(self) -> Frame {
        let len = self.len();
        let inline = self.buffer.freeze();
        let mut segments = Vec::with_capacity(self.splices.len() * 2 + 1);
        let mut from = 0;
        for (at, segment) in self.splices {
            if at > from {
                segments.push(Segment::Bytes(inline.slice(from..at)));
                from = at;
            }
            segments.push(segment);
        }
        if from < inline.len() {
            segments.push(Segment::Bytes(inline.slice(from..)));
        }
        Frame { segments, len }
    }

    /// Starts a frame: leaves room for the length that [`Writer::finish_frame`] fills in.
    pub(crate) fn frame(capacity: usize) -> Writer {
        let mut writer = Writer::with_capacity(capacity);
        writer.i32(0);
        writer
    }

    /// Ends a frame begun with [`Writer::frame`]. Errors: [`WireError::TooLong`] past 2 GiB.
    pub(crate) fn finish_frame(mut self) -> Result<Frame, WireError> {
        let len = self.len() - 4;
        let len = i32::try_from(len).map_err(|_| WireError::TooLong(len as usize))?;
        self.buffer[..4].copy_from_slice(&len.to_be_bytes());
        Ok(self.finish())
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    /// One signed byte.
    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    /// Eight bytes, IEEE 754.
    pub fn f64(&mut self, value: f64) {
        self.buffer.put_f64(value);
    }

    /// An unsigned variable length integer.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }

    fn compact_len(&mut self, len: Option<u64>) -> Result<(), WireError> {
        match len {
            None => self.uvarint(0),
            Some(len) if len < i32::MAX as u64 => self.uvarint(len as u32 + 1),
            Some(len) => return Err(WireError::TooLong(len as usize)),
        }
        Ok(())
    }

    fn long_len(&mut self, flexible: bool, len: Option<u64>) -> Result<(), WireError> {
        if flexible {
            return self.compact_len(len);
        }
        match len {
            None => self.i32(-1),
            Some(len) if len < i32::MAX as u64 => self.i32(len as i32),
            Some(len) => return Err(WireError::TooLong(len as usize)),
        }
        Ok(())
    }

    /// A nullable string; `flexible` selects the compact form.
    pub fn nullable_str(&mut self, flexible: bool, value: Option<&[u8]>) -> Result<(), WireError> {
        if let Some(text) = value.filter(|text| text.len() > i16::MAX as usize) {
            return Err(WireError::TooLong(text.len()));
        }
        match (flexible, value) {
            (true, value) => self.compact_len(value.map(|text| text.len() as u64))?,
            (false, None) => self.i16(-1),
            (false, Some(text)) => self.i16(text.len() as i16),
        }
        self.raw(value.unwrap_or_default());
        Ok(())
    }

    /// Nullable bytes; `flexible` selects the compact form. Large ones are spliced, not copied.
    pub fn nullable_bytes(
        &mut self,
        flexible: bool,
        value: Option<&Bytes>,
    ) -> Result<(), WireError> {
        self.long_len(flexible, value.map(|bytes| bytes.len() as u64))?;
        match value {
            Some(bytes) if bytes.len() >= SPLICE_BYTES_MIN => {
                self.splice(Segment::Bytes(bytes.clone()))
            }
            Some(bytes) => self.raw(bytes),
            None => {}
        }
        Ok(())
    }

    /// A nullable record set. It is never copied. Must not stand inside a tagged field (no schema
    /// does that).
    pub fn nullable_records(
        &mut self,
        flexible: bool,
        value: Option<&Records>,
    ) -> Result<(), WireError> {
        self.long_len(flexible, value.map(Records::len))?;
        match value {
            Some(Records::Bytes(bytes)) => self.splice(Segment::Bytes(bytes.clone())),
            Some(Records::File(range)) => self.splice(Segment::File(range.clone())),
            Some(Records::Segments(segments)) => segments
                .iter()
                .cloned()
                .for_each(|segment| self.splice(segment)),
            None => {}
        }
        Ok(())
    }

    /// The length of a nullable array.
    pub fn array_len(&mut self, flexible: bool, len: Option<usize>) -> Result<(), WireError> {
        self.long_len(flexible, len.map(|len| len as u64))
    }

    fn splice(&mut self, segment: Segment) {
        match segment {
            Segment::Bytes(bytes) if self.tag_depth > 0 => self.raw(&bytes),
            segment if segment.is_empty() => {}
            segment => {
                self.spliced_len += segment.len();
                self.splices.push((self.buffer.len(), segment));
            }
        }
    }

    /// One tagged field: number, size, and what `content` writes.
    pub fn tag(
        &mut self,
        tag: u32,
        content: impl FnOnce(&mut Writer) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.uvarint(tag);
        let start = self.buffer.len();
        self.tag_depth += 1;
        let written = content(self);
        self.tag_depth -= 1;
        written?;
        // The size is only known now: write it behind the content and rotate it to the front.
        let size = self.buffer.len() - start;
        self.uvarint(u32::try_from(size).map_err(|_| WireError::TooLong(size))?);
        let prefix = self.buffer.len() - start - size;
        self.buffer[start..].rotate_right(prefix);
        Ok(())
    }

    /// A tagged-field section that holds `unknown` only.
    pub fn unknown_tags(&mut self, unknown: &[(u32, Bytes)]) {
        self.uvarint(unknown.len() as u32);
        self.raw_tags(unknown, 0, u32::MAX);
    }

    /// The tagged fields of `unknown` with numbers from `from` up to but without `to`.
    pub fn raw_tags(&mut self, unknown: &[(u32, Bytes)], from: u32, to: u32) {
        for (tag, content) in unknown.iter().filter(|(tag, _)| (from..to).contains(tag)) {
            self.uvarint(*tag);
            self.uvarint(content.len() as u32);
            self.raw(content);
        }
    }
}
