//! Owns where log lines go and how they look: one line an event on standard error, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Environment variable with a filter such as `info,tarn_mirror=debug`.
const FILTER_VARIABLE: &str = "TARN_LOG";

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sets up the log of the process. `level` holds unless the environment says otherwise. A second call changes nothing.
pub(crate) fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let outcome = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(outcome);
}
