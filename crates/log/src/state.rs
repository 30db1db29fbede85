//! What all logs of one directory share: health (offline is sticky), the cache of open files, the persisted recovery
//! points. Every write and sync of this crate goes through here, so that "a broken disk says so" has one home.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::checkpoint;
use crate::error::LogError;

/// Descriptors kept open per directory before idle ones are closed. Files with unsynced bytes are never closed.
const OPEN_FILES_MAX: usize = 4096;
/// The share of the process limit that log files may take (sockets need the rest).
const OPEN_FILES_SHARE: u64 = 2;

/// Unit in which the system counts the blocks of a file, whatever the file system's is.
const STAT_BLOCK_BYTES: u64 = 512;

/// State shared by all logs of one directory. [`LogDirState::detached`] makes one without a [`crate::LogDir`] (tests, the
/// metadata log).
#[derive(Debug)]
pub struct LogDirState {
    dir: PathBuf,
    offline: OnceLock<Arc<str>>,
    open_files: Mutex<VecDeque<Weak<FileHandle>>>,
    open_files_max: usize,
    recovery: Option<RecoveryPoints>,
    /// Held while many logs are flushed together.
    pub(crate) flushing_many: Mutex<()>,
    /// The directory, opened before anything was written: a sync of its file system tells what failed since. `None` where the kernel does not.
    file_system: Option<File>,
    #[cfg(test)]
    pub(crate) faults: Faults,
}

/// Recovery points as they are on disk, and lowerings waiting to be written by whoever holds the file next.
#[derive(Debug, Default)]
struct RecoveryPoints {
    on_disk: Mutex<BTreeMap<(String, i32), i64>>,
    lowering: Mutex<Vec<((String, i32), i64)>>,
    /// Lines on disk of partitions that are deleted, which a full disk kept from being taken out. They count for nothing; no new log of
    /// that name gets a file before they are gone.
    dead: Mutex<BTreeSet<(String, i32)>>,
}

/// Injected disk faults.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Bytes that can still be written before ENOSPC; negative = no limit.
    pub(crate) space: Mutex<Option<u64>>,
    pub(crate) write_fails: AtomicBool,
    pub(crate) sync_fails: AtomicBool,
}

impl LogDirState {
    /// State for logs that are opened without a [`crate::LogDir`]; no recovery points are kept on disk for them.
    pub fn detached(dir: &Path) -> Arc<LogDirState> {
        LogDirState::new(dir, None)
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
        LogDirState::new(dir, Some(points))
    }
    fn new(dir: &Path, recovery: Option<RecoveryPoints>) -> Arc<LogDirState> {
        Arc::new(LogDirState {
            dir: dir.to_path_buf(),
            offline: OnceLock::new(),
            open_files: Mutex::default(),
            open_files_max: open_files_max(),
            recovery,
            flushing_many: Mutex::default(),
            file_system: syncfs_tells_errors()
                .then(|| File::open(dir).ok())
                .flatten(),
            #[cfg(test)]
            faults: Faults::default(),
        })
    }
    /// Why the directory is offline, when it is. Sticky: only a restart brings it back.
    pub fn offline_reason(&self) -> Option<Arc<str>> {
        self.offline.get().cloned()
    }
    /// Takes the directory offline; the first reason stays.
    pub fn take_offline(&self, reason: &str) -> LogError {
        if self.offline.set(reason.into()).is_ok() {
            tracing::error!(dir = %self.dir.display(), reason, "log directory is offline");
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
    /// A failure of anything that changes files: a full disk is told as such, everything else is final.
    pub(crate) fn write_failed(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            tracing::warn!(path = %path.display(), error = %e, "no space left");
            return LogError::NoSpace {
                path: path.to_path_buf(),
            };
        }
        self.take_offline(&format!("{what} {}: {e}", path.display()))
    }
    /// Like [`Self::write_failed`], where even a full disk leaves the log in doubt.
    pub(crate) fn fatal(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        self.take_offline(&format!("{what} {}: {e}", path.display()))
    }
    pub(crate) fn sync_dir(&self, dir: &Path) -> Result<(), LogError> {
        self.injected_sync_fault()
            .and_then(|()| File::open(dir)?.sync_all())
            .map_err(|e| self.fatal("fsync", dir, &e))
    }
    /// fsync of a small file, when it is there.
    pub(crate) fn sync_file(&self, path: &Path) -> Result<(), LogError> {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other,
        };
        self.injected_sync_fault()
            .and_then(|()| file?.sync_all())
            .map_err(|e| self.fatal("fsync", path, &e))
    }
    /// Whether [`Self::sync_file_system`] can be relied upon.
    pub(crate) fn can_sync_file_system(&self) -> bool {
        self.file_system.is_some()
    }
    /// syncfs: everything written to the file system of the directory is on disk then. A failure is final, whichever file it was of.
    pub(crate) fn sync_file_system(&self) -> Result<(), LogError> {
        self.check_online()?;
        let Some(dir) = &self.file_system else {
            let e = io::Error::from(io::ErrorKind::Unsupported);
            return Err(self.fatal("syncfs", &self.dir, &e));
        };
        self.injected_sync_fault()
            .and_then(|()| Ok(rustix::fs::syncfs(dir)?))
            .map_err(|e| self.fatal("syncfs", &self.dir, &e))
    }

    #[cfg(not(test))]
    fn injected_write_fault(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    #[cfg(not(test))]
    fn injected_reserve_fault(&self, _n: u64) -> io::Result<()> {
        Ok(())
    }
    #[cfg(test)]
    fn injected_reserve_fault(&self, n: u64) -> io::Result<()> {
        match *self.faults.space.lock() {
            Some(left) if left < n => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
    #[cfg(not(test))]
    fn injected_sync_fault(&self) -> io::Result<()> {
        Ok(())
    }
    #[cfg(test)]
    fn injected_write_fault(&self, n: usize) -> io::Result<()> {
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
    fn injected_sync_fault(&self) -> io::Result<()> {
        if self.faults.sync_fails.load(Ordering::SeqCst) {
            Err(io::Error::other("injected"))
        } else {
            Ok(())
        }
    }

    /// Makes sure that the recovery point on disk is at most `offset`, before the bytes above it go away: a stale higher
    /// one would skip the check of what is written there next. Concurrent calls share one file write.
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
        let mut changed = false;
        for (k, v) in wanted {
            if let Some(p) = on_disk.get_mut(&k) {
                changed |= *p > v;
                *p = (*p).min(v);
            }
        }
        if changed {
            self.write_recovery_points(&on_disk)?;
        }
        self.check_online()
    }

    /// Replaces the recovery points on disk by what `collect` makes of the present ones, under the lock that
    /// [`Self::lower_recovery_point`] takes.
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
        if *on_disk != before {
            self.write_recovery_points(&on_disk)?;
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
    /// Takes the lines of partitions out that `keep` does not name. When they cannot be taken out on disk now, they count for nothing all
    /// the same, and the error tells.
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
    /// Makes sure that no line of a deleted partition of this name is left, before a new log of that name gets its first file.
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
        self.injected_write_fault(content.len())
            .and_then(|()| checkpoint::replace(path, content, durable))
            .map_err(|e| self.write_failed("write", path, &e))
    }

    fn remember_open(self: &Arc<Self>, handle: &Arc<FileHandle>) {
        let mut open = self.open_files.lock();
        open.push_back(Arc::downgrade(handle));
        let mut looks = open.len();
        while open.len() > self.open_files_max && looks > 0 {
            looks -= 1;
            let Some(oldest) = open.pop_front() else {
                break;
            };
            let Some(h) = oldest.upgrade() else { continue };
            let in_use =
                h.touched.swap(false, Ordering::Relaxed) || h.dirty.load(Ordering::Acquire);
            if in_use || !h.close_if_clean() {
                open.push_back(oldest);
            }
        }
    }
}

fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let share = limit.map_or(u64::MAX, |l| l / OPEN_FILES_SHARE);
    OPEN_FILES_MAX.min(usize::try_from(share).unwrap_or(usize::MAX))
}

/// A file that is opened when it is needed and closed when the directory has too many open. The path is fixed.
#[derive(Debug)]
pub(crate) struct FileHandle {
    path: PathBuf,
    state: Arc<LogDirState>,
    open: Mutex<Option<Arc<File>>>,
    touched: AtomicBool,
    dirty: AtomicBool,
}

impl FileHandle {
    pub(crate) fn new(path: PathBuf, state: &Arc<LogDirState>) -> Arc<FileHandle> {
        Arc::new(FileHandle {
            path,
            state: Arc::clone(state),
            open: Mutex::new(None),
            touched: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        })
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    /// The open file; opens it when needed, never creates it.
    pub(crate) fn get(self: &Arc<Self>) -> io::Result<Arc<File>> {
        self.get_with(false)
    }
    fn get_with(self: &Arc<Self>, create: bool) -> io::Result<Arc<File>> {
        self.touched.store(true, Ordering::Relaxed);
        let file = {
            let mut open = self.open.lock();
            if let Some(f) = open.as_ref() {
                return Ok(Arc::clone(f));
            }
            let mut options = OpenOptions::new();
            let f = Arc::new(
                options
                    .read(true)
                    .write(true)
                    .create(create)
                    .truncate(false)
                    .open(&self.path)?,
            );
            *open = Some(Arc::clone(&f));
            f
        };
        self.state.remember_open(self);
        Ok(file)
    }
    /// Closes the descriptor; readers that hold the `Arc<File>` are not disturbed.
    pub(crate) fn close(&self) {
        *self.open.lock() = None;
    }
    fn close_if_clean(&self) -> bool {
        let mut open = self.open.lock();
        if self.dirty.load(Ordering::Acquire) {
            return false;
        }
        *open = None;
        true
    }
    pub(crate) fn create(self: &Arc<Self>) -> Result<(), LogError> {
        self.state.check_online()?;
        let made = self
            .state
            .injected_write_fault(0)
            .and_then(|()| self.get_with(true));
        made.map(|_| ())
            .map_err(|e| self.state.write_failed("create", &self.path, &e))
    }
    /// Writes all of `bytes` at `position`, creating the file when needed. On error the bytes there are undefined.
    pub(crate) fn write_at(self: &Arc<Self>, bytes: &[u8], position: u64) -> Result<(), LogError> {
        self.state.check_online()?;
        self.dirty.store(true, Ordering::Release);
        let done = self.state.injected_write_fault(bytes.len()).and_then(|()| {
            let file = self.get_with(true)?;
            file.write_all_at(bytes, position)
        });
        done.map_err(|e| self.state.write_failed("write", &self.path, &e))
    }
    /// Reserves blocks for `range` without changing the length. Nobody depends on it, so its errors are harmless.
    pub(crate) fn reserve(self: &Arc<Self>, range: std::ops::Range<u64>) -> io::Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.state.injected_reserve_fault(len)?;
        let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&*self.get()?, keep_size, range.start, len)?;
        Ok(())
    }
    /// Cuts the file; a failure leaves unknown bytes and is final.
    pub(crate) fn set_len(self: &Arc<Self>, len: u64) -> Result<(), LogError> {
        self.state.check_online()?;
        self.dirty.store(true, Ordering::Release);
        let done = self.get_with(true).and_then(|f| f.set_len(len));
        done.map_err(|e| self.state.fatal("truncate", &self.path, &e))
    }
    /// fdatasync. A failure is final: the kernel may have dropped the pages.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<(), LogError> {
        self.state.check_online()?;
        self.dirty.store(false, Ordering::Release);
        let file = match self.get() {
            // Removed by retention meanwhile; whether that is in order is for the caller to know.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.read_failed(e)),
            other => other,
        };
        let done = self
            .state
            .injected_sync_fault()
            .and_then(|()| file?.sync_data());
        done.map_err(|e| self.state.fatal("fdatasync", &self.path, &e))
    }
    /// Instead of [`Self::sync`], when a sync of the whole file system follows.
    pub(crate) fn synced_with_others(&self) {
        self.dirty.store(false, Ordering::Release);
    }
    /// [`Self::sync`], when there is anything to sync.
    pub(crate) fn sync_if_dirty(self: &Arc<Self>) -> Result<(), LogError> {
        if self.dirty.load(Ordering::Acquire) {
            self.sync()
        } else {
            Ok(())
        }
    }
    /// Removes the file; already gone is fine.
    pub(crate) fn remove(&self) -> Result<(), LogError> {
        self.close();
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(self.state.fatal("remove", &self.path, &e))
            }
            _ => Ok(()),
        }
    }
    /// Length on disk, `None` when the file does not exist.
    pub(crate) fn len_on_disk(&self) -> Result<Option<u64>, LogError> {
        match std::fs::metadata(&self.path) {
            Ok(m) => Ok(Some(m.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.read_failed(e)),
        }
    }
    /// Bytes of disk the file takes, `None` when it does not exist.
    pub(crate) fn bytes_allocated(&self) -> Result<Option<u64>, LogError> {
        match std::fs::metadata(&self.path) {
            Ok(m) => Ok(Some(m.blocks() * STAT_BLOCK_BYTES)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.read_failed(e)),
        }
    }
    pub(crate) fn read_failed(&self, e: io::Error) -> LogError {
        LogError::Io {
            context: "cannot read",
            path: self.path.clone(),
            source: Arc::new(e),
        }
    }
    /// Reads up to `buf.len()` bytes at `position`; fewer only at the end of the file.
    pub(crate) fn read_at(
        self: &Arc<Self>,
        buf: &mut [u8],
        position: u64,
    ) -> Result<usize, LogError> {
        let file = self.get().map_err(|e| self.read_failed(e))?;
        read_full(&file, buf, position).map_err(|e| self.read_failed(e))
    }
}

/// Reads until `buf` is full or the file ends.
pub(crate) fn read_full(file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match file.read_at(&mut buf[n..], position + n as u64) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Linux tells errors of the writes before it by syncfs from 5.8 on.
fn syncfs_tells_errors() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= (5, 8))
}
