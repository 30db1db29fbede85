//! Why a coordinator did not serve a request, and the one mapping to Kafka's error codes.

use tarn_wire::ErrorCode;

/// Why the coordinator of a partition could not serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// This broker does not lead the partition (or just lost it).
    #[error(
        "this broker does not coordinate partition {partition} of {topic}, look up the coordinator again"
    )]
    NotCoordinator {
        /// The internal topic.
        topic: String,
        /// Its partition.
        partition: i32,
    },
    /// The partition is being replayed.
    #[error("partition {partition} of {topic} is still loading, retry")]
    Loading {
        /// The internal topic.
        topic: String,
        /// Its partition.
        partition: i32,
    },
    /// The internal topic does not exist (yet), or its creation failed.
    #[error("{topic} is not available: {reason}")]
    Unavailable {
        /// The internal topic.
        topic: String,
        /// What is missing.
        reason: String,
    },
    /// The queue of the partition is full.
    #[error("too many requests wait for partition {partition} of {topic}, retry")]
    Overloaded {
        /// The internal topic.
        topic: String,
        /// Its partition.
        partition: i32,
    },
    /// The records did not become durable in time; whether they will is not known.
    #[error("no durable answer from partition {partition} of {topic} in time, retry")]
    Timeout {
        /// The internal topic.
        topic: String,
        /// Its partition.
        partition: i32,
    },
    /// Reading or writing the internal topic failed.
    #[error("the log of the internal topic failed: {0}")]
    Log(String),
}

impl CoordinatorError {
    /// Kafka's code for it; every one of them is retriable for clients.
    pub fn code(&self) -> ErrorCode {
        match self {
            CoordinatorError::NotCoordinator { .. } => ErrorCode::NOT_COORDINATOR,
            CoordinatorError::Loading { .. } => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            CoordinatorError::Unavailable { .. }
            | CoordinatorError::Overloaded { .. }
            | CoordinatorError::Timeout { .. }
            | CoordinatorError::Log(_) => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        }
    }
}
