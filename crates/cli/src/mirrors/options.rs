//! The command line of the mirror tools: parsing, and the checks that run before any connection, in
//! their order. Pure.

use std::path::PathBuf;
use std::time::Duration;

use crate::CliError;

use super::patterns::{self, comma_list};
use super::personality::Personality;

/// How long `--wait` waits when `--timeout-ms` does not say.
const WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Alter,
    Add,
    Remove,
    Delete,
    Pause,
    Resume,
    List,
    Describe,
}

impl Verb {
    /// The word in `Failed to <word> topic …`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Alter => "alter",
            Verb::Add => "add",
            Verb::Remove => "remove",
            Verb::Delete => "delete",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::List => "list",
            Verb::Describe => "describe",
        }
    }

    /// Whether the verb works on topics of a mirror.
    pub(crate) fn takes_topics(self) -> bool {
        matches!(self, Verb::Add | Verb::Remove | Verb::Pause | Verb::Resume)
    }

    /// State that `--wait` waits for.
    pub(crate) fn target_state(self) -> &'static str {
        match self {
            Verb::Remove => "STOPPED",
            Verb::Pause => "PAUSED",
            _ => "MIRRORING",
        }
    }
}

/// What a parsed command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// Nothing at all was given.
    Nothing,
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// A command that passed every check.
    Run(Box<Options>),
}

/// A checked command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// What to do.
    pub(crate) verb: Verb,
    /// `--bootstrap-server`, as written.
    pub(crate) bootstrap: String,
    /// `--command-config`.
    pub(crate) command_config: Option<PathBuf>,
    /// `--mirror-config`.
    pub(crate) mirror_config: Option<PathBuf>,
    /// `--mirror`; empty only for list and describe.
    pub(crate) mirror: Option<String>,
    /// Valid topic patterns, in the order given.
    pub(crate) topics: Vec<String>,
    /// Valid exclude patterns.
    pub(crate) exclude: Vec<String>,
    /// `--all-topics`.
    pub(crate) all_topics: bool,
    /// `--replication-factor`.
    pub(crate) replication_factor: Option<i16>,
    /// `--json`.
    pub(crate) json: bool,
    /// `--failed`.
    pub(crate) failed: bool,
    /// `--config`.
    pub(crate) config: bool,
    /// `--wait` with its limit.
    pub(crate) wait: Option<Duration>,
    /// `--dry-run`.
    pub(crate) dry_run: bool,
    /// `--allow-unreachable`.
    pub(crate) allow_unreachable: bool,
    /// `--add-config`: keys to set.
    pub(crate) add_config: Vec<(String, String)>,
    /// `--delete-config`: keys to reset.
    pub(crate) delete_config: Vec<String>,
    /// `--verbose`: the chain of causes under an error.
    pub(crate) verbose: bool,
}

/// Options that take a value, and whether they may repeat.
const VALUED: [(&str, bool); 11] = [
    ("bootstrap-server", false),
    ("command-config", false),
    ("mirror-config", false),
    ("mirror", false),
    ("topic", true),
    ("topics", true),
    ("exclude", true),
    ("replication-factor", false),
    ("timeout-ms", false),
    ("add-config", true),
    ("delete-config", true),
];

const FLAGS: [&str; 9] = [
    "json",
    "failed",
    "config",
    "wait",
    "dry-run",
    "all-topics",
    "allow-unreachable",
    "verbose",
    "help",
];

const VERBS: [(&str, Verb); 11] = [
    ("create", Verb::Create),
    ("alter", Verb::Alter),
    ("add", Verb::Add),
    ("start", Verb::Add),
    ("remove", Verb::Remove),
    ("stop", Verb::Remove),
    ("delete", Verb::Delete),
    ("pause", Verb::Pause),
    ("resume", Verb::Resume),
    ("list", Verb::List),
    ("describe", Verb::Describe),
];

/// The command line as it was given, before any check.
#[derive(Debug, Default)]
struct Given {
    verbs: Vec<&'static str>,
    flags: Vec<&'static str>,
    values: Vec<(&'static str, String)>,
    version: bool,
}

impl Given {
    fn scan(arguments: &[String]) -> Result<Self, CliError> {
        let mut given = Given::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(option) = argument.strip_prefix("--") else {
                return Err(CliError::Failed(format!(
                    "{} is not a recognized option",
                    argument.trim_start_matches('-')
                )));
            };
            let (name, inline) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            if let Some((name, repeats)) = VALUED.iter().find(|(n, _)| *n == name) {
                let value = inline.or_else(|| rest.next().cloned());
                let value = value.ok_or_else(|| {
                    CliError::Failed(format!("Option {name} requires an argument"))
                })?;
                if !repeats && given.value(name).is_some() {
                    return Err(CliError::Failed(format!(
                        "Found multiple arguments for option {name}, but you asked for only one"
                    )));
                }
                given.values.push((name, value));
            } else if inline.is_none() && name == "version" {
                given.version = true;
            } else if let Some((name, _)) =
                VERBS.iter().find(|(n, _)| inline.is_none() && *n == name)
            {
                given.verbs.push(name);
            } else if let Some(name) = FLAGS.iter().find(|n| inline.is_none() && **n == name) {
                given.flags.push(name);
            } else {
                return Err(CliError::Failed(format!(
                    "{name} is not a recognized option"
                )));
            }
        }
        Ok(given)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_str())
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values
            .iter()
            .filter(move |(n, _)| *n == name)
            .map(|(_, v)| v.as_str())
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn verb(&self, personality: Personality) -> Result<Verb, CliError> {
        let mut verbs: Vec<Verb> = self
            .verbs
            .iter()
            .filter_map(|given| VERBS.iter().find(|(n, _)| n == given).map(|(_, v)| *v))
            .collect();
        verbs.dedup();
        match verbs.as_slice() {
            [one] => Ok(*one),
            _ => Err(CliError::Usage(personality.one_action().into())),
        }
    }
}

fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

/// Parses and checks a command line (without the program name).
///
/// # Errors
/// The first check that fails, with Kafka's text; [`CliError::Usage`] where the usage follows.
pub(crate) fn parse(personality: Personality, arguments: &[String]) -> Result<Parsed, CliError> {
    if arguments.is_empty() {
        return Ok(Parsed::Nothing);
    }
    let given = Given::scan(arguments)?;
    if given.has("help") {
        return Ok(Parsed::Help);
    }
    if given.version {
        return Ok(Parsed::Version);
    }
    let verb = given.verb(personality)?;
    check(personality, verb, &given)?;
    Ok(Parsed::Run(Box::new(build(verb, &given)?)))
}

/// The checks of the specification in their order, then ours.
fn check(personality: Personality, verb: Verb, given: &Given) -> Result<(), CliError> {
    let has = |name: &str| given.value(name).is_some();
    if !has("bootstrap-server") {
        return Err(failed("--bootstrap-server must be specified"));
    }
    if !has("mirror") && !matches!(verb, Verb::List | Verb::Describe) {
        return Err(failed("--mirror must be specified"));
    }
    if verb == Verb::Create && !has("mirror-config") {
        return Err(failed(
            "--mirror-config must be specified when creating a mirror",
        ));
    }
    if verb == Verb::Alter && !has("mirror-config") && !has("add-config") && !has("delete-config") {
        return Err(failed(
            "--mirror-config must be specified when altering a mirror",
        ));
    }
    let all_topics = given.has("all-topics");
    let named = has("topic") || has("topics");
    if verb.takes_topics() && !named && (verb == Verb::Add || !all_topics) {
        return Err(failed(personality.topics_missing(verb)));
    }
    if has("exclude") && verb != Verb::Add {
        return Err(failed("--exclude is only valid with --start"));
    }
    if given.has("json") && !matches!(verb, Verb::List | Verb::Describe) {
        return Err(failed("--json is only supported for describing mirrors"));
    }
    if given.has("failed") && verb != Verb::Describe {
        return Err(failed("--failed is only supported for describing mirrors"));
    }
    if given.has("config") && (verb != Verb::Describe || given.has("failed")) {
        return Err(failed(
            "--config is only valid with --describe, and not with --failed",
        ));
    }
    if all_topics && (verb == Verb::Add || !verb.takes_topics()) {
        return Err(failed(
            "--all-topics is only valid with --remove, --pause, or --resume",
        ));
    }
    if all_topics && named {
        return Err(failed(
            "--all-topics cannot be combined with --topic or --topics",
        ));
    }
    for flag in ["wait", "dry-run"] {
        if given.has(flag) && !verb.takes_topics() {
            return Err(failed(format!(
                "--{flag} is only valid with --add, --remove, --pause, or --resume"
            )));
        }
    }
    Ok(())
}

fn build(verb: Verb, given: &Given) -> Result<Options, CliError> {
    let number = |name: &str| {
        given.value(name).map(|text| {
            (
                text,
                failed(format!("Cannot parse argument '{text}' of option {name}")),
            )
        })
    };
    let replication_factor = match number("replication-factor") {
        Some((text, error)) => Some(
            text.parse::<i16>()
                .ok()
                .filter(|n| *n >= 1 || *n == -1)
                .ok_or(error)?,
        ),
        None => None,
    };
    let limit = match number("timeout-ms") {
        Some((text, error)) => Duration::from_millis(text.parse().map_err(|_| error)?),
        None => WAIT_DEFAULT,
    };
    let topics: Vec<String> = given
        .values
        .iter()
        .flat_map(|(name, value)| match *name {
            "topic" => vec![value.clone()],
            "topics" => comma_list(value),
            _ => Vec::new(),
        })
        .collect();
    let exclude: Vec<String> = given.all("exclude").flat_map(comma_list).collect();
    for pattern in topics.iter().chain(&exclude) {
        patterns::compile(pattern).map_err(failed)?;
    }
    Ok(Options {
        verb,
        bootstrap: given.value("bootstrap-server").unwrap_or_default().into(),
        command_config: given.value("command-config").map(PathBuf::from),
        mirror_config: given.value("mirror-config").map(PathBuf::from),
        mirror: given.value("mirror").map(str::to_owned),
        topics,
        exclude,
        all_topics: given.has("all-topics"),
        replication_factor: replication_factor.filter(|n| *n > 0),
        json: given.has("json"),
        failed: given.has("failed"),
        config: given.has("config"),
        wait: given.has("wait").then_some(limit),
        dry_run: given.has("dry-run"),
        allow_unreachable: given.has("allow-unreachable"),
        add_config: added_configs(given)?,
        delete_config: given.all("delete-config").flat_map(comma_list).collect(),
        verbose: given.has("verbose"),
    })
}

/// `k=v,k=[a,b]` as in kafka-configs.sh: brackets keep the commas of a list value together.
fn added_configs(given: &Given) -> Result<Vec<(String, String)>, CliError> {
    let mut out = Vec::new();
    for text in given.all("add-config") {
        let mut depth = 0;
        let parts = text.split(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ',' && depth <= 0
        });
        for part in parts.map(str::trim).filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                failed(format!(
                    "Invalid entity config '{part}': expected KEY=VALUE"
                ))
            })?;
            let value = value
                .strip_prefix('[')
                .and_then(|v| v.strip_suffix(']'))
                .unwrap_or(value);
            out.push((key.trim().to_owned(), value.to_owned()));
        }
    }
    Ok(out)
}

/// The option table under a usage error.
pub(crate) fn usage() -> &'static str {
    "Option                                Description
------                                -----------
--add, --start                        Add topics to a mirror: they are created here and mirrored.
--add-config <k=v,k=[a,b]>            With --alter: configuration to set.
--all-topics                          With --remove, --pause, --resume: every topic of the mirror.
--allow-unreachable                   With --create: store the mirror although its source does not answer.
--alter                               Change the configuration of a mirror.
--bootstrap-server <host:port,...>    REQUIRED: the destination cluster. An empty host is this machine.
--command-config <file>               Properties for the connection to the destination.
--config                              With --describe: the configuration of the mirror, with defaults.
--create                              Create a mirror.
--delete                              Delete a mirror whose topics are all stopped.
--delete-config <k,k>                 With --alter: configuration to reset to its default.
--describe                            Show partitions with offsets, lag and state.
--dry-run                             Print the topics that would be affected, change nothing.
--exclude <a,b>                       With --add: names or patterns that are left out.
--failed                              With --describe: only failed partitions, with their errors.
--help                                Print this.
--json                                With --describe or --list: print JSON.
--list                                List mirrors.
--mirror <name>                       The mirror.
--mirror-config <file>                Properties of the mirror: bootstrap.servers of the source, and more.
--pause, --resume                     Suspend mirroring of topics, and go on.
--remove, --stop                      Stop mirroring topics: they become writable (failover).
--replication-factor <n>              With --add: for topics that are created.
--timeout-ms <n>                      Limit of --wait (60000).
--topic <name or regex>               Topics; may repeat.
--topics <a,b>                        Topics as a comma separated list of names or regexes.
--verbose                             Print the causes of an error.
--version                             Print the version.
--wait                                Return when all topics reached their state; exit 2 when they do not in time.
"
}

#[cfg(test)]
mod tests;
