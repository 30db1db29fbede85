//! One partition's log: offsets, epochs, producers, transactions and limits over the segments below.
//!
//! Implements Kafka's produce-path rules (KIP-98, KIP-101, KIP-107, KIP-74 reads). Does not know replicas, leadership
//! or who may write: the replica room decides that before calling.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::{LogConfig, LogError, MirrorAppend, OpenOptions};

/// Who appends through [`PartitionLog::append_as_leader`]; decides which checks apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all limits, sequences, no control batches, exactly one batch.
    Client,
    /// A group or transaction coordinator: size limit and epoch fencing, control batches allowed, no sequence check.
    Coordinator,
    /// The broker itself (Raft log, markers of a mirror stop): as `Coordinator`, without the size limit.
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

/// A range of one segment file, ready for sendfile. Bytes stay readable while the `Arc` is held, also after retention
/// removed the file; a truncation below `position + len` shortens it (replicas only truncate above the high watermark).
#[derive(Debug, Clone)]
pub struct Slice {
    /// The segment's file.
    pub file: Arc<File>,
    /// First byte.
    pub position: u64,
    /// Number of bytes; may end inside a batch, except that the first batch is whole when `min_one` was asked.
    pub len: u64,
    /// Base offset of the first batch; can be below the offset asked for (and below the log start offset).
    pub first_batch_base_offset: i64,
    /// Size in bytes of the first batch.
    pub first_batch_size: u64,
}

impl Slice {
    /// Reads the range into memory (coordinators, TLS path, tests).
    pub fn read(&self) -> Result<Bytes, LogError> {
        panic!("not built yet: Slice::read")
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

/// Answer of [`PartitionLog::end_offset_for_epoch`].
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

/// What one retention pass removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionOutcome {
    /// Segments removed.
    pub segments: usize,
    /// Bytes removed.
    pub bytes: u64,
    /// Time retention is held up by a segment whose newest record is dated in the future (this timestamp).
    pub blocked_by_future_timestamp: Option<i64>,
}

/// One partition's log. Share it in an `Arc`; every method takes `&self`. One writer at a time (an inner lock); readers
/// never wait for it. Clamp and order rules are the invariants in the crate documentation.
#[derive(Debug)]
pub struct PartitionLog {
    dir: PathBuf,
}

impl PartitionLog {
    /// Opens the log in `dir` (named `<topic>-<partition>`). A directory that does not exist is an empty log and stays
    /// non-existent until the first append or until a start offset must be remembered. Recovers as `options` say.
    pub fn open(dir: &Path, config: LogConfig, options: OpenOptions) -> Result<Arc<PartitionLog>, LogError> {
        let _ = (dir, config, options);
        panic!("not built yet: PartitionLog::open")
    }
    /// Directory of this log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Topic name, from the directory name.
    pub fn topic(&self) -> &str {
        panic!("not built yet")
    }
    /// Partition index, from the directory name.
    pub fn partition(&self) -> i32 {
        panic!("not built yet")
    }
    /// Appends whole batches: assigns offsets and `leader_epoch` (and the time, for LogAppendTime) in place in `batches`,
    /// then one write. Duplicates of an idempotent producer answer with their old offsets and write nothing.
    /// Nothing is synced: wait with [`crate::Syncer::sync_upto`]. On any error nothing was appended.
    pub fn append_as_leader(
        &self,
        batches: &mut [u8],
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, LogError> {
        let _ = (batches, leader_epoch, origin, now_ms);
        panic!("not built yet")
    }
    /// Begins a verbatim append (mirror, follower) at the log end, which must be `expected_offset`. Bytes are pushed in
    /// pieces of any cut; see [`MirrorAppend`]. Only one is alive: a newer one, a leader append, a truncation or a close
    /// supersedes it.
    pub fn mirror_append(self: &Arc<Self>, expected_offset: i64, now_ms: i64) -> Result<MirrorAppend, LogError> {
        let _ = (expected_offset, now_ms);
        panic!("not built yet")
    }
    /// [`Self::mirror_append`] + one push + finish, for whole answers in memory (followers, tests).
    pub fn append_verbatim(
        self: &Arc<Self>,
        expected_offset: i64,
        batches: &[u8],
        now_ms: i64,
    ) -> Result<crate::MirrorAppendInfo, LogError> {
        let mut append = self.mirror_append(expected_offset, now_ms)?;
        append.push(batches)?;
        append.finish()
    }
    /// Finds the bytes from the batch that contains `offset` (or the first one after it, over gaps), never at or past
    /// `upper_offset` (high watermark, LSO or log end), at most `max_bytes`, within one segment. `min_one`: the first batch
    /// is given whole even when larger than `max_bytes` (KIP-74). `Ok(None)`: in range, nothing to read yet (or, without
    /// `min_one`, the first batch does not fit). Error `OffsetOutOfRange` outside `log_start ..= log_end`.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: u64,
        upper_offset: i64,
        min_one: bool,
    ) -> Result<Option<Slice>, LogError> {
        let _ = (offset, max_bytes, upper_offset, min_one);
        panic!("not built yet")
    }
    /// Offset after the last record.
    pub fn log_end_offset(&self) -> i64 {
        panic!("not built yet")
    }
    /// First offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        panic!("not built yet")
    }
    /// The high watermark.
    pub fn high_watermark(&self) -> i64 {
        panic!("not built yet")
    }
    /// Sets the high watermark, clamped into the log; gives the value set and whether it moved.
    pub fn set_high_watermark(&self, offset: i64) -> (i64, bool) {
        let _ = offset;
        panic!("not built yet")
    }
    /// min(high watermark, first offset of an undecided transaction).
    pub fn last_stable_offset(&self) -> i64 {
        panic!("not built yet")
    }
    /// Aborted transactions that touch `from .. to`, by `.txnindex`, in log order.
    pub fn aborted_transactions(&self, from: i64, to: i64) -> Result<Vec<AbortedTxn>, LogError> {
        let _ = (from, to);
        panic!("not built yet")
    }
    /// First record with timestamp ≥ `timestamp` (ListOffsets), also inside compressed batches.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<TimestampAndOffset>, LogError> {
        let _ = timestamp;
        panic!("not built yet")
    }
    /// The record with the largest timestamp (ListOffsets −3).
    pub fn max_timestamp(&self) -> Result<Option<TimestampAndOffset>, LogError> {
        panic!("not built yet")
    }
    /// Latest leader epoch in the epoch cache.
    pub fn latest_epoch(&self) -> Option<i32> {
        panic!("not built yet")
    }
    /// Whole epoch cache, ascending.
    pub fn epochs(&self) -> Vec<EpochEntry> {
        panic!("not built yet")
    }
    /// Epoch under which `offset` was written.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let _ = offset;
        panic!("not built yet")
    }
    /// OffsetForLeaderEpoch: the largest known epoch ≤ `epoch` and where it ends; `None` = unknown (above the latest,
    /// or the cache is empty).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<EpochEndOffset> {
        let _ = epoch;
        panic!("not built yet")
    }
    /// Notes in the epoch cache that `epoch` starts at the log end (a leader taking over an ordinary topic). Not for
    /// mirrored partitions. Older epochs are ignored.
    pub fn assign_leader_epoch(&self, epoch: i32) -> Result<(), LogError> {
        let _ = epoch;
        panic!("not built yet")
    }
    /// Drops every batch that has an offset ≥ `offset` (a batch that contains it is dropped whole). The new log end (the
    /// answer) is the end of the last batch kept, so it can be below `offset`. Below the log start: as
    /// [`Self::truncate_fully_and_start_at`]. Epochs, producers and transactions are rolled back too.
    pub fn truncate_to(&self, offset: i64) -> Result<i64, LogError> {
        let _ = offset;
        panic!("not built yet")
    }
    /// Drops everything; log start = log end = high watermark = `offset`.
    pub fn truncate_fully_and_start_at(&self, offset: i64) -> Result<(), LogError> {
        let _ = offset;
        panic!("not built yet")
    }
    /// Raises the log start offset (DeleteRecords, or a source's log start) up to the high watermark at most, and removes
    /// whole segments below. Gives the resulting log start offset. A lower value changes nothing.
    pub fn advance_log_start(&self, offset: i64) -> Result<i64, LogError> {
        let _ = offset;
        panic!("not built yet")
    }
    /// Removes old segments by `retention.ms`, `retention.bytes` and log start; never above the high watermark.
    pub fn retention(&self, now_ms: i64) -> Result<RetentionOutcome, LogError> {
        let _ = now_ms;
        panic!("not built yet")
    }
    /// Replaces the settings.
    pub fn update_config(&self, config: LogConfig) {
        let _ = config;
        panic!("not built yet")
    }
    /// Current settings.
    pub fn config(&self) -> Arc<LogConfig> {
        panic!("not built yet")
    }
    /// fdatasync of everything up to the log end at the time of the call; gives the new recovery point. A failure takes
    /// the directory offline. Does not hold the writer lock while it waits for the disk.
    pub fn flush(&self) -> Result<i64, LogError> {
        panic!("not built yet")
    }
    /// Everything below is on disk.
    pub fn recovery_point(&self) -> i64 {
        panic!("not built yet")
    }
    /// Bytes appended since the last flush.
    pub fn unflushed_bytes(&self) -> u64 {
        panic!("not built yet")
    }
    /// Flushes, writes the producer snapshot and closes; later writes answer `Closed`.
    pub fn close_clean(&self) -> Result<(), LogError> {
        panic!("not built yet")
    }
    /// Closes and removes: the directory is renamed to `<topic>-<partition>.<random>-delete` at once, then removed.
    pub fn delete(&self) -> Result<(), LogError> {
        panic!("not built yet")
    }
    /// Producers known, by id.
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        panic!("not built yet")
    }
    /// Transactions without a marker, by first offset.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        panic!("not built yet")
    }
    /// Forgets producers idle for `producer.id.expiration.ms`; those in a transaction stay. Gives the number removed.
    pub fn expire_producers(&self, now_ms: i64) -> usize {
        let _ = now_ms;
        panic!("not built yet")
    }
    /// Bytes of all `.log` files.
    pub fn size_bytes(&self) -> u64 {
        panic!("not built yet")
    }
    /// Number of segments (0 until the first append).
    pub fn segment_count(&self) -> usize {
        panic!("not built yet")
    }
    /// CRC check of every batch in `from .. to` (scrubbing; sendfile does not look at bodies). Error `Damaged` names the place.
    pub fn verify(&self, from: i64, to: i64) -> Result<(), LogError> {
        let _ = (from, to);
        panic!("not built yet")
    }
}
