//! Why a server does not start, and the exit code each reason maps to.

use std::path::PathBuf;

use crate::config::ConfigError;

/// A start that failed. Every text is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Bad configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port of a listener is taken or cannot be bound.
    #[error(
        "cannot listen on {address} (listener {listener}): {source}; stop the other process or change `listeners`"
    )]
    Bind {
        /// Listener name.
        listener: String,
        /// HOST:PORT.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A log directory cannot be created or written.
    #[error("log directory {} cannot be used: {reason}", path.display())]
    LogDir {
        /// The directory.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Another process holds a log directory.
    #[error("log directory {} is locked by another process; stop it, or give this one another `log.dirs`", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A directory is not formatted, or belongs to another cluster or node.
    #[error("log directory {}: {reason}", path.display())]
    Format {
        /// The directory.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Data that cannot be recovered without losing something.
    #[error("{what} is damaged: {reason}")]
    Corrupt {
        /// File or directory.
        what: String,
        /// What was found.
        reason: String,
    },
    /// A room failed to start for another reason.
    #[error("cannot start {room}: {reason}")]
    Room {
        /// Which room.
        room: &'static str,
        /// Why.
        reason: String,
    },
}

impl StartError {
    /// Process exit code: 1 = fix the configuration or the environment and start again; 2 = the
    /// data needs attention.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Corrupt { .. } => 2,
            _ => 1,
        }
    }
}
