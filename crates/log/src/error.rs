//! The one error type of this room. Mapping to Kafka error codes is done by the rooms that answer
//! clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_records::RecordsError;

use crate::descriptors::is_shortage;

/// Why a log operation was refused or failed. Cheap to clone: one failed fsync is told to many
/// waiters.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The offset is outside `log_start ..= log_end` (OFFSET_OUT_OF_RANGE).
    #[error("offset {offset} is outside the log, which holds {log_start} to {log_end}")]
    OffsetOutOfRange {
        /// Offset asked for.
        offset: i64,
        /// First offset that can be read.
        log_start: i64,
        /// Offset after the last record.
        log_end: i64,
    },
    /// The bytes are not a good batch (CORRUPT_MESSAGE); says which rule failed.
    #[error("batch refused: {0}")]
    BadBatch(#[from] RecordsError),
    /// A batch of message format v0 or v1, which no Kafka ≥ 4 writes and whose epochs cannot be
    /// followed.
    #[error(
        "batch at offset {offset} has message format v{magic}, only v2 is stored: convert the topic at its source"
    )]
    OldFormat {
        /// Offset in the old header.
        offset: i64,
        /// 0 or 1.
        magic: i8,
    },
    /// A mirrored batch starts below the log end.
    #[error("batch starts at offset {base_offset}, below the log end {log_end}")]
    NotContinuous {
        /// Base offset of the refused batch.
        base_offset: i64,
        /// Log end offset at that moment.
        log_end: i64,
    },
    /// `mirror_append(expected)` was opened with an offset that is not the log end.
    #[error("append expected log end {expected}, but it is {log_end}")]
    UnexpectedLogEnd {
        /// What the caller believed.
        expected: i64,
        /// What it is.
        log_end: i64,
    },
    /// A mirrored batch carries a lower leader epoch than the log already holds, or an epoch below
    /// −1.
    #[error(
        "batch at offset {offset} has leader epoch {epoch}, the log already has epoch {latest}"
    )]
    EpochBackwards {
        /// Base offset of the batch.
        offset: i64,
        /// Its leader epoch.
        epoch: i32,
        /// Latest epoch in the log (−1: none).
        latest: i32,
    },
    /// A mirrored batch carries a leader epoch above the one its sender leads with.
    #[error(
        "batch at offset {offset} has leader epoch {epoch}, above epoch {claimed} of the leader that sent it"
    )]
    EpochBeyondClaim {
        /// Base offset of the batch.
        offset: i64,
        /// Its leader epoch.
        epoch: i32,
        /// The highest that its sender may use.
        claimed: i32,
    },
    /// This mirror append was overtaken by a truncation, another append or a close; start a new
    /// one.
    #[error("mirror append was overtaken by another writer, start it again at the log end")]
    Superseded,
    /// One batch is above `max.message.bytes` (MESSAGE_TOO_LARGE).
    #[error("batch of {size} bytes is above max.message.bytes={max}")]
    BatchTooLarge {
        /// Whole batch size in bytes.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// A leader append larger than a segment (RECORD_LIST_TOO_LARGE).
    #[error("append of {size} bytes is above segment.bytes={max}")]
    AppendTooLarge {
        /// Size of the append in bytes.
        size: usize,
        /// Segment size.
        max: usize,
    },
    /// A rule of the produce path is broken (INVALID_RECORD).
    #[error("record refused: {0}")]
    InvalidRecord(String),
    /// A timestamp outside the allowed range, or of the wrong type (INVALID_TIMESTAMP).
    #[error("timestamp refused: {0}")]
    InvalidTimestamp(String),
    /// Sequence gap or replay outside the last five batches (OUT_OF_ORDER_SEQUENCE_NUMBER).
    #[error("producer {producer_id}: sequence {got} does not follow {last} at epoch {epoch}")]
    OutOfOrderSequence {
        /// Producer id.
        producer_id: i64,
        /// Epoch of the refused batch.
        epoch: i16,
        /// Last sequence known (−1: none).
        last: i32,
        /// First sequence of the refused batch.
        got: i32,
    },
    /// The producer was fenced by a newer epoch (INVALID_PRODUCER_EPOCH).
    #[error("producer {producer_id}: epoch {got} is older than {current}")]
    InvalidProducerEpoch {
        /// Producer id.
        producer_id: i64,
        /// Epoch of the refused batch or marker.
        got: i16,
        /// Newest epoch known.
        current: i16,
    },
    /// A non-transactional batch inside an open transaction (INVALID_TXN_STATE).
    #[error("producer {producer_id}: {reason}")]
    InvalidTxnState {
        /// Producer id.
        producer_id: i64,
        /// What is wrong.
        reason: String,
    },
    /// A marker of an older transaction coordinator (TRANSACTION_COORDINATOR_FENCED).
    #[error("marker of producer {producer_id} has coordinator epoch {got}, older than {current}")]
    CoordinatorFenced {
        /// Producer id.
        producer_id: i64,
        /// Coordinator epoch of the refused marker.
        got: i32,
        /// Newest coordinator epoch known.
        current: i32,
    },
    /// No room left on the device. Nothing of the append was kept; the log stays usable.
    #[error("no space left for {}: free some or shorten retention", path.display())]
    NoSpace {
        /// File being written.
        path: PathBuf,
    },
    /// Descriptors or memory were short at that moment. Nothing was changed; the directory is not
    /// to blame, and the same call works once others have given theirs back.
    #[error("cannot {what} {}: {reason}; try again, or raise the limit of open files", path.display())]
    Shortage {
        /// What was being done.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        reason: Arc<str>,
    },
    /// The disk of the directory has not answered for a while; it may again.
    #[error("the disk of log directory {} does not answer: try again later", dir.display())]
    Stalled {
        /// The directory.
        dir: PathBuf,
    },
    /// Batches that each would need a segment of their own come faster than segments may be made.
    #[error(
        "batch at offset {offset} needs a new segment, and this partition made {burst} early ones already: try again in {wait_ms} ms"
    )]
    RollsTooFast {
        /// First offset of the batch.
        offset: i64,
        /// Early segments that may be made at once.
        burst: u32,
        /// When the next one may be made.
        wait_ms: i64,
    },
    /// The log directory is offline after an I/O error (KAFKA_STORAGE_ERROR); sticky until restart.
    #[error("log directory {} is offline: {reason}", dir.display())]
    Offline {
        /// The directory.
        dir: PathBuf,
        /// First failure.
        reason: Arc<str>,
    },
    /// Reading failed; the directory is not taken offline for it.
    #[error("{context} {}: {source}", path.display())]
    Io {
        /// What was being done.
        context: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },
    /// Damage in a part of the log that had been synced: never cut silently, an operator must
    /// decide.
    #[error("{} is damaged at byte {position} (offset about {offset}): {reason}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Byte position in it.
        position: u64,
        /// Nearest known offset.
        offset: i64,
        /// What is wrong there.
        reason: String,
    },
    /// What was on disk is not there any more. Never taken for empty: an operator must decide.
    #[error("{}: {reason}", path.display())]
    Missing {
        /// The folder or file.
        path: PathBuf,
        /// What proves that it was there, and what to do.
        reason: String,
    },
    /// A file of the directory does not have the content it must have.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An index is not what was written. The log may well be:
    /// [`crate::PartitionLog::with_right_indexes`] rebuilds it.
    #[error("{} is missing or wrong, it has to be rebuilt", path.display())]
    WrongIndex {
        /// The index.
        path: PathBuf,
    },
    /// Another process holds the directory.
    #[error("log directory {} is in use by another process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The log was closed or deleted.
    #[error("log of {topic_partition} is closed")]
    Closed {
        /// `topic-partition`.
        topic_partition: String,
    },
}

impl LogError {
    /// A shortage while `what` was done.
    pub(crate) fn shortage(what: &'static str, path: &Path, e: &io::Error) -> LogError {
        LogError::Shortage {
            what,
            path: path.to_path_buf(),
            reason: e.to_string().into(),
        }
    }
    /// Why a read failed.
    pub(crate) fn reading(context: &'static str, path: &Path, e: io::Error) -> LogError {
        if is_shortage(&e) {
            return LogError::shortage("read", path, &e);
        }
        LogError::Io {
            context,
            path: path.to_path_buf(),
            source: Arc::new(e),
        }
    }
    /// Whether the same call may work in a moment, without anybody's doing, and nothing is lost by
    /// it.
    pub fn is_shortage(&self) -> bool {
        matches!(self, LogError::Shortage { .. } | LogError::NoSpace { .. })
    }
}
