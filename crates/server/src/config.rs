//! The broker's configuration: reading Kafka's `server.properties`, the one table of broker keys, and the typed view the server starts from.
//!
//! Not here: topic keys (`tarn_metadata::config`) and mirror keys (`tarn_mirror`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
}

/// A listener of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Listener name (`PLAINTEXT`, `CONTROLLER`, …).
    pub name: String,
    /// Host to bind (empty = all interfaces).
    pub host: String,
    /// Port to bind; 0 = any free port.
    pub port: u16,
}

/// The typed configuration of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// `node.id`.
    pub node_id: i32,
    /// Broker listeners (controller listeners left out).
    pub listeners: Vec<Listener>,
    /// Controller listeners.
    pub controller_listeners: Vec<Listener>,
    /// Advertised broker listeners, same names as `listeners`. Port 0 = the bound port.
    pub advertised_listeners: Vec<Listener>,
    /// `log.dirs` (or `log.dir`), at least one.
    pub log_dirs: Vec<PathBuf>,
    /// Where `__cluster_metadata-0` lives: `metadata.log.dir` or the first of `log.dirs`.
    pub metadata_log_dir: PathBuf,
    /// Every key that was set in the file or by override, last one wins, as text.
    pub set: BTreeMap<String, String>,
}

impl Config {
    /// Reads `path` (None = nothing but overrides and defaults), then applies `overrides` (key, value) in order.
    /// Warnings are returned, not logged, because the log is not up yet.
    pub fn load(path: Option<&Path>, overrides: &[(String, String)]) -> Result<(Config, Vec<ConfigWarning>), ConfigError> {
        let _ = (path, overrides);
        panic!("not built yet: Config::load")
    }

    /// A configuration from `(key, value)` pairs alone: for embedded servers (demo, tests).
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Config::load(None, &pairs).map(|(config, _)| config)
    }
}

/// A bound listener.
#[derive(Debug, Clone)]
pub struct BoundListener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}
