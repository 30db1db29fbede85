//! One file of a log: opened when it is needed, closed when the process has too many open. Every
//! write and sync of segment files goes through here. Not here: which files are closed
//! (`open_files`), what a failure means for the directory (`state`).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::LogError;
use crate::open_files::{Idle, Purpose, Touched};
use crate::stall;
use crate::state::LogDirState;

/// Unit in which the system counts the blocks of a file, whatever the file system's is.
const STAT_BLOCK_BYTES: u64 = 512;

/// A file that is opened when it is needed and closed when too many are open. The path is fixed.
#[derive(Debug)]
pub(crate) struct FileHandle {
    path: PathBuf,
    state: Arc<LogDirState>,
    open: Mutex<Option<Arc<File>>>,
    touched: Touched,
    /// Has bytes that no sync has covered. Set before a write and again after it: whoever clears it
    /// in between may not have covered that write.
    dirty: AtomicBool,
    /// Another file takes this name: it is not opened any more.
    retired: AtomicBool,
}

impl FileHandle {
    pub(crate) fn new(path: PathBuf, state: &Arc<LogDirState>) -> Arc<FileHandle> {
        Arc::new(FileHandle {
            path,
            state: Arc::clone(state),
            open: Mutex::new(None),
            touched: Touched::default(),
            dirty: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        })
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    pub(crate) fn state(&self) -> &Arc<LogDirState> {
        &self.state
    }
    /// The open file, for reading; opens it when needed, never creates it.
    pub(crate) fn get(self: &Arc<Self>) -> io::Result<Arc<File>> {
        self.get_with(Purpose::Read, false)
    }
    /// The open file, for a change that must not be stopped half-way by a shortage.
    pub(crate) fn get_to_change(self: &Arc<Self>) -> Result<Arc<File>, LogError> {
        let file = self.get_with(Purpose::Write, false);
        file.map_err(|e| self.read_failed(e))
    }
    fn get_with(self: &Arc<Self>, purpose: Purpose, create: bool) -> io::Result<Arc<File>> {
        self.touched.set();
        if let Some(f) = self.open.lock().as_ref() {
            return Ok(Arc::clone(f));
        }
        // Not under the lock: making room closes others, which somebody may be opening meanwhile.
        self.state.open_files.take_place(purpose)?;
        let file = {
            let mut open = self.open.lock();
            if let Some(f) = open.as_ref() {
                self.state.open_files.give_back_place();
                return Ok(Arc::clone(f));
            }
            if self.retired.load(Ordering::Relaxed) {
                self.state.open_files.give_back_place();
                return Err(io::ErrorKind::NotFound.into());
            }
            match self.state.injected_open_fault().and_then(|()| {
                let mut options = crate::private::options();
                options.read(true).write(true).truncate(false);
                options.create(create).open(&self.path)
            }) {
                Ok(f) => Arc::clone(open.insert(Arc::new(f))),
                Err(e) => {
                    self.state.open_files.give_back_place();
                    return Err(e);
                }
            }
        };
        self.state.open_files.remember(self);
        Ok(file)
    }
    /// Closes the descriptor; readers that hold the `Arc<File>` are not disturbed.
    pub(crate) fn close(&self) {
        if self.open.lock().take().is_some() {
            self.state.open_files.give_back_place();
        }
    }
    /// Takes a file that has this handle's content but not its name yet. It stays open until
    /// [`Self::close`].
    pub(crate) fn hold_open(&self, file: File) -> io::Result<()> {
        self.state.open_files.take_place(Purpose::Write)?;
        *self.open.lock() = Some(Arc::new(file));
        Ok(())
    }
    /// Another file is about to take its name: whoever has it open keeps it, everybody else finds
    /// nothing. Gives the open file, so that its blocks are not freed right here.
    pub(crate) fn retire(&self) -> Option<Arc<File>> {
        let mut open = self.open.lock();
        self.retired.store(true, Ordering::Relaxed);
        let file = open.take();
        if file.is_some() {
            self.state.open_files.give_back_place();
        }
        file
    }
    /// Closes it when nobody uses it and every byte is synced; also when it was used `lately`, if
    /// that is said.
    pub(crate) fn close_if_idle(&self, lately: bool) -> Idle {
        let Some(mut open) = self.open.try_lock() else {
            return Idle::Used;
        };
        let Some(file) = open.as_ref() else {
            return Idle::Closed;
        };
        if (self.touched.take() && !lately) || Arc::strong_count(file) > 1 {
            return Idle::Used;
        }
        // What an offline directory has not synced it never will.
        if self.dirty.load(Ordering::Acquire) && self.state.check_online().is_ok() {
            return Idle::Unsynced;
        }
        *open = None;
        self.state.open_files.give_back_place();
        Idle::Closed
    }
    pub(crate) fn create(self: &Arc<Self>) -> Result<(), LogError> {
        self.state.check_online()?;
        let _busy = stall::enter(&self.state);
        let made = self.state.with_room(|| {
            self.state
                .injected_write_fault(0)
                .and_then(|()| self.get_with(Purpose::Write, true))
        });
        made.map(|_| ())
            .map_err(|e| self.state.write_failed("create", &self.path, &e))
    }
    /// Writes all of `bytes` at `position`, creating the file when needed. On error the bytes there
    /// are undefined.
    pub(crate) fn write_at(self: &Arc<Self>, bytes: &[u8], position: u64) -> Result<(), LogError> {
        self.state.check_online()?;
        let _busy = stall::enter(&self.state);
        self.dirty.store(true, Ordering::Release);
        let done = self.state.with_room(|| {
            self.state.injected_write_fault(bytes.len())?;
            let file = self.get_with(Purpose::Write, true)?;
            file.write_all_at(bytes, position)
        });
        self.dirty.store(true, Ordering::Release);
        done.map_err(|e| self.state.write_failed("write", &self.path, &e))?;
        // A write that came back after its directory was given up did not happen for anybody.
        self.state.check_online()
    }
    /// Reserves blocks for `range` without changing the length. Nobody depends on it, so its errors
    /// are harmless.
    pub(crate) fn reserve(self: &Arc<Self>, range: std::ops::Range<u64>) -> io::Result<()> {
        let _busy = stall::enter(&self.state);
        let len = range.end.saturating_sub(range.start);
        self.state.injected_reserve_fault(len)?;
        let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
        let file = self.get_with(Purpose::Write, false)?;
        rustix::fs::fallocate(&*file, keep_size, range.start, len)?;
        Ok(())
    }
    /// Cuts the file; a failure leaves unknown bytes and is final.
    pub(crate) fn set_len(self: &Arc<Self>, len: u64) -> Result<(), LogError> {
        self.state.check_online()?;
        let _busy = stall::enter(&self.state);
        self.dirty.store(true, Ordering::Release);
        let done = self
            .get_with(Purpose::Write, true)
            .and_then(|f| f.set_len(len));
        self.dirty.store(true, Ordering::Release);
        done.map_err(|e| self.state.fatal("truncate", &self.path, &e))
    }
    /// fdatasync. A failure is final: the kernel may have dropped the pages. Without a descriptor
    /// for it the file stays as it is.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<(), LogError> {
        self.state.check_online()?;
        let file = match self.get_with(Purpose::Write, false) {
            // Removed by retention meanwhile; whether that is in order is for the caller to know.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(self.read_failed(e)),
            other => other.map_err(|e| self.state.fatal("open", &self.path, &e))?,
        };
        let _busy = stall::enter_sync(&self.state);
        self.dirty.store(false, Ordering::Release);
        let done = self
            .state
            .injected_sync_fault()
            .and_then(|()| file.sync_data());
        done.map_err(|e| self.state.broken("fdatasync", &self.path, &e))
    }
    /// Notes that the file has unsynced bytes, also from before it was opened here.
    pub(crate) fn mark_unsynced(&self) {
        self.dirty.store(true, Ordering::Release);
    }
    /// Instead of [`Self::sync`], when a sync of the whole file system follows.
    pub(crate) fn synced_with_others(&self) {
        self.dirty.store(false, Ordering::Release);
    }
    /// [`Self::sync`], when there is anything to sync.
    pub(crate) fn sync_if_dirty(self: &Arc<Self>) -> Result<(), LogError> {
        if self.dirty.load(Ordering::Acquire) {
            return self.sync();
        }
        // Perhaps it is clean only because it is being synced to be closed.
        drop(self.state.closing.lock());
        self.state.check_online()
    }
    /// Removes the file; already gone is fine.
    pub(crate) fn remove(&self) -> Result<(), LogError> {
        self.close();
        let _busy = stall::enter(&self.state);
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
        LogError::reading("cannot read", &self.path, e)
    }
    /// Reads up to `buf.len()` bytes at `position`; fewer only at the end of the file.
    pub(crate) fn read_at(
        self: &Arc<Self>,
        buf: &mut [u8],
        position: u64,
    ) -> Result<usize, LogError> {
        let _busy = stall::enter(&self.state);
        let file = self.get().map_err(|e| self.read_failed(e))?;
        read_full(&file, buf, position).map_err(|e| self.read_failed(e))
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.close();
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
