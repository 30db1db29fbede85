//! What the log takes and gives: plain values without behaviour of their own.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::LogError;

/// Who appends through [`crate::PartitionLog::append_as_leader`]; decides which checks apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all limits, sequences, no control batches, exactly one batch.
    Client,
    /// A group or transaction coordinator: size limit and epoch fencing, control batches allowed,
    /// no sequence check.
    Coordinator,
    /// The broker itself (Raft log, markers of a mirror stop): as `Coordinator`, without the size
    /// limit.
    Internal,
}

/// What a leader append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendInfo {
    /// First offset (of the original append when `duplicate`).
    pub first_offset: i64,
    /// Last offset; wait for high watermark `last_offset + 1`.
    pub last_offset: i64,
    /// Largest timestamp in the batches, −1 when none.
    pub max_timestamp: i64,
    /// Time stamped by the broker when the topic uses LogAppendTime.
    pub log_append_time: Option<i64>,
    /// Log start offset at that moment.
    pub log_start_offset: i64,
    /// The batch was already in the log (idempotent retry): nothing was written.
    pub duplicate: bool,
    /// Bytes written.
    pub bytes: u64,
}

/// A range of one segment file, ready for sendfile. Bytes stay readable while the `Arc` is held,
/// also after retention removed the file; a truncation below `position + len` shortens it (replicas
/// only truncate above the high watermark).
#[derive(Debug, Clone)]
pub struct Slice {
    /// The segment's file.
    pub file: Arc<File>,
    /// First byte.
    pub position: u64,
    /// Number of bytes; may end inside a batch, except that the first batch is whole when `min_one`
    /// was asked.
    pub len: u64,
    /// Base offset of the first batch; can be below the offset asked for (and below the log start
    /// offset).
    pub first_batch_base_offset: i64,
    /// Size in bytes of the first batch.
    pub first_batch_size: u64,
}

impl Slice {
    /// Reads the range into memory (coordinators, TLS path, tests).
    pub fn read(&self) -> Result<Bytes, LogError> {
        let mut buf = vec![0u8; usize::try_from(self.len).unwrap_or(usize::MAX)];
        let n = crate::file::read_full(&self.file, &mut buf, self.position).map_err(|e| {
            LogError::Io {
                context: "cannot read",
                path: PathBuf::from("segment"),
                source: Arc::new(e),
            }
        })?;
        buf.truncate(n);
        Ok(Bytes::from(buf))
    }
}

/// One line of `leader-epoch-checkpoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// Leader epoch.
    pub epoch: i32,
    /// First offset written under it.
    pub start_offset: i64,
}

/// Answer of [`crate::PartitionLog::end_offset_for_epoch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// The largest epoch known that is ≤ the one asked for.
    pub epoch: i32,
    /// Offset after its last record.
    pub end_offset: i64,
}

/// Answer of the timestamp look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampAndOffset {
    /// Timestamp of the record found.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// Leader epoch of its batch.
    pub leader_epoch: i32,
}

/// One aborted transaction, as the Fetch answer wants it, with the extent the `.txnindex` keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Producer id.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
    /// Offset of the ABORT marker.
    pub last_offset: i64,
    /// Last stable offset once this transaction was decided.
    pub last_stable_offset: i64,
}

/// A transaction without a marker yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch as in the log.
    pub producer_epoch: i16,
    /// Coordinator epoch of the last marker of this producer, −1 when none was seen.
    pub coordinator_epoch: i32,
    /// First offset of the transaction.
    pub first_offset: i64,
    /// Timestamp of the producer's latest batch.
    pub last_timestamp: i64,
}

/// One producer as DescribeProducers shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Last sequence, −1 when none.
    pub last_sequence: i32,
    /// Timestamp of the latest batch.
    pub last_timestamp: i64,
    /// Coordinator epoch, −1 when none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub current_txn_start_offset: Option<i64>,
}

/// What a retention pass may go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionRule {
    /// `retention.ms`, `retention.bytes` and the log start.
    Configured,
    /// The log start alone: for a log whose beginning somebody else decides, such as a mirror's
    /// source.
    LogStart,
}

/// What one run of the cleaner did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanOutcome {
    /// Segments that were rewritten.
    pub segments_before: usize,
    /// Segments that were made of them.
    pub segments_after: usize,
    /// Bytes of the former.
    pub bytes_before: u64,
    /// Bytes of the latter.
    pub bytes_after: u64,
}

/// What one retention pass removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionOutcome {
    /// Segments removed.
    pub segments: usize,
    /// Bytes removed.
    pub bytes: u64,
    /// Time retention is held up by a segment whose newest record is dated in the future (this
    /// timestamp).
    pub blocked_by_future_timestamp: Option<i64>,
}
