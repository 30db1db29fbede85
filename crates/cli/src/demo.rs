//! `tarn demo`, the body of the quickstart: a source and a destination in one process on loopback,
//! sample topics with a live producer, a mirror, and its describe table until Ctrl-C. With
//! `--source` the user's own Kafka is the source.
//!
//! Nothing here is special to the demo's servers: they are configured by Kafka's keys, and the
//! mirror is made with the tools' own code.

mod load;
mod node;
mod screen;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::CliError;
use crate::logging::{self, LogFormat};
use crate::mirrors::{self, PartitionRow, Personality};
use load::Load;
use node::Node;

const MIRROR: &str = "demo";
/// The sample topics and their partitions.
const TOPICS: [(&str, i32); 3] = [("clicks", 2), ("orders", 3), ("payments", 1)];
const REDRAW: Duration = Duration::from_millis(500);
/// With `--once`: how long the producer writes beside the running mirror.
const ONCE_LIVE: Duration = Duration::from_secs(3);
/// With `--once`: how long the mirror may take to reach lag 0.
const ONCE_LIMIT: Duration = Duration::from_secs(120);

/// Arguments of `tarn demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArguments {
    /// Print the table once the lag is 0 and exit.
    #[arg(long)]
    once: bool,
    /// Mirror from this Kafka instead of an embedded source.
    #[arg(long, value_name = "HOST:PORT")]
    source: Option<String>,
    /// With --source: which topics, a name or a regular expression.
    #[arg(long, value_name = "REGEX", default_value = ".*")]
    topic: String,
}

/// Runs the command.
pub(crate) fn main(arguments: &DemoArguments) -> ExitCode {
    logging::start(LogFormat::Text, "error");
    match crate::block_on(run(arguments)).and_then(|outcome| outcome) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.exit_code())
        }
    }
}

async fn run(arguments: &DemoArguments) -> Result<(), CliError> {
    let own_source = match arguments.source {
        None => Some(Node::start("source").await?),
        Some(_) => None,
    };
    let destination = Node::start("destination").await?;
    let outcome = show(arguments, own_source.as_ref(), &destination).await;
    destination.stop().await;
    if let Some(source) = own_source {
        source.stop().await;
    }
    outcome
}

async fn show(
    arguments: &DemoArguments,
    own_source: Option<&Node>,
    destination: &Node,
) -> Result<(), CliError> {
    let (source, load, pattern) = match own_source {
        Some(node) => {
            println!(
                "An embedded source listens on {}, an embedded destination on {}.",
                node.address(),
                destination.address()
            );
            (
                node.address(),
                Some(Load::start(&node.address(), &TOPICS).await?),
                ".*",
            )
        }
        None => {
            println!(
                "An embedded destination listens on {}.",
                destination.address()
            );
            (
                arguments.source.clone().unwrap_or_default(),
                None,
                arguments.topic.as_str(),
            )
        }
    };
    create_mirror(&source, destination, pattern).await?;
    let view = View {
        mirror_address: destination.address(),
        source,
        load,
    };
    if arguments.once {
        view.once().await
    } else {
        view.live().await
    }
}

/// The first two commands of the walk-through, shown as a person would type them and run by the
/// tool's own code.
async fn create_mirror(source: &str, destination: &Node, pattern: &str) -> Result<(), CliError> {
    let file = destination.dir().join("source.properties");
    std::fs::write(&file, format!("bootstrap.servers={source}\n"))
        .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", file.display())))?;
    let bootstrap = destination.address();
    tool(
        &bootstrap,
        &[
            "--create",
            "--mirror",
            MIRROR,
            "--mirror-config",
            &file.display().to_string(),
        ],
    )
    .await?;
    tool(
        &bootstrap,
        &["--add", "--mirror", MIRROR, "--topic", pattern],
    )
    .await
}

async fn tool(bootstrap: &str, arguments: &[&str]) -> Result<(), CliError> {
    let shown: Vec<String> = arguments
        .iter()
        .map(|a| {
            if a.contains(['*', '|']) {
                format!("'{a}'")
            } else {
                (*a).to_owned()
            }
        })
        .collect();
    println!(
        "\n$ bin/kafka-mirrors.sh --bootstrap-server {bootstrap} {}",
        shown.join(" ")
    );
    let mut full = vec!["--bootstrap-server".to_owned(), bootstrap.to_owned()];
    full.extend(arguments.iter().map(|a| (*a).to_owned()));
    mirrors::run_line(Personality::Mirrors, &full).await
}

/// What is on show.
struct View {
    mirror_address: String,
    source: String,
    load: Option<Load>,
}

impl View {
    /// Redraws until Ctrl-C or SIGTERM.
    async fn live(mut self) -> Result<(), CliError> {
        let listen = |kind| {
            signal(kind).map_err(|e| CliError::Failed(format!("cannot listen for signals: {e}")))
        };
        let (mut interrupt, mut terminate) = (
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
        );
        let mut screen = screen::Screen::new();
        let mut ticks = tokio::time::interval(REDRAW);
        loop {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = ticks.tick() => {}
            }
            let rows = mirrors::describe(&self.mirror_address, MIRROR).await?;
            let produced = self.load.as_ref().map(Load::produced);
            screen.draw(
                &rows,
                produced,
                &screen::next_steps(&self.mirror_address, first_topic(&rows)),
            );
        }
        if let Some(load) = &mut self.load {
            load.stop().await;
        }
        println!(
            "\nStopped. Both embedded brokers and their data are gone with this process; start again with bin/quickstart.sh."
        );
        Ok(())
    }

    /// Waits for lag 0, prints the table, and says what to try.
    async fn once(mut self) -> Result<(), CliError> {
        let mut produced = None;
        if let Some(load) = &mut self.load {
            tokio::time::sleep(ONCE_LIVE).await;
            load.stop().await;
            load.check()?;
            produced = Some(load.produced());
        }
        let deadline = Instant::now() + ONCE_LIMIT;
        let rows = loop {
            let rows = mirrors::describe(&self.mirror_address, MIRROR).await?;
            if caught_up(&rows, produced) {
                break rows;
            }
            if Instant::now() > deadline {
                eprint!("{}", mirrors::describe_table(Personality::Mirrors, &rows));
                return Err(CliError::Failed(format!(
                    "the mirror of {} did not reach lag 0 within {} s",
                    self.source,
                    ONCE_LIMIT.as_secs()
                )));
            }
            tokio::time::sleep(REDRAW).await;
        };
        println!(
            "\n$ bin/kafka-mirrors.sh --bootstrap-server {} --describe --mirror {MIRROR}",
            self.mirror_address
        );
        print!("{}", mirrors::describe_table(Personality::Mirrors, &rows));
        println!("\nWhile bin/quickstart.sh runs without --once, try in another terminal:");
        print!(
            "{}",
            screen::next_steps(&self.mirror_address, first_topic(&rows))
        );
        Ok(())
    }
}

fn first_topic(rows: &[PartitionRow]) -> &str {
    rows.iter()
        .find(|r| r.destination_offset > 0)
        .or(rows.first())
        .map_or("orders", |r| r.topic.as_str())
}

/// Every partition mirrors with lag 0, and, when we know how much was written, all of it has
/// arrived.
fn caught_up(rows: &[PartitionRow], produced: Option<u64>) -> bool {
    let arrived: i64 = rows.iter().map(|r| r.destination_offset.max(0)).sum();
    !rows.is_empty()
        && rows.iter().all(|r| r.state == "MIRRORING" && r.lag == 0)
        && produced.is_none_or(|n| u64::try_from(arrived).is_ok_and(|a| a >= n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: &str, destination_offset: i64, lag: i64) -> PartitionRow {
        PartitionRow {
            mirror: MIRROR.into(),
            topic: "t".into(),
            partition: 0,
            source_offset: destination_offset + lag,
            destination_offset,
            lag,
            state: state.into(),
            last_mirror_epoch: -1,
            retry_attempt: 0,
            error_message: None,
            lag_ms: -1,
            leader: 1,
            desired_state: None,
            last_fetch_age_ms: 0,
            beyond: Default::default(),
        }
    }

    #[test]
    fn caught_up_needs_state_lag_and_everything_that_was_written() {
        assert!(!caught_up(&[], None));
        assert!(caught_up(&[row("MIRRORING", 5, 0)], None));
        assert!(!caught_up(
            &[row("MIRRORING", 5, 0), row("PREPARING", -1, -1)],
            None
        ));
        assert!(!caught_up(&[row("MIRRORING", 5, 1)], None));
        // Lag 0 of an old answer is not enough.
        assert!(!caught_up(&[row("MIRRORING", 5, 0)], Some(6)));
        assert!(caught_up(
            &[row("MIRRORING", 5, 0), row("MIRRORING", 1, 0)],
            Some(6)
        ));
    }
}
