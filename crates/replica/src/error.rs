//! Why a partition did not do what was asked, and the one mapping to Kafka's error codes.

use tarn_log::LogError;
use tarn_wire::{ErrorCode, Str};

/// Why a request on a partition was refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicaError {
    /// The topic or the partition is not in the metadata image.
    #[error("partition {partition} of {topic} does not exist")]
    UnknownPartition {
        /// Topic name, or the id when it was asked by id.
        topic: String,
        /// Partition index.
        partition: i32,
    },
    /// No topic has this id.
    #[error("no topic has the id {0}")]
    UnknownTopicId(tarn_wire::Uuid),
    /// The partition exists but this broker does not lead it (or has not opened it yet).
    #[error("this broker does not lead partition {partition} of {topic}, refresh metadata")]
    NotLeader {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
    },
    /// The caller's leader epoch is older than the partition's.
    #[error("leader epoch {given} is older than {current}, refresh metadata")]
    FencedEpoch {
        /// Epoch of the caller.
        given: i32,
        /// Epoch of the partition.
        current: i32,
    },
    /// The caller's leader epoch is newer than the partition's.
    #[error("leader epoch {given} is not known here yet, the partition has {current}")]
    UnknownEpoch {
        /// Epoch of the caller.
        given: i32,
        /// Epoch of the partition.
        current: i32,
    },
    /// The log already holds batches of a higher epoch than the partition leads with; an append
    /// would make epochs go backwards.
    #[error(
        "the log of {topic}-{partition} holds epoch {latest}, above leader epoch {current}: wait for the epoch to be raised"
    )]
    EpochBehindLog {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
        /// Latest epoch in the log.
        latest: i32,
        /// Leader epoch of the partition.
        current: i32,
    },
    /// The topic is a mirror topic and not stopped.
    #[error("topic {topic} is a read-only mirror of {mirror} ({state})")]
    ReadOnly {
        /// Topic name.
        topic: Str,
        /// Name of the mirror.
        mirror: Str,
        /// Actual state of the partition.
        state: Str,
    },
    /// A mirror append or cut on a partition that is not being mirrored.
    #[error("partition {partition} of {topic} takes no mirrored records ({state})")]
    NotMirroring {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
        /// What it is instead.
        state: Str,
    },
    /// The stop sequence appends control batches only.
    #[error(
        "only ABORT markers and producer resets may be appended to partition {partition} of {topic} while it is stopping"
    )]
    NotAMarker {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
    },
    /// A mirror append is in flight; the guard cannot be lifted under it.
    #[error(
        "a mirror append to partition {partition} of {topic} is in flight, stop fetching first"
    )]
    AppendInFlight {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
    },
    /// The request goes against the topic's settings.
    #[error("{0}")]
    Policy(String),
    /// The offset cannot be used.
    #[error("offset {offset} is out of range, the log holds {log_start} to {high_watermark}")]
    OffsetOutOfRange {
        /// Offset asked for.
        offset: i64,
        /// First offset that can be read.
        log_start: i64,
        /// High watermark.
        high_watermark: i64,
    },
    /// Fewer in-sync replicas than `min.insync.replicas`.
    #[error("{in_sync} replicas are in sync, {needed} are needed")]
    NotEnoughReplicas {
        /// In-sync replicas.
        in_sync: usize,
        /// Needed for acks=all.
        needed: usize,
    },
    /// `acks` is not −1, 0 or 1.
    #[error("acks must be -1, 0 or 1, not {0}")]
    InvalidAcks(i16),
    /// Durability was not reached in time; it may still be.
    #[error("the records did not become durable in time")]
    Timeout,
    /// The partition's log directory is offline, or its log could not be opened.
    #[error("partition {partition} of {topic} is offline: {reason}")]
    Offline {
        /// Topic name.
        topic: Str,
        /// Partition index.
        partition: i32,
        /// What happened to the directory.
        reason: String,
    },
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl ReplicaError {
    /// Kafka's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            ReplicaError::UnknownPartition { .. } => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ReplicaError::UnknownTopicId(_) => ErrorCode::UNKNOWN_TOPIC_ID,
            ReplicaError::NotLeader { .. } | ReplicaError::EpochBehindLog { .. } => {
                ErrorCode::NOT_LEADER_OR_FOLLOWER
            }
            ReplicaError::FencedEpoch { .. } => ErrorCode::FENCED_LEADER_EPOCH,
            ReplicaError::UnknownEpoch { .. } => ErrorCode::UNKNOWN_LEADER_EPOCH,
            ReplicaError::ReadOnly { .. } | ReplicaError::Policy(_) => ErrorCode::POLICY_VIOLATION,
            ReplicaError::NotMirroring { .. }
            | ReplicaError::NotAMarker { .. }
            | ReplicaError::AppendInFlight { .. } => ErrorCode::INVALID_REQUEST,
            ReplicaError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
            ReplicaError::NotEnoughReplicas { .. } => ErrorCode::NOT_ENOUGH_REPLICAS,
            ReplicaError::InvalidAcks(_) => ErrorCode::INVALID_REQUIRED_ACKS,
            ReplicaError::Timeout => ErrorCode::REQUEST_TIMED_OUT,
            ReplicaError::Offline { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
            ReplicaError::Log(error) => log_code(error),
        }
    }
}

/// Kafka's code for an error of the log.
fn log_code(error: &LogError) -> ErrorCode {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        LogError::BadBatch(_)
        | LogError::OldFormat { .. }
        | LogError::NotContinuous { .. }
        | LogError::EpochBeyondClaim { .. } => ErrorCode::CORRUPT_MESSAGE,
        LogError::BatchTooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
        LogError::AppendTooLarge { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
        LogError::InvalidRecord(_) => ErrorCode::INVALID_RECORD,
        LogError::InvalidTimestamp(_) => ErrorCode::INVALID_TIMESTAMP,
        LogError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        LogError::InvalidProducerEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        LogError::InvalidTxnState { .. } => ErrorCode::INVALID_TXN_STATE,
        LogError::CoordinatorFenced { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        LogError::NoSpace { .. }
        | LogError::Shortage { .. }
        | LogError::Stalled { .. }
        | LogError::RollsTooFast { .. }
        | LogError::Offline { .. }
        | LogError::Io { .. }
        | LogError::Damaged { .. }
        | LogError::BadFile { .. }
        | LogError::Missing { .. }
        | LogError::WrongIndex { .. }
        | LogError::Locked { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        // The partition is being deleted or the broker is stopping: the client finds out by
        // refreshing.
        LogError::Closed { .. } | LogError::Superseded => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}
