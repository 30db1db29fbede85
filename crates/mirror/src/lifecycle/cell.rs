//! One mirror partition led here, between its stored fact and its wish. Pure: decides which work is
//! due, and takes results in; the keeper does the work.

use tarn_client::text_cut;
use tarn_metadata::DesiredState;
use tarn_wire::Uuid;
use tokio_util::sync::CancellationToken;

use crate::dialect::MirrorError;
use crate::seam::{
    FailureKind, FetchAssignment, FetchFailure, LogOrigin, MirrorPartition, PrepareReason,
};
use crate::state::MirrorState;
use crate::stop_point::{self, StopPoint};
use crate::store::table::{Entry, StateKey, Write};
use crate::transition::{Action, Event, PartitionRecord, RetryPolicy, step};

/// First pause after the store refused or did not answer.
const STORE_BACKOFF_MS: i64 = 100;
/// Longest pause after the store did not answer.
const STORE_BACKOFF_MS_MAX: i64 = 5_000;
/// Pause before a preparation that could not be decided, or a stop step that failed, is tried
/// again.
const AGAIN_MS: i64 = 1_000;

/// How soon it is made sure that a fetcher runs; the pause doubles each time, so that thousands of
/// quiet partitions cost nothing.
const ENSURE_MS: i64 = 500;
/// How often the pause doubles.
const ENSURE_DOUBLES_MAX: u32 = 5;

/// What a running job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Reads the state from the store.
    Read,
    /// Writes a state.
    Write,
    /// Ends fetching before STOPPING is stored, so that the sync point is final.
    Quiesce,
    /// The data plane's `prepare`.
    Prepare(PrepareReason),
    /// Ends fetching to pause.
    StopFetching,
    /// The stop sequence.
    Stop,
}

/// A running job. A result that carries another generation is of the past and is dropped.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) generation: u64,
    pub(crate) cancel: CancellationToken,
}

/// A record on its way into the store, and what to do when it is there.
#[derive(Clone, Debug)]
struct PendingWrite {
    record: PartitionRecord,
    action: Action,
    /// The record it follows: decides the sync point of a stop.
    before: PartitionRecord,
    /// The sync point is in it (or it needs none).
    complete: bool,
}

/// Work that is due.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Read(StateKey),
    Write(Write),
    Job(JobKind),
    /// Make sure a fetcher runs; not a job, returns at once.
    Fetch(FetchAssignment),
}

/// What a cell has to know of the present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) ms: i64,
    pub(crate) policy: RetryPolicy,
    /// In [0, 1): jitter.
    pub(crate) random: f64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) partition: MirrorPartition,
    pub(crate) leader_epoch: i32,
    pub(crate) desired: DesiredState,
    pub(crate) change_offset: i64,
    pub(crate) source_topic_id: Option<Uuid>,
    /// Stored; `None` = not read yet.
    pub(crate) facts: Option<Entry>,
    /// In force: the stored one, or a transient state after it.
    pub(crate) now: PartitionRecord,
    action: Action,
    write: Option<PendingWrite>,
    pub(crate) job: Option<Job>,
    queued: Option<Event>,
    /// Nothing is tried before this, epoch ms.
    due_ms: i64,
    /// The last failure was about reaching the source.
    lacks_source: bool,
    /// How often the fetcher was made sure of since the action began.
    ensured: u32,
    store_failures: u32,
    /// Why it does not go on although it is not FAILED, and since when.
    pub(crate) delay: Option<(String, i64)>,
    /// Since when the source answers without being able to say what a preparation must know.
    undecided_since_ms: Option<i64>,
    /// The (change offset, state) the guard was last set for.
    pub(crate) guarded: Option<(i64, MirrorState)>,
}

impl Cell {
    pub(crate) fn new(
        partition: MirrorPartition,
        leader_epoch: i32,
        desired: DesiredState,
        change_offset: i64,
        source_topic_id: Option<Uuid>,
    ) -> Cell {
        Cell {
            partition,
            leader_epoch,
            desired,
            change_offset,
            source_topic_id,
            facts: None,
            now: PartitionRecord::default(),
            action: Action::Nothing,
            write: None,
            job: None,
            queued: None,
            due_ms: 0,
            lacks_source: false,
            ensured: 0,
            store_failures: 0,
            delay: None,
            undecided_since_ms: None,
            guarded: None,
        }
    }

    pub(crate) fn key(&self) -> StateKey {
        StateKey {
            mirror: self.partition.mirror.clone(),
            topic_id: self.partition.topic_id,
            partition: self.partition.partition,
        }
    }

    pub(crate) fn assignment(&self) -> FetchAssignment {
        FetchAssignment {
            partition: self.partition.clone(),
            source_topic_id: self.source_topic_id,
            leader_epoch: self.leader_epoch,
        }
    }

    /// The state to show: where it is going if that is being stored. STOPPED is shown only when it
    /// is stored, because then (and not before) the partition takes writes.
    pub(crate) fn shown(&self) -> &PartitionRecord {
        match &self.write {
            Some(write) if write.record.state != MirrorState::Stopped => &write.record,
            _ => &self.now,
        }
    }

    pub(crate) fn origin(&self, reason: PrepareReason) -> LogOrigin {
        LogOrigin {
            last_mirror_offset: self.now.last_mirror_offset,
            last_mirror_epoch: self.now.last_mirror_epoch,
            written_by_this_mirror: reason == PrepareReason::Divergence
                || self.now.last_mirror_offset.is_some(),
        }
    }

    /// What the image says of the leadership here and of the topic at the source. A fetcher that
    /// works with something else is told at once.
    pub(crate) fn learn(&mut self, leader_epoch: i32, source_topic_id: Option<Uuid>) {
        if (self.leader_epoch, self.source_topic_id) == (leader_epoch, source_topic_id) {
            return;
        }
        (self.leader_epoch, self.source_topic_id) = (leader_epoch, source_topic_id);
        if self.action == Action::Fetch {
            (self.due_ms, self.ensured) = (0, 0);
        }
    }

    /// The wish changed, or was repeated.
    pub(crate) fn wish(&mut self, desired: DesiredState, change_offset: i64, at: Now) {
        let again = change_offset > self.change_offset;
        self.desired = desired;
        self.change_offset = change_offset;
        if again {
            self.due_ms = 0;
            // What is shown counts: a failure that is still being stored is one the operator has
            // seen, too.
            let is_failed = self.shown().state == MirrorState::Failed;
            let reset = desired == DesiredState::Mirroring && is_failed;
            self.on(
                if reset {
                    Event::OperatorReset
                } else {
                    Event::Reconcile
                },
                at,
            );
        }
    }

    /// Takes an event in. While a write is under way the newest event that means something waits
    /// for it.
    pub(crate) fn on(&mut self, event: Event, at: Now) {
        if self.facts.is_none() || self.write.is_some() {
            if event != Event::Reconcile {
                self.queued = Some(event);
            }
            return;
        }
        let next = step(&self.now, self.desired, &event, at.ms, at.policy);
        let changed = next.record != self.now || next.action != self.action;
        if changed
            && self
                .job
                .as_ref()
                .is_some_and(|j| !serves(j.kind, next.action))
        {
            self.cancel_job();
        }
        if next.persist {
            // Two ways end the time in which the log itself is known to be a prefix of the
            // source's: a stop, and a preparation after it. What the log says then is kept as the
            // sync point.
            let proven = self.now.state == MirrorState::Failed && !self.now.needs_preparation();
            let complete = match next.record.state {
                MirrorState::Stopping => false,
                MirrorState::Preparing => !proven,
                _ => true,
            };
            self.write = Some(PendingWrite {
                record: next.record,
                action: next.action,
                before: self.now.clone(),
                complete,
            });
            self.due_ms = 0;
            return;
        }
        if next.record.state != self.now.state {
            self.due_ms = 0;
        }
        self.now = next.record;
        self.set_action(next.action, at);
    }

    fn set_action(&mut self, action: Action, at: Now) {
        if action == Action::AwaitRetry && self.action != Action::AwaitRetry {
            // Counted from the failure, so that a leader change does not start the wait anew.
            let wait = at.policy.delay_ms(self.now.retry_attempt, at.random);
            self.due_ms = self
                .now
                .changed_at_ms
                .saturating_add(wait)
                .min(at.ms.saturating_add(wait));
        }
        if action != self.action {
            self.delay = None;
            self.undecided_since_ms = None;
            self.ensured = 0;
        }
        self.action = action;
    }

    fn cancel_job(&mut self) {
        if let Some(job) = self.job.take() {
            job.cancel.cancel();
        }
    }

    /// Takes the job off, for a leadership that ended.
    pub(crate) fn abandon(&mut self) {
        self.cancel_job();
    }

    /// The work that is due now, if any. Called again and again; the caller marks a job as running.
    pub(crate) fn due(&mut self, at: Now) -> Option<Work> {
        if self.job.is_some() || at.ms < self.due_ms {
            return None;
        }
        let Some(facts) = &self.facts else {
            return Some(Work::Read(self.key()));
        };
        let state_epoch = facts.state_epoch;
        if let Some(write) = &self.write {
            if !write.complete {
                return Some(Work::Job(JobKind::Quiesce));
            }
            return Some(Work::Write(
                self.write_of(write.record.clone(), state_epoch),
            ));
        }
        match self.action {
            Action::Nothing => None,
            Action::Fetch => {
                self.due_ms = at.ms + (ENSURE_MS << self.ensured.min(ENSURE_DOUBLES_MAX));
                self.ensured = self.ensured.saturating_add(1);
                Some(Work::Fetch(self.assignment()))
            }
            Action::Prepare(reason) => Some(Work::Job(JobKind::Prepare(reason))),
            Action::StopFetching => Some(Work::Job(JobKind::StopFetching)),
            Action::Stop => Some(Work::Job(JobKind::Stop)),
            Action::AwaitRetry => {
                self.on(Event::RetryDue, at);
                self.due(at)
            }
        }
    }

    /// When [`Cell::due`] has work again as things are, epoch ms; `None`: when something happens,
    /// which wakes the keeper.
    pub(crate) fn due_next_ms(&self) -> Option<i64> {
        let idle = self.facts.is_some() && self.write.is_none() && self.action == Action::Nothing;
        (self.job.is_none() && !idle).then_some(self.due_ms)
    }

    /// A write of this record with the fences of this leadership.
    pub(crate) fn write_of(&self, record: PartitionRecord, state_epoch: i32) -> Write {
        Write {
            key: self.key(),
            change_offset: self.change_offset,
            leader_epoch: self.leader_epoch,
            expected_state_epoch: state_epoch,
            record,
        }
    }

    /// Whether a result of this generation is still awaited; ends the job if so.
    pub(crate) fn finish_job(&mut self, generation: u64) -> bool {
        match &self.job {
            Some(job) if job.generation == generation => {
                self.job = None;
                true
            }
            _ => false,
        }
    }

    /// The store answered a read.
    pub(crate) fn read_done(&mut self, result: Result<Option<Entry>, MirrorError>, at: Now) {
        match result {
            Ok(found) => {
                self.store_failures = 0;
                let entry = found.unwrap_or_default();
                self.now = entry.record.clone();
                // A wish was uttered that no leader has acted under yet: for a FAILED partition
                // that means "now, and from zero".
                let renewed = entry.change_offset < self.change_offset;
                if renewed && self.now.state == MirrorState::Failed {
                    self.queued.get_or_insert(Event::OperatorReset);
                }
                self.facts = Some(entry);
                self.settle(Action::Nothing, at);
            }
            Err(error) => self.store_failed(&error, at),
        }
    }

    /// The store answered the pending write.
    pub(crate) fn write_done(&mut self, result: Result<Entry, MirrorError>, at: Now) {
        match result {
            Ok(entry) => {
                self.store_failures = 0;
                let action = self.write.take().map_or(Action::Nothing, |w| w.action);
                self.now = entry.record.clone();
                self.facts = Some(entry);
                self.settle(action, at);
            }
            Err(
                error @ (MirrorError::FencedStateEpoch { .. }
                | MirrorError::FencedLeaderEpoch { .. }),
            ) => {
                // Somebody else wrote: read what is there and compare again.
                self.write = None;
                self.facts = None;
                self.store_failed(&error, at);
            }
            Err(error) => self.store_failed(&error, at),
        }
    }

    fn settle(&mut self, action: Action, at: Now) {
        self.delay = None;
        self.action = Action::Nothing;
        self.set_action(action, at);
        let event = self.queued.take().unwrap_or(Event::Reconcile);
        self.on(event, at);
    }

    fn store_failed(&mut self, error: &MirrorError, at: Now) {
        let backoff = (STORE_BACKOFF_MS << self.store_failures.min(10)).min(STORE_BACKOFF_MS_MAX);
        self.store_failures = self.store_failures.saturating_add(1);
        self.due_ms = at.ms + backoff;
        self.delayed(
            format!("the state cannot be stored or read: {error}"),
            at.ms,
        );
    }

    /// The fetcher has let go: the sync point is final. `None` = the log could not be looked at,
    /// try again.
    pub(crate) fn quiesced(&mut self, log: Option<(Option<i32>, i64)>, at: Now) {
        let Some(write) = &mut self.write else { return };
        let Some((latest_epoch, log_end)) = log else {
            self.due_ms = at.ms + STORE_BACKOFF_MS;
            return;
        };
        let StopPoint {
            last_mirror_epoch,
            last_mirror_offset,
        } = stop_point::decide(&write.before, latest_epoch, log_end);
        write.record.last_mirror_epoch = last_mirror_epoch;
        write.record.last_mirror_offset = last_mirror_offset;
        write.record.truncate_to = None;
        write.complete = true;
    }

    /// A job could not do its work now; the same action is tried again.
    pub(crate) fn again(&mut self, reason: String, at: Now) {
        self.due_ms = at.ms + AGAIN_MS;
        self.undecided_since_ms = None;
        self.delayed(reason, at.ms);
    }

    /// As [`Cell::again`], for so long at most; then it is a failure, which is retried ever more
    /// rarely.
    pub(crate) fn undecided(&mut self, reason: String, limit_ms: i64, at: Now) {
        let since_ms = self.undecided_since_ms.unwrap_or(at.ms);
        if at.ms.saturating_sub(since_ms) >= limit_ms {
            let kind = FailureKind::Limited;
            self.fail(FetchFailure { kind, text: reason }, at);
            return;
        }
        self.again(reason, at);
        self.undecided_since_ms = Some(since_ms);
    }

    /// Keeps why it does not go on, with the time since when it does not.
    pub(crate) fn delayed(&mut self, reason: String, now_ms: i64) {
        let reason = text_cut(&reason).to_owned();
        let since = self.delay.as_ref().map_or(now_ms, |(_, since)| *since);
        self.delay = Some((reason, since));
    }

    /// A failure reported by the data plane or the refresh. The same text on a FAILED partition is
    /// not a new failure.
    pub(crate) fn fail(&mut self, failure: FetchFailure, at: Now) {
        let text = text_cut(&failure.text).to_owned();
        let failure = FetchFailure { text, ..failure };
        let repeated = self.now.state == MirrorState::Failed
            && self.now.error.as_deref() == Some(failure.text.as_str());
        if !repeated && self.desired == DesiredState::Mirroring {
            self.lacks_source = failure.kind == FailureKind::Connectivity;
            self.on(
                Event::Failed {
                    kind: failure.kind,
                    text: failure.text,
                },
                at,
            );
        }
    }

    /// The source answers: what FAILED because it could not be reached is retried now. True when
    /// that ended a wait.
    pub(crate) fn source_answers(&mut self) -> bool {
        let waits = self.action == Action::AwaitRetry && self.lacks_source;
        if waits {
            self.due_ms = 0;
        }
        waits
    }

    /// A past failure is still on record although it mirrors again.
    pub(crate) fn remembers_failure(&self) -> bool {
        let idle = self.write.is_none() && self.job.is_none();
        idle && self.now.state == MirrorState::Mirroring
            && (self.now.retry_attempt != 0 || self.now.error.is_some())
    }

    /// The source answered a fetch at this time: a failure before it is cleared from the record.
    pub(crate) fn succeeded(&mut self, last_fetch_ms: Option<i64>) {
        if self.remembers_failure() && last_fetch_ms.is_some_and(|ms| ms > self.now.changed_at_ms) {
            let record = PartitionRecord {
                retry_attempt: 0,
                error: None,
                ..self.now.clone()
            };
            self.write = Some(PendingWrite {
                record,
                action: Action::Fetch,
                before: self.now.clone(),
                complete: true,
            });
        }
    }

    /// Stored STOPPED, and that is what is wished.
    pub(crate) fn is_stopped(&self) -> bool {
        let stored = self
            .facts
            .as_ref()
            .is_some_and(|f| f.record.state == MirrorState::Stopped);
        stored && self.write.is_none() && self.desired == DesiredState::Stopped
    }
}

/// Whether a job of this kind is what the action asks for.
fn serves(kind: JobKind, action: Action) -> bool {
    match (kind, action) {
        (JobKind::Prepare(a), Action::Prepare(b)) => a == b,
        (JobKind::StopFetching, Action::StopFetching) | (JobKind::Stop, Action::Stop) => true,
        // Reads and writes end by themselves; a quiesce belongs to a pending write.
        (JobKind::Read | JobKind::Write | JobKind::Quiesce, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tarn_wire::Str;

    use super::*;

    const AT: Now = Now {
        ms: 1_000,
        policy: RetryPolicy {
            initial_backoff_ms: 1_000,
            backoff_ms_max: 300_000,
            attempts_max: 100,
        },
        random: 0.5,
    };

    fn mirroring() -> Cell {
        let partition = MirrorPartition {
            mirror: Str::from("m"),
            topic: Str::from("t"),
            topic_id: Uuid([1; 16]),
            partition: 0,
        };
        let mut cell = Cell::new(partition, 1, DesiredState::Mirroring, 5, None);
        let record = PartitionRecord {
            state: MirrorState::Mirroring,
            ..PartitionRecord::default()
        };
        let entry = Entry {
            record,
            change_offset: 5,
            ..Entry::default()
        };
        cell.read_done(Ok(Some(entry)), AT);
        cell
    }

    fn stored(cell: &mut Cell) {
        let Some(Work::Write(write)) = cell.due(AT) else {
            panic!("nothing to store");
        };
        let entry = Entry {
            record: write.record,
            change_offset: 5,
            ..Entry::default()
        };
        cell.write_done(Ok(entry), AT);
    }

    /// A resume that comes while the failure is still being stored counts.
    #[test]
    fn a_resume_during_the_write_of_a_failure_is_not_lost() {
        let mut cell = mirroring();
        let failure = FetchFailure {
            kind: FailureKind::Permanent,
            text: "another cluster".into(),
        };
        cell.fail(failure, AT);
        assert_eq!(cell.shown().state, MirrorState::Failed);
        cell.wish(DesiredState::Mirroring, 6, AT);
        stored(&mut cell);
        assert_eq!(cell.shown().state, MirrorState::Preparing);
    }

    /// "cannot say" is waited for, visibly, and for a limited time only.
    #[test]
    fn an_undecided_preparation_becomes_a_failure_after_the_limit() {
        let mut cell = mirroring();
        cell.undecided("loading".into(), 60_000, AT);
        assert_eq!(cell.delay, Some(("loading".to_string(), 1_000)));
        let late = Now { ms: 60_999, ..AT };
        cell.undecided("loading".into(), 60_000, late);
        assert_eq!(cell.shown().state, MirrorState::Mirroring);
        let too_late = Now { ms: 61_000, ..AT };
        cell.undecided("loading".into(), 60_000, too_late);
        assert_eq!(cell.shown().state, MirrorState::Failed);
    }

    /// Whatever text becomes a failure, it is stored cut.
    #[test]
    fn a_failure_is_stored_with_a_cut_text() {
        let mut cell = mirroring();
        let failure = FetchFailure {
            kind: FailureKind::Limited,
            text: "x".repeat(100_000),
        };
        cell.fail(failure, AT);
        let error = cell.shown().error.as_ref().map(String::len);
        assert_eq!(error, Some(1024));
    }
}
