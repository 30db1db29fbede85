//! Why a command fails, with its exit code. Texts are complete lines for standard error.

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The command line is wrong; the text is followed by the usage of the tool.
    #[error("{0}")]
    Usage(String),
    /// Anything else that ends with exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Some topics of the command failed; each has been named on standard error already.
    #[error("")]
    Partly,
    /// The change was accepted, but not everything reached the target state in time.
    #[error("{0}")]
    TimedOut(String),
}

impl CliError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::TimedOut(_) => 2,
            _ => 1,
        }
    }
}
