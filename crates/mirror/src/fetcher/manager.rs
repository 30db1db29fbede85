//! The task of one mirror that places partitions on fetchers: finds their leaders, keeps a fetcher
//! for each (source broker, index), and starts again what ended. Every pass looks at everything, so
//! a missed event costs one pass and never a partition.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tarn_client::MetadataTopics;
use tarn_fetch::{Ended, FetcherEnd, FetcherKey, FetcherManager, Outcome, Pause, Placement};
use tarn_wire::Str;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::checks::{self, Turn};
use super::mirror::MirrorPlane;
use super::partition_state::PartitionFetchState;
use super::policy::{FetcherError, MirrorPolicy};
use crate::seam::{FailureKind, FetchFailure, Reachability, SourceTopic};
use crate::source::{AskError, SourceClient, list_bounds, now_ms, source_topic};
use crate::survive::survive;

/// How often partitions that are not open here yet are looked for.
const RESOLVE_EVERY: Duration = Duration::from_millis(200);
/// How often `mirror.disconnect.fail.after.ms` is looked at.
const DISCONNECT_CHECK_EVERY: Duration = Duration::from_secs(1);
/// A partition is asked for its log end at a refresh when no Fetch has told it for so long.
const ENDS_AFTER_MS: i64 = 2_000;
/// Partitions in one ListOffsets.
const ENDS_CHUNK: usize = 1_000;
/// Topics in one Metadata.
const NAMES_CHUNK: usize = 1_000;

/// The default of `mirror.num.replica.fetchers`: only then the number is ours to choose.
const FETCHERS_DEFAULT: i32 = 2;
/// Fetchers for each broker of a source that is at least [`FAR`] away. Between two responses a
/// connection is silent for a round trip, and a sender does not take up at once what its neighbour
/// leaves free: with two the link was used to 77–80 %, with four to 84–87 %, with eight no better.
const FETCHERS_FAR: i32 = 4;
const FAR: Duration = Duration::from_millis(20);

/// Keeps a fetcher manager running until the mirror is cancelled; partitions say so after one that
/// panicked.
pub(super) async fn keep(mirror: Arc<MirrorPlane>) {
    let mut is_first = true;
    let cancel = mirror.cancel.clone();
    let begin = move || {
        if !std::mem::take(&mut is_first) {
            let text = "placing partitions on fetchers panicked, which is a defect of this broker (its log says where); it is started again";
            for partition in mirror.partitions() {
                partition.tracked.lock().set_error(text, now_ms());
            }
        }
        MirrorFetcherManager::new(mirror.clone()).run()
    };
    survive("placing partitions on fetchers", cancel, begin).await;
}

/// The fetcher manager's own state; nothing of it is needed after the task ends.
struct MirrorFetcherManager {
    mirror: Arc<MirrorPlane>,
    source: Arc<SourceClient>,
    generation: u64,
    policy: Arc<MirrorPolicy>,
    fetchers: FetcherManager<MirrorPolicy>,
    /// Comparisons and questions for log ends that are under way.
    asking: JoinSet<()>,
    metadata: Pause,
}

impl MirrorFetcherManager {
    fn new(mirror: Arc<MirrorPlane>) -> MirrorFetcherManager {
        let source = mirror.source();
        MirrorFetcherManager {
            metadata: Pause::new(first_pause(&mirror)),
            policy: MirrorPolicy::new(mirror.clone(), source.clone()),
            source,
            generation: mirror.generation(),
            mirror,
            fetchers: FetcherManager::default(),
            asking: JoinSet::new(),
        }
    }

    /// Runs until the mirror is cancelled. All fetchers end with it.
    async fn run(mut self) {
        let cancel = self.mirror.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.passes() => {}
        }
        self.fetchers.shutdown().await;
        self.asking.shutdown().await;
    }

    async fn passes(&mut self) {
        loop {
            let until = self.pass().await;
            let sleep = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.mirror.woken() => {}
                ended = self.fetchers.ended() => self.fetcher_ended(ended),
                Some(_) = self.asking.join_next() => {}
                () = sleep => {}
            }
        }
    }

    /// Looks at everything once; gives the time of the next look, if one is due by itself.
    async fn pass(&mut self) -> Option<Instant> {
        if self.generation != self.mirror.generation() {
            self.start_over().await;
        }
        if let Some(until) = self.mirror.wrong_cluster_until() {
            self.fetchers.stop();
            return Some(until);
        }
        let unresolved = self.open_partitions();
        let partitions: Vec<Arc<PartitionFetchState>> = self
            .mirror
            .partitions()
            .into_iter()
            .filter(|s| s.is_live())
            .collect();
        let mut next: Option<Instant> = unresolved.then(|| Instant::now() + RESOLVE_EVERY);
        let mut at = |when: Instant| next = Some(next.map_or(when, |n| n.min(when)));
        let refreshed = self.mirror.take_ends_wanted();
        if refreshed {
            // The source answered somebody: no need to wait before it is asked.
            self.metadata.succeeded();
        }
        if let Some(when) = self.find_leaders(&partitions).await {
            at(when);
        }
        if let Some(when) = self.check_content(&partitions) {
            at(when);
        }
        if refreshed {
            self.ask_ends(&partitions);
        }
        if let Some(when) = self.place(&partitions) {
            at(when);
        }
        if self.fail_disconnected(&partitions) {
            at(Instant::now() + DISCONNECT_CHECK_EVERY);
        }
        next
    }

    /// The settings of the connection changed: everything is made anew, every partition goes on by
    /// itself.
    async fn start_over(&mut self) {
        self.generation = self.mirror.generation();
        self.source = self.mirror.source();
        self.policy = MirrorPolicy::new(self.mirror.clone(), self.source.clone());
        self.fetchers.shutdown().await;
        self.metadata = Pause::new(first_pause(&self.mirror));
        self.asking.shutdown().await;
        for partition in self.mirror.partitions() {
            partition.with(|s| s.set_leader(None));
            partition.clear_error();
        }
        info!(mirror = %self.mirror.name(), "connections to the source are made anew");
    }

    /// Opens partitions that this broker had not opened before; true when some are left.
    fn open_partitions(&self) -> bool {
        let mut left = false;
        for wanted in self.mirror.wanted.lock().values_mut() {
            if wanted.partition.is_none() {
                wanted.partition = self.mirror.open_partition(&wanted.assignment);
                left |= wanted.partition.is_none();
            }
        }
        left
    }

    fn fetcher_ended(&mut self, ended: Ended<MirrorPolicy>) {
        let error = match ended.outcome {
            Outcome::Panicked => return self.fetcher_panicked(ended.key),
            Outcome::Ended(FetcherEnd { error: None, .. }) => return,
            Outcome::Ended(FetcherEnd {
                error: Some(error), ..
            }) => error,
        };
        if let FetcherError::Ask(AskError::WrongCluster { found }) = &error {
            self.mirror.found_wrong_cluster(found);
            return;
        }
        let (text, now) = (error.to_string(), now_ms());
        let FetcherKey { broker, index } = ended.key;
        debug!(mirror = %self.mirror.name(), node = broker, fetcher = index, "{text}");
        for partition in &ended.partitions {
            partition.with(|s| s.set_leader(None));
            partition.tracked.lock().set_error(&text, now);
        }
        self.fetchers.pause(broker, first_pause(&self.mirror));
    }

    /// A defect of ours: its partitions fail with a word, and are taken up again as other failures
    /// are.
    fn fetcher_panicked(&mut self, key: FetcherKey) {
        let text = format!(
            "the task that fetches from broker {} of the source panicked, which is a defect of this broker (its log says where); it is started again",
            key.broker
        );
        self.fetchers.pause(key.broker, first_pause(&self.mirror));
        // Not by the fetcher's assignment: what was given up meanwhile, with nobody told, has left
        // it.
        let partitions = self.mirror.partitions();
        let placement = Placement::new(&partitions, self.fetchers_per_broker());
        for partition in partitions {
            let leader = partition.with(|s| s.leader);
            if leader.is_some_and(|l| placement.fetcher(&*partition, l.node) == key) {
                let failure = FetchFailure {
                    kind: FailureKind::Limited,
                    text: text.clone(),
                };
                self.mirror.failed_unheard(&partition, failure);
            }
        }
    }

    /// Asks for the leaders of partitions that have none. Gives the time of the next try when some
    /// are left.
    async fn find_leaders(&mut self, partitions: &[Arc<PartitionFetchState>]) -> Option<Instant> {
        let now = Instant::now();
        let without = || partitions.iter().filter(|s| s.with(|s| s.leader.is_none()));
        let due: Vec<&Arc<PartitionFetchState>> =
            without().filter(|s| s.may_seek_leader(now)).collect();
        if now < self.metadata.until() && !due.is_empty() {
            return Some(self.metadata.until());
        }
        if !due.is_empty()
            && let Some(again) = self.ask_for(&due, partitions).await
        {
            return Some(again);
        }
        // A partition the source says nothing good about waits by itself, its neighbours do not.
        without().filter_map(|s| s.with(|s| s.blocked_until)).min()
    }

    /// Asks for the leaders of these; gives the time of the next try when the source could not be
    /// asked. What the answer tells of others among `all` ends their wait too.
    async fn ask_for(
        &mut self,
        due: &[&Arc<PartitionFetchState>],
        all: &[Arc<PartitionFetchState>],
    ) -> Option<Instant> {
        let names: HashSet<Str> = due.iter().map(|s| s.name().topic.clone()).collect();
        let names: Vec<Str> = names.into_iter().collect();
        match self.ask_leaders(&names).await {
            Ok(topics) => {
                for partition in due {
                    self.take_leader(partition, &topics);
                }
                for partition in all.iter().filter(|s| s.with(|s| s.leader.is_none())) {
                    if let Some(Ok(topic)) = topics.get(&partition.name().topic) {
                        self.mirror.learn_leader(partition, topic);
                    }
                }
                self.metadata.succeeded();
                None
            }
            Err(AskError::WrongCluster { found }) => {
                self.mirror.found_wrong_cluster(&found);
                Some(Instant::now())
            }
            Err(e) => {
                let (text, now) = (e.to_string(), now_ms());
                for partition in due {
                    partition.tracked.lock().set_error(&text, now);
                }
                if self.metadata.failures() == 0 {
                    warn!(mirror = %self.mirror.name(), "{text}");
                }
                self.metadata.failed();
                Some(self.metadata.until())
            }
        }
    }

    async fn ask_leaders(
        &self,
        names: &[Str],
    ) -> Result<HashMap<Str, Result<SourceTopic, String>>, AskError> {
        let mut topics = HashMap::new();
        for chunk in names.chunks(NAMES_CHUNK) {
            let response = self
                .source
                .metadata(&MetadataTopics::Names(chunk.to_vec()))
                .await?;
            for topic in &response.topics {
                if let Some(name) = &topic.name {
                    topics.insert(name.detach(), source_topic(topic));
                }
            }
        }
        Ok(topics)
    }

    /// Gives a partition its leader; without one it waits longer each time.
    fn take_leader(
        &self,
        partition: &Arc<PartitionFetchState>,
        topics: &HashMap<Str, Result<SourceTopic, String>>,
    ) {
        let name = partition.name();
        let text = match topics.get(&name.topic) {
            None => format!("the source did not answer for topic {}", name.topic),
            Some(Err(text)) => {
                self.mirror.refresh_wanted(&name.topic);
                text.clone()
            }
            Some(Ok(topic)) => match (partition.assignment.source_topic_id, topic.id) {
                (Some(ours), Some(theirs)) if ours != theirs => {
                    self.mirror.refresh_wanted(&name.topic);
                    format!(
                        "topic {} has id {theirs} at the source now, mirrored was {ours}",
                        name.topic
                    )
                }
                _ if self.mirror.learn_leader(partition, topic) => return,
                // Known already: the refresh told it meanwhile.
                _ if partition.with(|s| s.leader.is_some()) => return,
                _ => format!(
                    "partition {} of {} has no leader at the source",
                    name.partition, name.topic
                ),
            },
        };
        partition.back_off(&text, now_ms());
    }

    /// Compares the content of partitions whose turn it is, a task for each broker. Gives the time
    /// of the next turn.
    fn check_content(&mut self, partitions: &[Arc<PartitionFetchState>]) -> Option<Instant> {
        let now = Instant::now();
        let mut by_node: BTreeMap<i32, Vec<Turn>> = BTreeMap::new();
        let mut next: Option<Instant> = None;
        for partition in partitions {
            let Some(due) = partition.check_due() else {
                continue;
            };
            match Turn::begin(partition, now) {
                Some(turn) => {
                    if let Some(turn) = turn.or_settle() {
                        by_node.entry(turn.node()).or_default().push(turn);
                    }
                }
                None => next = Some(next.map_or(due, |n| n.min(due))),
            }
        }
        for (node, turns) in by_node {
            let (mirror, source) = (self.mirror.clone(), self.source.clone());
            self.asking.spawn(checks::run(mirror, source, node, turns));
        }
        next
    }

    /// Asks where the logs end of which no Fetch has told for a while (a quota holds it back, a
    /// broker is away).
    fn ask_ends(&mut self, partitions: &[Arc<PartitionFetchState>]) {
        let now = now_ms();
        let mut by_node: BTreeMap<i32, Vec<Arc<PartitionFetchState>>> = BTreeMap::new();
        for partition in partitions {
            let told = partition.tracked.lock().progress.last_fetch_ms;
            if told.is_none_or(|ms| now - ms >= ENDS_AFTER_MS)
                && let Some(leader) = partition.with(|s| s.leader)
            {
                by_node
                    .entry(leader.node)
                    .or_default()
                    .push(partition.clone());
            }
        }
        for (node, partitions) in by_node {
            let (mirror, source) = (self.mirror.clone(), self.source.clone());
            self.asking.spawn(async move {
                if let Err(e) = log_ends(&source, node, &partitions).await {
                    debug!(mirror = %mirror.name(), node, "log ends are not known: {e}");
                }
            });
        }
    }

    /// Puts every partition with a leader on its fetcher. Gives the time at which a broker may be
    /// tried again.
    fn place(&mut self, partitions: &[Arc<PartitionFetchState>]) -> Option<Instant> {
        let placement = Placement::new(partitions, self.fetchers_per_broker());
        let mut groups: BTreeMap<FetcherKey, Vec<Arc<PartitionFetchState>>> = BTreeMap::new();
        for partition in partitions {
            // One that is new to its fetcher waits outside: joining is what ends a long poll.
            let leader = partition.with(|s| s.leader.filter(|_| s.placed || !s.is_unchecked()));
            if let Some(leader) = leader {
                partition.with(|s| s.placed = true);
                let key = placement.fetcher(&**partition, leader.node);
                groups.entry(key).or_default().push(partition.clone());
            }
        }
        self.fetchers.assign(&self.policy, groups)
    }

    fn fetchers_per_broker(&self) -> i32 {
        let round_trip = self.source.cluster().ok().and_then(|c| c.round_trip_min());
        fetchers_per_broker(self.mirror.settings().fetch.fetchers, round_trip)
    }

    /// `mirror.disconnect.fail.after.ms`. True when it has to be looked at again.
    fn fail_disconnected(&self, partitions: &[Arc<PartitionFetchState>]) -> bool {
        let Some(limit) = self.mirror.settings().fetch.disconnect_fail_after_ms else {
            return false;
        };
        let Reachability::Unreachable { since_ms, reason } = self.source.reach().get() else {
            return false;
        };
        if now_ms() - since_ms < limit {
            return true;
        }
        for partition in partitions {
            let text =
                format!("the source has been unreachable for more than {limit} ms: {reason}");
            self.mirror.failed(
                partition,
                FetchFailure {
                    kind: FailureKind::Connectivity,
                    text,
                },
            );
        }
        false
    }
}

async fn log_ends(
    source: &SourceClient,
    node: i32,
    partitions: &[Arc<PartitionFetchState>],
) -> Result<(), AskError> {
    let handle = source.note_broker(source.cluster()?.broker(node).await)?;
    for chunk in partitions.chunks(ENDS_CHUNK) {
        let names: Vec<(Str, i32)> = chunk
            .iter()
            .map(|s| (s.name().topic.clone(), s.name().partition))
            .collect();
        let ends = list_bounds(source, &handle, &names, true).await?;
        let now = now_ms();
        for (partition, end) in chunk.iter().zip(ends) {
            if let Ok(end) = end {
                let local_end = partition.local.log().log_end_offset();
                partition.tracked.lock().ends_at(end, local_end, now);
            }
        }
    }
    Ok(())
}

/// Fetchers for each source broker when so many are `configured`.
fn fetchers_per_broker(configured: i32, round_trip: Option<Duration>) -> i32 {
    let is_far = round_trip.is_some_and(|time| time >= FAR);
    if configured == FETCHERS_DEFAULT && is_far {
        FETCHERS_FAR
    } else {
        configured
    }
}

/// The first pause before a source broker or its metadata is tried again.
fn first_pause(mirror: &MirrorPlane) -> Duration {
    let ms = u64::try_from(mirror.settings().fetch.backoff_ms).unwrap_or(0);
    Duration::from_millis(ms.clamp(1, 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_far_source_has_more_fetchers_and_only_where_nobody_chose() {
        let far = Some(FAR);
        assert_eq!(
            fetchers_per_broker(FETCHERS_DEFAULT, None),
            FETCHERS_DEFAULT
        );
        let near = Some(Duration::from_millis(1));
        assert_eq!(
            fetchers_per_broker(FETCHERS_DEFAULT, near),
            FETCHERS_DEFAULT
        );
        assert_eq!(fetchers_per_broker(FETCHERS_DEFAULT, far), FETCHERS_FAR);
        assert_eq!(fetchers_per_broker(1, far), 1);
        assert_eq!(fetchers_per_broker(8, far), 8);
    }
}
