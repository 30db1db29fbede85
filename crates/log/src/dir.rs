//! One log directory: lock, `meta.properties`, checkpoints, clean-shutdown marker, and which partitions are in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{LogConfig, LogError, PartitionLog};

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
        let _ = dir;
        panic!("not built yet")
    }
    /// Writes it atomically (temp, fsync, rename, fsync of the directory), creating `dir` when needed.
    pub fn write(&self, dir: &Path) -> Result<(), LogError> {
        let _ = dir;
        panic!("not built yet")
    }
}

/// A partition directory found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDir {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// Topic id from `partition.metadata`, when that file is there.
    pub topic_id: Option<String>,
    /// The directory.
    pub path: PathBuf,
}

/// State shared by all logs of one directory: health, cache of open files, recovery points. `LogDirState::detached(dir)`
/// makes one without a [`LogDir`] (tests, the metadata log).
#[derive(Debug)]
pub struct LogDirState {
    _private: (),
}

impl LogDirState {
    /// State for logs that are opened without a [`LogDir`].
    pub fn detached(dir: &Path) -> Arc<LogDirState> {
        let _ = dir;
        Arc::new(LogDirState { _private: () })
    }
    /// Why the directory is offline, when it is.
    pub fn offline_reason(&self) -> Option<Arc<str>> {
        panic!("not built yet")
    }
}

/// An opened, locked log directory. Dropping it releases the lock without writing anything (like a crash).
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
}

impl LogDir {
    /// Creates the directory when needed, takes `.lock` (fails with `Locked`), reads the checkpoints (an unreadable one is
    /// warned about and replaced by the safest belief), and consumes the clean-shutdown marker: it is deleted and the
    /// directory fsynced before this returns. Leftover `*-delete` directories are removed.
    pub fn open(path: &Path) -> Result<Arc<LogDir>, LogError> {
        let _ = path;
        panic!("not built yet")
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The previous run ended cleanly.
    pub fn was_clean(&self) -> bool {
        panic!("not built yet")
    }
    /// Broker epoch stored in the clean-shutdown marker, when it was there.
    pub fn clean_shutdown_broker_epoch(&self) -> Option<i64> {
        panic!("not built yet")
    }
    /// Shared state, e.g. to ask whether it is offline.
    pub fn state(&self) -> &Arc<LogDirState> {
        panic!("not built yet")
    }
    /// Partition directories on disk (not those being deleted).
    pub fn scan(&self) -> Result<Vec<PartitionDir>, LogError> {
        panic!("not built yet")
    }
    /// Opens (or gives the already open) log of a partition; recovers it by the checkpoints. The log of a partition that
    /// has nothing on disk costs no file and no descriptor. Fails when the directory on disk has another topic id.
    pub fn open_log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: Option<&str>,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let _ = (topic, partition, topic_id, config, now_ms);
        panic!("not built yet")
    }
    /// The open log of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<Arc<PartitionLog>> {
        let _ = (topic, partition);
        panic!("not built yet")
    }
    /// Removes a partition for good: closes, renames to `…-delete`, forgets its checkpoint lines, then deletes the files.
    pub fn delete_log(&self, topic: &str, partition: i32) -> Result<(), LogError> {
        let _ = (topic, partition);
        panic!("not built yet")
    }
    /// Writes the three checkpoint files from the open logs (call it every few seconds). Lines of partitions that are not
    /// open are kept as they were read.
    pub fn write_checkpoints(&self) -> Result<(), LogError> {
        panic!("not built yet")
    }
    /// Closes every log cleanly, writes the checkpoints and, only if all of that succeeded, the clean-shutdown marker.
    pub fn close_clean(&self, broker_epoch: i64) -> Result<(), LogError> {
        let _ = broker_epoch;
        panic!("not built yet")
    }
}
