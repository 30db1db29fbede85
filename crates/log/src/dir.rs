//! One log directory: lock, checkpoints, clean-shutdown marker, and which partitions are in it.
//!
//! A checkpoint that cannot be read is warned about and replaced by the belief that loses nothing:
//! recovery points become unknown (everything is checked), high watermarks and log starts fall back
//! to the start of the log. So do recovery points when their file is not there although partitions
//! are. Lines go by name: they are taken out with their partition, and believed only where the log
//! bears them out.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::checkpoint;
use crate::config::{LogConfig, OpenOptions};
use crate::descriptors::is_shortage;
use crate::error::LogError;
use crate::meta_properties::MetaProperties;
use crate::names;
use crate::partition_log::{PartitionLog, TOGETHER_MIN, remove_folder};
use crate::partition_metadata::PartitionMetadata;
use crate::private;
use crate::state::LogDirState;

const LOCK: &str = ".lock";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Threads that close logs. Each waits for the disk most of its time, and syncs that wait together
/// share a commit of the file system.
const CLOSING_THREADS_MAX: usize = 16;
/// Subdirectories that hold no partition of clients.
const METADATA_TOPIC: &str = "__cluster_metadata";

type Key = (String, i32);
type Offsets = BTreeMap<Key, i64>;

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

/// A checkpoint file that only its own lines may be written to.
#[derive(Debug, Default)]
struct Lines {
    now: Offsets,
    /// The file says something else.
    unwritten: bool,
}

/// An opened, locked log directory. Dropping it releases the lock without writing anything (like a
/// crash).
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
    lock: File,
    state: Arc<LogDirState>,
    clean: bool,
    clean_broker_epoch: Option<i64>,
    directory_id: Option<String>,
    recovery_points_known: bool,
    /// Their file was not there, and no partition either.
    recovery_points_missing: bool,
    high_watermarks: Mutex<Lines>,
    log_starts: Mutex<Lines>,
    logs: Mutex<BTreeMap<Key, Arc<PartitionLog>>>,
    /// Held while a partition is opened or deleted: two recoveries of the same files would cut
    /// under each other.
    busy: Mutex<BTreeMap<Key, Arc<Mutex<()>>>>,
}

impl LogDir {
    /// Creates the directory when needed, takes `.lock` (fails with `Locked`), reads the
    /// checkpoints (an unreadable one is warned about and replaced by the safest belief), and
    /// consumes the clean-shutdown marker: it is deleted and the directory fsynced before this
    /// returns. Leftover `*-delete` directories are removed.
    pub fn open(path: &Path) -> Result<Arc<LogDir>, LogError> {
        let failed = |context| {
            move |e: io::Error| LogError::Io {
                context,
                path: path.to_path_buf(),
                source: Arc::new(e),
            }
        };
        private::create_dir_all(path).map_err(failed("cannot create"))?;
        let lock = take_lock(path)?;
        let (clean, clean_broker_epoch) =
            consume_marker(path).map_err(failed("cannot take the clean marker out of"))?;
        let recovery = read_recovery_points(path)?;
        let recovery_points_missing =
            recovery.is_some() && !path.join(checkpoint::RECOVERY_POINTS).exists();
        let directory_id = MetaProperties::read(path)
            .ok()
            .flatten()
            .and_then(|m| m.directory_id);
        let high_watermarks =
            read_offsets(&path.join(checkpoint::HIGH_WATERMARKS))?.unwrap_or_default();
        let log_starts = read_offsets(&path.join(checkpoint::LOG_STARTS))?.unwrap_or_default();
        let dir = LogDir {
            path: path.to_path_buf(),
            lock,
            clean,
            clean_broker_epoch,
            directory_id,
            recovery_points_known: recovery.is_some(),
            recovery_points_missing,
            state: LogDirState::attached(path, recovery.unwrap_or_default()),
            high_watermarks: Mutex::new(Lines::read(high_watermarks)),
            log_starts: Mutex::new(Lines::read(log_starts)),
            logs: Mutex::default(),
            busy: Mutex::default(),
        };
        for entry in fs::read_dir(path).map_err(failed("cannot list"))? {
            let entry = entry.map_err(failed("cannot list"))?;
            if entry
                .file_name()
                .to_str()
                .is_some_and(names::is_deleted_dir)
            {
                fs::remove_dir_all(entry.path()).map_err(failed("cannot clear leftovers of"))?;
            }
        }
        Ok(Arc::new(dir))
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Directory id from `meta.properties`, when there is one.
    pub fn directory_id(&self) -> Option<&str> {
        self.directory_id.as_deref()
    }
    /// Whether the file of the recovery points was missing at the opening, with no partition beside
    /// it: the directory is new, or was emptied.
    pub fn is_without_recovery_points(&self) -> bool {
        self.recovery_points_missing
    }
    /// Writes the file of the recovery points where it is missing, so that its absence means
    /// something from now on. Call it once it is clear that nothing is missing.
    pub fn begin_recovery_points(&self) -> Result<(), LogError> {
        let path = self.path.join(checkpoint::RECOVERY_POINTS);
        if !self.recovery_points_missing || path.exists() {
            return Ok(());
        }
        let none = checkpoint::format_offsets(&Offsets::new());
        match self.state.replace_file(&path, &none, true) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            done => done,
        }
    }
    /// The previous run ended cleanly.
    pub fn was_clean(&self) -> bool {
        self.clean
    }
    /// Broker epoch stored in the clean-shutdown marker, when it was there.
    pub fn clean_shutdown_broker_epoch(&self) -> Option<i64> {
        self.clean_broker_epoch
    }
    /// Shared state, e.g. to ask whether it is offline.
    pub fn state(&self) -> &Arc<LogDirState> {
        &self.state
    }
    /// Partition directories on disk (not those being deleted, not the metadata log).
    pub fn scan(&self) -> Result<Vec<PartitionDir>, LogError> {
        let failed = |e: io::Error| LogError::Io {
            context: "cannot list",
            path: self.path.clone(),
            source: Arc::new(e),
        };
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some((topic, partition)) = name.to_str().and_then(names::parse_partition_dir)
            else {
                continue;
            };
            if topic != METADATA_TOPIC && entry.file_type().map_err(failed)?.is_dir() {
                let path = entry.path();
                out.push(PartitionDir {
                    topic: topic.to_owned(),
                    partition,
                    topic_id: PartitionMetadata::read(&path).topic_id,
                    path,
                });
            }
        }
        out.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(out)
    }
    /// Opens (or gives the already open) log of a partition; recovers it by the checkpoints. The
    /// log of a partition that has nothing on disk costs no file and no descriptor. Fails when the
    /// directory on disk has another topic id.
    pub fn open_log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: Option<&str>,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<Arc<PartitionLog>, LogError> {
        self.state.check_online()?;
        let key = (topic.to_owned(), partition);
        let busy = self.busy(&key);
        let _one_at_a_time = busy.lock();
        if let Some(log) = self.logs.lock().get(&key) {
            return Ok(Arc::clone(log));
        }
        let path = self.path.join(names::partition_dir(topic, partition));
        let found = PartitionMetadata::read(&path).topic_id;
        if let (Some(want), Some(found)) = (topic_id, &found)
            && want != found
        {
            let reason = format!("holds topic id {found}, but {topic} has {want}: move it away");
            return Err(LogError::BadFile { path, reason });
        }
        let point = self.state.recovery_point(topic, partition);
        let options = OpenOptions {
            clean_shutdown: self.clean,
            recovery_point: point.or(self.recovery_points_known.then_some(0)),
            log_start_offset: self.log_starts.lock().get(&key),
            high_watermark: self.high_watermarks.lock().get(&key),
            topic_id: topic_id.map(str::to_owned),
            now_ms,
            dir_state: Arc::clone(&self.state),
        };
        let log = PartitionLog::open(&path, config, options)?;
        self.logs.lock().insert(key, Arc::clone(&log));
        Ok(log)
    }
    /// The open log of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<Arc<PartitionLog>> {
        self.logs
            .lock()
            .get(&(topic.to_owned(), partition))
            .cloned()
    }
    /// Removes a partition for good: closes, forgets its checkpoint lines, renames to `…-delete`,
    /// then deletes the files. Also removes a directory whose log is not open. Needs no space: on a
    /// full disk the lines are taken out once the files are gone, or count for nothing until they
    /// can be.
    pub fn delete_log(&self, topic: &str, partition: i32) -> Result<(), LogError> {
        self.state.check_online()?;
        let key = (topic.to_owned(), partition);
        let busy = self.busy(&key);
        let _one_at_a_time = busy.lock();
        let log = self.logs.lock().remove(&key);
        self.high_watermarks.lock().forget(|k| *k == key);
        self.log_starts.lock().forget(|k| *k == key);
        // Its line must not outlive it: a new partition of that name would be believed up to a
        // foreign offset.
        let forget = || {
            self.state
                .forget_recovery_points(|t, p| (t, p) != (topic, partition))
        };
        let forgotten = forget();
        match log {
            Some(log) => log.delete()?,
            None => remove_folder(&self.state, &self.path, topic, partition)?,
        }
        match forgotten.or_else(|_| forget()) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            done => done,
        }
    }
    /// Renames the folder of a partition that nobody knows out of the way, and forgets the lines of
    /// its name. Gives the new path.
    pub fn set_aside(&self, stray: &PartitionDir) -> Result<PathBuf, LogError> {
        self.state.check_online()?;
        let key = (stray.topic.clone(), stray.partition);
        let busy = self.busy(&key);
        let _one_at_a_time = busy.lock();
        let away = self.path.join(names::stray_dir(&key.0, key.1));
        fs::rename(&stray.path, &away).map_err(|e| LogError::Io {
            context: "cannot rename",
            path: stray.path.clone(),
            source: Arc::new(e),
        })?;
        self.state.sync_dir(&self.path)?;
        self.forget_lines(|t, p| (t, p) != (&key.0, key.1))?;
        Ok(away)
    }
    /// Takes the checkpoint lines out that `keep` does not name: partitions that are not in the
    /// metadata any more.
    pub fn forget_lines(&self, keep: impl Fn(&str, i32) -> bool) -> Result<(), LogError> {
        self.high_watermarks.lock().forget(|k| !keep(&k.0, k.1));
        self.log_starts.lock().forget(|k| !keep(&k.0, k.1));
        self.state.forget_recovery_points(keep)
    }
    /// Whether a partition has its folder here, not one of another topic id, or should have one by
    /// its recovery point.
    pub fn holds(&self, topic: &str, partition: i32, topic_id: Option<&str>) -> bool {
        let folder = self.path.join(names::partition_dir(topic, partition));
        if folder.is_dir() {
            let found = PartitionMetadata::read(&folder).topic_id;
            return match (found, topic_id) {
                (Some(found), Some(wanted)) => found == wanted,
                _ => true,
            };
        }
        self.state
            .recovery_point(topic, partition)
            .is_some_and(|point| point > 0)
    }
    /// Number of open logs.
    pub fn open_count(&self) -> usize {
        self.logs.lock().len()
    }
    fn busy(&self, key: &Key) -> Arc<Mutex<()>> {
        let mut busy = self.busy.lock();
        // Locks nobody holds any more are not worth keeping.
        busy.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(busy.entry(key.clone()).or_default())
    }
    /// Writes the three checkpoint files from the open logs (call it every few seconds), and log
    /// starts to where they are believed. Lines of partitions that are not open are kept as they
    /// were read.
    pub fn write_checkpoints(&self) -> Result<(), LogError> {
        // The logs are looked up under the lock of each file: a partition that is deleted meanwhile
        // must not get its line back.
        self.state.replace_recovery_points(|points| {
            for (k, log) in self.logs.lock().iter() {
                if log.segment_count() > 0 {
                    points.insert(k.clone(), log.recovery_point());
                }
            }
        })?;
        self.write_lines(checkpoint::HIGH_WATERMARKS, &self.high_watermarks, |log| {
            (log.segment_count() > 0).then(|| log.high_watermark())
        })?;
        self.write_lines(checkpoint::LOG_STARTS, &self.log_starts, |log| {
            let start = log.log_start_offset();
            log.first_segment_base()
                .filter(|base| start > *base)
                .map(|_| start)
        })?;
        self.keep_log_starts()
    }
    /// Many moved starts are brought to the disk together.
    fn keep_log_starts(&self) -> Result<(), LogError> {
        let logs: Vec<Arc<PartitionLog>> = self.logs.lock().values().cloned().collect();
        let moved: Vec<_> = logs.iter().filter(|l| l.log_start_is_unkept()).collect();
        let together = moved.len() >= TOGETHER_MIN && self.state.can_sync_file_system();
        let mut kept = Ok(());
        for log in &moved {
            kept = kept.and(log.keep_log_start(!together));
        }
        if together {
            self.state.sync_file_system()?;
        }
        kept
    }
    fn write_lines(
        &self,
        file: &str,
        lines: &Mutex<Lines>,
        line: impl Fn(&PartitionLog) -> Option<i64>,
    ) -> Result<(), LogError> {
        let mut lines = lines.lock();
        let path = self.path.join(file);
        for (k, log) in self.logs.lock().iter() {
            lines.set(k, line(log));
        }
        if !lines.unwritten && path.exists() {
            return Ok(());
        }
        self.state.check_online()?;
        self.state
            .replace_file(&path, &checkpoint::format_offsets(&lines.now), true)?;
        lines.unwritten = false;
        Ok(())
    }
    /// Closes every log cleanly, writes the checkpoints and, only if all of that succeeded, the
    /// clean-shutdown marker. After an unclean start there is no marker as long as a partition on
    /// disk was not opened: nobody has recovered it yet.
    ///
    /// Whatever the outcome, the directory is free for another process afterwards, although
    /// somebody may still hold this object.
    pub fn close_clean(&self, broker_epoch: i64) -> Result<(), LogError> {
        let closed = self.close_and_mark(broker_epoch);
        let unlocked = rustix::fs::fcntl_lock(&self.lock, rustix::fs::FlockOperation::Unlock);
        if unlocked.is_err() || self.lock.unlock().is_err() {
            tracing::warn!(dir = %self.path.display(), "the lock is held until the process ends");
        }
        closed
    }

    fn close_and_mark(&self, broker_epoch: i64) -> Result<(), LogError> {
        let logs: Vec<Arc<PartitionLog>> = self.logs.lock().values().cloned().collect();
        close_all(&logs)?;
        self.write_checkpoints()?;
        if !self.clean {
            let unopened = self
                .scan()?
                .into_iter()
                .find(|d| self.get(&d.topic, d.partition).is_none());
            if let Some(d) = unopened {
                tracing::warn!(log = %d.path.display(), "was never recovered, the next start checks all logs again");
                return Ok(());
            }
        }
        let marker = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
        self.state
            .replace_file(&self.path.join(CLEAN_SHUTDOWN), marker.as_bytes(), true)
    }
}

impl Lines {
    fn read(now: Offsets) -> Lines {
        let unwritten = false;
        Lines { now, unwritten }
    }
    fn get(&self, key: &Key) -> i64 {
        self.now.get(key).copied().unwrap_or(0)
    }
    fn set(&mut self, key: &Key, line: Option<i64>) {
        if self.now.get(key).copied() != line {
            self.unwritten = true;
            match line {
                Some(offset) => _ = self.now.insert(key.clone(), offset),
                None => _ = self.now.remove(key),
            }
        }
    }
    fn forget(&mut self, which: impl Fn(&Key) -> bool) {
        let before = self.now.len();
        self.now.retain(|key, _| !which(key));
        self.unwritten |= self.now.len() != before;
    }
}

/// Closes every log, whatever happens to the others; gives the first error.
fn close_all(logs: &[Arc<PartitionLog>]) -> Result<(), LogError> {
    let next = AtomicUsize::new(0);
    let close = || {
        let mut outcome = Ok(());
        while let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
            outcome = outcome.and(log.close_clean());
        }
        outcome
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..CLOSING_THREADS_MAX.min(logs.len()))
            .map(|_| scope.spawn(close))
            .collect();
        let own = close();
        others.into_iter().fold(own, |outcome, thread| {
            outcome.and(
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })
    })
}

/// Excludes other processes: flock for ours, a POSIX record lock for a Java broker's.
fn take_lock(dir: &Path) -> Result<File, LogError> {
    let path = dir.join(LOCK);
    let failed = |e: io::Error| LogError::Io {
        context: "cannot lock",
        path: path.clone(),
        source: Arc::new(e),
    };
    let file = private::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    let locked = || LogError::Locked {
        dir: dir.to_path_buf(),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked()),
        Err(TryLockError::Error(e)) => return Err(failed(e)),
    }
    match rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(locked()),
        Err(e) => Err(failed(e.into())),
    }
}

/// Takes the clean-shutdown marker away for good; whether it was there, and its broker epoch.
fn consume_marker(dir: &Path) -> io::Result<(bool, Option<i64>)> {
    let path = dir.join(CLEAN_SHUTDOWN);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((false, None)),
        other => other?,
    };
    fs::remove_file(&path)?;
    File::open(dir)?.sync_all()?;
    let epoch = text.split_once("\"brokerEpoch\":").map(|(_, rest)| rest);
    let digits = |r: &str| {
        r.trim_start()
            .split(|c: char| !(c.is_ascii_digit() || c == '-'))
            .next()?
            .parse()
            .ok()
    };
    Ok((true, epoch.and_then(digits)))
}

/// Recovery points as they are on disk. Beside partitions an absent file makes all points unknown.
fn read_recovery_points(dir: &Path) -> Result<Option<Offsets>, LogError> {
    let path = dir.join(checkpoint::RECOVERY_POINTS);
    if path.exists() {
        return read_offsets(&path);
    }
    let failed = |e: io::Error| LogError::Io {
        context: "cannot list",
        path: dir.to_path_buf(),
        source: Arc::new(e),
    };
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let partition = name.to_str().and_then(names::parse_partition_dir);
        if partition.is_some_and(|(topic, _)| topic != METADATA_TOPIC) {
            tracing::warn!(path = %path.display(), "checkpoint is missing, every log is checked from its start");
            return Ok(None);
        }
    }
    Ok(Some(Offsets::new()))
}

/// Reads an offset checkpoint: empty when there is no file, `None` when the file cannot be
/// believed. Error: it could not be opened for want of descriptors or memory, which says nothing
/// about it.
fn read_offsets(path: &Path) -> Result<Option<Offsets>, LogError> {
    let parsed = match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(Offsets::new())),
        Err(e) if is_shortage(&e) => return Err(LogError::shortage("read", path, &e)),
        Err(e) => Err(e.to_string()),
        Ok(text) => checkpoint::parse_offsets(&text),
    };
    Ok(match parsed {
        Ok(offsets) => Some(offsets),
        Err(reason) => {
            tracing::warn!(path = %path.display(), reason, "checkpoint is unusable, the safest values are taken instead");
            None
        }
    })
}
