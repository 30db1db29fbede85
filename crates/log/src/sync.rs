//! Group commit: one fdatasync serves every waiter of a log. Owns its threads and nothing else;
//! knows no async runtime, completion is a callback.
//!
//! Logs are synced in rounds. A log that was not in the present round, or has much to write, is
//! synced at once; any other waits for the next round. The more logs are busy, the longer a round
//! lasts: a sync costs about as much for one append as for ten, and syncs that follow each other as
//! fast as the disk answers take the processor away from the appends.
//!
//! Appends that nobody waits for are synced by size and age, beside the syncs that somebody waits
//! for. When many logs are dirty, one sync of their file system serves them all.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::LogError;
use crate::partition_log::{PartitionLog, TOGETHER_MIN, flush_all};

const THREADS_MAX: usize = 64;
/// Of so many threads one is kept for logs that are waited for: hundreds of mirrored logs that come
/// of age together would otherwise stand in front of every acknowledgement.
const THREADS_FOR_ONE_KEPT: usize = 4;

/// Length of a round for each log in it.
const ROUND_PER_LOG: Duration = Duration::from_micros(200);
/// Length of a round at most, and so what a busy log waits at most before its sync begins.
const ROUND_MAX: Duration = Duration::from_micros(1_500);
/// A log with so many unsynced bytes does not wait for the next round: writing them is what the
/// sync costs then.
const GATHERED_BYTES_MAX: u64 = 64 << 10;

/// From so many logs on that somebody waits for, they are synced together …
const READY_TOGETHER_MIN: usize = 256;
/// … as many as have so many bytes; what has more is written faster by all threads side by side.
const READY_TOGETHER_BYTES_MAX: u64 = 8 << 20;
/// After a sync of many logs that nobody waited for, the next one waits so many times as long as it
/// took.
const SWEEP_REST: u32 = 1;

/// Called once, on a syncer thread, with the recovery point reached or the error that took the
/// directory offline. Must not block.
pub type SyncDone = Box<dyn FnOnce(Result<i64, LogError>) + Send + 'static>;

/// When appends nobody waits for (mirrored ones) are synced.
#[derive(Debug, Clone, Copy)]
pub struct SyncPolicy {
    /// Sync a log once this many bytes are unsynced.
    pub dirty_bytes_max: u64,
    /// Sync a log this long after its first unsynced append, or when the disk is done with an
    /// earlier sync of many.
    pub dirty_age_max: Duration,
}

impl Default for SyncPolicy {
    fn default() -> Self {
        SyncPolicy {
            dirty_bytes_max: 16 << 20,
            dirty_age_max: Duration::from_secs(1),
        }
    }
}

/// The syncer threads. Dropping it syncs what is queued or dirty and joins them.
#[derive(Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    policy: SyncPolicy,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Logs by the address of their `Arc`, which the entry keeps alive.
#[derive(Debug, Default)]
struct Queue {
    logs: HashMap<usize, Entry>,
    /// Logs to sync now.
    ready: VecDeque<usize>,
    /// Logs to sync when there is time: nobody waits for them. One that got a waiter since is in
    /// another queue too.
    background: VecDeque<usize>,
    background_running: usize,
    background_max: usize,
    /// The log taken last came out of the background.
    background_was_last: bool,
    /// Logs to sync in the next round.
    gathering: VecDeque<usize>,
    round: Round,
    /// Whether a thread waits for the next round to begin.
    timed: bool,
    /// Dirty logs in order of their deadline.
    aging: VecDeque<(Instant, usize)>,
    /// A thread syncs many logs; when it was done, the next time for those that nobody waits for.
    sweeping: bool,
    swept: Option<Instant>,
    stopping: bool,
}

/// The present round.
#[derive(Debug, Default)]
struct Round {
    /// Logs remember it; 0 for none yet.
    number: u64,
    logs: usize,
    /// When the next one may begin.
    over: Option<Instant>,
    began: Option<Instant>,
}

/// What a syncer thread does next.
enum Work {
    One(usize, Arc<PartitionLog>),
    /// Many logs, by one sync of their file system.
    Sweep(Vec<(usize, Arc<PartitionLog>)>),
}

struct Entry {
    log: Arc<PartitionLog>,
    waiters: Vec<(i64, SyncDone)>,
    queued: Option<For>,
    running: Option<For>,
    /// Asked for again while it ran.
    wanted: bool,
    aging: bool,
}

/// Whom a sync is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Waiters,
    Nobody,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("log", &self.log.dir())
            .field("waiters", &self.waiters.len())
            .finish()
    }
}

impl Syncer {
    /// Starts `threads` (1..=64) threads.
    pub fn start(threads: usize, policy: SyncPolicy) -> Arc<Syncer> {
        let threads = threads.clamp(1, THREADS_MAX);
        let shared = Arc::new(Shared {
            policy,
            queue: Mutex::new(Queue {
                background_max: threads - threads / THREADS_FOR_ONE_KEPT,
                ..Queue::default()
            }),
            changed: Condvar::new(),
        });
        let mut handles = Vec::new();
        for n in 0..threads {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new()
                .name(format!("log-sync-{n}"))
                .spawn(move || shared.run());
            match spawned {
                Ok(h) => handles.push(h),
                Err(e) => tracing::error!(error = %e, "cannot start a syncer thread"),
            }
        }
        Arc::new(Syncer {
            shared,
            threads: handles,
        })
    }
    /// Calls `done` when every offset below `offset` of `log` is on disk; at once (on this thread)
    /// when it already is.
    pub fn sync_upto(&self, log: &Arc<PartitionLog>, offset: i64, done: SyncDone) {
        let end = log.durable_end();
        if end >= offset && !self.threads.is_empty() {
            return done(Ok(end));
        }
        if self.threads.is_empty() {
            return done(log.flush());
        }
        let mut queue = self.shared.queue.lock();
        if queue.stopping {
            drop(queue);
            return done(log.flush());
        }
        let key = queue.entry(log);
        if let Some(e) = queue.logs.get_mut(&key) {
            e.waiters.push((offset, done));
        }
        if queue.enqueue(key) {
            self.shared.changed.notify_one();
        }
    }
    /// [`Self::sync_upto`] for threads that may block.
    pub fn sync_upto_blocking(
        &self,
        log: &Arc<PartitionLog>,
        offset: i64,
    ) -> Result<i64, LogError> {
        let (tx, rx) = mpsc::channel();
        self.sync_upto(log, offset, Box::new(move |r| _ = tx.send(r)));
        rx.recv().unwrap_or_else(|_| log.flush())
    }
    /// Has `log` synced when the disk has time, for nobody in particular: behind every log that is
    /// waited for, and together with others when they are many.
    pub fn sync_soon(&self, log: &Arc<PartitionLog>) {
        let mut queue = self.shared.queue.lock();
        if queue.stopping {
            return;
        }
        let key = queue.entry(log);
        if queue.enqueue(key) {
            self.shared.changed.notify_one();
        }
    }
    /// Tells that `log` got bytes nobody waits for; it is synced by the policy. Cheap: call it on
    /// every append.
    pub fn note_append(&self, log: &Arc<PartitionLog>) {
        let full = log.unflushed_bytes() >= self.shared.policy.dirty_bytes_max;
        if !full && log.is_aging() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        let key = queue.entry(log);
        if full {
            if queue.enqueue(key) {
                self.shared.changed.notify_one();
            }
        } else if let Some(e) = queue.logs.get_mut(&key).filter(|e| !e.aging) {
            e.aging = true;
            log.set_aging(true);
            let first = queue.aging.is_empty();
            let deadline = Instant::now() + self.shared.policy.dirty_age_max;
            queue.aging.push_back((deadline, key));
            if first {
                self.shared.changed.notify_one();
            }
        }
    }
}

/// How long a round of `logs` logs lasts.
fn round_time(logs: usize) -> Duration {
    let logs = u32::try_from(logs).unwrap_or(u32::MAX);
    ROUND_PER_LOG.saturating_mul(logs).min(ROUND_MAX)
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.changed.notify_all();
        for h in self.threads.drain(..) {
            // A callback may hold the last reference: a thread cannot join itself.
            if h.thread().id() != std::thread::current().id() && h.join().is_err() {
                tracing::error!("a syncer thread panicked");
            }
        }
    }
}

impl Round {
    fn is_over(&self, now: Instant) -> bool {
        self.over.is_none_or(|over| over <= now)
    }
    fn begin(&mut self, now: Instant) {
        *self = Round {
            number: self.number + 1,
            logs: 0,
            over: None,
            began: Some(now),
        };
    }
    fn take(&mut self, log: &PartitionLog) {
        log.set_sync_round(self.number);
        self.logs += 1;
        self.over = self.began.map(|began| began + round_time(self.logs));
    }
}

impl Queue {
    fn entry(&mut self, log: &Arc<PartitionLog>) -> usize {
        let key = Arc::as_ptr(log) as usize;
        self.logs.entry(key).or_insert_with(|| Entry {
            log: Arc::clone(log),
            waiters: Vec::new(),
            queued: None,
            running: None,
            wanted: false,
            aging: false,
        });
        key
    }
    /// Has a log synced, now or in the next round; gives whether a thread must be woken to see to
    /// that.
    fn enqueue(&mut self, key: usize) -> bool {
        let Some(e) = self.logs.get_mut(&key) else {
            return false;
        };
        if e.running.is_some() {
            e.wanted = true;
            return false;
        }
        if e.waiters.is_empty() {
            let new = e.queued.is_none();
            if new {
                e.queued = Some(For::Nobody);
                self.background.push_back(key);
            }
            return new;
        }
        if e.queued.replace(For::Waiters) == Some(For::Waiters) {
            return false;
        }
        let now = Instant::now();
        let over = self.round.is_over(now);
        let waits =
            e.log.sync_round() == self.round.number && e.log.unflushed_bytes() < GATHERED_BYTES_MAX;
        if waits && !over {
            self.gathering.push_back(key);
            return !self.timed;
        }
        if over && self.gathering.is_empty() {
            self.round.begin(now);
        }
        self.round.take(&e.log);
        self.ready.push_back(key);
        true
    }
    /// Begins the next round when it is time; gives when that will be, if a log waits for it.
    fn next_round(&mut self, now: Instant) -> Option<Instant> {
        if self.gathering.is_empty() {
            return None;
        }
        if !self.round.is_over(now) && !self.stopping {
            return self.round.over;
        }
        self.round.begin(now);
        for key in self.gathering.drain(..) {
            if let Some(e) = self.logs.get(&key) {
                self.round.take(&e.log);
            }
            self.ready.push_back(key);
        }
        None
    }
    /// Takes the next log to sync; those that are waited for go first.
    fn take(&mut self) -> Option<(usize, Arc<PartitionLog>)> {
        let free = self.background_may_run();
        // Its turn comes also under a steady load of the others, or it would never be on disk.
        let owed = self.background_running == 0 && !self.background_was_last;
        let mut taken = None;
        if free && (owed || self.ready.is_empty()) {
            taken = pop(&mut self.background, &mut self.logs, For::Nobody);
        }
        self.background_was_last = taken.is_some();
        self.background_running += usize::from(taken.is_some());
        taken.or_else(|| pop(&mut self.ready, &mut self.logs, For::Waiters))
    }
    /// Takes the logs of a queue together when they are many.
    fn take_many(&mut self) -> Option<Work> {
        if self.sweeping {
            return None;
        }
        let (queue, whom, bytes_max) = if self.ready.len() >= READY_TOGETHER_MIN {
            (&mut self.ready, For::Waiters, READY_TOGETHER_BYTES_MAX)
        } else if self.background.len() >= TOGETHER_MIN {
            (&mut self.background, For::Nobody, u64::MAX)
        } else {
            return None;
        };
        let (mut all, mut bytes) = (Vec::new(), 0_u64);
        while bytes <= bytes_max
            && let Some((key, log)) = pop(queue, &mut self.logs, whom)
        {
            bytes = bytes.saturating_add(log.unflushed_bytes());
            all.push((key, log));
        }
        if whom == For::Nobody {
            self.background_running += all.len();
        }
        self.sweeping = !all.is_empty();
        self.sweeping.then_some(Work::Sweep(all))
    }
    fn background_may_run(&self) -> bool {
        self.stopping || self.background_running < self.background_max
    }
    /// Has logs synced whose deadline passed; gives the next deadline. When many are dirty, those
    /// whose time has not come go with them: it costs nothing more.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        while let Some(&(deadline, _)) = self.aging.front() {
            let mut due = 1;
            if !self.stopping {
                if deadline > now {
                    return Some(deadline);
                }
                if self.aging.len() >= TOGETHER_MIN {
                    if self.sweeping {
                        return None;
                    }
                    if let Some(at) = self.swept.filter(|&at| at > now) {
                        return Some(at);
                    }
                    due = self.aging.len();
                }
            }
            for _ in 0..due {
                self.ripen_first();
            }
        }
        None
    }
    fn ripen_first(&mut self) {
        let Some((_, key)) = self.aging.pop_front() else {
            return;
        };
        if let Some(e) = self.logs.get_mut(&key) {
            e.aging = false;
            e.log.set_aging(false);
            if e.log.unflushed_bytes() > 0 {
                self.enqueue(key);
            }
        }
        self.forget_if_idle(key);
    }
    fn forget_if_idle(&mut self, key: usize) {
        if self.logs.get(&key).is_some_and(|e| {
            e.queued.is_none() && e.running.is_none() && !e.aging && e.waiters.is_empty()
        }) {
            self.logs.remove(&key);
        }
    }
}

/// Takes the first log out of `queue` that is still to be synced for `whom`.
fn pop(
    queue: &mut VecDeque<usize>,
    logs: &mut HashMap<usize, Entry>,
    whom: For,
) -> Option<(usize, Arc<PartitionLog>)> {
    while let Some(key) = queue.pop_front() {
        if let Some(e) = logs.get_mut(&key).filter(|e| e.queued == Some(whom)) {
            e.queued = None;
            e.running = Some(whom);
            return Some((key, Arc::clone(&e.log)));
        }
    }
    None
}

impl Shared {
    fn run(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::One(key, log) => self.done(key, &log.flush()),
                Work::Sweep(logs) => self.sweep(logs),
            }
        }
    }
    fn done(&self, key: usize, outcome: &Result<i64, LogError>) {
        for done in self.finish(key, outcome) {
            done(outcome.clone());
        }
    }
    fn sweep(&self, logs: Vec<(usize, Arc<PartitionLog>)>) {
        let begun = Instant::now();
        let (keys, logs): (Vec<usize>, Vec<_>) = logs.into_iter().unzip();
        for (key, outcome) in keys.into_iter().zip(flush_all(&logs)) {
            self.done(key, &outcome);
        }
        let mut queue = self.queue.lock();
        queue.sweeping = false;
        queue.swept = Some(Instant::now() + begun.elapsed() * SWEEP_REST);
        drop(queue);
        self.changed.notify_all();
    }
    /// Waits for something to sync; `None` when stopping and nothing is left.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            let aged = queue.ripen(now);
            let round = queue.next_round(now);
            let many = queue.take_many();
            let one = || queue.take().map(|(key, log)| Work::One(key, log));
            if let Some(taken) = many.or_else(one) {
                // Whoever leaves with work has another one look after the rest.
                let background = !queue.background.is_empty() && queue.background_may_run();
                if background || !queue.ready.is_empty() || (round.is_some() && !queue.timed) {
                    self.changed.notify_one();
                }
                return Some(taken);
            }
            if queue.stopping && !queue.logs.values().any(|e| e.running.is_some()) {
                self.changed.notify_all();
                return None;
            }
            let round = round.filter(|_| !queue.timed);
            queue.timed |= round.is_some();
            match round.into_iter().chain(aged).min() {
                Some(deadline) => _ = self.changed.wait_until(&mut queue, deadline),
                None => self.changed.wait(&mut queue),
            }
            if round.is_some() {
                queue.timed = false;
            }
        }
    }
    /// Takes out the waiters this flush served; the others make the log ready again.
    fn finish(&self, key: usize, outcome: &Result<i64, LogError>) -> Vec<SyncDone> {
        let mut queue = self.queue.lock();
        let mut served = Vec::new();
        let (mut again, mut background) = (false, false);
        if let Some(e) = queue.logs.get_mut(&key) {
            background = e.running.take() == Some(For::Nobody);
            let end = e.log.log_end_offset();
            for (offset, done) in std::mem::take(&mut e.waiters) {
                // An offset above the log end was truncated away: there is nothing left to wait
                // for.
                match outcome {
                    Ok(point) if *point < offset && offset <= end => e.waiters.push((offset, done)),
                    _ => served.push(done),
                }
            }
            again = std::mem::take(&mut e.wanted) || !e.waiters.is_empty();
        }
        queue.background_running -= usize::from(background);
        if again {
            queue.enqueue(key);
        }
        queue.forget_if_idle(key);
        if queue.stopping {
            self.changed.notify_all();
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogConfig;
    use crate::tests::{Home, batch, client};

    /// Takes the next log as a thread would, and is done with it.
    fn sync_next(queue: &mut Queue) -> Option<usize> {
        let (key, _) = queue.take()?;
        let e = queue.logs.get_mut(&key).unwrap();
        e.waiters.clear();
        queue.background_running -= usize::from(e.running.take() == Some(For::Nobody));
        Some(key)
    }
    fn wait_for(queue: &mut Queue, key: usize) -> bool {
        let e = queue.logs.get_mut(&key).unwrap();
        e.waiters.push((1, Box::new(|_| ())));
        queue.enqueue(key)
    }

    #[test]
    fn only_a_log_of_the_present_round_with_little_to_write_waits_for_the_next() {
        let (one, other) = (Home::new(), Home::new());
        let log = one.open(&LogConfig::default());
        let mut queue = Queue::default();
        let (a, b) = (
            queue.entry(&log),
            queue.entry(&other.open(&LogConfig::default())),
        );
        assert!(wait_for(&mut queue, a));
        assert_eq!(sync_next(&mut queue), Some(a));
        let far = Instant::now() + Duration::from_secs(3600);
        queue.round.over = Some(far);
        assert!(wait_for(&mut queue, a));
        assert_eq!(sync_next(&mut queue), None);
        assert!(wait_for(&mut queue, b));
        assert_eq!(sync_next(&mut queue), Some(b), "not synced lately");
        queue.round.over = Some(far);
        assert_eq!(queue.next_round(Instant::now()), Some(far));
        assert_eq!(queue.next_round(far), None);
        assert_eq!(sync_next(&mut queue), Some(a));

        queue.round.over = Some(far);
        client(&log, batch(0, 0, 1, GATHERED_BYTES_MAX as usize)).unwrap();
        assert!(wait_for(&mut queue, a));
        assert_eq!(sync_next(&mut queue), Some(a), "much to write");
    }

    #[test]
    fn logs_that_are_waited_for_overtake_the_others_which_get_their_turn_all_the_same() {
        let homes = [Home::new(), Home::new(), Home::new(), Home::new()];
        let mut queue = Queue {
            background_max: 1,
            ..Queue::default()
        };
        let [a, b, c, d] = homes
            .each_ref()
            .map(|home| queue.entry(&home.open(&LogConfig::default())));
        for key in [a, b, c] {
            assert!(queue.enqueue(key));
        }
        assert_eq!(queue.take().map(|(key, _)| key), Some(a));
        assert!(queue.take().is_none(), "no more of them at once");
        assert!(wait_for(&mut queue, d));
        assert!(wait_for(&mut queue, c), "somebody waits for it now");
        assert_eq!(sync_next(&mut queue), Some(d));
        assert_eq!(sync_next(&mut queue), Some(c));
        assert_eq!(sync_next(&mut queue), None);
        queue.logs.get_mut(&a).unwrap().running = None;
        queue.background_running = 0;
        assert!(wait_for(&mut queue, d));
        let over = queue.round.over.unwrap();
        assert_eq!(queue.next_round(over), None);
        assert_eq!(sync_next(&mut queue), Some(b), "its turn");
        assert_eq!(sync_next(&mut queue), Some(d));
        assert_eq!(sync_next(&mut queue), None, "c was synced already");
    }

    #[test]
    fn a_round_of_one_log_hardly_waits_and_a_round_of_many_no_longer_than_the_bound() {
        assert_eq!(round_time(1), ROUND_PER_LOG);
        assert_eq!(round_time(4), ROUND_PER_LOG * 4);
        assert_eq!(round_time(5_000), ROUND_MAX);
    }
}
