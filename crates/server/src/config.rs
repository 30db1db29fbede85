//! The broker's configuration: reading Kafka's `server.properties`, the one table of broker keys,
//! and the typed view the server starts from.
//!
//! Not here: topic keys (`tarn_metadata::config`) and mirror keys (`tarn_mirror`). Nothing here is
//! global: two configurations live side by side.

pub mod keys;
mod limits_page;
mod listeners;
pub mod properties;
mod rules;
mod security;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tarn_metadata::config::{ConfigDef, ConfigValue};

pub use limits_page::limits_page;
pub use listeners::{Listener, Voter};
pub use properties::{Entry as Property, SyntaxError, parse as properties};

/// Why a configuration cannot be used. The text names file, line, key and the allowed range.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key has a value outside its range, or a rule between keys is broken.
    #[error("{location}: {message}")]
    Invalid {
        /// `FILE:LINE`, `--override`, or `configuration` for a rule between keys.
        location: String,
        /// What is wrong and what is allowed.
        message: String,
    },
}

/// Something odd that does not stop the start (an unknown key, a key without effect).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning {
    /// `FILE:LINE` or `--override`.
    pub location: String,
    /// One sentence.
    pub message: String,
    /// Nothing to worry about: keys that are known and have no effect here, as a stock
    /// `server.properties` has some.
    pub is_note: bool,
}

/// Text of a key that was set, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetValue {
    /// The value as written.
    pub value: String,
    /// `FILE:LINE` or `--override`.
    pub location: String,
}

/// The typed configuration of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// `node.id` (or `broker.id`).
    pub node_id: i32,
    /// Broker listeners (controller listeners left out).
    pub listeners: Vec<Listener>,
    /// Controller listeners.
    pub controller_listeners: Vec<Listener>,
    /// Advertised broker listeners, same names as `listeners`. Port 0 = the bound port.
    pub advertised_listeners: Vec<Listener>,
    /// `controller.quorum.voters`, possibly empty (the node is then the only voter).
    pub voters: Vec<Voter>,
    /// `log.dirs` (or `log.dir`), at least one.
    pub log_dirs: Vec<PathBuf>,
    /// Where `__cluster_metadata-0` lives: `metadata.log.dir` or the first of `log.dirs`.
    pub metadata_log_dir: PathBuf,
    /// Every key that was set in the file or by override, last one wins.
    pub set: BTreeMap<String, SetValue>,
}

impl Config {
    /// Reads `path` (None = nothing but overrides and defaults), then applies `overrides` (key,
    /// value) in order. Warnings are returned, not logged, because the log is not up yet.
    pub fn load(
        path: Option<&Path>,
        overrides: &[(String, String)],
    ) -> Result<(Config, Vec<ConfigWarning>), ConfigError> {
        let mut set = BTreeMap::new();
        if let Some(path) = path {
            let bytes = std::fs::read(path).map_err(|source| ConfigError::Read {
                path: path.to_owned(),
                source,
            })?;
            let located = |line: usize| format!("{}:{line}", path.display());
            let entries = properties::parse(&bytes).map_err(|error| ConfigError::Invalid {
                location: located(error.line),
                message: error.message,
            })?;
            for entry in entries {
                set.insert(
                    entry.key,
                    SetValue {
                        value: entry.value,
                        location: located(entry.line),
                    },
                );
            }
        }
        for (key, value) in overrides {
            set.insert(
                key.clone(),
                SetValue {
                    value: value.clone(),
                    location: "--override".to_owned(),
                },
            );
        }
        let warnings = check_values(&set)?;
        Ok((rules::build(set)?, warnings))
    }

    /// A configuration from `(key, value)` pairs alone: for embedded servers (demo, tests).
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Config::load(None, &pairs).map(|(config, _)| config)
    }

    /// Text of a key: what was set, else the default; `None` when the default is null or the key is
    /// unknown.
    pub fn text(&self, name: &str) -> Option<&str> {
        text_of(&self.set, name)
    }

    /// An integer key. Keys whose default is null answer `None` while they are not set.
    pub fn integer(&self, name: &str) -> Option<i64> {
        value_of(&self.set, name)?.as_i64()
    }

    /// An integer key that has a default.
    pub fn number(&self, name: &str) -> i64 {
        let number = self.integer(name);
        debug_assert!(number.is_some(), "{name} has no integer default");
        number.unwrap_or(0)
    }

    /// A boolean key.
    pub fn flag(&self, name: &str) -> bool {
        value_of(&self.set, name)
            .and_then(|value| value.as_bool())
            .unwrap_or(false)
    }

    /// Whether only brokers use this listener: the one of `inter.broker.listener.name`, when
    /// clients have another one.
    pub fn is_for_brokers_only(&self, listener: &str) -> bool {
        let named = self
            .text("inter.broker.listener.name")
            .is_some_and(|name| name.eq_ignore_ascii_case(listener));
        named && self.listeners.iter().any(|l| l.name != listener)
    }

    /// Default of a topic key on this broker: the strongest broker key that is set, converted to
    /// the topic's unit; else the topic key's default.
    pub fn topic_default(&self, def: &ConfigDef) -> Option<String> {
        for synonym in def.synonyms {
            if let Some(set) = self.set.get(synonym.name) {
                return Some(synonym.to_topic_value(set.value.trim()));
            }
        }
        def.default.map(str::to_owned)
    }

    /// The broker-level settings that are shared with the other rooms as text: every key that was
    /// set.
    pub fn static_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.set
            .iter()
            .map(|(key, set)| (key.as_str(), set.value.as_str()))
    }
}

fn text_of<'a>(set: &'a BTreeMap<String, SetValue>, name: &str) -> Option<&'a str> {
    match set.get(name) {
        Some(set) => Some(set.value.trim()),
        None => keys::find(name).and_then(|key| key.def.default),
    }
}

fn value_of(set: &BTreeMap<String, SetValue>, name: &str) -> Option<ConfigValue> {
    let key = keys::find(name)?;
    key.def.parse(text_of(set, name)?).ok()
}

/// Checks every value against the table; gives the warnings, and one note for all keys without
/// effect.
fn check_values(set: &BTreeMap<String, SetValue>) -> Result<Vec<ConfigWarning>, ConfigError> {
    security::check(set)?;
    let mut warnings = Vec::new();
    let mut inert: Vec<&str> = Vec::new();
    for (name, set) in set {
        let Some(key) = keys::find(name) else {
            let message = format!("unknown key `{name}`, ignored");
            warnings.push(ConfigWarning {
                location: set.location.clone(),
                message,
                is_note: false,
            });
            continue;
        };
        if let Err(error) = key.def.parse(&set.value) {
            return Err(ConfigError::Invalid {
                location: set.location.clone(),
                message: error.to_string(),
            });
        }
        if !key.effect {
            inert.push(name);
        }
    }
    if let Some(first) = inert.first() {
        warnings.push(ConfigWarning {
            location: set[*first].location.clone(),
            message: format!("keys without effect here: {}", inert.join(", ")),
            is_note: true,
        });
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests;
