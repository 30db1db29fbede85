//! Zig-zag variable-length integers of the record format, and a bounds-checked cursor over them.

/// Appends a zig-zag varint of 32 bits.
pub(crate) fn put_i32(out: &mut Vec<u8>, v: i32) {
    put_u64(out, u64::from(((v << 1) ^ (v >> 31)) as u32));
}

/// Appends a zig-zag varint of 64 bits.
pub(crate) fn put_i64(out: &mut Vec<u8>, v: i64) {
    put_u64(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends an unsigned varint.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push((v as u8) | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Reads from a slice without ever passing its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], pos: usize) -> Self {
        Cursor {
            bytes,
            pos: pos.min(bytes.len()),
        }
    }
    pub(crate) fn pos(&self) -> usize {
        self.pos
    }
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.pos.checked_add(n)?;
        let s = self.bytes.get(self.pos..end)?;
        self.pos = end;
        Some(s)
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    fn unsigned(&mut self, max_bytes: u32) -> Option<u64> {
        let mut value = 0u64;
        for i in 0..max_bytes {
            let b = self.u8()?;
            value |= u64::from(b & 0x7f).checked_shl(7 * i)?;
            if b & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.unsigned(5)?).ok()
    }
    pub(crate) fn i32(&mut self) -> Option<i32> {
        let v = self.u32()?;
        Some(((v >> 1) as i32) ^ -((v & 1) as i32))
    }
    pub(crate) fn i64(&mut self) -> Option<i64> {
        let v = self.unsigned(10)?;
        Some(((v >> 1) as i64) ^ -((v & 1) as i64))
    }
}
