//! The two tools that share this code: what differs between them is their words, nothing else.

use super::failure::Dialect;
use super::options::Verb;

/// Which tool the caller thinks it runs. It decides texts and tables, never what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Personality {
    /// `kafka-mirrors.sh`.
    Mirrors,
    /// `kafka-cluster-mirrors.sh`.
    ClusterMirrors,
}

/// How the tool was called; the scripts keep the exit codes of the Java tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalledAs {
    /// By one of the two script names.
    Script,
    /// As a subcommand of `tarn`.
    Tarn,
}

impl Personality {
    /// The dialect in which this tool says this verb to a server that speaks both. It decides the
    /// names of errors. The early forms carry our own fields, which the verbs about topics need.
    pub(crate) fn dialect(self, verb: Verb) -> Dialect {
        match (self, verb) {
            (Personality::ClusterMirrors, Verb::Create | Verb::Delete) => Dialect::Late,
            _ => Dialect::Early,
        }
    }

    /// Sentence before the usage when the tool is called without arguments.
    pub(crate) fn no_arguments(self) -> &'static str {
        match self {
            Personality::Mirrors => "Create cluster mirrors and add topics to them.",
            Personality::ClusterMirrors => "Create cluster mirrors and manage mirror topics.",
        }
    }

    /// Sentence before the usage for `--help`.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Personality::Mirrors => {
                "This tool helps to create cluster mirrors and add topics to them."
            }
            Personality::ClusterMirrors => {
                "This tool helps to create cluster mirrors and manage mirror topics."
            }
        }
    }

    /// Text for zero or several verbs.
    pub(crate) fn one_action(self) -> &'static str {
        match self {
            Personality::Mirrors => {
                "Command must include exactly one action: --create, --alter, --add, --remove, --delete, --pause, --resume, --list, or --describe"
            }
            Personality::ClusterMirrors => {
                "Command must include exactly one action: --create, --start, --stop, --delete, --pause, --resume, --list, or --describe"
            }
        }
    }

    /// Text for a verb that needs topics and got none.
    pub(crate) fn topics_missing(self, verb: Verb) -> String {
        match self {
            Personality::Mirrors => {
                let doing = match verb {
                    Verb::Add => "adding topic(s) to a mirror",
                    Verb::Remove => "removing topic(s) from a mirror",
                    Verb::Pause => "pausing mirror topic(s)",
                    _ => "resuming mirror topic(s)",
                };
                format!("--topic must be specified when {doing}")
            }
            Personality::ClusterMirrors => {
                let doing = match verb {
                    Verb::Add => "starting",
                    Verb::Remove => "stopping",
                    Verb::Pause => "pausing",
                    _ => "resuming",
                };
                format!("--topics must be specified when {doing} mirror topic(s)")
            }
        }
    }

    /// The line on standard output after topics were added, removed, paused or resumed. `topics` is
    /// sorted.
    pub(crate) fn done(self, verb: Verb, mirror: &str, topics: &[String]) -> String {
        let n = topics.len();
        let set = format!("[{}]", topics.join(", "));
        match (self, verb) {
            (Personality::Mirrors, Verb::Add) => {
                format!("Added {n} topic(s) to mirror {mirror}: {set}")
            }
            (Personality::Mirrors, Verb::Remove) => {
                format!("Removed {n} topic(s) from mirror {mirror}: {set}")
            }
            (Personality::ClusterMirrors, Verb::Add) => {
                format!("Started {n} mirror topic(s) in mirror {mirror}: {set}")
            }
            (Personality::ClusterMirrors, Verb::Remove) => {
                format!("Stopped mirroring for topics {set} in mirror {mirror}")
            }
            (_, Verb::Pause) => {
                format!("Paused mirroring for {n} topic(s) in mirror {mirror}: {set}")
            }
            _ => format!("Resumed mirroring for {n} topic(s) in mirror {mirror}: {set}"),
        }
    }

    /// The state as this tool names it; `state` may come from a server of either dialect.
    pub(crate) fn state(self, state: &str) -> &str {
        match (self, state) {
            (Personality::Mirrors, "LOG_TRUNCATION" | "LOG_ALIGNMENT") => "PREPARING",
            (Personality::Mirrors, "EPOCH_FENCING" | "ULE_RECOVERY") => "MIRRORING",
            (Personality::ClusterMirrors, "PREPARING" | "LOG_ALIGNMENT" | "ULE_RECOVERY") => {
                "LOG_TRUNCATION"
            }
            _ => state,
        }
    }

    /// Width of the LAG column.
    pub(crate) fn lag_width(self) -> usize {
        match self {
            Personality::Mirrors => 8,
            Personality::ClusterMirrors => 10,
        }
    }

    /// Header of the last column of the list.
    pub(crate) fn bootstrap_header(self) -> &'static str {
        match self {
            Personality::Mirrors => "SOURCE-BOOTSTRAP",
            Personality::ClusterMirrors => "SOURCE-BOOTSTRAP-SERVER",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The late tool's errors have late names, where its requests have the same or a late form.
    #[test]
    fn the_late_tool_speaks_late_where_no_field_of_ours_is_needed() {
        for verb in [Verb::Create, Verb::Delete] {
            assert_eq!(Personality::ClusterMirrors.dialect(verb), Dialect::Late);
            assert_eq!(Personality::Mirrors.dialect(verb), Dialect::Early);
        }
        assert_eq!(
            Personality::ClusterMirrors.dialect(Verb::Add),
            Dialect::Early
        );
    }
}
