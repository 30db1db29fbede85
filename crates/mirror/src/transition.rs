//! What may follow what, and what to do next: the life cycle of a mirror partition as data and as
//! one pure function (docs/mirroring.md §1.1, §6). Knows no clock, no store, no source: [`step`]
//! takes the record, the wish and an event, and gives the next record and the action the shell has
//! to run. The shell repeats [`Event::Reconcile`] for ever, so nothing depends on an event having
//! been seen.

use crate::seam::{FailureKind, PrepareReason};
use crate::state::{Desired, MirrorState};

/// Allowed transitions: target, and the states it may be entered from. A transition to the same
/// state is always allowed.
///
/// The late table with these changes: STOPPED → FAILED is forbidden; PREPARING and FAILED → PAUSING
/// are allowed; UNKNOWN → STOPPED is allowed (only for a wish STOPPED with a last mirror epoch on
/// record, see [`step`]); PAUSED → PREPARING is how a pause that interrupted a preparation is
/// resumed.
pub const TRANSITIONS: [(MirrorState, &[MirrorState]); 10] = {
    use MirrorState::*;
    [
        (Preparing, &[Unknown, Stopped, Failed, Paused]),
        (EpochFencing, &[Mirroring]),
        (UleRecovery, &[Mirroring]),
        (
            Mirroring,
            &[Preparing, EpochFencing, UleRecovery, Paused, Failed],
        ),
        (Pausing, &[Mirroring, Preparing, Failed]),
        (Paused, &[Pausing]),
        (
            Stopping,
            &[
                Preparing,
                EpochFencing,
                Mirroring,
                UleRecovery,
                Pausing,
                Paused,
                Failed,
            ],
        ),
        (Stopped, &[Stopping, Unknown]),
        (
            Failed,
            &[
                Preparing,
                EpochFencing,
                Mirroring,
                UleRecovery,
                Pausing,
                Paused,
                Stopping,
                Unknown,
            ],
        ),
        (Unknown, &[]),
    ]
};

/// Whether the table allows `from` → `to`.
pub fn allowed(from: MirrorState, to: MirrorState) -> bool {
    from == to
        || TRANSITIONS
            .iter()
            .any(|(t, froms)| *t == to && froms.contains(&from))
}

/// Whether a record in state `to` may be stored over one in state `from`. Between two stored
/// records a partition passes only states that are not stored: PAUSING and EPOCH_FENCING always,
/// PREPARING and MIRRORING on the way to a pause or a stop.
pub fn storable(from: MirrorState, to: MirrorState) -> bool {
    use MirrorState::*;
    // STOPPED is final for failures: only a new wish leaves it.
    if from == Stopped && to == Failed {
        return false;
    }
    let ends = matches!(to, Pausing | Paused | Stopping);
    let passed: &[MirrorState] = if ends {
        &[Pausing, EpochFencing, Preparing, Mirroring]
    } else {
        &[Pausing, EpochFencing]
    };
    let mut reached = vec![from];
    let mut next = 0;
    while let Some(state) = reached.get(next).copied() {
        if allowed(state, to) {
            return true;
        }
        for through in passed {
            if allowed(state, *through) && !reached.contains(through) {
                reached.push(*through);
            }
        }
        next += 1;
    }
    false
}

/// What is on record about one mirror partition: the fact side of intent and fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecord {
    /// Actual state.
    pub state: MirrorState,
    /// FAILED: the state to retry. PAUSED: PREPARING when preparation must be done (again) on
    /// resume. Otherwise the state before.
    pub previous: MirrorState,
    /// Last mirror epoch of the last stop; `None` = none.
    pub last_mirror_epoch: Option<i32>,
    /// Log end at the last stop, before our own markers; `None` = none.
    pub last_mirror_offset: Option<i64>,
    /// A decided cut of the local log that may not have been carried out yet.
    pub truncate_to: Option<i64>,
    /// Failures in a row; 0 = none, [`NOT_RETRYABLE`] = never retried by itself.
    pub retry_attempt: i16,
    /// Why it FAILED (or what delays it).
    pub error: Option<String>,
    /// Epoch ms of the last change of state.
    pub changed_at_ms: i64,
}

/// [`PartitionRecord::retry_attempt`] of a failure that only an operator can end.
pub const NOT_RETRYABLE: i16 = -1;

impl Default for PartitionRecord {
    fn default() -> Self {
        PartitionRecord {
            state: MirrorState::Unknown,
            previous: MirrorState::Unknown,
            last_mirror_epoch: None,
            last_mirror_offset: None,
            truncate_to: None,
            retry_attempt: 0,
            error: None,
            changed_at_ms: 0,
        }
    }
}

impl PartitionRecord {
    fn to(&self, state: MirrorState, now_ms: i64) -> PartitionRecord {
        PartitionRecord {
            state,
            previous: self.state,
            changed_at_ms: now_ms,
            ..self.clone()
        }
    }

    fn cleared(mut self) -> PartitionRecord {
        self.retry_attempt = 0;
        self.error = None;
        self
    }

    /// Whether preparation was not finished when this state was entered: resume and retry must
    /// prepare again, and a stop must not take the log's latest epoch for a mirrored one.
    pub fn needs_preparation(&self) -> bool {
        use MirrorState::*;
        match self.state {
            Unknown | Preparing => true,
            Paused | Pausing | Failed => matches!(self.previous, Preparing | Unknown | Stopped),
            _ => false,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Compare and go on: the only event that must never be lost, because it is repeated.
    Reconcile,
    /// Preparation or recovery succeeded.
    Prepared,
    /// The fetcher holds a batch whose epoch is above the local one.
    EpochBehind,
    /// The local epoch has caught up.
    EpochRaised,
    /// The source's log diverged from ours.
    Diverged,
    /// Fetching and preparing have ended (answer to [`Action::StopFetching`]).
    FetchEnded,
    /// The stop sequence is complete (answer to [`Action::Stop`]).
    StopDone,
    /// Something failed for good or for now.
    Failed {
        /// Decides about retries.
        kind: FailureKind,
        /// For describe.
        text: String,
    },
    /// The back-off of a FAILED partition is over.
    RetryDue,
    /// The operator asked again for what is wished (add or resume on a FAILED topic): count from
    /// zero, retry now.
    OperatorReset,
}

/// What the shell has to do in the state that was entered (or still holds). Every action is
/// idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Settled.
    Nothing,
    /// Run the data plane's `prepare`; answer [`Event::Prepared`] or [`Event::Failed`].
    Prepare(PrepareReason),
    /// Make sure a fetcher runs.
    Fetch,
    /// End fetching and preparing; answer [`Event::FetchEnded`].
    StopFetching,
    /// Run (or continue) the stop sequence; answer [`Event::StopDone`].
    Stop,
    /// Wait for the back-off, then [`Event::RetryDue`].
    AwaitRetry,
}

/// Result of [`step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The record from now on.
    pub record: PartitionRecord,
    /// Whether it must be stored **before** the action runs. Transient states (PAUSING,
    /// EPOCH_FENCING) are not stored: losing them costs one more pass, and storing them would cost
    /// a write per partition and flap.
    pub persist: bool,
    /// What to do then.
    pub action: Action,
}

/// Limits of automatic retries (docs/mirroring.md §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// `mirror.failed.retry.initial.backoff.ms`.
    pub initial_backoff_ms: i64,
    /// `mirror.failed.retry.max.backoff.ms`.
    pub backoff_ms_max: i64,
    /// `mirror.failed.retry.max.attempts`: for failures that are not about connectivity; 0 disables
    /// retries.
    pub attempts_max: i16,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            initial_backoff_ms: 1_000,
            backoff_ms_max: 300_000,
            attempts_max: 100,
        }
    }
}

impl RetryPolicy {
    /// Longest wait before attempt number `attempt` (≥ 1).
    pub fn backoff_ms(&self, attempt: i16) -> i64 {
        let doublings = u32::from(attempt.max(1).unsigned_abs() - 1).min(40);
        self.initial_backoff_ms
            .saturating_mul(1_i64 << doublings)
            .min(self.backoff_ms_max)
            .max(1)
    }

    /// The wait itself: uniformly in [0, backoff], so that partitions that failed together do not
    /// retry together. `random` in [0, 1).
    pub fn delay_ms(&self, attempt: i16, random: f64) -> i64 {
        (self.backoff_ms(attempt) as f64 * random.clamp(0.0, 1.0)) as i64
    }
}

/// The next record and action. `policy` only limits the counting of failures.
pub fn step(
    actual: &PartitionRecord,
    desired: Desired,
    event: &Event,
    now_ms: i64,
    policy: RetryPolicy,
) -> Step {
    use MirrorState::*;
    match event {
        Event::Reconcile => reconcile(actual, desired, now_ms, policy),
        Event::Prepared if matches!(actual.state, Preparing | UleRecovery) => {
            let mut record = actual.to(Mirroring, now_ms).cleared();
            // A new mirroring generation begins: the next stop computes its own last mirror epoch.
            record.last_mirror_epoch = None;
            record.last_mirror_offset = None;
            record.truncate_to = None;
            follow_up(record, desired, now_ms, policy)
        }
        Event::EpochBehind if actual.state == Mirroring => {
            go(actual, EpochFencing, now_ms, false, Action::Fetch)
        }
        Event::EpochRaised if actual.state == EpochFencing => {
            go(actual, Mirroring, now_ms, false, Action::Fetch)
        }
        Event::Diverged if actual.state.is_fetching() && desired == Desired::Mirroring => {
            let via = PartitionRecord {
                state: Mirroring,
                ..actual.clone()
            };
            let action = Action::Prepare(PrepareReason::Divergence);
            go(&via, UleRecovery, now_ms, true, action)
        }
        Event::FetchEnded if actual.state == Pausing => {
            let mut step = go(actual, Paused, now_ms, true, Action::Nothing);
            step.record = step.record.cleared();
            step.record.previous = prepared_or_not(actual);
            step
        }
        Event::StopDone if actual.state == Stopping => Step {
            record: actual.to(Stopped, now_ms).cleared(),
            persist: true,
            action: Action::Nothing,
        },
        Event::Failed { kind, text } => fail(actual, desired, *kind, text, now_ms, policy),
        Event::RetryDue if actual.state == Failed && actual.retry_attempt != NOT_RETRYABLE => {
            retry(actual, desired, now_ms, policy, false)
        }
        Event::OperatorReset if actual.state == Failed => {
            retry(actual, desired, now_ms, policy, true)
        }
        // An answer to a question that is no longer asked, or an event of a past state: compare
        // again, never act on it.
        _ => reconcile(actual, desired, now_ms, policy),
    }
}

/// After a success: stored, and continued at once in the direction of the wish.
fn follow_up(record: PartitionRecord, desired: Desired, now_ms: i64, policy: RetryPolicy) -> Step {
    let next = reconcile(&record, desired, now_ms, policy);
    if next.record.state == record.state {
        return Step {
            record,
            persist: true,
            action: next.action,
        };
    }
    // The state between was passed through, what is stored is the end of the path.
    Step {
        persist: true,
        ..next
    }
}

fn fail(
    actual: &PartitionRecord,
    desired: Desired,
    kind: FailureKind,
    text: &str,
    now_ms: i64,
    policy: RetryPolicy,
) -> Step {
    use MirrorState::*;
    match actual.state {
        // STOPPED is final; a stop or a pause under way is not undone by a failure, it is tried
        // again.
        Stopped | Stopping | Paused | Pausing | Unknown => {
            return reconcile(actual, desired, now_ms, policy);
        }
        _ => {}
    }
    let mut record = if actual.state == Failed {
        PartitionRecord {
            changed_at_ms: now_ms,
            ..actual.clone()
        }
    } else {
        actual.to(Failed, now_ms)
    };
    record.error = Some(text.to_owned());
    // A connectivity failure never counts up to the maximum, so that it is retried for ever;
    // describe still shows a number.
    let next = actual.retry_attempt.max(0).saturating_add(1);
    record.retry_attempt = match kind {
        FailureKind::Permanent => NOT_RETRYABLE,
        FailureKind::Connectivity => next.min((policy.attempts_max - 1).max(0)),
        FailureKind::Limited => next.min(policy.attempts_max),
    };
    let action = if retries_exhausted(&record, policy) {
        Action::Nothing
    } else {
        Action::AwaitRetry
    };
    Step {
        record,
        persist: true,
        action,
    }
}

/// Whether only an operator can end this FAILED record.
pub fn retries_exhausted(record: &PartitionRecord, policy: RetryPolicy) -> bool {
    record.state == MirrorState::Failed
        && (record.retry_attempt == NOT_RETRYABLE || record.retry_attempt >= policy.attempts_max)
}

fn retry(
    actual: &PartitionRecord,
    desired: Desired,
    now_ms: i64,
    policy: RetryPolicy,
    reset: bool,
) -> Step {
    use MirrorState::*;
    if desired != Desired::Mirroring {
        return reconcile(actual, desired, now_ms, policy);
    }
    // What only an operator can end (another topic, another cluster) is looked at again before
    // anything is copied.
    let prepare = actual.needs_preparation() || actual.retry_attempt == NOT_RETRYABLE;
    let back = if prepare { Preparing } else { Mirroring };
    let mut record = actual.to(back, now_ms);
    if reset {
        record = record.cleared();
    }
    // The counter and text stay until something succeeds, so that describe shows them and the next
    // failure counts on.
    let action = if back == Preparing {
        Action::Prepare(PrepareReason::Start)
    } else {
        Action::Fetch
    };
    Step {
        record,
        persist: true,
        action,
    }
}

fn stay(actual: &PartitionRecord, action: Action) -> Step {
    Step {
        record: actual.clone(),
        persist: false,
        action,
    }
}

fn go(
    actual: &PartitionRecord,
    state: MirrorState,
    now_ms: i64,
    persist: bool,
    action: Action,
) -> Step {
    Step {
        record: actual.to(state, now_ms),
        persist,
        action,
    }
}

fn reconcile(actual: &PartitionRecord, desired: Desired, now_ms: i64, policy: RetryPolicy) -> Step {
    match (actual.state, desired) {
        // A stop and a pause under way are finished first, whatever is wished meanwhile.
        (MirrorState::Stopping, _) => stay(actual, Action::Stop),
        (MirrorState::Pausing, Desired::Mirroring | Desired::Paused) => {
            stay(actual, Action::StopFetching)
        }
        (_, Desired::Stopped) => toward_stopped(actual, now_ms),
        (_, Desired::Paused) => toward_paused(actual, now_ms),
        (_, Desired::Mirroring) => toward_mirroring(actual, now_ms, policy),
    }
}

fn toward_stopped(actual: &PartitionRecord, now_ms: i64) -> Step {
    use MirrorState::*;
    match actual.state {
        Stopped => stay(actual, Action::Nothing),
        Unknown if actual.last_mirror_epoch.is_some() => {
            go(actual, Stopped, now_ms, true, Action::Nothing)
        }
        // Never began: passes PREPARING without its action, because the source may be dead.
        Unknown => {
            let via = actual.to(Preparing, now_ms);
            go(&via, Stopping, now_ms, true, Action::Stop)
        }
        _ => {
            let mut step = go(actual, Stopping, now_ms, true, Action::Stop);
            // STOPPING remembers where it came from: it decides what the last mirror epoch is.
            if actual.needs_preparation() {
                step.record.previous = Preparing;
            }
            step
        }
    }
}

fn toward_paused(actual: &PartitionRecord, now_ms: i64) -> Step {
    use MirrorState::*;
    let pause = |from: &PartitionRecord| go(from, Pausing, now_ms, false, Action::StopFetching);
    match actual.state {
        Paused => stay(actual, Action::Nothing),
        Unknown | Stopped => pause(&actual.to(Preparing, now_ms).cleared()),
        EpochFencing | UleRecovery => pause(&actual.to(Mirroring, now_ms)),
        Failed => {
            let mut step = pause(actual);
            step.record.previous = prepared_or_not(actual);
            step
        }
        _ => pause(actual),
    }
}

fn toward_mirroring(actual: &PartitionRecord, now_ms: i64, policy: RetryPolicy) -> Step {
    use MirrorState::*;
    let start = Action::Prepare(PrepareReason::Start);
    match actual.state {
        Unknown | Stopped => {
            let step = go(actual, Preparing, now_ms, true, start);
            Step {
                record: step.record.cleared(),
                ..step
            }
        }
        Preparing => stay(actual, start),
        UleRecovery => stay(actual, Action::Prepare(PrepareReason::Divergence)),
        Paused if actual.needs_preparation() => go(actual, Preparing, now_ms, true, start),
        Paused => go(actual, Mirroring, now_ms, true, Action::Fetch),
        Failed if retries_exhausted(actual, policy) => stay(actual, Action::Nothing),
        Failed => stay(actual, Action::AwaitRetry),
        _ => stay(actual, Action::Fetch),
    }
}

/// What a pause or a failure has to remember of where it came from.
fn prepared_or_not(actual: &PartitionRecord) -> MirrorState {
    if actual.needs_preparation() {
        MirrorState::Preparing
    } else {
        MirrorState::Mirroring
    }
}

#[cfg(test)]
mod tests;
