//! Everything fetched for one mirror: its settings, its source, its partitions, and what happens to
//! a partition.
//!
//! The fetcher manager places partitions on fetchers; fetchers call back here when a partition got
//! an answer or met a problem. All of it is state that is looked at again and again, so nothing
//! depends on having seen an event.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tarn_client::Backoff;
use tarn_log::LogError;
use tarn_replica::{ReplicaError, ReplicaManager};
use tarn_wire::Str;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::answers::{EpochRule, epoch_wanted};
use super::partition_response::{AppendError, PartitionOutcome};
use super::partition_state::{PartitionFetchState, PartitionKey, SourceLeader, Tracked};
use crate::config::compiled::blocking;
use crate::seam::{
    BoxFuture, FailureKind, FetchAssignment, FetchEvents, FetchFailure, FetchProgress,
    SourceSettings, SourceTopic,
};
use crate::source::{SourceClient, now_ms};

/// How long "another cluster answers" is believed before the source is asked again.
const WRONG_CLUSTER_BELIEVED: Duration = Duration::from_secs(2);

/// First and longest pause between requests for a higher leader epoch that failed.
const EPOCH_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// An answer may begin beyond its own high watermark only by a race, which the next one does not
/// have: so often in a row is a lie.
const BEYOND_TIMES_MAX: u32 = 3;

/// A partition the control plane wants fetched.
pub(super) struct Wanted {
    pub(super) assignment: FetchAssignment,
    /// `None` until this broker has the partition open.
    pub(super) partition: Option<Arc<PartitionFetchState>>,
}

/// One mirror.
pub(super) struct MirrorPlane {
    name: Str,
    settings: ArcSwap<SourceSettings>,
    source: ArcSwap<SourceClient>,
    /// Grows when every connection has to be made anew.
    generation: AtomicU64,
    pub(super) wanted: Mutex<HashMap<PartitionKey, Wanted>>,
    tracked: Mutex<HashMap<PartitionKey, Arc<Mutex<Tracked>>>>,
    /// Another cluster answered, and until when that is believed without asking again.
    wrong_cluster: Mutex<Option<(Str, Instant)>>,
    /// The refresh has come by: log ends that no Fetch has told shall be asked for.
    ends_wanted: AtomicBool,
    wake: Notify,
    replicas: Arc<ReplicaManager>,
    events: Arc<dyn FetchEvents>,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Closes partitions at once where nothing is being appended, and the others on a thread that may
/// block.
fn close(partitions: Vec<Arc<PartitionFetchState>>) -> BoxFuture<'static, ()> {
    let busy: Vec<Arc<PartitionFetchState>> =
        partitions.into_iter().filter(|s| !s.close_soon()).collect();
    if busy.is_empty() {
        return Box::pin(std::future::ready(()));
    }
    Box::pin(blocking(move || {
        busy.iter().for_each(|partition| partition.close())
    }))
}

impl MirrorPlane {
    pub(super) fn new(
        settings: SourceSettings,
        replicas: Arc<ReplicaManager>,
        events: Arc<dyn FetchEvents>,
        cancel: CancellationToken,
    ) -> Arc<MirrorPlane> {
        let source = Arc::new(SourceClient::new(&settings));
        Arc::new(MirrorPlane {
            name: settings.mirror.clone(),
            settings: ArcSwap::from_pointee(settings),
            source: ArcSwap::from(source),
            generation: AtomicU64::new(0),
            wanted: Mutex::default(),
            tracked: Mutex::default(),
            wrong_cluster: Mutex::default(),
            ends_wanted: AtomicBool::new(false),
            wake: Notify::new(),
            replicas,
            events,
            cancel,
            tasks: TaskTracker::new(),
        })
    }

    pub(super) fn name(&self) -> &Str {
        &self.name
    }

    pub(super) fn settings(&self) -> Arc<SourceSettings> {
        self.settings.load_full()
    }

    pub(super) fn source(&self) -> Arc<SourceClient> {
        self.source.load_full()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Has the fetcher manager look at everything again.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes new settings. Connections are made anew only when they must.
    pub(super) fn configure(&self, settings: SourceSettings) {
        let old = self.settings();
        if *old == settings {
            return;
        }
        let reconnect =
            old.connection != settings.connection || old.cluster_id != settings.cluster_id;
        if reconnect {
            self.source.store(Arc::new(SourceClient::new(&settings)));
        }
        self.settings.store(Arc::new(settings));
        if reconnect {
            *self.wrong_cluster.lock() = None;
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        self.wake();
    }

    /// Adds or renews an assignment. The same one again only ends a wait for the control plane.
    pub(super) fn add(&self, assignment: FetchAssignment) {
        let key = (
            assignment.partition.topic_id,
            assignment.partition.partition,
        );
        let mut wanted = self.wanted.lock();
        if let Some(entry) = wanted.get(&key) {
            let current = self.is_current(entry);
            if current && entry.assignment.leader_epoch > assignment.leader_epoch {
                return;
            }
            if current && entry.assignment == assignment {
                let resumed = |partition: &Arc<PartitionFetchState>| partition.with(|s| s.resume());
                if entry.partition.as_ref().is_none_or(resumed) {
                    self.wake();
                }
                return;
            }
            // What it is still writing ends before the first append of the new partition begins: a
            // log has one append at a time.
            if let Some(partition) = &entry.partition {
                partition.close_soon();
            }
        }
        let partition = self.open_partition(&assignment);
        wanted.insert(
            key,
            Wanted {
                assignment,
                partition,
            },
        );
        drop(wanted);
        // A partition that comes anew was just prepared against the right cluster.
        self.clear_wrong_cluster();
        self.wake();
    }

    /// Whether the state is of the partition that is open here now: a topic can be deleted and made
    /// again with the same id.
    fn is_current(&self, entry: &Wanted) -> bool {
        let partition = &entry.assignment.partition;
        let open = self
            .replicas
            .partition_by_id(&partition.topic_id, partition.partition);
        match (&entry.partition, open) {
            (Some(partition), Ok(open)) => Arc::ptr_eq(&partition.local, &open),
            _ => true,
        }
    }

    /// The fetch state of an assignment, `None` while this broker does not have the partition open.
    pub(super) fn open_partition(
        &self,
        assignment: &FetchAssignment,
    ) -> Option<Arc<PartitionFetchState>> {
        let key = (
            assignment.partition.topic_id,
            assignment.partition.partition,
        );
        let tracked = self.tracked.lock().entry(key).or_default().clone();
        match self.replicas.partition_by_id(&key.0, key.1) {
            Ok(local) => {
                let backoff = Duration::from_millis(
                    u64::try_from(self.settings().fetch.backoff_ms)
                        .unwrap_or(0)
                        .max(1),
                );
                Some(PartitionFetchState::new(
                    assignment.clone(),
                    local,
                    tracked,
                    backoff,
                ))
            }
            Err(e) => {
                tracked.lock().set_error(&e.to_string(), now_ms());
                None
            }
        }
    }

    /// Ends an assignment. Nothing is being appended when what this gives is done: the disk can
    /// keep a write for long, so it is waited for where that holds up nobody else.
    pub(super) fn remove(&self, key: PartitionKey) -> BoxFuture<'static, ()> {
        let removed = self.wanted.lock().remove(&key);
        let partitions = removed.and_then(|w| w.partition).into_iter().collect();
        self.wake();
        close(partitions)
    }

    /// Ends all assignments, as [`Self::remove`] ends one.
    pub(super) fn close_all(&self) -> BoxFuture<'static, ()> {
        let all = std::mem::take(&mut *self.wanted.lock());
        close(all.into_values().filter_map(|w| w.partition).collect())
    }

    pub(super) fn progress(&self, key: PartitionKey) -> Option<FetchProgress> {
        let tracked = self.tracked.lock().get(&key).cloned()?;
        let snapshot = tracked.lock().snapshot(now_ms());
        Some(snapshot)
    }

    pub(super) fn forget(&self, key: PartitionKey) {
        self.tracked.lock().remove(&key);
    }

    /// For what is cut outside of fetching.
    pub(super) fn count_truncated(&self, key: PartitionKey, offsets: i64) {
        let tracked = self.tracked.lock().entry(key).or_default().clone();
        let mut tracked = tracked.lock();
        tracked.moved_on();
        tracked.progress.truncated_offsets += u64::try_from(offsets).unwrap_or(0);
    }

    /// All partitions that are open.
    pub(super) fn partitions(&self) -> Vec<Arc<PartitionFetchState>> {
        self.wanted
            .lock()
            .values()
            .filter_map(|w| w.partition.clone())
            .collect()
    }

    /// Leaders and epochs from metadata somebody else asked for.
    pub(super) fn learn_leaders(&self, topics: &[SourceTopic]) {
        self.clear_wrong_cluster();
        let by_name: HashMap<&str, &SourceTopic> = topics.iter().map(|t| (&*t.name, t)).collect();
        let mut moved = !self.ends_wanted.swap(true, Ordering::AcqRel);
        for partition in self.partitions() {
            if let Some(topic) = by_name.get(&*partition.name().topic) {
                moved |= self.learn_leader(&partition, topic);
            }
        }
        if moved {
            self.wake();
        }
    }

    /// Takes the leader of one partition; true when it is another one.
    pub(super) fn learn_leader(
        &self,
        partition: &Arc<PartitionFetchState>,
        topic: &SourceTopic,
    ) -> bool {
        let same_id = match (partition.assignment.source_topic_id, topic.id) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        if !same_id {
            return false;
        }
        let wanted = partition.name().partition;
        // Sources list partitions in order; a search for each of many would be quadratic.
        let in_order = usize::try_from(wanted)
            .ok()
            .and_then(|i| topic.partitions.get(i));
        let found = in_order
            .filter(|p| p.partition == wanted)
            .or_else(|| topic.partitions.iter().find(|p| p.partition == wanted));
        let Some(node) = found.and_then(|p| p.leader) else {
            return false;
        };
        let leader = SourceLeader {
            node,
            epoch: found.and_then(|p| p.leader_epoch).unwrap_or(-1),
        };
        let changed = partition.with(|s| {
            // Metadata of a broker that is behind must not bring an old leader back.
            let newer = s
                .leader
                .is_none_or(|known| leader.epoch > known.epoch || leader.epoch < 0);
            let changed = newer && s.leader != Some(leader);
            if changed {
                s.set_leader(Some(leader));
            }
            changed
        });
        if changed {
            partition.has_leader_again();
        }
        if changed && leader.epoch >= 0 {
            self.keep_epoch_above(partition, leader.epoch);
        }
        changed
    }

    /// The source is another cluster: nothing is fetched until somebody says otherwise, or until it
    /// is time to ask again.
    pub(super) fn found_wrong_cluster(&self, found: &Str) {
        let verdict = (found.clone(), Instant::now() + WRONG_CLUSTER_BELIEVED);
        let before = self.wrong_cluster.lock().replace(verdict);
        if before.is_none_or(|(known, _)| known != *found) {
            warn!(mirror = %self.name, found = %found, "the source is another cluster now, fetching stops");
        }
        self.events.wrong_cluster(&self.name, found);
    }

    /// Until when nothing is asked of a source that was another cluster; `None` = it may be asked.
    pub(super) fn wrong_cluster_until(&self) -> Option<Instant> {
        let verdict = self.wrong_cluster.lock();
        let until = verdict.as_ref().map(|(_, until)| *until)?;
        (until > Instant::now()).then_some(until)
    }

    /// The right cluster answered, or an operator wants it to be asked again.
    fn clear_wrong_cluster(&self) {
        if self.wrong_cluster.lock().take().is_some() {
            self.wake();
        }
    }

    /// Whether log ends shall be asked for; asked once a refresh.
    pub(super) fn take_ends_wanted(&self) -> bool {
        self.ends_wanted.swap(false, Ordering::AcqRel)
    }

    pub(super) fn refresh_wanted(&self, topic: &Str) {
        self.events.refresh_wanted(&self.name, topic);
    }

    /// A good answer for a partition.
    pub(super) fn answered(
        self: &Arc<Self>,
        partition: &Arc<PartitionFetchState>,
        end: &PartitionOutcome,
        now_ms: i64,
    ) {
        let local_end = partition.local.log().log_end_offset();
        {
            let mut tracked = partition.tracked.lock();
            tracked.answered(end.high_watermark, end.log_start, local_end, now_ms);
            if let Some(appended) = &end.appended {
                tracked.progress.appended = true;
                tracked.progress.bytes_total += appended.bytes;
                tracked.moved_on();
            } else {
                tracked.no_stall();
            }
        }
        partition.clear_error();
        if end.log_start > end.high_watermark {
            let text = format!(
                "the source says that its log begins at {} and ends at {}",
                end.log_start, end.high_watermark
            );
            partition.tracked.lock().set_error(&text, now_ms);
        } else if end.log_start > partition.local.log().log_start_offset()
            && let Err(e) = partition
                .local
                .mirror_advance_log_start(end.log_start.min(local_end))
        {
            self.append_failed(partition, AppendError::Local(e));
            return;
        }
        if let Some(appended) = &end.appended {
            self.keep_epoch_above(partition, appended.last_leader_epoch);
        }
    }

    /// M-8: asks for a higher local leader epoch when the source comes near or is above it; the
    /// replica's gate hides what is above meanwhile.
    fn keep_epoch_above(&self, partition: &Arc<PartitionFetchState>, source_epoch: i32) {
        let wanted = match epoch_wanted(source_epoch, partition.local.leader_epoch()) {
            EpochRule::FarEnough => return,
            EpochRule::Raise(wanted) => wanted,
            EpochRule::Overflow => {
                let text = format!(
                    "leader epoch {source_epoch} of the source leaves no room for higher local epochs"
                );
                self.failed(
                    partition,
                    FetchFailure {
                        kind: FailureKind::Permanent,
                        text,
                    },
                );
                return;
            }
        };
        let asked_before = partition.with(|s| {
            let before = s.epoch_asked;
            s.epoch_asked = before.max(wanted);
            before >= wanted
        });
        if asked_before {
            return;
        }
        let (partition, events, cancel) =
            (partition.clone(), self.events.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            let raise = async {
                let mut backoff = Backoff::new(EPOCH_BACKOFF.0, EPOCH_BACKOFF.1);
                // A hidden batch stays hidden until this succeeds, whether or not anything new
                // arrives.
                while let Err(e) = events.raise_epoch(partition.name(), wanted).await {
                    let waits = partition
                        .local
                        .log()
                        .latest_epoch()
                        .is_some_and(|e| e > partition.local.leader_epoch());
                    if waits {
                        partition.tracked.lock().set_error(
                            &format!("the local leader epoch could not be raised: {e}"),
                            now_ms(),
                        );
                    }
                    if !partition.is_live() {
                        break;
                    }
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            };
            tokio::select! {
                () = raise => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    /// The logs differ: nothing more is fetched until the control plane has compared them.
    pub(super) fn diverged(&self, partition: &Arc<PartitionFetchState>, text: String) {
        if !partition.is_live() {
            return;
        }
        let (allowed, times) = {
            let mut tracked = partition.tracked.lock();
            let allowed = tracked.may_diverge(Instant::now());
            (allowed, tracked.divergences())
        };
        if let Err(wait) = allowed {
            let text = format!(
                "{text}; compared {times} times without finding what to cut: the source's answers contradict each other"
            );
            partition.stall(wait, &text, now_ms());
            return;
        }
        if self.suspend(partition) {
            warn!(mirror = %self.name, partition = %partition.name(), "{text}");
            self.events.diverged(partition.name(), text);
        }
    }

    /// An answer with records or an error moved nothing: the first may be followed by another
    /// question, those after it wait. Gives how often in a row.
    pub(super) fn stalled(&self, partition: &Arc<PartitionFetchState>, text: &str) -> u32 {
        let (wait, times) = partition.tracked.lock().stalled();
        if let Some(wait) = wait {
            partition.stall(wait, &format!("{text} ({times} times in a row)"), now_ms());
        }
        times
    }

    /// The records of an answer could not be used although they were wanted.
    pub(super) fn took_nothing(
        &self,
        partition: &Arc<PartitionFetchState>,
        end: &PartitionOutcome,
        bytes: u32,
    ) {
        let Some((first, last)) = end.beyond else {
            let size = end.cut_batch_bytes;
            let text = format!(
                "the source sent {bytes} bytes of records that begin with a batch of {size}, and nothing could be appended"
            );
            self.stalled(partition, &text);
            return;
        };
        let text = format!(
            "the source sent a batch at offsets {first} to {last}, beyond the end {} that it claims; it was not stored",
            end.high_watermark
        );
        if self.stalled(partition, &text) >= BEYOND_TIMES_MAX {
            let kind = FailureKind::Limited;
            self.failed(partition, FetchFailure { kind, text });
        }
    }

    /// The partition is given up until the control plane adds it again.
    pub(super) fn failed(&self, partition: &Arc<PartitionFetchState>, failure: FetchFailure) {
        if self.suspend(partition) {
            warn!(mirror = %self.name, partition = %partition.name(), "{}", failure.text);
            self.events.failed(partition.name(), failure);
        }
    }

    /// As [`MirrorPlane::failed`], also when it was given up before but nobody may have heard of
    /// it.
    pub(super) fn failed_unheard(
        &self,
        partition: &Arc<PartitionFetchState>,
        failure: FetchFailure,
    ) {
        self.suspend(partition);
        warn!(mirror = %self.name, partition = %partition.name(), "{}", failure.text);
        self.events.failed(partition.name(), failure);
    }

    /// False when it is over anyway.
    fn suspend(&self, partition: &Arc<PartitionFetchState>) -> bool {
        let live = partition.is_live();
        partition.with(|s| s.suspended = true);
        drop(partition.take_append());
        live
    }

    /// Records could not be kept: the partition fails, or waits where waiting helps.
    pub(super) fn append_failed(&self, partition: &Arc<PartitionFetchState>, error: AppendError) {
        let error = match error {
            AppendError::OldFormat => {
                let text = "the source holds message sets of format v0 or v1, which have no leader epochs and are not mirrored: \
                            convert the topic there (message.format.version) and let the old records expire";
                return self.failed(
                    partition,
                    FetchFailure {
                        kind: FailureKind::Permanent,
                        text: text.to_string(),
                    },
                );
            }
            AppendError::Local(error) => error,
        };
        match &error {
            ReplicaError::Log(
                LogError::BadBatch(_)
                | LogError::NotContinuous { .. }
                | LogError::EpochBackwards { .. }
                | LogError::EpochBeyondClaim { .. },
            ) => {
                let text = format!("the source sent records that cannot be kept: {error}");
                self.failed(
                    partition,
                    FetchFailure {
                        kind: FailureKind::Limited,
                        text,
                    },
                );
            }
            ReplicaError::Offline { .. }
            | ReplicaError::Log(
                LogError::Io { .. } | LogError::Offline { .. } | LogError::Damaged { .. },
            ) => {
                let text = format!("the local log failed: {error}");
                self.failed(
                    partition,
                    FetchFailure {
                        kind: FailureKind::Limited,
                        text,
                    },
                );
            }
            // No space, a leadership that moves, a log another writer touched: it goes on at the
            // log end.
            _ => partition.back_off(&error.to_string(), now_ms()),
        }
    }

    /// The source's log start of a partition whose local log is empty.
    pub(super) fn start_at(&self, partition: &Arc<PartitionFetchState>, source_start: i64) {
        let local_end = partition.local.log().log_end_offset();
        if source_start > local_end {
            // A log that never held anything misses nothing.
            let skipped = if local_end > 0 {
                source_start - local_end
            } else {
                0
            };
            self.skip_to(partition, source_start, skipped);
            if partition.local.log().log_end_offset() != source_start {
                return;
            }
        }
        partition.with(|s| s.needs_start = false);
    }

    /// Starts the local log again at the source's log start, beyond what could not be copied in
    /// time.
    pub(super) fn skip_to(&self, partition: &Arc<PartitionFetchState>, offset: i64, skipped: i64) {
        if !partition.is_live() {
            return;
        }
        drop(partition.take_append());
        let from = partition.local.log().log_end_offset();
        if let Err(e) = partition.local.mirror_truncate_fully_and_start_at(offset) {
            self.append_failed(partition, AppendError::Local(e));
            return;
        }
        if skipped > 0 {
            partition.tracked.lock().progress.skipped_offsets +=
                u64::try_from(skipped).unwrap_or(0);
            warn!(mirror = %self.name, partition = %partition.name(), from, to = offset,
                "{skipped} offsets skipped: the source dropped them before they were copied");
        } else {
            info!(mirror = %self.name, partition = %partition.name(), start = offset, "the copy begins at the source's log start");
        }
    }
}
