//! [`Records`]: the record set of a Produce, Fetch or FetchSnapshot message, as bytes nobody looked
//! into.

use bytes::Bytes;

use crate::frame::{FileRange, Segment};

/// A record set: whole or cut batches. Decoding gives [`Records::Bytes`] (a slice of the input);
/// encoding makes segments.
#[derive(Clone, Debug, PartialEq)]
pub enum Records {
    /// Bytes in memory.
    Bytes(Bytes),
    /// One range of a file.
    File(FileRange),
    /// Several pieces in order.
    Segments(Vec<Segment>),
}

impl Records {
    /// No records.
    pub const EMPTY: Records = Records::Bytes(Bytes::new());

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Records::Bytes(bytes) => bytes.len() as u64,
            Records::File(range) => range.len,
            Records::Segments(segments) => segments.iter().map(Segment::len).sum(),
        }
    }

    /// True if there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes if they are in memory in one piece (always so after decoding).
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Records::Bytes(bytes) => Some(bytes),
            Records::File(_) | Records::Segments(_) => None,
        }
    }
}

impl Default for Records {
    fn default() -> Records {
        Records::EMPTY
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Records {
        Records::Bytes(bytes)
    }
}

impl From<FileRange> for Records {
    fn from(range: FileRange) -> Records {
        Records::File(range)
    }
}
