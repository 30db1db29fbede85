//! The budget of open files over all logs of the process: who gets a descriptor, and whose is
//! closed for it. Files that were not used lately are closed; when all of them have unsynced bytes,
//! some are synced first. Not here: what a file is.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::descriptors::{self, DescriptorShares};
use crate::file::FileHandle;
use crate::stall::Pace;
use crate::state::LogDirState;

/// Readers get no descriptor above this share of the budget, in eighths: answers that nobody takes
/// must not keep producers out.
const FOR_READERS: usize = 6;
/// From this share on, in eighths, a thread closes files in the background …
const CLOSE_FROM: usize = 7;
/// … down to this one.
const CLOSE_TO: usize = 5;
/// With unsynced files only, this part of the budget is synced and closed at a time.
const SYNCED_AT_ONCE: usize = 8;
/// With at least so many files of one directory to sync, one sync of their file system is cheaper.
const TOGETHER_MIN: usize = 32;
/// Rounds over the open files at most: the second meets what the first one found used, a third one
/// what came in between.
const ROUNDS: usize = 3;
/// Longest wait for another one who makes room.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// Pause of the background thread when nothing can be closed.
const PAUSE: Duration = Duration::from_millis(50);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// The open files of all logs.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    max: AtomicUsize,
    count: AtomicUsize,
    /// Open files, those longest open first. One that is closed elsewhere leaves when its turn
    /// comes.
    clock: Mutex<VecDeque<Weak<FileHandle>>>,
    /// One at a time makes room; the others profit.
    making_room: Mutex<()>,
    closer: Mutex<Closer>,
    wake: Condvar,
    #[cfg(test)]
    pub(crate) looks: AtomicUsize,
}

#[derive(Debug, Default)]
struct Closer {
    started: bool,
    wanted: bool,
}

static OF_PROCESS: OnceLock<Arc<OpenFiles>> = OnceLock::new();

/// Sets the budget of open log files of this process (at start, or when the limit changed).
pub fn set_open_files_max(files: usize) {
    OpenFiles::of_process()
        .max
        .store(files.max(1), Ordering::Relaxed);
}

/// Log files open now, and how many may be.
pub fn open_files() -> (usize, usize) {
    let all = OpenFiles::of_process();
    (
        all.count.load(Ordering::Relaxed),
        all.max.load(Ordering::Relaxed),
    )
}

impl OpenFiles {
    pub(crate) fn of_process() -> &'static Arc<OpenFiles> {
        OF_PROCESS.get_or_init(|| OpenFiles::new(DescriptorShares::of_process(None).log_files))
    }
    pub(crate) fn new(max: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles {
            max: AtomicUsize::new(max),
            count: AtomicUsize::new(0),
            clock: Mutex::default(),
            making_room: Mutex::default(),
            closer: Mutex::default(),
            wake: Condvar::new(),
            #[cfg(test)]
            looks: AtomicUsize::new(0),
        })
    }
    fn eighths(&self, n: usize) -> usize {
        let max = self.max.load(Ordering::Relaxed);
        (max / 8).saturating_mul(n).max(max.saturating_mul(n) / 8)
    }
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
    /// Whether the next open file may have to wait for a sync of another one.
    pub(crate) fn is_short(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        count >= self.max.load(Ordering::Relaxed).saturating_sub(1).max(1)
    }

    /// Takes a place for one more open file; closes others when there is none. Error: nothing can
    /// be closed now.
    pub(crate) fn take_place(self: &Arc<Self>, purpose: Purpose) -> io::Result<()> {
        let limit = match purpose {
            Purpose::Read => self.eighths(FOR_READERS).max(1),
            Purpose::Write => self.max.load(Ordering::Relaxed),
        };
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        if count >= self.eighths(CLOSE_FROM).min(limit + 1) {
            self.close_in_background();
        }
        if count <= limit {
            return Ok(());
        }
        match purpose {
            // A reader may be on a thread that must not wait for a sync; the background thread does
            // that.
            Purpose::Read => {
                let mut rounds = 0..ROUNDS;
                while self.count.load(Ordering::Acquire) > limit && rounds.next().is_some() {
                    self.close_idle(limit, usize::MAX);
                }
            }
            Purpose::Write => self.make_room(limit),
        }
        if self.count.load(Ordering::Acquire) <= limit {
            return Ok(());
        }
        self.give_back_place();
        Err(descriptors::none_left())
    }
    pub(crate) fn give_back_place(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
    /// A file that took a place is open now.
    pub(crate) fn remember(&self, handle: &Arc<FileHandle>) {
        self.clock.lock().push_back(Arc::downgrade(handle));
    }

    /// Makes room for one more reader, if need be by syncing files first. Blocks on disk.
    pub(crate) fn make_room_for_reader(&self) {
        self.make_room(self.eighths(FOR_READERS).saturating_sub(1));
    }

    /// Closes files until at most `limit` are open, as far as that goes.
    fn make_room(&self, limit: usize) {
        // Who is at it may wait for a disk that does not answer; then there is no room.
        let Some(_one_at_a_time) = self.making_room.try_lock_for(ROOM_WAIT) else {
            return;
        };
        for _ in 0..ROUNDS {
            if self.count.load(Ordering::Acquire) <= limit {
                return;
            }
            let at_once = (self.max.load(Ordering::Relaxed) / SYNCED_AT_ONCE).max(1);
            let unsynced = self.close_idle(limit, at_once);
            if self.count.load(Ordering::Acquire) > limit {
                self.sync_and_close(unsynced);
            }
        }
    }
    /// One round over the open files: closes those without unsynced bytes that were not used since
    /// the last round. Gives unsynced ones, those longest open first, and ends early when these are
    /// `at_once`.
    fn close_idle(&self, limit: usize, at_once: usize) -> Vec<Arc<FileHandle>> {
        let mut unsynced = Vec::new();
        let mut clock = self.clock.lock();
        for _ in 0..clock.len() {
            if self.count.load(Ordering::Acquire) <= limit {
                break;
            }
            let Some(oldest) = clock.pop_front() else {
                break;
            };
            #[cfg(test)]
            self.looks.fetch_add(1, Ordering::Relaxed);
            let Some(handle) = oldest.upgrade() else {
                continue;
            };
            match handle.close_if_idle(false) {
                Idle::Closed => {}
                Idle::Used => clock.push_back(oldest),
                Idle::Unsynced => {
                    clock.push_back(oldest);
                    if handle.state().pace() == Pace::Quick {
                        unsynced.push(handle);
                    }
                    if unsynced.len() >= at_once {
                        break;
                    }
                }
            }
        }
        unsynced
    }
    fn sync_and_close(&self, mut files: Vec<Arc<FileHandle>>) {
        while let Some(state) = files.first().map(|f| Arc::clone(f.state())) {
            let (of_dir, rest): (Vec<_>, Vec<_>) = files
                .into_iter()
                .partition(|f| Arc::ptr_eq(f.state(), &state));
            files = rest;
            sync_for_closing(&state, &of_dir);
            for file in &of_dir {
                file.close_if_idle(true);
            }
        }
    }

    fn close_in_background(self: &Arc<Self>) {
        let mut closer = self.closer.lock();
        if closer.wanted {
            return;
        }
        closer.wanted = true;
        if !closer.started {
            let all = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("log-files".to_owned());
            match thread.spawn(move || run_closer(&all)) {
                Ok(_) => closer.started = true,
                // Who opens the next file closes others then.
                Err(e) => tracing::warn!(error = %e, "cannot start the thread that closes files"),
            }
        }
        self.wake.notify_one();
    }
}

fn run_closer(all: &Weak<OpenFiles>) {
    while let Some(files) = all.upgrade() {
        {
            let mut closer = files.closer.lock();
            if !closer.wanted {
                // In between it looks whether anybody still has files.
                let _ = files.wake.wait_for(&mut closer, Duration::from_secs(1));
            }
            if !closer.wanted {
                continue;
            }
        }
        let target = files.eighths(CLOSE_TO);
        let before = files.count.load(Ordering::Acquire);
        files.make_room(target);
        let after = files.count.load(Ordering::Acquire);
        if after <= target || after >= before {
            files.closer.lock().wanted = false;
        }
        if after >= before {
            drop(files);
            std::thread::sleep(PAUSE);
        }
    }
}

/// What became of an attempt to close a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    Closed,
    /// Used lately, or by somebody right now.
    Used,
    Unsynced,
}

/// Brings the bytes of `files` to the disk. A failure has taken their directory offline.
fn sync_for_closing(state: &LogDirState, files: &[Arc<FileHandle>]) {
    // A flush that finds a file clean waits for this, so that it never reports what is not on disk
    // yet.
    let _closing = state.closing.lock();
    if files.len() >= TOGETHER_MIN && state.can_sync_file_system() {
        files.iter().for_each(|f| f.synced_with_others());
        // Told to everybody by the directory, which is offline then.
        let _ = state.sync_file_system();
        return;
    }
    for file in files {
        if let Err(error) = file.sync() {
            tracing::warn!(path = %file.path().display(), %error, "not closed");
        }
    }
}

/// A flag that is set by whoever uses a file and taken by whoever looks for idle ones.
#[derive(Debug, Default)]
pub(crate) struct Touched(AtomicBool);

impl Touched {
    pub(crate) fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
