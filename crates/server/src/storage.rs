//! Formatting of log directories (`tarn storage format|info|random-uuid`) and the automatic format of a one-node cluster.

use std::path::PathBuf;

use crate::config::Config;
use crate::error::StartError;

/// What `format` did with one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormattedDir {
    /// The directory.
    pub path: PathBuf,
    /// It was formatted before and was left alone (`--ignore-formatted`).
    pub already: bool,
}

/// One directory as `storage info` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirInfo {
    /// The directory.
    pub path: PathBuf,
    /// Key and value lines of its meta.properties; None = not formatted.
    pub meta: Option<Vec<(String, String)>>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// Formats every directory of `config` for `cluster_id` (22 characters). A directory that is formatted already is an error unless `ignore_formatted`.
pub fn format(config: &Config, cluster_id: &str, ignore_formatted: bool) -> Result<Vec<FormattedDir>, StartError> {
    let _ = (config, cluster_id, ignore_formatted);
    panic!("not built yet: storage::format")
}

/// Describes every directory of `config`.
pub fn info(config: &Config) -> Vec<DirInfo> {
    let _ = config;
    panic!("not built yet: storage::info")
}

/// A new random cluster id.
pub fn random_cluster_id() -> String {
    panic!("not built yet: storage::random_cluster_id")
}
