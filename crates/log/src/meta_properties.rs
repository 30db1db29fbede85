//! `meta.properties`: which cluster and node a log directory belongs to.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint;
use crate::error::LogError;
use crate::private;

const FILE: &str = "meta.properties";

/// Content of `meta.properties` (version 1). Ids are Kafka's 22-character strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    /// Cluster id.
    pub cluster_id: String,
    /// Node id, `None` when absent.
    pub node_id: Option<i32>,
    /// Directory id, `None` when absent.
    pub directory_id: Option<String>,
}

impl MetaProperties {
    /// Reads `dir/meta.properties`; `Ok(None)` when there is none (directory not formatted).
    pub fn read(dir: &Path) -> Result<Option<MetaProperties>, LogError> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                return Err(LogError::Io {
                    context: "cannot read",
                    path,
                    source: Arc::new(e),
                });
            }
            Ok(text) => text,
        };
        let bad = |reason: &str| LogError::BadFile {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        let value = |key: &str| {
            let of_line = |l: &str| {
                l.split_once('=')
                    .filter(|(k, _)| k.trim() == key)
                    .map(|(_, v)| v.trim().to_owned())
            };
            text.lines().find_map(of_line).filter(|v| !v.is_empty())
        };
        if value("version").is_none_or(|v| v != "1") {
            return Err(bad("version is not 1: format the directory"));
        }
        let node_id = match value("node.id") {
            Some(id) => Some(id.parse().map_err(|_| bad("node.id is not a number"))?),
            None => None,
        };
        let cluster_id = value("cluster.id").ok_or_else(|| bad("cluster.id is missing"))?;
        Ok(Some(MetaProperties {
            cluster_id,
            node_id,
            directory_id: value("directory.id"),
        }))
    }
    /// Writes it atomically (temp, fsync, rename, fsync of the directory), creating `dir` when
    /// needed.
    pub fn write(&self, dir: &Path) -> Result<(), LogError> {
        let path = dir.join(FILE);
        let mut text = format!("#\ncluster.id={}\n", self.cluster_id);
        if let Some(id) = &self.directory_id {
            text.push_str(&format!("directory.id={id}\n"));
        }
        if let Some(id) = self.node_id {
            text.push_str(&format!("node.id={id}\n"));
        }
        text.push_str("version=1\n");
        private::create_dir_all(dir)
            .and_then(|()| checkpoint::replace(&path, text.as_bytes(), true))
            .map_err(|e| LogError::Io {
                context: "cannot write",
                path,
                source: Arc::new(e),
            })
    }
}
