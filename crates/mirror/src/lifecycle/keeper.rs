//! The keeper: passes over the cells, sends what is due, and takes the results in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tarn_replica::MirrorGuard;
use tarn_wire::{Str, Uuid};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::LifeCycle;
use super::cell::{Cell, Job, JobKind, Work};
use crate::commands::{Decision, set_stopped};
use crate::dialect::MirrorError;
use crate::seam::{FetchAssignment, MirrorPartition};
use crate::state::{Desired, MirrorState};
use crate::store::table::{Entry, StateKey, Write};

/// Pause between two passes while something is due soon or waits for what tells nobody.
const PASS_MS: u64 = 500;

/// Longest pause between two passes. What changes wakes the keeper; a pass looks at every cell,
/// which thousands of quiet partitions would pay for.
const PASS_MS_MAX: u64 = 5_000;

/// Shortest pause between two passes, so that what comes together goes out in one batch.
const GATHER_MS: u64 = 2;

/// Time between two sweeps for keys of mirrors and topics that are gone.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Topics marked as stopped in one decision.
const STOPPED_PER_DECISION_MAX: usize = 1_000;

type Place = (Uuid, i32);

/// What one pass found.
#[derive(Default)]
struct Pass {
    /// The time at which the next cell is due, epoch ms.
    next_ms: Option<i64>,
    reads: Vec<(Place, u64, StateKey)>,
    writes: Vec<(Place, u64, Write)>,
    jobs: Vec<(Place, u64, JobKind, CancellationToken)>,
    fetches: Vec<FetchAssignment>,
    /// Topics of which every partition led here is STOPPED, and that are not marked yet.
    stopped: BTreeMap<Uuid, (Str, i64)>,
}

impl Pass {
    /// Takes a cell in; all cells of a topic come one after the other. `open` is the last topic
    /// that has one that is not stopped: asking the store about a topic before all of it is stopped
    /// here would cost a read of all its states at every pass.
    fn count_stopped(&mut self, open: &mut Option<Uuid>, topic_id: Uuid, cell: &Cell) {
        if !cell.is_stopped() {
            self.stopped.remove(&topic_id);
            *open = Some(topic_id);
        } else if *open != Some(topic_id) {
            self.stopped
                .entry(topic_id)
                .or_insert_with(|| (cell.partition.topic.clone(), cell.change_offset));
        }
    }
}

/// The pause after a pass, milliseconds.
fn pause_after(next_ms: Option<i64>, now_ms: i64) -> u64 {
    let wait_ms = next_ms.map_or(i64::MAX, |next_ms| next_ms.saturating_sub(now_ms));
    u64::try_from(wait_ms)
        .unwrap_or(0)
        .clamp(PASS_MS, PASS_MS_MAX)
}

impl LifeCycle {
    pub(super) async fn keep(self: Arc<Self>) {
        let mut swept = Instant::now();
        let mut pause_ms = PASS_MS;
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            }
            let pass = self.look();
            pause_ms = pause_after(pass.next_ms, self.at().ms);
            self.send(pass);
            let asked = self.sweep.swap(false, Ordering::Relaxed);
            if asked || swept.elapsed() >= SWEEP_EVERY {
                self.tools.store.sweep(&self.tools.metadata).await;
                swept = Instant::now();
            }
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(GATHER_MS)) => {}
            }
        }
    }

    /// Looks at every cell and marks what is started.
    fn look(&self) -> Pass {
        let at = self.at();
        let mut pass = Pass::default();
        let mut open = None;
        let mut cells = self.cells.lock();
        for (place, cell) in cells.iter_mut() {
            if cell.remembers_failure() {
                cell.succeeded(
                    self.tools
                        .data
                        .progress(&cell.partition)
                        .and_then(|p| p.last_fetch_ms),
                );
            }
            let work = cell.due(at);
            let mut start = |kind| {
                let generation = self.next_generation();
                let cancel = self.cancel.child_token();
                cell.job = Some(Job {
                    kind,
                    generation,
                    cancel: cancel.clone(),
                });
                (generation, cancel)
            };
            match work {
                None => {}
                Some(Work::Read(key)) => pass.reads.push((*place, start(JobKind::Read).0, key)),
                Some(Work::Write(write)) => {
                    pass.writes.push((*place, start(JobKind::Write).0, write))
                }
                Some(Work::Job(kind)) => {
                    let (generation, cancel) = start(kind);
                    pass.jobs.push((*place, generation, kind, cancel));
                }
                Some(Work::Fetch(assignment)) => pass.fetches.push(assignment),
            }
            self.guard(cell);
            pass.count_stopped(&mut open, place.0, cell);
            let next_ms = if cell.remembers_failure() || self.wants_guard(cell) {
                Some(at.ms)
            } else {
                cell.due_next_ms()
            };
            pass.next_ms = pass.next_ms.into_iter().chain(next_ms).min();
        }
        // Topics to be marked: what refuses a mark for now does not say when it will not.
        if !pass.stopped.is_empty() {
            pass.next_ms = Some(at.ms);
        }
        pass
    }

    /// Whether the replica room was not yet told who may append.
    fn wants_guard(&self, cell: &Cell) -> bool {
        let state = cell.shown().state;
        cell.facts.is_some()
            && cell.guarded != Some((cell.change_offset, state))
            && state != MirrorState::Stopping
    }

    /// Tells the replica room who may append. STOPPING is told by the stop sequence itself, when
    /// fetching has ended.
    fn guard(&self, cell: &mut Cell) {
        if !self.wants_guard(cell) {
            return;
        }
        let state = cell.shown().state;
        let partition = &cell.partition;
        let Ok(found) = self
            .tools
            .replicas
            .partition_by_id(&partition.topic_id, partition.partition)
        else {
            return;
        };
        let guard = if cell.is_stopped() {
            MirrorGuard::Writable
        } else {
            MirrorGuard::ReadOnly {
                mirror: partition.mirror.clone(),
                state: Str::from(state.name()),
            }
        };
        if found.set_mirror_guard(cell.change_offset, guard).is_ok() {
            cell.guarded = Some((cell.change_offset, state));
        }
    }

    fn send(self: &Arc<Self>, pass: Pass) {
        let Pass {
            reads,
            writes,
            jobs,
            fetches,
            stopped,
            next_ms: _,
        } = pass;
        for assignment in fetches {
            self.tools.data.add_partition(assignment);
        }
        if !reads.is_empty() {
            self.tasks.spawn(self.clone().read(reads));
        }
        if !writes.is_empty() {
            self.tasks.spawn(self.clone().write(writes));
        }
        for (place, generation, kind, cancel) in jobs {
            self.tasks
                .spawn(self.clone().run_job(place, generation, kind, cancel));
        }
        if !stopped.is_empty() {
            self.mark_stopped(stopped);
        }
    }

    async fn read(self: Arc<Self>, reads: Vec<(Place, u64, StateKey)>) {
        let keys = reads.iter().map(|(_, _, key)| key.clone()).collect();
        let answers = self.tools.store.read(keys).await;
        let at = self.at();
        let mut cells = self.cells.lock();
        for ((place, generation, _), answer) in reads.into_iter().zip(answers) {
            if let Some(cell) = cells
                .get_mut(&place)
                .filter(|c| c.job.as_ref().is_some_and(|j| j.generation == generation))
            {
                cell.finish_job(generation);
                cell.read_done(answer, at);
            }
        }
        drop(cells);
        self.wake.notify_one();
    }

    async fn write(self: Arc<Self>, writes: Vec<(Place, u64, Write)>) {
        let batch = writes.iter().map(|(_, _, write)| write.clone()).collect();
        let answers = self.tools.store.write(batch).await;
        let failed = self.written(writes, answers);
        self.wake.notify_one();
        // FAILED by the refresh, or told to go on just before the failure was reported: nothing is
        // copied in FAILED.
        let data = &self.tools.data;
        let ended: Vec<_> = failed.iter().map(|p| data.remove_partition(p)).collect();
        for ended in ended {
            ended.await;
        }
    }

    /// Takes the answers of writes in; gives the partitions that are FAILED now.
    fn written(
        &self,
        writes: Vec<(Place, u64, Write)>,
        answers: Vec<Result<Entry, MirrorError>>,
    ) -> Vec<MirrorPartition> {
        let at = self.at();
        let mut failed = Vec::new();
        let mut cells = self.cells.lock();
        for ((place, generation, _), answer) in writes.into_iter().zip(answers) {
            let Some(cell) = cells.get_mut(&place) else {
                continue;
            };
            if cell.finish_job(generation) {
                if let Err(error) = &answer {
                    debug!(partition = %cell.partition, %error, "a mirror state was not stored yet");
                }
                cell.write_done(answer, at);
                self.guard(cell);
                if cell.now.state == MirrorState::Failed {
                    failed.push(cell.partition.clone());
                }
            }
        }
        failed
    }

    /// Marks topics of which every partition is STOPPED, so that nobody needs the coordinator for
    /// them any more (docs/mirroring.md §1.2).
    fn mark_stopped(self: &Arc<Self>, candidates: BTreeMap<Uuid, (Str, i64)>) {
        let Ok(permit) = self.marking.clone().try_acquire_owned() else {
            return;
        };
        let life = self.clone();
        self.tasks.spawn(async move {
            let _one_at_a_time = permit;
            let image = life.tools.metadata.image();
            let mut ready = Vec::new();
            for (topic_id, (topic, change_offset)) in candidates.into_iter().take(STOPPED_PER_DECISION_MAX) {
                let Some(member) = image.membership(&topic).filter(|m| m.topic_id == topic_id) else { continue };
                let count = image.topic_by_id(&topic_id).map_or(0, |t| t.partition_count());
                if member.desired != Desired::Stopped || member.stopped || count == 0 {
                    continue;
                }
                let keys = (0..count)
                    .map(|partition| StateKey { mirror: member.mirror.clone(), topic_id, partition })
                    .collect();
                let states = life.tools.store.read(keys).await;
                let stopped = |r: Result<Option<Entry>, _>| {
                    matches!(r, Ok(Some(e)) if e.record.state == MirrorState::Stopped)
                };
                if states.into_iter().all(stopped) {
                    ready.push((topic, topic_id, change_offset));
                }
            }
            if ready.is_empty() {
                return;
            }
            let decide = move |image: &tarn_metadata::Image, _: &mut dyn crate::commands::Planner| {
                let records = ready.iter().flat_map(|(t, id, offset)| set_stopped(image, t, *id, *offset)).collect();
                Ok(Decision { records, topics: Vec::new() })
            };
            if let Err(error) = life.tools.metadata.decide("mark mirror topics stopped", Box::new(decide)).await {
                debug!(%error, "stopped topics are marked at the next pass");
            }
        });
    }
}
