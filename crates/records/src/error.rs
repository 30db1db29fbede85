//! The one error type of this crate.

use crate::Compression;

/// Why bytes are not a good batch or record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// The bytes end before the header or the batch does.
    #[error("batch is cut off: {have} of {need} bytes")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The length field cannot be: negative, or smaller than a header (zero-filled holes end here
    /// too).
    #[error("batch at offset {base_offset} has impossible length {length}")]
    InvalidLength {
        /// Base offset field, as found.
        base_offset: i64,
        /// Length field, as found.
        length: i32,
    },
    /// Message format v0 or v1.
    #[error("message format v{magic} at offset {offset}: only v2 is supported")]
    OldFormat {
        /// 0 or 1.
        magic: i8,
        /// Offset field.
        offset: i64,
    },
    /// A magic byte no Kafka writes.
    #[error("unknown magic {magic} at offset {base_offset}")]
    UnknownMagic {
        /// The byte.
        magic: i8,
        /// Base offset field.
        base_offset: i64,
    },
    /// Negative or overflowing offsets, or a negative record count.
    #[error(
        "batch has impossible offsets: base {base_offset}, last delta {last_offset_delta}, count {record_count}"
    )]
    InvalidOffsets {
        /// Base offset field.
        base_offset: i64,
        /// Last offset delta field.
        last_offset_delta: i32,
        /// Record count field.
        record_count: i32,
    },
    /// A leader epoch below −1.
    #[error("batch at offset {base_offset} has impossible leader epoch {epoch}")]
    InvalidLeaderEpoch {
        /// Base offset.
        base_offset: i64,
        /// Leader epoch field.
        epoch: i32,
    },
    /// The checksum does not fit the bytes.
    #[error(
        "batch at offset {base_offset} fails its CRC: stored {stored:#010x}, computed {computed:#010x}"
    )]
    CrcMismatch {
        /// Base offset.
        base_offset: i64,
        /// CRC field.
        stored: u32,
        /// CRC of the bytes.
        computed: u32,
    },
    /// Compression bits 5–7.
    #[error("unknown compression type {0}")]
    UnknownCompression(u8),
    /// The compressed bytes are damaged.
    #[error("cannot decompress {codec:?} data: {reason}")]
    Decompress {
        /// Codec named in the header.
        codec: Compression,
        /// What the codec said.
        reason: String,
    },
    /// Decompressed data would exceed the cap.
    #[error("decompressed data exceeds {limit} bytes")]
    TooLarge {
        /// The cap in bytes.
        limit: usize,
    },
    /// Compressing failed (never seen with in-memory output; kept typed).
    #[error("cannot compress with {codec:?}: {reason}")]
    Compress {
        /// Codec.
        codec: Compression,
        /// What the codec said.
        reason: String,
    },
    /// A record inside the batch is malformed.
    #[error("malformed record {index}: {reason}")]
    InvalidRecord {
        /// Index in the batch.
        index: i32,
        /// What is wrong.
        reason: &'static str,
    },
    /// The one who ran the reading wanted no more of it.
    #[error("reading of compressed records was stopped")]
    Stopped,
    /// A producer's batch breaks a rule of its header.
    #[error("batch refused: {0}")]
    InvalidBatch(&'static str),
    /// A producer says that the timestamps are the broker's.
    #[error("a producer may not set the timestamp type LogAppendTime")]
    ProducerAppendTime,
    /// A record's timestamp is outside what the topic takes.
    #[error("record {index} has timestamp {timestamp}, which is outside {oldest} to {newest}")]
    TimestampOutOfRange {
        /// Index in the batch.
        index: i32,
        /// Its timestamp, epoch milliseconds.
        timestamp: i64,
        /// Oldest that is taken.
        oldest: i64,
        /// Newest that is taken.
        newest: i64,
    },
    /// A control record's key or value is malformed.
    #[error("malformed control record: {0}")]
    InvalidControl(&'static str),
}
