//! What all logs of one directory share: health (offline is sticky) and the persisted recovery
//! points. Every failure of a write or sync of this crate is judged here, so that "a broken disk
//! says so" has one home. Not here: files (`file`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::checkpoint;
use crate::descriptors::is_shortage;
use crate::error::LogError;
use crate::open_files::OpenFiles;
use crate::partition_log::PartitionLog;
use crate::stall::{self, Health, Pace};

/// Logs of a directory that may hold reserved blocks.
type Reserving = Mutex<Vec<Weak<PartitionLog>>>;

/// The list of a directory: one, however many states it has. The metadata log has its own, and is
/// full when the others are.
fn reserving_in(dir: &Path) -> Arc<Reserving> {
    static ALL: Mutex<BTreeMap<PathBuf, Weak<Reserving>>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock();
    if let Some(list) = all.get(dir).and_then(Weak::upgrade) {
        return list;
    }
    all.retain(|_, list| list.strong_count() > 0);
    let list = Arc::default();
    all.insert(dir.to_path_buf(), Arc::downgrade(&list));
    list
}

/// What is called when a directory goes offline.
type OfflineNews = Box<dyn Fn() + Send + Sync>;

/// State shared by all logs of one directory. [`LogDirState::detached`] makes one without a
/// [`crate::LogDir`] (tests, the metadata log).
pub struct LogDirState {
    dir: PathBuf,
    offline: OnceLock<Arc<str>>,
    /// Called when it goes offline.
    told: Mutex<Option<OfflineNews>>,
    pub(crate) health: Health,
    pub(crate) open_files: Arc<OpenFiles>,
    /// Held while files are synced to be closed.
    pub(crate) closing: Mutex<()>,
    /// Something was written since the last checkpoint.
    active: AtomicBool,
    /// An index of one of its logs is wrong.
    repair: AtomicBool,
    /// Logs that may hold reserved blocks.
    reserving: Arc<Reserving>,
    recovery: Option<RecoveryPoints>,
    /// Held while many logs are flushed together.
    pub(crate) flushing_many: Mutex<()>,
    /// The directory, opened before anything was written: a sync of its file system tells what
    /// failed since. `None` where the kernel does not.
    file_system: Option<File>,
    #[cfg(test)]
    pub(crate) faults: Faults,
}

/// Recovery points as they are on disk, and lowerings waiting to be written by whoever holds the
/// file next.
#[derive(Debug, Default)]
struct RecoveryPoints {
    on_disk: Mutex<BTreeMap<(String, i32), i64>>,
    lowering: Mutex<Vec<((String, i32), i64)>>,
    /// Lines on disk of partitions that are deleted, which a full disk kept from being taken out.
    /// They count for nothing; no new log of that name gets a file before they are gone.
    dead: Mutex<BTreeSet<(String, i32)>>,
}

/// Injected disk faults.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The step at which the cleaner's swap ends as a crash would end it.
    pub(crate) swap_ends_at: Mutex<Option<usize>>,
    /// Bytes that can still be written before ENOSPC; negative = no limit.
    pub(crate) space: Mutex<Option<u64>>,
    pub(crate) write_fails: AtomicBool,
    pub(crate) sync_fails: AtomicBool,
    /// No file can be opened: the process has no descriptor left.
    pub(crate) opens_fail: AtomicBool,
    /// Writes do not come back while this is held.
    pub(crate) frozen: Mutex<()>,
    /// Syncs do not come back while this is held.
    pub(crate) sync_hangs: Mutex<()>,
}

impl std::fmt::Debug for LogDirState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogDirState")
            .field("dir", &self.dir)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

impl LogDirState {
    /// State for logs that are opened without a [`crate::LogDir`]; no recovery points are kept on
    /// disk for them.
    pub fn detached(dir: &Path) -> Arc<LogDirState> {
        let files = Arc::clone(OpenFiles::of_process());
        Arc::new(LogDirState::new(dir, None, Health::unwatched(), files))
    }
    /// Detached, with a budget of open files of its own.
    #[cfg(test)]
    pub(crate) fn with_open_files(dir: &Path, files: Arc<OpenFiles>) -> Arc<LogDirState> {
        Arc::new(LogDirState::new(dir, None, Health::unwatched(), files))
    }
    pub(crate) fn attached(
        dir: &Path,
        recovery_points: BTreeMap<(String, i32), i64>,
    ) -> Arc<LogDirState> {
        let points = RecoveryPoints {
            on_disk: Mutex::new(recovery_points),
            lowering: Mutex::default(),
            dead: Mutex::default(),
        };
        let files = Arc::clone(OpenFiles::of_process());
        let state = LogDirState::new(dir, Some(points), Health::watched(), files);
        let state = Arc::new(state);
        stall::watch(&state);
        state
    }
    fn new(
        dir: &Path,
        recovery: Option<RecoveryPoints>,
        health: Health,
        open_files: Arc<OpenFiles>,
    ) -> LogDirState {
        LogDirState {
            dir: dir.to_path_buf(),
            offline: OnceLock::new(),
            told: Mutex::default(),
            health,
            open_files,
            closing: Mutex::default(),
            active: AtomicBool::new(false),
            repair: AtomicBool::new(false),
            reserving: reserving_in(dir),
            recovery,
            flushing_many: Mutex::default(),
            file_system: syncfs_tells_errors()
                .then(|| File::open(dir).ok())
                .flatten(),
            #[cfg(test)]
            faults: Faults::default(),
        }
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
    /// Notes that a checkpoint is due.
    pub fn note_activity(&self) {
        if !self.active.load(Ordering::Relaxed) {
            self.active.store(true, Ordering::Release);
        }
    }
    /// Whether a checkpoint is due; it counts as made.
    pub fn take_activity(&self) -> bool {
        self.active.swap(false, Ordering::AcqRel)
    }
    pub(crate) fn want_repair(&self) {
        self.repair.store(true, Ordering::Release);
    }
    /// Whether a log of the directory has a wrong index ([`PartitionLog::repair_indexes`]); it
    /// counts as repaired.
    pub fn take_repair(&self) -> bool {
        self.repair.load(Ordering::Relaxed) && self.repair.swap(false, Ordering::AcqRel)
    }
    pub(crate) fn note_reserving(&self, log: &Weak<PartitionLog>) {
        let mut all = self.reserving.lock();
        if !all.iter().any(|l| l.ptr_eq(log)) {
            all.push(log.clone());
        }
    }
    /// Gives back the reserved blocks of logs that were not appended to since the last call.
    pub fn give_back_idle(&self) {
        self.give_back(|log| log.give_back_if_idle());
    }
    /// Gives back every reserved block that can be had at once: the disk is full. Gives whether
    /// there were any.
    pub(crate) fn give_back_all(&self) -> bool {
        self.give_back(|log| log.give_back_now())
    }
    /// Calls `each` on the logs that may hold reserved blocks; keeps those that say true. Gives
    /// whether there were any.
    fn give_back(&self, each: impl Fn(&PartitionLog) -> bool) -> bool {
        // Not under the lock: a log that gives back may be told of a full disk itself.
        let mut all = std::mem::take(&mut *self.reserving.lock());
        let any = !all.is_empty();
        all.retain(|log| log.upgrade().is_some_and(|log| each(&log)));
        for log in &all {
            self.note_reserving(log);
        }
        any
    }
    /// How its disk answers.
    pub fn pace(&self) -> Pace {
        self.health.pace()
    }
    /// A call to the file system that takes longer than this takes the directory offline.
    pub fn set_offline_after(&self, limit: Duration) {
        self.health.set_offline_after(limit);
    }
    /// Has `news` called, on any thread, when the directory goes offline.
    pub fn on_offline(&self, news: impl Fn() + Send + Sync + 'static) {
        *self.told.lock() = Some(Box::new(news));
    }
    /// Why the directory is offline, when it is. Sticky: only a restart brings it back.
    pub fn offline_reason(&self) -> Option<Arc<str>> {
        self.offline.get().cloned()
    }
    /// Takes the directory offline; the first reason stays.
    pub fn take_offline(&self, reason: &str) -> LogError {
        if self.offline.set(reason.into()).is_ok() {
            tracing::error!(dir = %self.dir.display(), reason, "log directory is offline");
            if let Some(news) = self.told.lock().as_ref() {
                news();
            }
        }
        self.offline_error()
    }
    pub(crate) fn check_online(&self) -> Result<(), LogError> {
        if self.offline.get().is_some() {
            Err(self.offline_error())
        } else {
            Ok(())
        }
    }
    fn offline_error(&self) -> LogError {
        let reason = self.offline_reason().unwrap_or_else(|| "unknown".into());
        LogError::Offline {
            dir: self.dir.clone(),
            reason,
        }
    }
    /// A failure of anything that changes files: a full disk and a shortage are told as such,
    /// everything else is final.
    pub(crate) fn write_failed(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            tracing::warn!(path = %path.display(), error = %e, "no space left");
            return LogError::NoSpace {
                path: path.to_path_buf(),
            };
        }
        self.fatal(what, path, e)
    }
    /// Runs `work`; on a full disk gives back what is reserved, and runs it once more.
    pub(crate) fn with_room<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(e) if e.kind() == io::ErrorKind::StorageFull && self.give_back_all() => work(),
            done => done,
        }
    }
    /// Like [`Self::write_failed`], where even a full disk leaves the log in doubt.
    pub(crate) fn fatal(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        if is_shortage(e) {
            return LogError::shortage(what, path, e);
        }
        self.broken(what, path, e)
    }
    /// A failure that is final, whatever it was: a sync that failed.
    pub(crate) fn broken(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        self.take_offline(&format!("{what} {}: {e}", path.display()))
    }
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<(), LogError> {
        let _busy = stall::enter_sync(self);
        let opened = self
            .injected_open_fault()
            .and_then(|()| File::open(dir))
            .map_err(|e| self.fatal("open", dir, &e))?;
        self.injected_sync_fault()
            .and_then(|()| opened.sync_all())
            .map_err(|e| self.broken("fsync", dir, &e))
    }
    /// fsync of a small file, when it is there.
    pub(crate) fn sync_file(&self, path: &Path) -> Result<(), LogError> {
        let opened = self.injected_open_fault().and_then(|()| File::open(path));
        let file = match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| self.fatal("open", path, &e))?,
        };
        self.injected_sync_fault()
            .and_then(|()| file.sync_all())
            .map_err(|e| self.broken("fsync", path, &e))
    }
    /// Whether [`Self::sync_file_system`] can be relied upon.
    pub(crate) fn can_sync_file_system(&self) -> bool {
        self.file_system.is_some()
    }
    /// syncfs: everything written to the file system of the directory is on disk then. A failure is
    /// final, whichever file it was of.
    pub(crate) fn sync_file_system(&self) -> Result<(), LogError> {
        self.check_online()?;
        let Some(dir) = &self.file_system else {
            let e = io::Error::from(io::ErrorKind::Unsupported);
            return Err(self.fatal("syncfs", &self.dir, &e));
        };
        let _busy = stall::enter_sync(self);
        self.injected_sync_fault()
            .and_then(|()| Ok(rustix::fs::syncfs(dir)?))
            .map_err(|e| self.broken("syncfs", &self.dir, &e))
    }

    #[cfg(not(test))]
    pub(crate) fn injected_open_fault(&self) -> io::Result<()> {
        Ok(())
    }
    #[cfg(test)]
    pub(crate) fn injected_open_fault(&self) -> io::Result<()> {
        if self.faults.opens_fail.load(Ordering::SeqCst) {
            Err(crate::descriptors::none_left())
        } else {
            Ok(())
        }
    }
    #[cfg(not(test))]
    pub(crate) fn injected_write_fault(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    #[cfg(not(test))]
    pub(crate) fn injected_reserve_fault(&self, _n: u64) -> io::Result<()> {
        Ok(())
    }
    #[cfg(test)]
    pub(crate) fn injected_reserve_fault(&self, n: u64) -> io::Result<()> {
        match *self.faults.space.lock() {
            Some(left) if left < n => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
    #[cfg(not(test))]
    pub(crate) fn injected_sync_fault(&self) -> io::Result<()> {
        Ok(())
    }
    #[cfg(test)]
    pub(crate) fn injected_write_fault(&self, n: usize) -> io::Result<()> {
        drop(self.faults.frozen.lock());
        if self.faults.write_fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        match self.faults.space.lock().as_mut() {
            Some(left) if *left < n as u64 => Err(io::ErrorKind::StorageFull.into()),
            Some(left) => {
                *left -= n as u64;
                Ok(())
            }
            None => Ok(()),
        }
    }
    #[cfg(test)]
    pub(crate) fn injected_sync_fault(&self) -> io::Result<()> {
        drop(self.faults.sync_hangs.lock());
        if self.faults.sync_fails.load(Ordering::SeqCst) {
            Err(io::Error::other("injected"))
        } else {
            Ok(())
        }
    }

    /// Makes sure that the recovery point on disk is at most `offset`, before the bytes above it go
    /// away: a stale higher one would skip the check of what is written there next. Concurrent
    /// calls share one file write.
    pub(crate) fn lower_recovery_point(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<(), LogError> {
        let Some(points) = &self.recovery else {
            return Ok(());
        };
        let key = (topic.to_owned(), partition);
        points.lowering.lock().push((key.clone(), offset));
        let mut on_disk = points.on_disk.lock();
        let wanted = std::mem::take(&mut *points.lowering.lock());
        let mut before = Vec::new();
        for (k, v) in wanted {
            if let Some(p) = on_disk.get_mut(&k)
                && *p > v
            {
                before.push((k, std::mem::replace(p, v)));
            }
        }
        if !before.is_empty()
            && let Err(e) = self.write_recovery_points(&on_disk)
        {
            // What is believed to be on disk must be there, or the next lowering would be left out.
            on_disk.extend(before.into_iter().rev());
            return Err(e);
        }
        self.check_online()
    }

    /// Replaces the recovery points on disk by what `collect` makes of the present ones, under the
    /// lock that [`Self::lower_recovery_point`] takes.
    pub(crate) fn replace_recovery_points(
        &self,
        collect: impl FnOnce(&mut BTreeMap<(String, i32), i64>),
    ) -> Result<(), LogError> {
        let Some(points) = &self.recovery else {
            return Ok(());
        };
        let mut on_disk = points.on_disk.lock();
        let before = on_disk.clone();
        collect(&mut on_disk);
        if *on_disk != before
            && let Err(e) = self.write_recovery_points(&on_disk)
        {
            *on_disk = before;
            return Err(e);
        }
        Ok(())
    }
    pub(crate) fn recovery_point(&self, topic: &str, partition: i32) -> Option<i64> {
        let points = self.recovery.as_ref()?;
        let key = (topic.to_owned(), partition);
        if points.dead.lock().contains(&key) {
            return None;
        }
        points.on_disk.lock().get(&key).copied()
    }
    /// Takes the lines of partitions out that `keep` does not name. When they cannot be taken out
    /// on disk now, they count for nothing all the same, and the error tells.
    pub(crate) fn forget_recovery_points(
        &self,
        keep: impl Fn(&str, i32) -> bool,
    ) -> Result<(), LogError> {
        let Some(points) = &self.recovery else {
            return Ok(());
        };
        let mut on_disk = points.on_disk.lock();
        let mut kept = on_disk.clone();
        kept.retain(|(topic, partition), _| keep(topic, *partition));
        let gone = on_disk.keys().filter(|k| !kept.contains_key(*k)).cloned();
        let gone: Vec<_> = gone.collect();
        if gone.is_empty() {
            return Ok(());
        }
        points.dead.lock().extend(gone.iter().cloned());
        self.write_recovery_points(&kept)?;
        points.dead.lock().retain(|k| !gone.contains(k));
        *on_disk = kept;
        Ok(())
    }
    /// Makes sure that no line of a deleted partition of this name is left, before a new log of
    /// that name gets its first file.
    pub(crate) fn begin_log(&self, topic: &str, partition: i32) -> Result<(), LogError> {
        let Some(points) = &self.recovery else {
            return Ok(());
        };
        let dead = |t: &str, p: i32| points.dead.lock().contains(&(t.to_owned(), p));
        match dead(topic, partition) {
            true => self.forget_recovery_points(|t, p| !dead(t, p)),
            false => Ok(()),
        }
    }
    fn write_recovery_points(&self, points: &BTreeMap<(String, i32), i64>) -> Result<(), LogError> {
        self.check_online()?;
        self.replace_file(
            &self.dir.join(checkpoint::RECOVERY_POINTS),
            &checkpoint::format_offsets(points),
            true,
        )
    }
    /// Replaces a file as a whole: temp, (fsync), rename, (fsync of the directory).
    pub(crate) fn replace_file(
        &self,
        path: &Path,
        content: &[u8],
        durable: bool,
    ) -> Result<(), LogError> {
        let _busy = stall::enter(self);
        let replace = || {
            self.injected_write_fault(content.len())
                .and_then(|()| self.injected_open_fault())
                .and_then(|()| checkpoint::replace(path, content, durable))
        };
        self.with_room(replace)
            .map_err(|e| self.write_failed("write", path, &e))
    }
}

/// Linux tells errors of the writes before it by syncfs from 5.8 on.
fn syncfs_tells_errors() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= (5, 8))
}
