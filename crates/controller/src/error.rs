//! Errors of this room: what callers get ([`ApiError`], a Kafka code with a text) and what stops
//! the controller ([`ControllerError`]).
//!
//! Owns the one mapping of the latter to the former.

use std::path::PathBuf;
use std::sync::Arc;

use tarn_log::LogError;
use tarn_metadata::{InvalidConfig, MetadataError};
use tarn_raft::RaftError;
use tarn_wire::{ErrorCode, Str};

/// A refusal with the code and the text that the client gets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Kafka's error code.
    pub code: ErrorCode,
    /// One sentence that says what to do.
    pub message: String,
}

impl ApiError {
    /// A refusal.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The text for a nullable message field.
    pub fn text(&self) -> Option<Str> {
        Some(Str::from(self.message.as_str()))
    }
}

impl From<InvalidConfig> for ApiError {
    fn from(error: InvalidConfig) -> Self {
        Self::new(ErrorCode::INVALID_CONFIG, error.to_string())
    }
}

impl From<MetadataError> for ApiError {
    fn from(error: MetadataError) -> Self {
        Self::new(ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string())
    }
}

impl From<ControllerError> for ApiError {
    fn from(error: ControllerError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// What keeps the controller from starting or going on. Cheap to clone: one failed write is told to
/// every waiter.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// It stopped after a failed write, or what it read contradicts what it knows; only a restart
    /// helps.
    #[error("controller halted: {0}")]
    Halted(Arc<str>),
    /// It was shut down.
    #[error("controller is shut down")]
    ShutDown,
    /// Another node leads the quorum, or none does yet.
    #[error("this node does not lead the metadata quorum (epoch {epoch}, leader {leader})")]
    NotLeader {
        /// Present epoch.
        epoch: i32,
        /// Its leader, −1 if unknown.
        leader: i32,
    },
    /// One decision produced more records than a transaction may hold.
    #[error(
        "{name} would write {records} metadata records, at most {max} are allowed: split the request"
    )]
    TooManyRecords {
        /// The decision.
        name: &'static str,
        /// What it wanted.
        records: usize,
        /// The limit.
        max: usize,
    },
    /// The metadata log failed.
    #[error("metadata log: {0}")]
    Log(#[from] LogError),
    /// A record does not make sense.
    #[error("metadata log: {0}")]
    Metadata(#[from] MetadataError),
    /// A batch does not make sense.
    #[error("metadata log: {0}")]
    Batch(#[from] tarn_records::RecordsError),
    /// The quorum cannot be joined.
    #[error("metadata quorum: {0}")]
    Raft(#[from] RaftError),
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },
    /// A file does not hold what it must hold.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
}

impl ControllerError {
    /// Whether only room is missing.
    pub(crate) fn is_no_space(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Log(LogError::NoSpace { .. }) => true,
            Self::File { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded),
            _ => false,
        }
    }

    /// Kafka's code for a caller.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotLeader { .. } | Self::ShutDown => ErrorCode::NOT_CONTROLLER,
            Self::TooManyRecords { .. } => ErrorCode::POLICY_VIOLATION,
            Self::Halted(_) | Self::Log(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            _ => ErrorCode::UNKNOWN_SERVER_ERROR,
        }
    }

    pub(crate) fn file(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File {
            what,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }
}
