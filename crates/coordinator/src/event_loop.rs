//! The event loop of one internal-topic partition: load, then decide → append → replay → durable →
//! reply, one event at a time.
//!
//! Replies wait in the order of their events until the log is durable up to what was appended
//! before them; one wait serves all replies that became due meanwhile (group commit). A failed
//! append or sync drops the shard with all waiting replies, and loads it again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::error::CoordinatorError;
use crate::runtime::{Clock, RuntimeConfig};
use crate::shard::{CoordinatorRecord, LoadedRecord, Outcome, ReplayError, Shard};
use crate::store::{BoxFuture, Store};

/// Replies that may wait for durability before no further event is taken.
const PENDING_REPLIES_MAX: usize = 10_000;
/// Pause before a failed load is tried again, first and largest.
const LOAD_RETRY_MS: (u64, u64) = (100, 5_000);
/// Records skipped while loading that are named in the log, each with a line; the rest is counted.
const SKIPPED_NAMED_MAX: u64 = 20;
/// The longest sleep towards a deadline; a clock that jumps is noticed after it.
const SLEEP_MS_MAX: i64 = 60_000;

/// Phase of a partition, shared with the callers.
#[derive(Debug, Default)]
pub(crate) struct Phase(AtomicU8);

impl Phase {
    pub(crate) fn is_active(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    fn set_active(&self, active: bool) {
        self.0.store(u8::from(active), Ordering::Release);
    }
}

/// A request on its way through the loop.
pub(crate) trait Event<S>: Send {
    /// Runs the decision; gives the records to append.
    fn decide(&mut self, shard: &mut S, now_ms: i64) -> Vec<CoordinatorRecord>;
    /// Delivers the reply, or why there is none.
    fn complete(self: Box<Self>, outcome: Result<(), CoordinatorError>);
}

/// A decision that answers whom it likes once its records are durable.
pub(crate) struct Submitted<F> {
    decide: Option<F>,
    after: Option<Box<dyn FnOnce() + Send>>,
}

impl<F> Submitted<F> {
    pub(crate) fn new(decide: F) -> Box<Self> {
        Box::new(Submitted {
            decide: Some(decide),
            after: None,
        })
    }
}

impl<S, F: FnOnce(&mut S, i64) -> Outcome + Send> Event<S> for Submitted<F> {
    fn decide(&mut self, shard: &mut S, now_ms: i64) -> Vec<CoordinatorRecord> {
        let Some(decide) = self.decide.take() else {
            return Vec::new();
        };
        let outcome = decide(shard, now_ms);
        self.after = outcome.after;
        outcome.records
    }

    fn complete(self: Box<Self>, outcome: Result<(), CoordinatorError>) {
        if let (Ok(()), Some(after)) = (outcome, self.after) {
            after();
        }
    }
}

/// Everything one loop owns.
pub(crate) struct EventLoop<S: Shard> {
    pub(crate) partition: i32,
    pub(crate) config: Arc<RuntimeConfig>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) factory: Arc<dyn Fn(i32) -> S + Send + Sync>,
    pub(crate) clock: Clock,
    pub(crate) phase: Arc<Phase>,
    pub(crate) queue: mpsc::Receiver<Box<dyn Event<S>>>,
    pub(crate) cancel: CancellationToken,
}

/// State of the loop while the shard is served.
struct Serving<S> {
    shard: S,
    /// Replies in event order, each with the offset up to which the log must be durable first.
    pending: VecDeque<(i64, Box<dyn Event<S>>)>,
    /// First offset after the last append.
    appended: i64,
    /// The log is durable below this offset.
    durable: i64,
}

impl<S: Shard> EventLoop<S> {
    pub(crate) async fn run(mut self) {
        let cancel = self.cancel.clone();
        loop {
            let Some((shard, end)) = cancel.run_until_cancelled(self.load()).await else {
                break;
            };
            self.phase.set_active(true);
            let mut serving = Serving {
                shard,
                pending: VecDeque::new(),
                appended: end,
                durable: end,
            };
            let ended = self.serve(&mut serving, &cancel).await;
            self.phase.set_active(false);
            let error = match &ended {
                Ok(()) => self.not_coordinator(),
                Err(error) => {
                    warn!(topic = %self.config.topic.name, partition = self.partition, %error, "coordinator partition failed, loading it again");
                    error.clone()
                }
            };
            for (_, event) in serving.pending.drain(..) {
                event.complete(Err(error.clone()));
            }
            if ended.is_ok() {
                break;
            }
            self.refuse_queued(&self.loading());
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(Duration::from_millis(LOAD_RETRY_MS.0)) => {}
            }
        }
        self.queue.close();
        let error = self.not_coordinator();
        self.refuse_queued(&error);
    }

    fn refuse_queued(&mut self, error: &CoordinatorError) {
        while let Ok(event) = self.queue.try_recv() {
            event.complete(Err(error.clone()));
        }
    }

    fn loading(&self) -> CoordinatorError {
        CoordinatorError::Loading {
            topic: self.config.topic.name.to_string(),
            partition: self.partition,
        }
    }

    fn not_coordinator(&self) -> CoordinatorError {
        CoordinatorError::NotCoordinator {
            topic: self.config.topic.name.to_string(),
            partition: self.partition,
        }
    }

    /// Replays the partition into a fresh shard, again and again until it works. Gives the shard
    /// and the log end it was read to.
    async fn load(&self) -> (S, i64) {
        let mut pause_ms = LOAD_RETRY_MS.0;
        loop {
            let started = Instant::now();
            match self.load_once().await {
                Ok((mut shard, end, records)) => {
                    shard.loaded((self.clock)());
                    if records > 0 {
                        info!(topic = %self.config.topic.name, partition = self.partition, records, end, ms = started.elapsed().as_millis() as u64, "coordinator partition loaded");
                    }
                    return (shard, end);
                }
                Err(error) => {
                    // Right after its creation a partition is in the image a moment before its log
                    // is open.
                    if pause_ms == LOAD_RETRY_MS.0 {
                        debug!(topic = %self.config.topic.name, partition = self.partition, %error, "coordinator partition cannot be loaded yet");
                    } else {
                        warn!(topic = %self.config.topic.name, partition = self.partition, %error, "loading a coordinator partition failed, trying again in {pause_ms} ms");
                    }
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    pause_ms = (pause_ms * 2).min(LOAD_RETRY_MS.1);
                }
            }
        }
    }

    async fn load_once(&self) -> Result<(S, i64, u64), CoordinatorError> {
        let mut shard = (self.factory)(self.partition);
        let (mut offset, end) = self.store.bounds(self.partition)?;
        let (mut records, mut skipped) = (0, 0);
        while offset < end {
            let (store, partition, max_bytes) = (
                self.store.clone(),
                self.partition,
                self.config.load_chunk_bytes,
            );
            let step = tokio::task::spawn_blocking(move || {
                let chunk = store.read(partition, offset, max_bytes)?;
                let count = chunk.records.len() as u64;
                let bad = replay_all(&mut shard, chunk.records);
                Ok::<_, CoordinatorError>((shard, chunk.next_offset, count, bad))
            });
            let (next, bad);
            (shard, next, records, bad) = match step.await {
                Ok(result) => {
                    result.map(|(shard, next, count, bad)| (shard, next, records + count, bad))?
                }
                Err(error) => {
                    return Err(CoordinatorError::Log(format!(
                        "the replay stopped: {error}"
                    )));
                }
            };
            for (at, error) in bad {
                skipped += 1;
                if skipped <= SKIPPED_NAMED_MAX {
                    error!(topic = %self.config.topic.name, partition = self.partition, offset = at, %error, "a record of the internal topic cannot be read and is skipped");
                }
            }
            if next <= offset {
                return Err(CoordinatorError::Log(format!(
                    "nothing could be read at offset {offset}, log end {end}"
                )));
            }
            offset = next;
        }
        if skipped > SKIPPED_NAMED_MAX {
            error!(topic = %self.config.topic.name, partition = self.partition, skipped, "more records of the internal topic were skipped");
        }
        Ok((shard, end, records))
    }

    /// Serves until cancelled (`Ok`) or until the log fails.
    async fn serve(
        &mut self,
        serving: &mut Serving<S>,
        cancel: &CancellationToken,
    ) -> Result<(), CoordinatorError> {
        let mut syncing: Option<(i64, BoxFuture<'static, Result<(), CoordinatorError>>)> = None;
        loop {
            if syncing.is_none() && serving.durable < serving.appended {
                syncing = Some((
                    serving.appended,
                    self.store.durable(self.partition, serving.appended),
                ));
            }
            let sleep_ms = serving
                .shard
                .next_deadline_ms()
                .map(|at| at.saturating_sub((self.clock)()).clamp(0, SLEEP_MS_MAX));
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(()),
                outcome = async { match &mut syncing { Some((_, wait)) => wait.await, None => std::future::pending().await } } => {
                    outcome?;
                    if let Some((offset, _)) = syncing.take() {
                        serving.durable = offset;
                    }
                    serving.release();
                }
                () = async { match sleep_ms { Some(ms) => tokio::time::sleep(Duration::from_millis(ms as u64)).await, None => std::future::pending().await } } => {
                    let now = (self.clock)();
                    if serving.shard.next_deadline_ms().is_some_and(|at| at <= now) {
                        self.take(serving, Submitted::new(|shard: &mut S, now_ms| shard.on_deadline(now_ms)), now)?;
                    }
                }
                event = self.queue.recv(), if serving.pending.len() < PENDING_REPLIES_MAX => {
                    let Some(event) = event else { return Ok(()) };
                    let now = (self.clock)();
                    self.take(serving, event, now)?;
                }
            }
        }
    }

    /// Takes one event through decision and append; its reply waits for the disk.
    fn take(
        &self,
        serving: &mut Serving<S>,
        mut event: Box<dyn Event<S>>,
        now_ms: i64,
    ) -> Result<(), CoordinatorError> {
        let records = event.decide(&mut serving.shard, now_ms);
        if let Err(error) = self.append(serving, records, now_ms) {
            event.complete(Err(error.clone()));
            return Err(error);
        }
        serving.pending.push_back((serving.appended, event));
        serving.release();
        Ok(())
    }

    /// Appends and replays; on failure the shard is not to be used any more.
    fn append(
        &self,
        serving: &mut Serving<S>,
        records: Vec<CoordinatorRecord>,
        now_ms: i64,
    ) -> Result<(), CoordinatorError> {
        if records.is_empty() {
            return Ok(());
        }
        let next_offset = self.store.append(self.partition, &records, now_ms)?;
        let first = next_offset - records.len() as i64;
        for (index, record) in records.into_iter().enumerate() {
            let loaded = LoadedRecord {
                offset: first + index as i64,
                timestamp_ms: now_ms,
                key: record.key,
                value: record.value,
            };
            serving
                .shard
                .replay(loaded)
                .map_err(|error| CoordinatorError::Log(format!("own record refused: {error}")))?;
        }
        serving.appended = next_offset;
        Ok(())
    }
}

/// Replays records; gives offset and reason of each that the shard could not take. One bad record
/// spoils only itself: the partition that holds it would otherwise be lost to every group in it.
fn replay_all<S: Shard>(shard: &mut S, records: Vec<LoadedRecord>) -> Vec<(i64, ReplayError)> {
    let mut bad = Vec::new();
    for record in records {
        let at = record.offset;
        if let Err(error) = shard.replay(record) {
            bad.push((at, error));
        }
    }
    bad
}

impl<S> Serving<S> {
    /// Delivers every reply whose records, and those before it, are durable.
    fn release(&mut self) {
        while self
            .pending
            .front()
            .is_some_and(|(offset, _)| *offset <= self.durable)
        {
            if let Some((_, event)) = self.pending.pop_front() {
                event.complete(Ok(()));
            }
        }
    }
}
