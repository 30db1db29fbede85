//! The header of a batch while it arrives in pieces of any size: enough to tell what the batch is,
//! before anything of it was checked.

use crate::batch::{BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_OFFSET};

/// The format of batches with leader epochs.
const MAGIC: u8 = 2;

/// See the module. What it tells is as its sender wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivingHeader {
    bytes: [u8; HEADER_BYTES],
    len: usize,
}

impl Default for ArrivingHeader {
    fn default() -> Self {
        ArrivingHeader {
            bytes: [0; HEADER_BYTES],
            len: 0,
        }
    }
}

impl ArrivingHeader {
    /// Takes what is missing from the front of `piece`; gives how many bytes that was.
    pub fn fill(&mut self, piece: &[u8]) -> usize {
        let missing = (HEADER_BYTES - self.len).min(piece.len());
        self.bytes[self.len..self.len + missing].copy_from_slice(&piece[..missing]);
        self.len += missing;
        missing
    }

    /// Nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.len == HEADER_BYTES
    }

    /// Forgets it, for the next batch.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// What came so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// First offset; `None` while that is missing.
    pub fn base_offset(&self) -> Option<i64> {
        (self.len >= 8).then(|| BatchHeader::read(self.bytes()).base_offset)
    }

    /// Last offset; `None` while that is missing.
    pub fn last_offset(&self) -> Option<i64> {
        (self.len >= 27).then(|| BatchHeader::read(self.bytes()).last_offset())
    }

    /// Size of the batch, header included; `None` while that is missing.
    pub fn batch_bytes(&self) -> Option<usize> {
        (self.len >= LENGTH_PREFIX_BYTES).then(|| BatchHeader::read(self.bytes()).size())
    }

    /// A batch of the format that has leader epochs.
    pub fn is_current_format(&self) -> bool {
        self.magic() == Some(MAGIC)
    }

    /// A message set of format 0 or 1.
    pub fn is_old_format(&self) -> bool {
        self.magic().is_some_and(|magic| magic < MAGIC)
    }

    fn magic(&self) -> Option<u8> {
        self.bytes().get(MAGIC_OFFSET).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    #[test]
    fn a_header_tells_what_it_is_as_far_as_it_came() {
        let mut builder = BatchBuilder::new().base_offset(40);
        for _ in 0..10 {
            builder.add(1, None, Some(b"value"), &[]);
        }
        let batch = builder.build().expect("builds");
        let mut header = ArrivingHeader::default();
        assert_eq!((header.base_offset(), header.batch_bytes()), (None, None));
        for (at, byte) in batch.iter().take(HEADER_BYTES).enumerate() {
            assert!(!header.is_whole() && !header.is_old_format());
            assert_eq!(header.is_current_format(), at > MAGIC_OFFSET);
            assert_eq!(header.fill(std::slice::from_ref(byte)), 1);
        }
        assert!(header.is_whole());
        assert_eq!(header.fill(&batch), 0, "nothing is missing");
        assert_eq!(header.bytes(), &batch[..HEADER_BYTES]);
        assert_eq!(header.base_offset(), Some(40));
        assert_eq!(header.last_offset(), Some(49));
        assert_eq!(header.batch_bytes(), Some(batch.len()));
        header.clear();
        assert_eq!(header.fill(&batch), HEADER_BYTES);
        assert!(header.is_current_format());
    }

    #[test]
    fn lengths_that_are_lies_give_a_size_and_no_panic() {
        let mut header = ArrivingHeader::default();
        header.fill(&[0xff; HEADER_BYTES]);
        assert_eq!(header.batch_bytes(), Some(LENGTH_PREFIX_BYTES));
        assert_eq!(header.base_offset(), Some(-1));
        let mut old = ArrivingHeader::default();
        old.fill(&[0; MAGIC_OFFSET + 1]);
        assert!(old.is_old_format() && !old.is_current_format());
        assert_eq!(old.last_offset(), None);
    }
}
