//! `tarn server`: reads the configuration, runs one node, ends it in order on SIGTERM or Ctrl-C.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tarn_server::{Config, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logging::{self, LogFormat};

/// How long an orderly end may take before the process goes anyway, without the clean marker.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);
/// The node ended because something under it broke.
const EXIT_BROKEN: u8 = 3;

/// Arguments of `tarn server`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArguments {
    /// Kafka's server.properties.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A property that wins over the file; may repeat.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
    overrides: Vec<(String, String)>,
    /// Form of the log lines on standard error.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Splits `KEY=VALUE` at its first `=`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected KEY=VALUE".into()),
    }
}

/// Runs the command.
pub(crate) fn main(arguments: &ServerArguments) -> ExitCode {
    logging::start(arguments.log_format, "info");
    let config = match Config::load(Some(&arguments.config), &arguments.overrides) {
        Ok((config, warnings)) => {
            for warning in warnings {
                match warning.is_note {
                    true => tracing::info!("{}: {}", warning.location, warning.message),
                    false => tracing::warn!("{}: {}", warning.location, warning.message),
                }
            }
            config
        }
        Err(e) => {
            tracing::error!("{e}");
            return ExitCode::from(1);
        }
    };
    match crate::block_on_server(run(config)) {
        Ok(code) => code,
        Err(e) => {
            tracing::error!("{e}");
            ExitCode::from(1)
        }
    }
}

/// The two signals that ask for an end.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn requested(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

async fn run(config: Config) -> ExitCode {
    let mut stop = match Stop::listen() {
        Ok(stop) => stop,
        Err(e) => {
            tracing::error!("cannot listen for signals: {e}");
            return ExitCode::from(1);
        }
    };
    let started = tokio::select! {
        started = Server::start(config) => started,
        name = stop.requested() => {
            tracing::info!("{name} before the start was complete: stopping");
            return ExitCode::SUCCESS;
        }
    };
    let server = match started {
        Ok(server) => server,
        Err(e) => {
            tracing::error!("{e}");
            return ExitCode::from(e.exit_code());
        }
    };
    let broken = tokio::select! {
        name = stop.requested() => {
            tracing::info!("{name}: stopping");
            None
        }
        reason = server.failed() => Some(reason),
    };
    if let Some(reason) = &broken {
        tracing::error!("stopping: {reason}");
    }
    let clean = tokio::select! {
        report = server.shutdown() => report.clean,
        name = stop.requested() => {
            tracing::warn!("second {name}: gone without the clean-shutdown marker");
            return ExitCode::from(EXIT_BROKEN);
        }
        () = tokio::time::sleep(SHUTDOWN_LIMIT) => false,
    };
    if !clean {
        tracing::warn!("stopped without the clean-shutdown marker; the next start checks the logs");
    }
    if broken.is_some() || !clean {
        ExitCode::from(EXIT_BROKEN)
    } else {
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn override_is_split_at_the_first_equals_sign() {
        assert_eq!(key_value("a.b=c=d"), Ok(("a.b".into(), "c=d".into())));
        assert_eq!(key_value("a="), Ok(("a".into(), String::new())));
        assert!(key_value("=x").is_err() && key_value("x").is_err());
    }
}
