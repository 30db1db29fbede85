//! The `cli` room: the `tarn` program with its subcommands, and the two mirror tools that share it.
//!
//! It may use the server (to run one), the client (to talk to one) and the terminal. It owns words,
//! tables, exit codes and signals; it decides nothing about mirrors: the broker does. Parsing,
//! checks and printing are pure functions over text.
//!
//! Invariants: results on standard output, everything else on standard error; exit 0 only when all
//! that was asked was done.

pub mod demo;
mod error;
mod logging;
pub mod mirrors;
mod properties;
mod server;
mod storage;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use error::CliError;
use mirrors::{CalledAs, Personality};

/// The Kafka whose tools and protocol this program follows.
pub const KAFKA_VERSION: &str = "4.3.1";

/// Version line of the program.
const VERSION_TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), " (speaks Kafka 4.3)");

#[derive(Debug, Parser)]
#[command(name = "tarn", version = VERSION_TEXT, about = "A Kafka-compatible broker that mirrors other Kafka clusters")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker.
    Server(server::ServerArguments),
    /// Format log directories and look at them.
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// Create, fill, watch and fail over mirrors (kafka-mirrors.sh).
    #[command(disable_help_flag = true)]
    Mirrors(ToolArguments),
    /// The same with the words of kafka-cluster-mirrors.sh.
    #[command(disable_help_flag = true)]
    ClusterMirrors(ToolArguments),
    /// Show a mirror at work: an embedded source and destination with sample topics and a live
    /// producer.
    Demo(demo::DemoArguments),
}

/// Arguments of a mirror tool; the tool parses them itself, because its texts are Kafka's.
#[derive(Debug, clap::Args)]
struct ToolArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the program with `arguments` (the first is its own name) and gives its exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if let Some(personality) = arguments
        .first()
        .and_then(|name| personality_of(Path::new(name)))
    {
        return mirrors::main(personality, CalledAs::Script, text(&arguments[1..]));
    }
    match Arguments::parse_from(arguments).command {
        Command::Server(a) => server::main(&a),
        Command::Storage(c) => storage::main(c),
        Command::Mirrors(a) => {
            mirrors::main(Personality::Mirrors, CalledAs::Tarn, text(&a.arguments))
        }
        Command::ClusterMirrors(a) => mirrors::main(
            Personality::ClusterMirrors,
            CalledAs::Tarn,
            text(&a.arguments),
        ),
        Command::Demo(a) => demo::main(&a),
    }
}

/// Which mirror tool a program name stands for.
fn personality_of(name: &Path) -> Option<Personality> {
    match name.file_stem()?.to_str()? {
        "kafka-mirrors" => Some(Personality::Mirrors),
        "kafka-cluster-mirrors" => Some(Personality::ClusterMirrors),
        _ => None,
    }
}

fn text(arguments: &[OsString]) -> Vec<String> {
    arguments
        .iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect()
}

/// Runs a future on a fresh multi-threaded runtime.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CliError> {
    run_on(
        &mut tokio::runtime::Builder::new_multi_thread(),
        |_| (),
        future,
    )
}

/// As [`block_on`], with threads in reserve that stand in for those whose disk does not answer.
fn block_on_server<T>(future: impl Future<Output = T>) -> Result<T, CliError> {
    let spares = tarn_server::SpareWorkers::new();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    spares.prepare(&mut builder, || ());
    let closing = spares.clone();
    let future = async {
        let value = future.await;
        closing.close();
        value
    };
    run_on(&mut builder, |handle| spares.start(handle), future)
}

fn run_on<T>(
    builder: &mut tokio::runtime::Builder,
    begin: impl FnOnce(&tokio::runtime::Handle),
    future: impl Future<Output = T>,
) -> Result<T, CliError> {
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| CliError::Failed(format!("cannot start the runtime: {e}")))?;
    begin(runtime.handle());
    let value = runtime.block_on(future);
    // A name look-up that hangs in the system resolver must not keep the process alive.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_chooses_the_tool() {
        assert_eq!(
            personality_of(Path::new("/x/bin/kafka-mirrors.sh")),
            Some(Personality::Mirrors)
        );
        assert_eq!(
            personality_of(Path::new("kafka-cluster-mirrors.sh")),
            Some(Personality::ClusterMirrors)
        );
        assert_eq!(personality_of(Path::new("target/release/tarn")), None);
    }

    #[test]
    fn the_command_line_definition_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
