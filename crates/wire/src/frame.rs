//! [`Frame`]: an encoded message as a list of segments, so that record sets go from disk to socket
//! without a copy.
//!
//! Does not write to sockets; the server and the client own that.

use std::fs::File;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// A range of a file that belongs to a message, to be sent by `sendfile` or read when it is needed.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The open file. It stays open as long as the range lives, so a deleted segment can still be
    /// sent.
    pub file: Arc<File>,
    /// Byte position in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl PartialEq for FileRange {
    // Identity of the range, not of its content: comparing content would read a disk.
    fn eq(&self, other: &FileRange) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.offset == other.offset && self.len == other.len
    }
}

/// One piece of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File(FileRange),
}

impl Segment {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::File(range) => range.len,
        }
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes ready for the wire. A frame made by `request_frame` or `response_frame` starts with its
/// 4-byte length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// The pieces in order; none is empty.
    pub segments: Vec<Segment>,
    /// Sum of the lengths of all pieces in bytes, the 4-byte length itself included.
    pub len: u64,
}

impl Frame {
    /// A frame of one piece in memory.
    pub fn from_bytes(bytes: Bytes) -> Frame {
        Frame {
            len: bytes.len() as u64,
            segments: vec![Segment::Bytes(bytes)],
        }
    }

    /// All bytes in one piece. `None` if a segment lies in a file (reading it is not this crate's
    /// business).
    pub fn to_bytes(&self) -> Option<Bytes> {
        if let [Segment::Bytes(only)] = self.segments.as_slice() {
            return Some(only.clone());
        }
        let mut all = BytesMut::with_capacity(self.segments.iter().map(|s| s.len() as usize).sum());
        for segment in &self.segments {
            match segment {
                Segment::Bytes(bytes) => all.extend_from_slice(bytes),
                Segment::File(_) => return None,
            }
        }
        Some(all.freeze())
    }
}
