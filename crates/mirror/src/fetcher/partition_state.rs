//! One partition being fetched: its local log, where the source keeps it, how it fares, and the
//! append under way.
//!
//! The append lives here and not in the task that fetches, so that taking the partition away needs
//! no network: closing the partition drops the append at once, whole batches stay, and nothing can
//! be appended afterwards.
//!
//! The append has a lock of its own, because the disk can keep whoever holds it: what else is known
//! of the partition is never behind it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_client::Backoff;
use tarn_fetch::{FetchedPartition, Patience, StallCounter};
use tarn_log::MirrorBounds;
use tarn_replica::{Partition, PartitionMirrorAppend, ReplicaError};
use tarn_wire::{Str, Uuid};
use tokio::time::Instant;

use super::proof::Continuity;
use crate::seam::{FetchAssignment, FetchProgress, MirrorPartition};

/// Longest pause of one partition after errors.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Answers for a partition that bring records or an error and move nothing: one, because what
/// follows may ask otherwise.
const STALLS: Patience = Patience {
    free: 1,
    first: Duration::from_millis(100),
    max: Duration::from_secs(30),
};
/// Divergences of a partition without a record appended or cut between them: each costs a
/// preparation and two stored states.
const DIVERGENCES: Patience = Patience {
    free: 0,
    first: Duration::from_millis(500),
    max: Duration::from_secs(300),
};

/// Names a partition: local topic id and partition.
pub(super) type PartitionKey = (Uuid, i32);

/// Leader of the partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceLeader {
    /// Node id.
    pub(super) node: i32,
    /// Leader epoch, −1 = the source does not tell.
    pub(super) epoch: i32,
}

/// What is kept of a partition beyond one assignment.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) progress: FetchProgress,
    /// The last answer found us at the source's high watermark.
    caught_up: bool,
    /// When that was last so, or when the first answer came.
    caught_up_ms: Option<i64>,
    /// Answers in a row that moved nothing.
    stalls: StallCounter,
    /// Divergences reported in a row without any progress, and when the next may be.
    divergences: StallCounter,
    divergence_not_before: Option<Instant>,
}

impl Default for Tracked {
    fn default() -> Tracked {
        Tracked {
            progress: FetchProgress::default(),
            caught_up: false,
            caught_up_ms: None,
            stalls: StallCounter::new(STALLS),
            divergences: StallCounter::new(DIVERGENCES),
            divergence_not_before: None,
        }
    }
}

impl Tracked {
    /// Records were appended or cut.
    pub(super) fn moved_on(&mut self) {
        self.stalls.moved();
        self.divergences.moved();
        self.divergence_not_before = None;
    }

    /// The answers are as they should be again.
    pub(super) fn no_stall(&mut self) {
        self.stalls.moved();
    }

    /// An answer moved nothing although it should: how long to wait, and how many there were.
    pub(super) fn stalled(&mut self) -> (Option<Duration>, u32) {
        (self.stalls.nothing_moved(), self.stalls.in_a_row())
    }

    /// A divergence is to be reported: `Err` = not before this time, because the last ones led to
    /// nothing.
    pub(super) fn may_diverge(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.divergence_not_before.filter(|&until| until > now) {
            return Err(until - now);
        }
        let wait = self.divergences.nothing_moved();
        self.divergence_not_before = wait.map(|wait| now + wait);
        Ok(())
    }

    /// Divergences reported in a row.
    pub(super) fn divergences(&self) -> u32 {
        self.divergences.in_a_row()
    }

    /// The source's log end as another question than Fetch found it. No fetch, so its age stays.
    pub(super) fn ends_at(&mut self, high_watermark: i64, local_end: i64, now_ms: i64) {
        self.progress.source_high_watermark = Some(high_watermark);
        self.moved(local_end, now_ms);
    }

    /// A good answer: the source's bounds, and our log end after it.
    pub(super) fn answered(
        &mut self,
        high_watermark: i64,
        log_start: i64,
        local_end: i64,
        now_ms: i64,
    ) {
        self.progress.source_high_watermark = Some(high_watermark);
        if log_start >= 0 {
            self.progress.source_log_start = Some(log_start);
        }
        self.still_good(now_ms);
        self.moved(local_end, now_ms);
    }

    /// The source had nothing new to say about the partition, which is an answer too.
    pub(super) fn still_good(&mut self, now_ms: i64) {
        if self.progress.source_high_watermark.is_none() {
            return;
        }
        self.progress.last_fetch_ms = Some(now_ms);
        self.progress.error = None;
        self.progress.error_since_ms = None;
        if self.caught_up {
            self.caught_up_ms = Some(now_ms);
        }
    }

    fn moved(&mut self, local_end: i64, now_ms: i64) {
        let Some(high_watermark) = self.progress.source_high_watermark else {
            return;
        };
        self.caught_up = local_end >= high_watermark;
        if self.caught_up || self.caught_up_ms.is_none() {
            self.caught_up_ms = Some(now_ms);
        }
    }

    /// Something is wrong although the state stays MIRRORING.
    pub(super) fn set_error(&mut self, text: &str, now_ms: i64) {
        self.progress.error = Some(Str::from(text));
        self.progress.error_since_ms.get_or_insert(now_ms);
    }

    /// For describe.
    pub(super) fn snapshot(&self, now_ms: i64) -> FetchProgress {
        let mut progress = self.progress.clone();
        progress.lag_ms = self
            .caught_up_ms
            .map(|since| match (self.caught_up, &progress.error) {
                (true, None) => 0,
                _ => (now_ms - since).max(0),
            });
        progress
    }
}

/// What changes while a partition is fetched.
#[derive(Debug)]
pub(super) struct FetchState {
    /// The assignment is over; nothing is appended any more.
    closed: bool,
    /// Reported as failed or diverged: waits for the control plane.
    pub(super) suspended: bool,
    /// `None` = ask for metadata.
    pub(super) leader: Option<SourceLeader>,
    /// Not asked for before.
    pub(super) blocked_until: Option<Instant>,
    /// It waits because nothing moved, which fresh metadata does not change.
    stalled: bool,
    /// Nothing is copied before the content was compared with the source's, and whether that is
    /// under way.
    check_due: bool,
    checking: bool,
    /// Whether what comes is known to follow ours.
    pub(super) continuity: Continuity,
    /// A fetcher has it or had it.
    pub(super) placed: bool,
    backoff: Backoff,
    /// The local log is empty: the source's log start must be known first.
    pub(super) needs_start: bool,
    /// At least so many bytes must be asked for: a batch did not fit.
    pub(super) bytes_min: i32,
    /// Highest local epoch that was asked for.
    pub(super) epoch_asked: i32,
}

impl FetchState {
    /// Takes the leader. Another one, or one after none was known, may lead another history.
    pub(super) fn set_leader(&mut self, leader: Option<SourceLeader>) {
        if leader.is_some() && leader != self.leader {
            self.check_due = true;
        }
        self.leader = leader;
    }

    /// The control plane lets it go on; true when it was suspended.
    pub(super) fn resume(&mut self) -> bool {
        self.check_due |= self.suspended;
        std::mem::take(&mut self.suspended)
    }

    /// An answer did not begin with our last batch: the content decides before anything more is
    /// copied.
    pub(super) fn doubt(&mut self) {
        self.continuity.doubt();
        self.check_due = true;
    }

    /// Whether nothing may be copied before the content was compared.
    pub(super) fn is_unchecked(&self) -> bool {
        self.check_due || self.checking
    }

    fn is_open(&self) -> bool {
        !self.closed && !self.suspended
    }
}

/// A partition being fetched.
pub(super) struct PartitionFetchState {
    pub(super) assignment: FetchAssignment,
    pub(super) local: Arc<Partition>,
    pub(super) tracked: Arc<Mutex<Tracked>>,
    /// Never held over a call to the file system.
    state: Mutex<FetchState>,
    /// Held over each write. Taken before `state` where both are needed.
    append: Mutex<Option<PartitionMirrorAppend>>,
}

impl PartitionFetchState {
    pub(super) fn new(
        assignment: FetchAssignment,
        local: Arc<Partition>,
        tracked: Arc<Mutex<Tracked>>,
        backoff: Duration,
    ) -> Arc<PartitionFetchState> {
        tracked.lock().progress.appended = false;
        let needs_start = is_empty(&local);
        let state = FetchState {
            closed: false,
            suspended: false,
            leader: None,
            blocked_until: None,
            stalled: false,
            check_due: true,
            checking: false,
            continuity: Continuity::new(assignment.source_topic_id.is_none()),
            placed: false,
            backoff: Backoff::new(backoff, BACKOFF_MAX.max(backoff)),
            needs_start,
            bytes_min: 0,
            epoch_asked: -1,
        };
        Arc::new(PartitionFetchState {
            assignment,
            local,
            tracked,
            state: Mutex::new(state),
            append: Mutex::new(None),
        })
    }

    pub(super) fn name(&self) -> &MirrorPartition {
        &self.assignment.partition
    }

    /// Looks at or changes the state. Short: no I/O inside.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut FetchState) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Ends the assignment: an append under way is dropped (whole batches stay) before this
    /// returns, however long the disk takes.
    pub(super) fn close(&self) {
        self.close_soon();
        drop(self.take_append());
    }

    /// Ends the assignment without waiting: no append begins any more, and one under way takes no
    /// more than the piece that is being written. True when none is under way.
    pub(super) fn close_soon(&self) -> bool {
        self.state.lock().closed = true;
        self.append
            .try_lock()
            .is_some_and(|append| append.is_none())
    }

    /// Whether a fetch may ask for the partition now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.is_open()
            && !state.is_unchecked()
            && state.blocked_until.is_none_or(|until| until <= now)
    }

    /// Whether metadata may be asked for its leader now.
    pub(super) fn may_seek_leader(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.is_open() && state.blocked_until.is_none_or(|until| until <= now)
    }

    /// Takes the turn to compare its content with the source's leader, which is given; `None` = not
    /// due, or not now.
    pub(super) fn begin_check(&self, now: Instant) -> Option<SourceLeader> {
        let mut state = self.state.lock();
        let is_due = state.is_open() && state.check_due && !state.checking;
        let leader = state.leader.filter(|_| is_due)?;
        if state.blocked_until.is_some_and(|until| until > now) {
            return None;
        }
        (state.check_due, state.checking) = (false, true);
        Some(leader)
    }

    /// The turn is over; `again` = without a verdict.
    pub(super) fn end_check(&self, again: bool) {
        let end = self.local.log().log_end_offset();
        let mut state = self.state.lock();
        if !again {
            state.continuity.compared(end);
        }
        state.checking = false;
        state.check_due |= again;
    }

    /// Whether a comparison waits for its turn; the time before which it has none.
    pub(super) fn check_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let is_due = state.is_open() && state.check_due && !state.checking;
        let has_leader = state.leader.is_some();
        (is_due && has_leader).then(|| state.blocked_until.unwrap_or_else(Instant::now))
    }

    /// Whether anything will ever be asked again without the control plane.
    pub(super) fn is_live(&self) -> bool {
        self.state.lock().is_open()
    }

    /// Waits longer after each call until [`PartitionFetchState::clear_error`]; shows the reason.
    pub(super) fn back_off(&self, text: &str, now_ms: i64) {
        self.tracked.lock().set_error(text, now_ms);
        let mut state = self.state.lock();
        let wait = state.backoff.next_wait();
        state.blocked_until = Some(Instant::now() + wait);
        state.stalled = false;
    }

    /// Nothing moves: waits so long, and shows why.
    pub(super) fn stall(&self, wait: Duration, text: &str, now_ms: i64) {
        self.tracked.lock().set_error(text, now_ms);
        let mut state = self.state.lock();
        state.blocked_until = Some(Instant::now() + wait);
        state.stalled = true;
    }

    /// The source knows a good leader: what waited for one goes on.
    pub(super) fn has_leader_again(&self) {
        let mut state = self.state.lock();
        if !state.stalled {
            state.backoff.reset();
            state.blocked_until = None;
        }
    }

    /// Errors are over.
    pub(super) fn clear_error(&self) {
        let mut state = self.state.lock();
        state.backoff.reset();
        state.blocked_until = None;
        state.stalled = false;
    }

    /// Opens an append at `offset` for batches within `bounds`; `Ok(false)` when the assignment is
    /// over, or the content must be compared first.
    pub(super) fn open_append(
        &self,
        offset: i64,
        bounds: MirrorBounds,
        now_ms: i64,
    ) -> Result<bool, ReplicaError> {
        let mut open = self.local.log().wait_for(&self.append);
        if !self.with(|s| s.is_open() && !s.is_unchecked()) {
            return Ok(false);
        }
        // One that was left behind by a task that is gone.
        *open = None;
        let mut append = self.local.mirror_append(offset, now_ms)?;
        append.set_bounds(bounds);
        *open = Some(append);
        Ok(true)
    }

    /// Appends the next piece; `Ok(false)` when the assignment is over or no append is open.
    pub(super) fn push(&self, piece: &[u8]) -> Result<bool, ReplicaError> {
        let mut open = self.local.log().wait_for(&self.append);
        if self.with(|s| s.closed) {
            *open = None;
        }
        let Some(append) = &mut *open else {
            return Ok(false);
        };
        match append.push(piece) {
            Ok(()) => Ok(true),
            Err(e) => {
                *open = None;
                Err(e)
            }
        }
    }

    /// Takes the append out, to finish or to drop it.
    pub(super) fn take_append(&self) -> Option<PartitionMirrorAppend> {
        self.local.log().wait_for(&self.append).take()
    }
}

impl FetchedPartition for PartitionFetchState {
    fn key(&self) -> PartitionKey {
        (self.name().topic_id, self.name().partition)
    }

    fn topic(&self) -> &Str {
        &self.name().topic
    }

    fn partition(&self) -> i32 {
        self.name().partition
    }

    fn topic_id(&self) -> Option<Uuid> {
        self.assignment.source_topic_id
    }

    fn directory(&self) -> &Path {
        self.local.log().dir_state().path()
    }
}

/// Whether a log has no record.
pub(super) fn is_empty(local: &Partition) -> bool {
    local.log().log_start_offset() >= local.log().log_end_offset()
}

/// Epoch of the last record, −1 = no record or none known.
pub(super) fn last_epoch(local: &Partition) -> i32 {
    let end = local.log().log_end_offset();
    if is_empty(local) {
        -1
    } else {
        local.log().epoch_for_offset(end - 1).unwrap_or(-1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetcher::testing::{BACKOFF, LEADER, NOW, World, batch};

    fn bounds() -> MirrorBounds {
        crate::claims::bounds(Some(LEADER.epoch), 100)
    }

    #[tokio::test]
    async fn nothing_is_copied_before_the_content_was_compared() {
        let world = World::new().await;
        let partition = &world.partition;
        let now = Instant::now();
        assert_eq!(partition.check_due(), None, "nobody to compare with");
        partition.with(|s| s.set_leader(Some(LEADER)));
        assert!(!partition.is_ready(now) && partition.check_due().is_some());
        assert!(!partition.open_append(0, bounds(), NOW).expect("no error"));
        assert_eq!(partition.begin_check(now), Some(LEADER));
        assert_eq!(partition.begin_check(now), None, "one at a time");
        partition.end_check(true);
        assert!(!partition.is_ready(now), "it ended without a verdict");
        partition.begin_check(now);
        partition.end_check(false);
        assert!(partition.is_ready(now));
        let next = SourceLeader { epoch: 5, ..LEADER };
        partition.with(|s| s.set_leader(Some(next)));
        assert!(
            !partition.is_ready(now),
            "another leader, another history perhaps"
        );
    }

    #[tokio::test]
    async fn a_closed_partition_keeps_whole_batches_and_takes_nothing_more() {
        let world = World::ready().await;
        let partition = &world.partition;
        assert!(partition.open_append(0, bounds(), NOW).expect("opens"));
        assert!(partition.push(&batch(0)).expect("is appended"));
        assert!(partition.push(&batch(10)[..80]).expect("is appended"));
        partition.close();
        assert!(!partition.push(&batch(10)[80..]).expect("no error"));
        assert_eq!(world.end(), 10);
        assert!(!partition.open_append(10, bounds(), NOW).expect("no error"));
        assert!(!partition.is_live());
    }

    #[tokio::test]
    async fn a_suspended_partition_is_compared_when_it_goes_on() {
        let world = World::ready().await;
        let partition = &world.partition;
        partition.with(|s| s.suspended = true);
        assert!(!partition.is_live() && partition.check_due().is_none());
        assert!(partition.with(|s| s.resume()), "it was suspended");
        assert!(!partition.with(|s| s.resume()));
        assert!(partition.is_live() && partition.check_due().is_some());
    }

    #[tokio::test]
    async fn waits_end_with_a_leader_unless_nothing_moved() {
        let world = World::ready().await;
        let partition = &world.partition;
        let error = || partition.tracked.lock().progress.error.clone();
        partition.back_off("no leader", NOW);
        assert_eq!(error().as_deref(), Some("no leader"));
        assert!(!partition.is_ready(Instant::now()));
        assert!(partition.is_ready(Instant::now() + BACKOFF * 2));
        partition.has_leader_again();
        assert!(partition.is_ready(Instant::now()));
        partition.stall(BACKOFF, "nothing moves", NOW);
        partition.has_leader_again();
        assert!(!partition.is_ready(Instant::now()));
        partition.clear_error();
        assert!(partition.is_ready(Instant::now()));
    }

    #[test]
    fn lag_in_time_counts_from_the_last_answer_that_found_us_at_the_end() {
        let mut tracked = Tracked::default();
        assert_eq!(tracked.snapshot(NOW).lag_ms, None);
        tracked.answered(10, 0, 10, NOW);
        assert_eq!(tracked.snapshot(NOW + 500).lag_ms, Some(0));
        tracked.answered(20, 0, 10, NOW + 1_000);
        assert_eq!(tracked.snapshot(NOW + 1_500).lag_ms, Some(500));
        tracked.answered(20, 0, 20, NOW + 2_000);
        tracked.set_error("away", NOW + 2_500);
        assert_eq!(tracked.snapshot(NOW + 3_000).lag_ms, Some(1_000));
    }

    #[test]
    fn divergences_without_progress_are_reported_ever_more_seldom() {
        let mut tracked = Tracked::default();
        let now = Instant::now();
        assert_eq!(tracked.may_diverge(now), Ok(()));
        assert_eq!(tracked.may_diverge(now), Err(DIVERGENCES.first));
        let later = now + DIVERGENCES.first;
        assert_eq!(tracked.may_diverge(later), Ok(()));
        assert_eq!(tracked.may_diverge(later), Err(DIVERGENCES.first * 2));
        tracked.moved_on();
        assert_eq!(tracked.may_diverge(later), Ok(()));
        assert_eq!(tracked.divergences(), 1);
    }
}
