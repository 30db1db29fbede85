//! What each verb does, over a connected destination: the calls, what goes to which stream, and the
//! exit.

use std::time::{Duration, Instant};

use tarn_wire::Str;
use tarn_wire::messages as m;

use super::destination::{Described, Destination, Server, TopicResult};
use super::options::{Options, Verb};
use super::personality::Personality;
use super::{failure, foreign, report};
use crate::{CliError, properties};

const POLL: Duration = Duration::from_millis(200);
const SET: i8 = 0;
const DELETE: i8 = 1;
const SUBTRACT: i8 = 3;
/// Mirror key with the patterns that are discovered again and again.
const INCLUDE_KEY: &str = "mirror.topics.include";

/// Runs one checked command.
pub(crate) async fn run(personality: Personality, options: &Options) -> Result<(), CliError> {
    if let Some(path) = &options.command_config {
        check_command_config(&properties::read(path)?)?;
    }
    // Read before anything is sent, so that a bad file changes nothing.
    let config = options
        .mirror_config
        .as_deref()
        .map(properties::read)
        .transpose()?
        .unwrap_or_default();
    let spoken = personality.dialect(options.verb);
    let destination = Destination::connect(&options.bootstrap, spoken).await?;
    let mirror = options.mirror.as_deref().unwrap_or_default();
    match options.verb {
        Verb::Create => {
            let config = foreign::complete_config(&destination, mirror, config).await?;
            destination
                .create(mirror, &config, options.allow_unreachable)
                .await?;
            println!("Created mirror {mirror}");
        }
        Verb::Alter => {
            destination.alter(mirror, changes(config, options)).await?;
            println!("Altered mirror {mirror}");
        }
        Verb::Delete => {
            destination.delete(mirror).await?;
            println!("Deleted mirror {mirror}");
        }
        Verb::List => list(personality, options, &destination).await?,
        Verb::Describe if options.config => show_config(options, &destination).await?,
        Verb::Describe => describe(personality, options, &destination).await?,
        Verb::Add | Verb::Remove | Verb::Pause | Verb::Resume => {
            topics(personality, options, &destination, mirror).await?
        }
    }
    Ok(())
}

/// The connection to the destination can be plain text only, for now; silently ignoring a security
/// setting would be worse than refusing.
fn check_command_config(config: &[(String, String)]) -> Result<(), CliError> {
    match config.iter().find(|(key, value)| {
        key == "security.protocol" && !value.trim().eq_ignore_ascii_case("PLAINTEXT")
    }) {
        Some((_, value)) => Err(CliError::Failed(format!(
            "--command-config: security.protocol {value} is not supported yet, only PLAINTEXT"
        ))),
        None => Ok(()),
    }
}

fn changes(config: Vec<(String, String)>, options: &Options) -> Vec<(String, i8, Option<String>)> {
    let set = config
        .into_iter()
        .chain(options.add_config.iter().cloned())
        .map(|(key, value)| (key, SET, Some(value)));
    set.chain(
        options
            .delete_config
            .iter()
            .map(|key| (key.clone(), DELETE, None)),
    )
    .collect()
}

async fn list(
    personality: Personality,
    options: &Options,
    destination: &Destination,
) -> Result<(), CliError> {
    let mut rows = destination.list().await?;
    if let Some(mirror) = &options.mirror {
        rows.retain(|r| r.mirror == *mirror);
        if rows.is_empty() {
            return Err(CliError::Failed(failure::unknown_mirror(mirror)));
        }
    }
    print!(
        "{}",
        if options.json {
            report::list_json(&rows)
        } else {
            report::list_table(personality, &rows)
        }
    );
    Ok(())
}

async fn describe(
    personality: Personality,
    options: &Options,
    destination: &Destination,
) -> Result<(), CliError> {
    let Described {
        mut rows,
        notices,
        silent,
    } = destination.describe(options.mirror.as_deref()).await?;
    if let (Some(mirror), true) = (&options.mirror, rows.is_empty()) {
        // Foreign clusters answer an unknown name with nothing.
        if !destination
            .list()
            .await?
            .iter()
            .any(|r| r.mirror == *mirror)
        {
            return Err(CliError::Failed(failure::unknown_mirror(mirror)));
        }
    }
    let unreachable = report::unreachable_lines(&rows, now_ms());
    let noticed = report::notice_lines(&notices, &rows);
    if options.failed {
        rows.retain(|r| r.state == "FAILED");
    }
    let text = match (options.json, options.failed) {
        (true, _) => report::describe_json(personality, &rows, &notices),
        (false, true) => report::failed_table(&rows, destination.retry_attempts_max().await),
        (false, false) => report::describe_table(personality, &rows),
    };
    print!("{text}");
    for line in unreachable.iter().chain(&noticed).chain(&silent) {
        eprintln!("{line}");
    }
    if silent.is_empty() {
        Ok(())
    } else {
        Err(CliError::Partly)
    }
}

/// The configuration of one mirror, or of all.
async fn show_config(options: &Options, destination: &Destination) -> Result<(), CliError> {
    let mut mirrors = destination.list().await?;
    if let Some(mirror) = &options.mirror {
        mirrors.retain(|r| r.mirror == *mirror);
        if mirrors.is_empty() {
            return Err(CliError::Failed(failure::unknown_mirror(mirror)));
        }
    }
    let mut rows = Vec::new();
    for mirror in mirrors {
        rows.extend(destination.config_rows(&mirror.mirror).await?);
    }
    let text = if options.json {
        report::config_json(&rows)
    } else {
        report::config_table(&rows)
    };
    print!("{text}");
    Ok(())
}

fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Add, remove, pause, resume.
async fn topics(
    personality: Personality,
    options: &Options,
    destination: &Destination,
    mirror: &str,
) -> Result<(), CliError> {
    // The late tool's start stores its patterns, in the same request: a refused one leaves nothing
    // behind.
    let late_add = personality == Personality::ClusterMirrors && options.verb == Verb::Add;
    let results = match destination.server {
        Server::Tarn => own(options, destination, mirror, late_add).await?,
        Server::Foreign(dialect) => {
            foreign::topics(options, destination, dialect, mirror, late_add).await?
        }
    };
    if options.dry_run {
        return preview(options, results);
    }
    if results.is_empty() && late_add {
        println!(
            "No matching topics found yet. Patterns saved to mirror {mirror} for auto-discovery."
        );
        return Ok(());
    }
    if results.is_empty() {
        return Err(no_match(options));
    }
    if options.verb == Verb::Remove {
        forget_patterns(destination, mirror, options).await;
    }
    let (done, all_done) = tell(personality, options, mirror, results);
    if let Some(limit) = options.wait {
        wait(destination, options, mirror, &done, limit).await?;
    }
    if all_done {
        Ok(())
    } else {
        Err(CliError::Partly)
    }
}

fn no_match(options: &Options) -> CliError {
    let pattern = if options.all_topics {
        ".*".to_owned()
    } else {
        options.topics.join(",")
    };
    CliError::Failed(format!("No topics matching pattern '{pattern}' found"))
}

fn preview(options: &Options, mut results: Vec<TopicResult>) -> Result<(), CliError> {
    if results.is_empty() {
        return Err(no_match(options));
    }
    results.sort_by(|a, b| a.topic.cmp(&b.topic));
    let mut partly = false;
    for result in results {
        match result.error {
            None => println!("{}", result.topic),
            Some(text) => {
                partly = true;
                eprintln!(
                    "Failed to {} topic {}: {text}",
                    options.verb.word(),
                    result.topic
                );
            }
        }
    }
    if partly {
        Err(CliError::Partly)
    } else {
        Ok(())
    }
}

/// Prints errors and the success line; gives the topics that succeeded, sorted, and whether all
/// did.
fn tell(
    personality: Personality,
    options: &Options,
    mirror: &str,
    mut results: Vec<TopicResult>,
) -> (Vec<String>, bool) {
    results.sort_by(|a, b| a.topic.cmp(&b.topic));
    let mut done = Vec::new();
    let total = results.len();
    for result in results {
        match result.error {
            None => done.push(result.topic),
            Some(text) => eprintln!(
                "Failed to {} topic {}: {text}",
                options.verb.word(),
                result.topic
            ),
        }
    }
    if !done.is_empty() {
        println!("{}", personality.done(options.verb, mirror, &done));
    }
    let all = done.len() == total;
    (done, all)
}

/// The four calls in the early form with our tags: the broker resolves the patterns.
async fn own(
    options: &Options,
    destination: &Destination,
    mirror: &str,
    store_patterns: bool,
) -> Result<Vec<TopicResult>, CliError> {
    let patterns: Vec<Str> = options
        .topics
        .iter()
        .map(|p| Str::from(p.as_str()))
        .collect();
    let (mirror_name, validate_only, all_topics) =
        (Str::from(mirror), options.dry_run, options.all_topics);
    // The four answers have one shape and four types.
    macro_rules! results {
        ($request:expr) => {{
            let answer = destination.call(&$request).await?;
            let topics: Vec<(String, i16, Option<Str>)> = answer
                .topics
                .into_iter()
                .map(|t| (t.name.to_string(), t.error_code, t.error_message))
                .collect();
            foreign::collect(
                destination,
                mirror,
                answer.error_code,
                answer.error_message.as_ref(),
                topics,
            )
        }};
    }
    match options.verb {
        Verb::Add => results!(m::AddTopicsToMirrorRequest {
            mirror_name,
            patterns,
            exclude_patterns: options
                .exclude
                .iter()
                .map(|p| Str::from(p.as_str()))
                .collect(),
            replication_factor: options.replication_factor.unwrap_or(-1),
            validate_only,
            store_patterns,
            ..Default::default()
        }),
        Verb::Remove => results!(m::RemoveTopicsFromMirrorRequest {
            mirror_name,
            patterns,
            all_topics,
            validate_only,
            ..Default::default()
        }),
        Verb::Pause => results!(m::PauseMirrorTopicsRequest {
            mirror_name,
            patterns,
            all_topics,
            validate_only,
            ..Default::default()
        }),
        _ => results!(m::ResumeMirrorTopicsRequest {
            mirror_name,
            patterns,
            all_topics,
            validate_only,
            ..Default::default()
        }),
    }
}

/// A removed pattern must not be discovered again: takes it off the mirror's list. Only tidying, so
/// its errors are told and nothing more.
async fn forget_patterns(destination: &Destination, mirror: &str, options: &Options) {
    let Ok(config) = destination.mirror_config(mirror).await else {
        return;
    };
    let Some((_, include)) = config.iter().find(|(key, _)| key == INCLUDE_KEY) else {
        return;
    };
    let included = super::patterns::comma_list(include);
    let gone: Vec<String> = options
        .topics
        .iter()
        .filter(|p| included.contains(p))
        .cloned()
        .collect();
    if gone.is_empty() {
        return;
    }
    if let Err(e) = destination
        .alter(
            mirror,
            vec![(INCLUDE_KEY.into(), SUBTRACT, Some(gone.join(",")))],
        )
        .await
    {
        eprintln!("Could not remove the pattern from {INCLUDE_KEY} of mirror {mirror}: {e}");
    }
}

/// Returns when all partitions of `topics` are in the verb's state.
async fn wait(
    destination: &Destination,
    options: &Options,
    mirror: &str,
    topics: &[String],
    limit: Duration,
) -> Result<(), CliError> {
    let deadline = Instant::now() + limit;
    let target = options.verb.target_state();
    loop {
        let Described { rows, .. } = destination.describe(Some(mirror)).await?;
        let late: Vec<&String> = topics
            .iter()
            .filter(|topic| {
                let mut partitions = rows.iter().filter(|r| r.topic == **topic).peekable();
                partitions.peek().is_none() || partitions.any(|r| r.state != target)
            })
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names: Vec<&str> = late.iter().map(|t| t.as_str()).collect();
            return Err(CliError::TimedOut(format!(
                "Not {target} within {} ms: {}",
                limit.as_millis(),
                names.join(", ")
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}
