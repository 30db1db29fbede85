//! [`Partition`]: one partition on this broker. Leadership, who may append, what readers may see,
//! and who waits for it.
//!
//! Does not own the files (that is `tarn-log`) nor which partitions exist
//! ([`crate::ReplicaManager`]). It costs no task, no timer and no file descriptor while nothing
//! happens.
//!
//! The append lock of a partition covers the guard check together with the write into the page
//! cache, so that a partition that turned read-only has no local append behind it. A write can wait
//! for a disk that does not answer; only appends wait with it then, and those who look at the state
//! of the partition do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_log::{
    AppendInfo, AppendOrigin, LogError, PRODUCED_BYTES_MAX, Pace, PartitionLog, Syncer,
};
use tarn_metadata::Membership;
use tarn_records::{Unpaced, batches};
use tarn_wire::{Str, Uuid};

use crate::disk;
use crate::durability::Durability;
use crate::error::ReplicaError;
use crate::guard::{self, AppendSource, MirrorGuard, Told};
use crate::purgatory::WatchList;
use crate::shared::Shared;
use crate::visibility;

/// How often who waits for an append looks whether its disk still answers.
const APPEND_LOOK: Duration = Duration::from_millis(50);

/// Leadership and replicas of a partition, as the metadata image has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Node id of the leader; −1 = none.
    pub leader: i32,
    /// Leader epoch.
    pub leader_epoch: i32,
    /// Partition epoch.
    pub partition_epoch: i32,
    /// All replicas.
    pub replicas: Vec<i32>,
    /// In-sync replicas.
    pub isr: Vec<i32>,
}

/// A partition hosted by this broker.
pub struct Partition {
    topic: Str,
    topic_id: Uuid,
    index: i32,
    log: Arc<PartitionLog>,
    internal: bool,
    shared: Arc<Shared>,
    /// Of the log's directory.
    syncer: Arc<Syncer>,
    /// The leader epoch readers are told; the epoch gate compares batches with it.
    leader_epoch: AtomicI32,
    /// Leader node id, −1 = none.
    leader: AtomicI32,
    min_in_sync: AtomicI32,
    state: Mutex<State>,
    /// Readers see only what is on disk.
    durable_only: AtomicBool,
    /// Held over a local append, from the look at the guard to the last byte.
    appending: Mutex<()>,
    /// Taken while the high watermark is computed and set, so that it never moves backwards between
    /// two appends.
    advancing: Mutex<()>,
    watchers: WatchList,
}

#[derive(Debug)]
struct State {
    assignment: Assignment,
    membership: Option<Arc<Membership>>,
    told: Option<Told>,
    /// What follows from the two above.
    guard: MirrorGuard,
    /// `mirror.visible.after=durable` holds for the mirror of the partition.
    mirror_durable: bool,
    /// Mirror appends in flight (0 or 1, except for the moment in which one supersedes another).
    mirror_appends: u32,
    /// The partition was removed from this broker.
    removed: bool,
    /// It was removed because its topic was deleted: whoever still holds it is told that it does
    /// not exist.
    deleted: bool,
}

impl Partition {
    pub(crate) fn new(
        (topic, topic_id, index): (Str, Uuid, i32),
        (log, syncer): (Arc<PartitionLog>, Arc<Syncer>),
        assignment: Assignment,
        (membership, mirror_durable): (Option<Arc<Membership>>, bool),
        min_in_sync: i32,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        let guard = guard::effective(membership.as_deref(), None);
        let partition = Arc::new(Partition {
            internal: crate::is_internal_topic(&topic),
            topic,
            topic_id,
            index,
            log,
            shared,
            syncer,
            leader_epoch: AtomicI32::new(assignment.leader_epoch),
            leader: AtomicI32::new(assignment.leader),
            min_in_sync: AtomicI32::new(min_in_sync),
            state: Mutex::new(State {
                assignment,
                membership,
                told: None,
                guard,
                mirror_durable,
                mirror_appends: 0,
                removed: false,
                deleted: false,
            }),
            durable_only: AtomicBool::new(false),
            appending: Mutex::new(()),
            advancing: Mutex::new(()),
            watchers: WatchList::default(),
        });
        partition.choose_visibility(&partition.state.lock());
        let weak = Arc::downgrade(&partition);
        partition.log.on_durable(move || {
            if let Some(partition) = weak.upgrade() {
                partition.became_durable();
            }
        });
        partition.advance_high_watermark();
        if partition.is_durable_only()
            && partition.log.durable_end() < partition.log.log_end_offset()
        {
            // What a start found behind the recovery point. Thousands of logs may be at it: whoever
            // reads one of them goes first.
            partition.syncer.sync_soon(&partition.log);
        }
        partition
    }

    /// Whether readers see only what is on disk: with durability `disk` all that is written here,
    /// and what a mirror copies where its key says so. What is visible stays visible when that
    /// changes.
    fn choose_visibility(&self, state: &State) {
        let durable_only = match state.guard {
            MirrorGuard::Writable => self.shared.durability == Durability::Disk,
            _ => state.mirror_durable,
        };
        self.durable_only.store(durable_only, Ordering::Release);
    }

    fn is_durable_only(&self) -> bool {
        self.durable_only.load(Ordering::Acquire)
    }

    /// Has everything brought to the disk that readers do not see before; resolves when it is
    /// there, at once when it is already. For who asks where the log ends: what was acknowledged
    /// from memory is to be seen. The caller bounds the wait.
    pub fn wait_visible(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let end = self.log.log_end_offset();
        if !self.is_durable_only() || self.log.durable_end() >= end {
            return None;
        }
        let synced = self.shared.sync_upto(&self.syncer, &self.log, end);
        Some(async move {
            // A failure is told by the partition itself.
            let _ = synced.await;
        })
    }

    /// More of the log is on disk.
    fn became_durable(&self) {
        if self.is_durable_only() && self.advance_high_watermark() {
            self.watchers.signal();
        }
    }

    /// Has brought to the disk what readers do not see before: somebody waits to read.
    pub(crate) fn sync_for_readers(&self) {
        if !self.is_durable_only() {
            return;
        }
        let end = self.log.log_end_offset();
        if self.log.durable_end() < end {
            // Whoever waits learns it from the high watermark.
            self.syncer.sync_upto(&self.log, end, Box::new(|_| ()));
        }
    }

    /// Topic name.
    pub fn topic(&self) -> &Str {
        &self.topic
    }

    /// Topic id.
    pub fn topic_id(&self) -> Uuid {
        self.topic_id
    }

    /// Partition index.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// The log. Append and cut through the partition, not through it: only the partition knows who
    /// may, and who waits.
    pub fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }

    /// The published leader epoch.
    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// Node id of the leader; −1 = none.
    pub fn leader(&self) -> i32 {
        self.leader.load(Ordering::Acquire)
    }

    /// Whether this broker leads the partition.
    pub fn is_leader(&self) -> bool {
        self.leader() == self.shared.node_id
    }

    /// Leadership and replicas, as last seen in the image.
    pub fn assignment(&self) -> Assignment {
        self.state.lock().assignment.clone()
    }

    /// The guard in force.
    pub fn guard(&self) -> MirrorGuard {
        self.state.lock().guard.clone()
    }

    /// Membership in a mirror, as last seen in the image.
    pub fn membership(&self) -> Option<Arc<Membership>> {
        self.state.lock().membership.clone()
    }

    /// The high watermark: readers see what is below.
    pub fn high_watermark(&self) -> i64 {
        self.log.high_watermark()
    }

    /// Number of fetches that wait for this partition to move.
    pub fn waiting_fetches(&self) -> usize {
        self.watchers.len()
    }

    /// Who waits for this partition to move.
    pub(crate) fn watchers(&self) -> &WatchList {
        &self.watchers
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Error when this broker does not lead the partition.
    pub fn check_leader(&self) -> Result<(), ReplicaError> {
        if self.is_leader() {
            Ok(())
        } else {
            Err(self.not_leader(&self.state.lock()))
        }
    }

    /// Checks a caller's leader epoch against the partition's; −1 = the caller has none.
    pub fn check_epoch(&self, given: i32) -> Result<(), ReplicaError> {
        let current = self.leader_epoch();
        match given {
            given if given < 0 || given == current => Ok(()),
            given if given < current => Err(ReplicaError::FencedEpoch { given, current }),
            given => Err(ReplicaError::UnknownEpoch { given, current }),
        }
    }

    fn not_leader(&self, state: &State) -> ReplicaError {
        if state.deleted {
            return self.unknown();
        }
        ReplicaError::NotLeader {
            topic: self.topic.clone(),
            partition: self.index,
        }
    }

    fn unknown(&self) -> ReplicaError {
        ReplicaError::UnknownPartition {
            topic: self.topic.to_string(),
            partition: self.index,
        }
    }

    fn read_only(&self, refusal: guard::ReadOnly) -> ReplicaError {
        ReplicaError::ReadOnly {
            topic: self.topic.clone(),
            mirror: refusal.mirror,
            state: refusal.state,
        }
    }

    /// Error when local appends of clients are refused because the topic is a mirror (Produce,
    /// AddPartitionsToTxn, DeleteRecords).
    pub fn check_writable(&self) -> Result<(), ReplicaError> {
        guard::admits(&self.state.lock().guard, AppendSource::Client)
            .map_err(|refusal| self.read_only(refusal))
    }

    /// Tells what the mirror room knows of the partition. `change_offset` is that of the membership
    /// record the decision was made for: a guard for an older membership change is kept but has no
    /// effect. Fails while a mirror append is in flight and the guard would no longer allow it:
    /// stop the fetcher first.
    pub fn set_mirror_guard(
        &self,
        change_offset: i64,
        guard: MirrorGuard,
    ) -> Result<(), ReplicaError> {
        let mut state = self.state.lock();
        if state.mirror_appends > 0 && !matches!(guard, MirrorGuard::ReadOnly { .. }) {
            return Err(ReplicaError::AppendInFlight {
                topic: self.topic.clone(),
                partition: self.index,
            });
        }
        if state
            .told
            .as_ref()
            .is_some_and(|told| told.change_offset > change_offset)
        {
            return Ok(());
        }
        state.told = Some(Told {
            change_offset,
            guard,
        });
        state.guard = guard::effective(state.membership.as_deref(), state.told.as_ref());
        self.choose_visibility(&state);
        drop(state);
        self.outwait_append();
        Ok(())
    }

    /// Returns once no append is under way that looked at an older guard. A disk that does not
    /// answer is not waited for: what is stuck there holds the log's own lock, in front of
    /// everything a mirror does with the log.
    fn outwait_append(&self) {
        while self.log.dir_state().pace() == Pace::Quick {
            if self.appending.try_lock_for(APPEND_LOOK).is_some() {
                return;
            }
        }
    }

    /// Takes over what the image says. Wakes waiters when the epoch or the leader changed; opens
    /// the epoch gate.
    pub(crate) fn update(
        &self,
        assignment: Assignment,
        (membership, mirror_durable): (Option<Arc<Membership>>, bool),
    ) {
        let changed = {
            let mut state = self.state.lock();
            let changed = state.assignment.leader != assignment.leader
                || state.assignment.leader_epoch != assignment.leader_epoch;
            self.leader.store(assignment.leader, Ordering::Release);
            self.leader_epoch
                .store(assignment.leader_epoch, Ordering::Release);
            state.assignment = assignment;
            state.membership = membership;
            state.mirror_durable = mirror_durable;
            state.guard = guard::effective(state.membership.as_deref(), state.told.as_ref());
            self.choose_visibility(&state);
            changed
        };
        self.outwait_append();
        if changed {
            self.advance_high_watermark();
            self.watchers.signal();
        }
    }

    pub(crate) fn set_min_in_sync(&self, replicas: i32) {
        self.min_in_sync.store(replicas, Ordering::Release);
    }

    /// The partition leaves this broker: nothing is appended any more, waiters learn it. `deleted`:
    /// its topic is gone.
    pub(crate) fn remove(&self, deleted: bool) {
        {
            let mut state = self.state.lock();
            state.removed = true;
            state.deleted = deleted;
            self.leader.store(-1, Ordering::Release);
        }
        self.watchers.signal();
    }

    /// Appends whole batches as the leader; offsets and leader epoch are set in place. Readers are
    /// woken. Returns without waiting for any disk: see [`Partition::wait_committed`].
    pub fn append(
        &self,
        batches: &mut [u8],
        source: AppendSource,
        now_ms: i64,
    ) -> Result<AppendInfo, ReplicaError> {
        let origin = match source {
            AppendSource::Client => {
                let pace = &mut Unpaced;
                let checked = self.check_produced(batches, now_ms, PRODUCED_BYTES_MAX, pace)?;
                return self.append_produced(batches, &checked, now_ms);
            }
            // Records of the broker's own topics are bounded by their rooms, not by a setting
            // somebody may lower.
            AppendSource::Coordinator if self.internal => AppendOrigin::Internal,
            AppendSource::Coordinator => AppendOrigin::Coordinator,
            AppendSource::MirrorStop => AppendOrigin::Internal,
            AppendSource::MirrorFetch => return Err(self.not_mirroring()),
        };
        if source == AppendSource::MirrorStop && !only_control_batches(batches) {
            return Err(ReplicaError::NotAMarker {
                topic: self.topic.clone(),
                partition: self.index,
            });
        }
        self.append_by(source, |log, epoch| {
            log.append_as_leader(batches, epoch, origin, now_ms)
        })
    }

    /// Runs `append` with the leader epoch while `source` may write; again when room for it had to
    /// be made first.
    pub(crate) fn append_by(
        &self,
        source: AppendSource,
        mut append: impl FnMut(&PartitionLog, i32) -> Result<AppendInfo, LogError>,
    ) -> Result<AppendInfo, ReplicaError> {
        let info = disk::run_again(&self.log, || {
            let _append = self.log.wait_for(&self.appending);
            let epoch = self.admit(source)?;
            append(&self.log, epoch).map_err(|error| self.failed(error))
        })?;
        if !info.duplicate {
            self.shared.note_bytes(info.bytes);
            self.appended();
        }
        Ok(info)
    }

    /// Whether `source` may append now, and under which leader epoch.
    fn admit(&self, source: AppendSource) -> Result<i32, ReplicaError> {
        let state = self.state.lock();
        if state.removed || state.assignment.leader != self.shared.node_id {
            return Err(self.not_leader(&state));
        }
        guard::admits(&state.guard, source).map_err(|refusal| self.read_only(refusal))?;
        let current = state.assignment.leader_epoch;
        match self.log.latest_epoch().filter(|&latest| latest > current) {
            Some(latest) => Err(ReplicaError::EpochBehindLog {
                topic: self.topic.clone(),
                partition: self.index,
                latest,
                current,
            }),
            None => Ok(current),
        }
    }

    /// Whether an acks=all append may be accepted at all: enough replicas in sync.
    pub fn check_in_sync(&self) -> Result<(), ReplicaError> {
        let state = self.state.lock();
        let needed = (self.min_in_sync.load(Ordering::Acquire).max(1) as usize)
            .min(state.assignment.replicas.len().max(1));
        let in_sync = state.assignment.isr.len();
        if in_sync < needed {
            Err(ReplicaError::NotEnoughReplicas { in_sync, needed })
        } else {
            Ok(())
        }
    }

    /// Resolves when everything below `offset` is as durable as `acks` asks for: −1 waits for the
    /// disk when durability is `disk` (internal topics: always), 0 and 1 do not wait. The caller
    /// bounds the wait.
    pub async fn wait_committed(
        self: &Arc<Self>,
        offset: i64,
        acks: i16,
    ) -> Result<(), ReplicaError> {
        match self.begin_wait(offset, acks) {
            Some(wait) => wait.await,
            None => Ok(()),
        }
    }

    /// As [`Partition::wait_committed`], but the disk is asked at once, before the wait is polled;
    /// `None` when nothing is to be waited for.
    pub fn begin_wait(
        self: &Arc<Self>,
        offset: i64,
        acks: i16,
    ) -> Option<impl Future<Output = Result<(), ReplicaError>> + Send + use<>> {
        let must_sync = self.internal || (acks == -1 && self.shared.durability == Durability::Disk);
        if !must_sync || self.log.durable_end() >= offset {
            if !self.watchers.is_empty() {
                self.sync_for_readers();
            }
            return None;
        }
        let synced = self.shared.sync_upto(&self.syncer, &self.log, offset);
        let partition = self.clone();
        Some(async move { synced.await.map_err(|error| partition.failed(error)) })
    }

    /// What follows an append, local or mirrored: the high watermark moves, waiting fetches look
    /// again; where readers see only what is on disk, that happens after the sync.
    pub(crate) fn appended(&self) {
        self.log.dir_state().note_activity();
        if self.is_durable_only() {
            if !self.internal {
                self.syncer.note_append(&self.log);
            }
            return;
        }
        self.advance_high_watermark();
        self.watchers.signal();
        if !self.internal {
            self.shared.note_append(&self.syncer, &self.log);
        }
    }

    /// As [`Partition::appended`], for a mirrored append, which nobody acknowledges.
    pub(crate) fn mirrored(&self) {
        self.appended();
        if self.is_durable_only() && !self.watchers.is_empty() {
            self.sync_for_readers();
        }
    }

    fn visible_end(&self) -> i64 {
        let end = self.log.log_end_offset();
        if self.is_durable_only() {
            end.min(self.log.durable_end())
        } else {
            end
        }
    }

    /// Recomputes the high watermark from log ends and epoch gate. Returns whether it moved.
    pub(crate) fn advance_high_watermark(&self) -> bool {
        let _one_at_a_time = self.advancing.lock();
        // The end first: whatever is below it is in the epoch chain that is read afterwards.
        let end = self.visible_end();
        let published = self.leader_epoch();
        let gate = match self.log.latest_epoch() {
            Some(latest) if latest > published => {
                let chain: Vec<(i32, i64)> = self
                    .log
                    .epochs()
                    .iter()
                    .map(|entry| (entry.epoch, entry.start_offset))
                    .collect();
                visibility::epoch_gate(&chain, published)
            }
            _ => None,
        };
        // One broker: the leader is the whole ISR, there are no follower ends to wait for.
        let wanted = visibility::high_watermark(end, [], gate);
        if wanted <= self.log.high_watermark() {
            return false;
        }
        if gate.is_some() {
            let epoch = self.log.epoch_for_offset(wanted - 1);
            tarn_log::invariant!(
                "M-8",
                epoch.is_none_or(|epoch| epoch <= published),
                "epoch {epoch:?} became visible under {published}"
            );
        }
        self.log.set_high_watermark(wanted).1
    }

    /// Turns an error of the log into ours, and takes notice of a directory that went offline.
    pub(crate) fn failed(&self, error: LogError) -> ReplicaError {
        match error {
            LogError::Offline { reason, .. } => {
                self.shared.note_offline();
                ReplicaError::Offline {
                    topic: self.topic.clone(),
                    partition: self.index,
                    reason: reason.to_string(),
                }
            }
            LogError::Closed { .. } if self.state.lock().deleted => self.unknown(),
            error => ReplicaError::Log(error),
        }
    }

    pub(crate) fn not_mirroring(&self) -> ReplicaError {
        let state = match self.guard() {
            MirrorGuard::ReadOnly { state, .. }
            | MirrorGuard::StoppingInternalOnly { state, .. } => state,
            MirrorGuard::Writable => Str::from_static("writable"),
        };
        ReplicaError::NotMirroring {
            topic: self.topic.clone(),
            partition: self.index,
            state,
        }
    }

    /// Runs `action` if mirrored records may be written right now. The action may block on disk:
    /// the guard is pinned meanwhile, not locked.
    pub(crate) fn as_mirror<T>(
        &self,
        action: impl FnOnce() -> Result<T, LogError>,
    ) -> Result<T, ReplicaError> {
        {
            let mut state = self.state.lock();
            if state.removed || state.assignment.leader != self.shared.node_id {
                return Err(self.not_leader(&state));
            }
            if guard::admits(&state.guard, AppendSource::MirrorFetch).is_err() {
                drop(state);
                return Err(self.not_mirroring());
            }
            state.mirror_appends += 1;
        }
        let result = action();
        self.count_mirror_append(-1);
        result.map_err(|error| self.failed(error))
    }

    pub(crate) fn count_mirror_append(&self, by: i32) {
        let mut state = self.state.lock();
        state.mirror_appends = state.mirror_appends.saturating_add_signed(by);
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Partition({}-{} {})",
            self.topic, self.index, self.topic_id
        )
    }
}

/// Whether every batch is a control batch (and there is at least one).
fn only_control_batches(bytes: &[u8]) -> bool {
    let mut any = false;
    for batch in batches(bytes) {
        match batch {
            Ok(batch) if batch.header.is_control() => any = true,
            _ => return false,
        }
    }
    any
}
