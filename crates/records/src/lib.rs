//! Record batches of Kafka's message format v2 (KIP-98): viewed in place, checked, patched in the
//! two fields that may be patched, built, compressed and decompressed.
//!
//! Does no I/O, knows no topic and no log. Nothing here panics, whatever the bytes: every length is
//! checked before use and every decompression has an output cap. Formats v0/v1 are recognised and
//! refused with their own error.
//!
//! Progress over a log is measured in batches, never in records: the next offset is
//! [`BatchHeader::next_offset`], which holds for batches whose records were compacted away too.

mod arriving;
mod batch;
mod builder;
mod compression;
mod compressor;
mod control;
mod crc;
mod decoder;
mod error;
mod filter;
mod produced;
mod record;
mod varint;

pub use arriving::ArrivingHeader;
pub use batch::{
    BatchHeader, BatchView, Batches, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_OFFSET,
    NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, batches,
    patch_base_offset_and_leader_epoch, patch_create_time, patch_log_append_time,
    whole_batches_len,
};
pub use builder::BatchBuilder;
pub use compression::{Compression, DECOMPRESSED_BYTES_MAX_DEFAULT};
pub use compressor::Compressor;
pub use control::{
    ControlRecord, ControlType, EndTxnMarker, control_batch, control_key, end_transaction_marker,
    leader_change, mirror_pid_reset, mirror_pid_reset_value, parse_control_record,
    parse_mirror_pid_reset,
};
pub use crc::{Crc32c, crc32c};
pub use decoder::{PIECE_BYTES, StreamPace, Unpaced};
pub use error::RecordsError;
pub use filter::{KeyedRecord, OpenedBatch};
pub use produced::{RecordRules, one_batch};
pub use record::{Header, Record, RecordIter, records};
