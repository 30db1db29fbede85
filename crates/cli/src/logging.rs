//! Owns where log lines go and how they look: one line an event on standard error, as text or as
//! JSON.

use std::io::IsTerminal;

use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, layer::SubscriberExt as _, reload};

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

/// Sets up the log of the process. `level` holds unless the environment says otherwise; the levels
/// can be changed later. A second call changes nothing.
pub(crate) fn start(format: LogFormat, level: &str) {
    let named = std::env::var(FILTER_VARIABLE).ok();
    let named = named.filter(|text| EnvFilter::try_new(text).is_ok());
    let base = named.unwrap_or_else(|| level.to_owned());
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&base));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let outcome = match format {
        LogFormat::Text => Registry::default()
            .with(filter)
            .with(lines.with_ansi(std::io::stderr().is_terminal()))
            .try_init(),
        LogFormat::Json => Registry::default()
            .with(filter)
            .with(lines.json().flatten_event(true))
            .try_init(),
    };
    if outcome.is_ok() {
        tarn_server::log_levels::install(&base, move |filter| {
            let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
            handle.reload(filter).map_err(|error| error.to_string())
        });
    }
}
