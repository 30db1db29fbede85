//! Disks that do not answer: which threads are inside a call to the file system of which log
//! directory, for how long, and what follows. A write to a frozen file system does not fail and
//! cannot be called off, so the calls are watched from outside.
//!
//! A thread notes the directory in a place of its own before such a call and clears it afterwards:
//! two stores, no clock. The watchdog looks at these places a few times a second. A directory in
//! which a call takes longer than [`SLOW_AFTER`] is *slow*: work on it goes where it may wait.
//! After [`REFUSED_AFTER`] it is *stalled*: new work on it is refused. After a configured time it
//! is offline. Threads of an async runtime that are stuck are replaced for so long, see
//! [`WorkerGroup`].
//!
//! Guards F-6: nothing that can take more than a millisecond holds up an async worker.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::state::LogDirState;

/// A call that takes longer makes its directory slow.
pub(crate) const SLOW_AFTER: Duration = Duration::from_millis(75);
/// New work on a directory is refused when a call has not come back for so long.
pub(crate) const REFUSED_AFTER: Duration = Duration::from_secs(2);
/// Default of the time after which a stalled directory is offline.
pub const OFFLINE_AFTER: Duration = Duration::from_secs(30);
/// A sync may take this many times as long as any other call: it writes what many appends left
/// behind.
const SYNC_PATIENCE: u32 = 4;
/// Marks the directory of a thread that syncs.
const SYNCING: u32 = 1 << 31;
/// Callers that may wait for one slow directory at a time; the next one is refused.
const WAITING_MAX: usize = 16;
/// How often the watchdog looks while there are calls …
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// … and while there are none.
const LOOK_IDLE: Duration = Duration::from_millis(250);
/// A look that came later than so many intervals counts as this many: the process itself was
/// stopped or starved.
const LATE_LOOKS_MAX: u32 = 4;

/// How a directory answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// As it should.
    Quick,
    /// A call is late: whoever may not wait hands over.
    Slow,
    /// A call is so late that nothing more is begun.
    Stalled,
}

/// The watchdog's view of one directory.
#[derive(Debug)]
pub(crate) struct Health {
    /// Never 0 for a watched directory.
    id: u32,
    pace: AtomicU8,
    waiting: AtomicUsize,
    offline_after_ms: AtomicU64,
}

impl Health {
    /// Of a directory that is not watched.
    pub(crate) fn unwatched() -> Health {
        Health::new(0)
    }
    pub(crate) fn watched() -> Health {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Health::new(NEXT.fetch_add(1, Ordering::Relaxed))
    }
    fn new(id: u32) -> Health {
        Health {
            id,
            pace: AtomicU8::new(0),
            waiting: AtomicUsize::new(0),
            offline_after_ms: AtomicU64::new(OFFLINE_AFTER.as_millis() as u64),
        }
    }
    pub(crate) fn pace(&self) -> Pace {
        match self.pace.load(Ordering::Relaxed) {
            0 => Pace::Quick,
            1 => Pace::Slow,
            _ => Pace::Stalled,
        }
    }
    fn set_pace(&self, pace: Pace) -> Pace {
        let before = self.pace();
        self.pace.store(pace as u8, Ordering::Relaxed);
        before
    }
    pub(crate) fn set_offline_after(&self, limit: Duration) {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.offline_after_ms.store(ms, Ordering::Relaxed);
    }
    fn offline_after(&self) -> Duration {
        Duration::from_millis(self.offline_after_ms.load(Ordering::Relaxed))
    }
}

/// A place among those who wait for a slow directory.
#[derive(Debug)]
pub struct WaitPlace(Arc<LogDirState>);

impl WaitPlace {
    pub(crate) fn take(state: &Arc<LogDirState>) -> Option<WaitPlace> {
        let waiting = &state.health.waiting;
        if waiting.fetch_add(1, Ordering::AcqRel) < WAITING_MAX {
            return Some(WaitPlace(Arc::clone(state)));
        }
        waiting.fetch_sub(1, Ordering::AcqRel);
        None
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        self.0.health.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one thread is in.
#[derive(Debug, Default)]
struct Slot {
    /// Id of the directory, with [`SYNCING`]; 0 = in no call.
    dir: AtomicU32,
    /// Calls begun so far, so that two looks tell one long call from two short ones.
    calls: AtomicU64,
    group: Option<Arc<WorkerGroup>>,
}

thread_local! {
    static GROUP: RefCell<Option<Arc<WorkerGroup>>> = const { RefCell::new(None) };
    static SLOT: Arc<Slot> = new_slot();
    /// Whether the thread is inside a call already.
    static NESTED: Cell<bool> = const { Cell::new(false) };
}

fn new_slot() -> Arc<Slot> {
    let slot = Arc::new(Slot {
        group: GROUP.with_borrow(Clone::clone),
        ..Slot::default()
    });
    watchdog().slots.lock().push(Arc::downgrade(&slot));
    slot
}

/// Ends with the call.
#[derive(Debug)]
pub(crate) struct InCall(bool);

/// Notes that this thread begins a call that waits for the disk of `state`, or for somebody who
/// does.
pub(crate) fn enter(state: &LogDirState) -> InCall {
    enter_as(state.health.id)
}

/// As [`enter`], for a sync: however long it takes, the directory is not slow for it, but one that
/// never ends is noticed.
pub(crate) fn enter_sync(state: &LogDirState) -> InCall {
    match state.health.id {
        0 => enter_as(0),
        id => enter_as(id | SYNCING),
    }
}

fn enter_as(id: u32) -> InCall {
    // A thread that is going away has no place any more.
    let outer = id != 0 && !NESTED.replace(true);
    if outer {
        let noted = SLOT.try_with(|slot| {
            let calls = slot.calls.load(Ordering::Relaxed);
            slot.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
            slot.dir.store(id, Ordering::Release);
        });
        if noted.is_err() {
            NESTED.set(false);
            return InCall(false);
        }
    }
    InCall(outer)
}

impl Drop for InCall {
    fn drop(&mut self) {
        if self.0 {
            let _ = SLOT.try_with(|slot| slot.dir.store(0, Ordering::Release));
            NESTED.set(false);
        }
    }
}

/// The threads of one async runtime, with some in reserve. Those in reserve block inside a task;
/// when workers are stuck in calls to a disk, as many of them are let go, so that the tasks of the
/// runtime go on.
#[derive(Debug, Default)]
pub struct WorkerGroup {
    state: Mutex<GroupState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GroupState {
    stuck: usize,
    standing_in: usize,
    closed: bool,
}

impl WorkerGroup {
    /// A group that the watchdog knows.
    pub fn new() -> Arc<WorkerGroup> {
        let group = Arc::new(WorkerGroup::default());
        watchdog().groups.lock().push(Arc::downgrade(&group));
        group
    }
    /// The calling thread belongs to the group from now on. Call it when the thread starts.
    pub fn enrol(self: &Arc<Self>) {
        GROUP.set(Some(Arc::clone(self)));
    }
    /// Blocks until a thread of the group is stuck that nobody stands in for; false when the group
    /// is closed.
    pub fn stand_by(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return false;
            }
            if state.stuck > state.standing_in {
                state.standing_in += 1;
                return true;
            }
            self.changed.wait(&mut state);
        }
    }
    /// Whether who stands in is still needed; when not, it counts as standing by again.
    pub fn is_needed(&self) -> bool {
        let mut state = self.state.lock();
        let needed = state.stuck >= state.standing_in && !state.closed;
        if !needed {
            state.standing_in -= 1;
        }
        needed
    }
    /// Ends every [`Self::stand_by`].
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
    /// So many threads of the group are stuck, as the watchdog sees it.
    pub fn set_stuck(&self, stuck: usize) {
        let mut state = self.state.lock();
        let more = stuck > state.stuck;
        state.stuck = stuck;
        drop(state);
        if more {
            self.changed.notify_all();
        }
    }
}

/// The one thread that looks.
#[derive(Debug, Default)]
struct Watchdog {
    slots: Mutex<Vec<Weak<Slot>>>,
    dirs: Mutex<Vec<Weak<LogDirState>>>,
    groups: Mutex<Vec<Weak<WorkerGroup>>>,
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
    WATCHDOG.get_or_init(Watchdog::default)
}

/// Has the watchdog look at a directory from now on.
pub(crate) fn watch(state: &Arc<LogDirState>) {
    static STARTED: OnceLock<()> = OnceLock::new();
    watchdog().dirs.lock().push(Arc::downgrade(state));
    STARTED.get_or_init(|| {
        let thread = std::thread::Builder::new().name("log-watchdog".to_owned());
        if let Err(e) = thread.spawn(|| run(watchdog())) {
            tracing::error!(error = %e, "cannot start the thread that watches the disks");
        }
    });
}

/// A call that was there at an earlier look too.
#[derive(Debug, Clone, Copy)]
struct Seen {
    calls: u64,
    lasted: Duration,
}

fn run(dog: &Watchdog) {
    let mut seen: HashMap<usize, Seen> = HashMap::new();
    let (mut last, mut pause) = (Instant::now(), LOOK_IDLE);
    loop {
        std::thread::sleep(pause);
        let elapsed = last.elapsed().min(pause * LATE_LOOKS_MAX);
        last = Instant::now();
        pause = if look(dog, &mut seen, elapsed) {
            LOOK_EVERY
        } else {
            LOOK_IDLE
        };
    }
}

/// One look at everything; gives whether any thread is in a call.
fn look(dog: &Watchdog, seen: &mut HashMap<usize, Seen>, elapsed: Duration) -> bool {
    let mut longest: HashMap<u32, Duration> = HashMap::new();
    let mut longest_sync: HashMap<u32, Duration> = HashMap::new();
    let mut stuck: HashMap<usize, usize> = HashMap::new();
    let mut now_seen = HashMap::new();
    dog.slots.lock().retain(|slot| {
        let Some(slot) = slot.upgrade() else {
            return false;
        };
        let dir = slot.dir.load(Ordering::Acquire);
        if dir == 0 {
            return true;
        }
        let key = Arc::as_ptr(&slot) as usize;
        let calls = slot.calls.load(Ordering::Relaxed);
        let before = seen.get(&key).filter(|s| s.calls == calls);
        let lasted = before.map_or(Duration::ZERO, |s| s.lasted + elapsed);
        now_seen.insert(key, Seen { calls, lasted });
        let syncs = dir & SYNCING != 0;
        let kind = if syncs {
            &mut longest_sync
        } else {
            &mut longest
        };
        let most = kind.entry(dir & !SYNCING).or_default();
        *most = lasted.max(*most);
        if lasted >= SLOW_AFTER
            && let Some(group) = &slot.group
        {
            *stuck.entry(Arc::as_ptr(group) as usize).or_default() += 1;
        }
        true
    });
    *seen = now_seen;
    dog.groups.lock().retain(|group| {
        let Some(group) = group.upgrade() else {
            return false;
        };
        let key = Arc::as_ptr(&group) as usize;
        group.set_stuck(stuck.get(&key).copied().unwrap_or(0));
        true
    });
    dog.dirs.lock().retain(|dir| {
        let Some(dir) = dir.upgrade() else {
            return false;
        };
        let of_dir = |all: &HashMap<u32, Duration>| all.get(&dir.health.id).copied();
        judge(
            &dir,
            of_dir(&longest).unwrap_or_default(),
            of_dir(&longest_sync).unwrap_or_default(),
        );
        true
    });
    !seen.is_empty()
}

fn judge(dir: &LogDirState, longest: Duration, longest_sync: Duration) {
    let pace = match longest {
        lasted if lasted >= REFUSED_AFTER => Pace::Stalled,
        lasted if lasted >= SLOW_AFTER => Pace::Slow,
        _ => Pace::Quick,
    };
    let before = dir.health.set_pace(pace);
    let path = dir.path().display();
    match (before, pace) {
        (Pace::Quick | Pace::Slow, Pace::Stalled) => {
            tracing::warn!(dir = %path, ms = longest.as_millis() as u64, "the disk does not answer, what needs it is refused")
        }
        (Pace::Stalled, Pace::Quick | Pace::Slow) => {
            tracing::warn!(dir = %path, "the disk answers again")
        }
        _ => {}
    }
    let limit = dir.health.offline_after();
    let (lasted, what) = if longest >= limit {
        (longest, "call to the file system")
    } else if longest_sync >= limit * SYNC_PATIENCE {
        (longest_sync, "sync")
    } else {
        return;
    };
    if dir.offline_reason().is_none() {
        dir.take_offline(&format!(
            "a {what} has not come back for {} s: look at the disk, then start again",
            lasted.as_secs()
        ));
    }
}
