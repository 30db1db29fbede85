//! `tarn storage`: the words and flags of Kafka's StorageTool over the server room's formatting.

use std::path::PathBuf;
use std::process::ExitCode;

use tarn_server::{Config, storage};

/// Subcommands of `tarn storage`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum StorageCommand {
    /// Format the log directories of a configuration.
    Format {
        /// Cluster id, 22 characters (see random-uuid); all nodes of a cluster get the same.
        #[arg(short = 't', long, value_name = "ID")]
        cluster_id: String,
        /// Kafka's server.properties.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// Leave directories alone that are formatted already.
        #[arg(short = 'g', long)]
        ignore_formatted: bool,
        /// The node is the only voter of its controller quorum.
        #[arg(short, long)]
        standalone: bool,
    },
    /// Print a fresh cluster id.
    RandomUuid,
    /// Describe the log directories of a configuration.
    Info {
        /// Kafka's server.properties.
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn main(command: StorageCommand) -> ExitCode {
    match run(command) {
        Ok((text, code)) => {
            print!("{text}");
            ExitCode::from(code)
        }
        Err((text, code)) => {
            eprintln!("{text}");
            ExitCode::from(code)
        }
    }
}

type Said = (String, u8);

fn run(command: StorageCommand) -> Result<Said, Said> {
    match command {
        StorageCommand::RandomUuid => Ok((format!("{}\n", storage::random_cluster_id()), 0)),
        StorageCommand::Format {
            cluster_id,
            config,
            ignore_formatted,
            standalone: _,
        } => {
            let config = load(&config)?;
            let dirs = storage::format(&config, &cluster_id, ignore_formatted)
                .map_err(|e| (e.to_string(), e.exit_code()))?;
            Ok((formatted(&dirs), 0))
        }
        StorageCommand::Info { config } => Ok(described(&storage::info(&load(&config)?))),
    }
}

fn load(path: &std::path::Path) -> Result<Config, Said> {
    let (config, warnings) = Config::load(Some(path), &[]).map_err(|e| (e.to_string(), 1))?;
    for warning in warnings {
        eprintln!("{}: {}", warning.location, warning.message);
    }
    Ok(config)
}

fn formatted(dirs: &[storage::FormattedDir]) -> String {
    if dirs.iter().all(|d| d.already) {
        return "All of the log directories are already formatted.\n".into();
    }
    dirs.iter()
        .filter(|d| !d.already)
        .map(|d| format!("Formatting {}.\n", d.path.display()))
        .collect()
}

/// The answer of `info` and its exit code: 1 when a directory has a problem, as in Kafka.
fn described(dirs: &[storage::DirInfo]) -> Said {
    let mut text = String::from(if dirs.len() == 1 {
        "Found log directory:\n"
    } else {
        "Found log directories:\n"
    });
    for dir in dirs {
        text.push_str(&format!("  {}\n", dir.path.display()));
    }
    if let Some(meta) = dirs.iter().find_map(|d| d.meta.as_ref()) {
        let pairs: Vec<String> = meta.iter().map(|(k, v)| format!("{k}={v}")).collect();
        text.push_str(&format!("\nFound metadata: {{{}}}\n", pairs.join(", ")));
    }
    let mut problems: Vec<String> = dirs
        .iter()
        .filter_map(|d| {
            d.problem
                .as_ref()
                .map(|p| format!("  {}: {p}\n", d.path.display()))
        })
        .collect();
    problems.extend(
        dirs.iter()
            .filter(|d| d.meta.is_none() && d.problem.is_none())
            .map(|d| format!("  {} is not formatted.\n", d.path.display())),
    );
    if problems.is_empty() {
        return (text, 0);
    }
    text.push_str(if problems.len() == 1 {
        "\nFound problem:\n"
    } else {
        "\nFound problems:\n"
    });
    text.extend(problems);
    (text, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_names_what_is_not_formatted_and_fails() {
        let dir = storage::DirInfo {
            path: "/d".into(),
            meta: None,
            problem: None,
        };
        assert_eq!(
            described(&[dir]),
            (
                "Found log directory:\n  /d\n\nFound problem:\n  /d is not formatted.\n".into(),
                1
            )
        );
    }

    #[test]
    fn info_prints_the_metadata_of_a_formatted_directory() {
        let meta = vec![
            ("cluster.id".to_owned(), "x".to_owned()),
            ("node.id".to_owned(), "1".to_owned()),
        ];
        let dir = storage::DirInfo {
            path: "/d".into(),
            meta: Some(meta),
            problem: None,
        };
        assert_eq!(
            described(&[dir]),
            (
                "Found log directory:\n  /d\n\nFound metadata: {cluster.id=x, node.id=1}\n".into(),
                0
            )
        );
    }
}
