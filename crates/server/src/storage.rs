//! Formatting of log directories (`tarn storage format|info|random-uuid`) and the automatic format
//! of a one-node cluster.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tarn_log::{LogError, MetaProperties};
use tarn_wire::Uuid;

use crate::config::Config;
use crate::error::StartError;

/// metadata.version written by a format, as Kafka's tools print it.
pub const METADATA_VERSION_TEXT: &str = "4.3-IV0";

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

/// Every directory of a configuration: `log.dirs`, and the metadata directory when it is another
/// one.
fn directories(config: &Config) -> Vec<PathBuf> {
    let mut dirs = config.log_dirs.clone();
    if !dirs.contains(&config.metadata_log_dir) {
        dirs.push(config.metadata_log_dir.clone());
    }
    dirs
}

/// Formats every directory of `config` for `cluster_id` (22 characters). A directory that is
/// formatted already is an error unless `ignore_formatted`.
pub fn format(
    config: &Config,
    cluster_id: &str,
    ignore_formatted: bool,
) -> Result<Vec<FormattedDir>, StartError> {
    let dirs = directories(config);
    if Uuid::from_str(cluster_id).is_err() {
        let reason =
            format!("`{cluster_id}` is not a cluster id; take one from `tarn storage random-uuid`");
        return Err(StartError::Format {
            path: dirs.into_iter().next().unwrap_or_default(),
            reason,
        });
    }
    let mut present = Vec::new();
    for path in dirs {
        let meta = read(&path)?;
        if let Some(meta) = &meta {
            if !ignore_formatted {
                let reason =
                    "is formatted already; use --ignore-formatted to leave it as it is".to_owned();
                return Err(StartError::Format { path, reason });
            }
            check_identity(&path, meta, cluster_id, config.node_id)?;
        }
        present.push((path, meta.is_some()));
    }
    let mut done = Vec::new();
    for (path, already) in present {
        if !already {
            let meta = MetaProperties {
                cluster_id: cluster_id.to_owned(),
                node_id: Some(config.node_id),
                directory_id: Some(Uuid::random().to_string()),
            };
            meta.write(&path).map_err(|error| unusable(&path, &error))?;
        }
        done.push(FormattedDir { path, already });
    }
    Ok(done)
}

/// What the directories say they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster_id: String,
    /// Directory id of the metadata directory.
    pub(crate) metadata_directory_id: Uuid,
    /// Empty directories beside formatted ones: new, or not mounted. The metadata tells, so they
    /// are left alone here.
    pub(crate) unformatted: Vec<PathBuf>,
}

/// Reads the identity of the directories; formats them when all are empty and the node is a cluster
/// of its own.
pub(crate) fn identity(config: &Config) -> Result<Identity, StartError> {
    let dirs = directories(config);
    let mut cluster_id: Option<String> = None;
    let mut unformatted = Vec::new();
    for path in &dirs {
        match read(path)? {
            Some(meta) => {
                check_identity(
                    path,
                    &meta,
                    cluster_id.as_deref().unwrap_or(&meta.cluster_id),
                    config.node_id,
                )?;
                cluster_id = Some(meta.cluster_id);
            }
            None if is_empty(path)? => unformatted.push(path.clone()),
            None => {
                let reason = "has files but no meta.properties; format it with `tarn storage format`, or name another directory".to_owned();
                return Err(StartError::Format {
                    path: path.clone(),
                    reason,
                });
            }
        }
    }
    let cluster_id = match cluster_id {
        Some(id) if unformatted.contains(&config.metadata_log_dir) => {
            let reason = format!(
                "is empty, although other log directories belong to cluster {id}: it should hold the metadata log; mount it, or name the \
                 directory that does in metadata.log.dir"
            );
            let path = config.metadata_log_dir.clone();
            return Err(StartError::Format { path, reason });
        }
        Some(id) => id,
        None => {
            let id = random_cluster_id();
            format(config, &id, true)?;
            tracing::info!(cluster_id = %id, dirs = ?unformatted, "formatted empty log directories");
            unformatted.clear();
            id
        }
    };
    give_ids(&dirs, &unformatted)?;
    let metadata_directory_id = directory_id(&config.metadata_log_dir).unwrap_or(Uuid::ZERO);
    Ok(Identity {
        cluster_id,
        metadata_directory_id,
        unformatted,
    })
}

/// Gives an id to directories of a version that knew none, and refuses two with the same: one is a
/// copy.
fn give_ids(dirs: &[PathBuf], unformatted: &[PathBuf]) -> Result<(), StartError> {
    let mut known: Vec<(String, &PathBuf)> = Vec::new();
    for path in dirs.iter().filter(|path| !unformatted.contains(path)) {
        let Some(mut meta) = read(path)? else {
            continue;
        };
        let id = match meta.directory_id.clone() {
            Some(id) => id,
            None => {
                let id = Uuid::random().to_string();
                meta.directory_id = Some(id.clone());
                meta.write(path).map_err(|error| unusable(path, &error))?;
                id
            }
        };
        if let Some((_, other)) = known.iter().find(|(other, _)| *other == id) {
            let reason = format!(
                "has the directory id {id} of {}, so one is a copy of the other: take one out of log.dirs",
                other.display()
            );
            let path = path.clone();
            return Err(StartError::Format { path, reason });
        }
        known.push((id, path));
    }
    Ok(())
}

/// Directory id of a formatted directory.
pub(crate) fn directory_id(path: &Path) -> Option<Uuid> {
    let meta = MetaProperties::read(path).ok()??;
    Uuid::from_str(&meta.directory_id?).ok()
}

fn check_identity(
    path: &Path,
    meta: &MetaProperties,
    cluster_id: &str,
    node_id: i32,
) -> Result<(), StartError> {
    if meta.cluster_id != cluster_id {
        let reason = format!(
            "belongs to cluster {}, not to {cluster_id}",
            meta.cluster_id
        );
        return Err(StartError::Format {
            path: path.to_owned(),
            reason,
        });
    }
    match meta.node_id {
        Some(found) if found != node_id => {
            let reason = format!("belongs to node {found}, but node.id is {node_id}");
            Err(StartError::Format {
                path: path.to_owned(),
                reason,
            })
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<MetaProperties>, StartError> {
    MetaProperties::read(path).map_err(|error| match error {
        LogError::BadFile { .. } | LogError::Damaged { .. } => StartError::Corrupt {
            what: path.join("meta.properties").display().to_string(),
            reason: error.to_string(),
        },
        error => unusable(path, &error),
    })
}

fn unusable(path: &Path, error: &LogError) -> StartError {
    StartError::LogDir {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// No file in it but what a file system puts there itself.
fn is_empty(path: &Path) -> Result<bool, StartError> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(error) => {
            return Err(StartError::LogDir {
                path: path.to_owned(),
                reason: error.to_string(),
            });
        }
        Ok(entries) => entries,
    };
    let mut names = entries
        .filter_map(|entry| entry.ok())
        .map(|entry| entry.file_name());
    Ok(names.all(|name| name == "lost+found" || name == ".lock"))
}

/// Describes every directory of `config`.
pub fn info(config: &Config) -> Vec<DirInfo> {
    directories(config)
        .into_iter()
        .map(|path| match MetaProperties::read(&path) {
            Ok(Some(meta)) => {
                let mut lines = vec![
                    ("version".to_owned(), "1".to_owned()),
                    ("cluster.id".to_owned(), meta.cluster_id),
                ];
                lines.extend(
                    meta.node_id
                        .map(|id| ("node.id".to_owned(), id.to_string())),
                );
                lines.extend(meta.directory_id.map(|id| ("directory.id".to_owned(), id)));
                DirInfo {
                    path,
                    meta: Some(lines),
                    problem: None,
                }
            }
            Ok(None) => DirInfo {
                path,
                meta: None,
                problem: Some("is not formatted".to_owned()),
            },
            Err(error) => DirInfo {
                path,
                meta: None,
                problem: Some(error.to_string()),
            },
        })
        .collect()
}

/// A new random cluster id.
pub fn random_cluster_id() -> String {
    Uuid::random().to_string()
}
