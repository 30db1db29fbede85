//! The mirror tools: `kafka-mirrors.sh` and `kafka-cluster-mirrors.sh` over the same code.
//!
//! Parsing and checks ([`options`]), printing ([`report`]) and the words of errors ([`failure`])
//! are pure. [`destination`] speaks to the cluster, [`foreign`] does what clusters other than ours
//! leave to the tool, [`verbs`] puts them together.

mod destination;
mod failure;
mod foreign;
mod options;
mod patterns;
mod personality;
mod report;
mod verbs;

use std::process::ExitCode;
use std::time::Duration;

use options::{Options, Parsed};
pub use personality::{CalledAs, Personality};
pub(crate) use report::{PartitionRow, describe_table};

use crate::{CliError, KAFKA_VERSION};

/// Limit of a whole command, the time of `--wait` not counted.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Runs a mirror tool with its arguments (without the program name).
#[must_use]
pub fn main(personality: Personality, called_as: CalledAs, arguments: Vec<String>) -> ExitCode {
    let script_code = u8::from(called_as == CalledAs::Script);
    match options::parse(personality, &arguments) {
        Ok(Parsed::Nothing) => {
            eprint!("{}\n{}", personality.no_arguments(), options::usage());
            ExitCode::from(1)
        }
        Ok(Parsed::Help) if called_as == CalledAs::Tarn => {
            print!("{}\n{}", personality.help(), options::usage());
            ExitCode::SUCCESS
        }
        Ok(Parsed::Help) => {
            eprint!("{}\n{}", personality.help(), options::usage());
            ExitCode::from(script_code)
        }
        Ok(Parsed::Version) => {
            println!("{KAFKA_VERSION} (tarn {})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Parsed::Run(options)) => {
            finish(crate::block_on(run(personality, &options)).and_then(|outcome| outcome))
        }
        Err(e) => finish(Err(e)),
    }
}

fn finish(outcome: Result<(), CliError>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    match &error {
        CliError::Partly => {}
        CliError::Usage(text) => eprint!("{text}\n{}", options::usage()),
        other => eprintln!("{other}"),
    }
    ExitCode::from(error.exit_code())
}

/// Runs one command line inside a running program; prints its result.
///
/// # Errors
/// As the tool would exit.
pub(crate) async fn run_line(
    personality: Personality,
    arguments: &[String],
) -> Result<(), CliError> {
    match options::parse(personality, arguments)? {
        Parsed::Run(options) => run(personality, &options).await,
        _ => Err(CliError::Usage(personality.one_action().into())),
    }
}

/// The partitions of one mirror.
///
/// # Errors
/// The cluster cannot be reached or refuses.
pub(crate) async fn describe(bootstrap: &str, mirror: &str) -> Result<Vec<PartitionRow>, CliError> {
    Ok(
        destination::Destination::connect(bootstrap, failure::Dialect::Early)
            .await?
            .describe(Some(mirror))
            .await?
            .rows,
    )
}

async fn run(personality: Personality, options: &Options) -> Result<(), CliError> {
    if options.verbose {
        crate::logging::start(crate::logging::LogFormat::Text, "debug");
    }
    let limit = COMMAND_LIMIT + options.wait.unwrap_or_default();
    tokio::time::timeout(limit, verbs::run(personality, options))
        .await
        .unwrap_or_else(|_| {
            Err(CliError::Failed(format!(
                "the cluster did not answer within {} s",
                limit.as_secs()
            )))
        })
}
