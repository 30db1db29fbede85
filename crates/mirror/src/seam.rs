//! What the two halves of mirroring say to each other: types and traits, no logic.
//!
//! The **data plane** (`source`, `fetcher`, `prepare`, `lookup`) talks to source clusters and to
//! local logs: it implements [`DataPlane`] and [`Source`]. The **control plane** (everything else)
//! decides: it calls those two and implements [`FetchEvents`]. Rules that hold across the seam:
//!
//! * The data plane keeps no intent. Whatever it does not hold (restart, leader change) the control
//!   plane hands to it again; every call is idempotent and may be repeated at any time.
//! * The data plane never writes a state and never changes metadata. It reports, and it asks
//!   through [`FetchEvents`].
//! * Nothing destructive (cutting a log) happens before the caller's [`PersistIntent`] has
//!   completed successfully.
//! * Absence is not a value: `None` means "not known yet", never zero and never "deleted".
//! * Every future of this seam ends: each implementation bounds its own network waits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tarn_wire::{Str, Uuid};

/// A boxed future, so that both sides can be held as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Names one mirrored partition of this broker. The local topic id is the identity; the name is
/// what the source is asked for when it has no topic ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MirrorPartition {
    /// Name of the mirror.
    pub mirror: Str,
    /// Name of the topic, the same on both sides.
    pub topic: Str,
    /// Id of the **local** topic.
    pub topic_id: Uuid,
    /// Partition number, the same on both sides.
    pub partition: i32,
}

impl fmt::Display for MirrorPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{} of mirror {}",
            self.topic, self.partition, self.mirror
        )
    }
}

/// How a mirror reaches its source: the connection keys of its configuration, parsed and validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// `bootstrap.servers`, each `host:port`, never empty.
    pub bootstrap_servers: Vec<Str>,
    /// `request.timeout.ms`.
    pub request_timeout_ms: i32,
    /// `socket.connection.setup.timeout.ms`.
    pub connect_timeout_ms: i64,
    /// `socket.connection.setup.timeout.max.ms`.
    pub connect_timeout_ms_max: i64,
    /// `connections.max.idle.ms`.
    pub idle_ms_max: i64,
    /// `mirror.socket.timeout.ms`: how long a Fetch may take beyond its own wait.
    pub socket_timeout_ms: i32,
    /// `mirror.socket.receive.buffer.bytes`; −1 leaves it to the system, and is what arrives here
    /// unless the operator set the key (a fixed size would switch the kernel's auto-tuning off).
    pub receive_buffer_bytes: i32,
}

/// Which records of open transactions are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Everything below the source's high watermark (default).
    ReadUncommitted,
    /// Nothing beyond the source's last stable offset.
    ReadCommitted,
}

/// Fetch tuning of a mirror; a change applies in place, without reconnecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchSettings {
    /// `mirror.fetch.wait.max.ms`.
    pub wait_ms_max: i32,
    /// `mirror.fetch.min.bytes`.
    pub min_bytes: i32,
    /// `mirror.fetch.max.bytes`: per partition.
    pub partition_bytes_max: i32,
    /// `mirror.fetch.response.max.bytes`.
    pub response_bytes_max: i32,
    /// `mirror.fetch.backoff.ms`: first pause after an error; grows, bounded by the data plane.
    pub backoff_ms: i64,
    /// `mirror.fetch.isolation.level`.
    pub isolation: Isolation,
    /// `mirror.num.replica.fetchers` of the broker: tasks per source broker, ≥ 1.
    pub fetchers: i32,
    /// `mirror.disconnect.fail.after.ms`; `None` = stay MIRRORING however long the source is away.
    pub disconnect_fail_after_ms: Option<i64>,
}

/// One mirror's source as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// Name of the mirror.
    pub mirror: Str,
    /// The source cluster id that was stored with the mirror. `None` = not known yet. When it is
    /// known, a source that answers another id must not be fetched from
    /// ([`FetchEvents::wrong_cluster`]).
    pub cluster_id: Option<Str>,
    /// How to connect.
    pub connection: ConnectionSettings,
    /// How to fetch.
    pub fetch: FetchSettings,
}

/// Why a question to the source has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No broker of the source could be talked to. The text says which address and why.
    #[error("{0}")]
    Unreachable(String),
    /// The source answered, but refuses this principal.
    #[error("not authorized at the source: {0}")]
    Denied(String),
    /// The source does not know this request (older release).
    #[error("the source does not support {0}")]
    Unsupported(String),
    /// The source answered something that cannot be used; a retry may help.
    #[error("{0}")]
    Other(String),
}

impl SourceError {
    /// Whether this says "the source could not be reached" (as opposed to "it said no").
    pub fn is_unreachable(&self) -> bool {
        matches!(self, SourceError::Unreachable(_))
    }
}

/// What the source says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCluster {
    /// Cluster id; `None` when the source is too old to have one.
    pub cluster_id: Option<Str>,
    /// Number of live brokers it named.
    pub brokers: usize,
    /// Whether it has topic ids (2.8 and later).
    pub has_topic_ids: bool,
}

/// Metadata of one partition at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePartition {
    /// Partition number.
    pub partition: i32,
    /// Leader's node id; `None` = no leader at the moment.
    pub leader: Option<i32>,
    /// Leader epoch; `None` when the source is too old to tell.
    pub leader_epoch: Option<i32>,
}

/// Metadata of one topic at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// Topic name.
    pub name: Str,
    /// Topic id; `None` when the source has no topic ids.
    pub id: Option<Uuid>,
    /// Partitions in ascending order, contiguous from 0.
    pub partitions: Vec<SourcePartition>,
}

/// Answer about one named topic. Three-valued on purpose: only [`TopicAnswer::Absent`] is proof of
/// absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicAnswer {
    /// It exists.
    Present(SourceTopic),
    /// Double-checked: the named question says unknown **and** the full topic list lacks it, from a
    /// source that names at least one broker and a controller.
    Absent,
    /// Not known right now (error per topic, disagreement between the two questions).
    Unknown(String),
}

/// Topic configurations at the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceEntries {
    /// Key and value of every entry that is set on the topic itself.
    pub own: Vec<(Str, Str)>,
    /// Effective key and value of the entries of [`CARRIED`](crate::config::CARRIED) that the
    /// source's brokers or Kafka's defaults decide.
    pub inherited: Vec<(Str, Str)>,
}

/// Topic configurations at the source, or why there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopicConfigs {
    /// Topic name.
    pub name: Str,
    /// The entries, or why they cannot be read for this topic.
    pub entries: Result<SourceEntries, String>,
}

/// A mirror the source runs itself, as far as it matters for loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMirror {
    /// Its name over there.
    pub name: Str,
    /// The cluster id it mirrors from.
    pub source_cluster_id: Str,
    /// Topics that are not stopped there.
    pub active_topics: Vec<Str>,
}

/// Whether a source can be talked to, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Nothing has been tried yet.
    Untried,
    /// The last exchange succeeded.
    Reachable,
    /// All exchanges have failed since then.
    Unreachable {
        /// Epoch ms of the first failure in a row.
        since_ms: i64,
        /// The last reason, e.g. `advertised address nohost:9092 of node 1 does not resolve`.
        reason: Str,
    },
}

/// A source cluster of one mirror. Cheap to clone behind its `Arc`; connects when first asked.
pub trait Source: Send + Sync + 'static {
    /// Asks who the source is. Fresh, never cached.
    fn cluster(&self) -> BoxFuture<'_, Result<SourceCluster, SourceError>>;
    /// All topics that are not internal, with partitions. For pattern resolution.
    fn all_topics(&self) -> BoxFuture<'_, Result<Vec<SourceTopic>, SourceError>>;
    /// The named topics, one answer per name, in the order asked.
    fn topics(&self, names: Vec<Str>) -> BoxFuture<'_, Result<Vec<TopicAnswer>, SourceError>>;
    /// Configurations of the named topics, one answer per name.
    fn topic_configs(
        &self,
        names: Vec<Str>,
    ) -> BoxFuture<'_, Result<Vec<SourceTopicConfigs>, SourceError>>;
    /// Mirrors the source runs whose source is `cluster_id`, with topics that are not stopped.
    /// Empty when the source has no mirroring.
    fn mirrors_from(
        &self,
        cluster_id: Str,
    ) -> BoxFuture<'_, Result<Vec<ForeignMirror>, SourceError>>;
    /// As last seen by anything that talked to this source (fetchers included).
    fn reachability(&self) -> Reachability;
}

/// One partition to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAssignment {
    /// Which partition.
    pub partition: MirrorPartition,
    /// Topic id at the source; `None` = the source has none, fetch by name (Fetch ≤ 12).
    pub source_topic_id: Option<Uuid>,
    /// Local leader epoch under which this broker leads it. A later epoch for the same leadership
    /// is told through [`FetchEvents::raise_epoch`] or read from the replica room; an older
    /// assignment never replaces a newer one.
    pub leader_epoch: i32,
}

/// How a log that is about to be prepared came to be: decides whether a full discard is allowed
/// (docs/mirroring.md §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOrigin {
    /// The last mirror offset recorded when this mirror stopped the partition (log end before our
    /// own stop markers); `None` = no record.
    pub last_mirror_offset: Option<i64>,
    /// The last mirror epoch recorded with it.
    pub last_mirror_epoch: Option<i32>,
    /// This mirror has mirrored this topic id before (a state other than UNKNOWN is on record).
    pub written_by_this_mirror: bool,
}

/// Why a partition is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrepareReason {
    /// It joins the mirror (first time, or again after a stop).
    Start,
    /// The fetcher met a divergence (unclean election at the source); look-up at the source's own
    /// mirrors is not needed.
    Divergence,
}

/// Everything `prepare` must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRequest {
    /// Which partition, under which leadership.
    pub assignment: FetchAssignment,
    /// Why.
    pub reason: PrepareReason,
    /// Cluster id of this cluster, for the last-mirror-epoch look-up.
    pub own_cluster_id: Str,
    /// A cut that was already decided and persisted but may not have been carried out: carry it out
    /// first, without looking anything up.
    pub pending_truncation: Option<i64>,
    /// What is on record about the local log.
    pub origin: LogOrigin,
    /// `mirror.allow.full.truncation`.
    pub allow_full_truncation: bool,
}

/// Persists "about to cut the log to this offset" (`TruncateTo`) in the state store; resolves when
/// it is durable. An error means: do not cut, return [`PrepareOutcome::Retry`].
pub type PersistIntent = Arc<dyn Fn(i64) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// How a preparation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrepareOutcome {
    /// The local log is a prefix of the source's (as far as epochs tell). `truncated_to` = the
    /// offset it was cut to, if it was.
    Ready {
        /// Log end after the cut; `None` = nothing was cut.
        truncated_to: Option<i64>,
    },
    /// Not decidable right now (source away, coordinator loading). Stay PREPARING, show the reason,
    /// come again later.
    Retry {
        /// For describe.
        reason: String,
    },
    /// The source answers, but cannot say what it mirrored from here. As `Retry`, for a limited
    /// time (`mirror.lme.lookup.timeout.ms`).
    Undecided {
        /// For describe.
        reason: String,
    },
    /// The partition must become FAILED.
    Fail(FetchFailure),
}

/// Why a partition cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchFailure {
    /// What kind, which decides about retries.
    pub kind: FailureKind,
    /// For describe and the log: what happened and what to do.
    pub text: String,
}

/// Kinds of failure (docs/mirroring.md §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Retried without limit: connectivity.
    Connectivity,
    /// Retried with a limited number of attempts: append error, corrupt batch, refused by the
    /// source, …
    Limited,
    /// Never retried: re-created topic, other cluster id, full discard without consent.
    Permanent,
}

/// What is known of the fetching of one partition. Kept after the partition was removed from
/// fetching, until [`DataPlane::forget_partition`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchProgress {
    /// Source high watermark of the last answer.
    pub source_high_watermark: Option<i64>,
    /// Source log start of the last answer.
    pub source_log_start: Option<i64>,
    /// Epoch ms of the last good answer for this partition.
    pub last_fetch_ms: Option<i64>,
    /// How far the local log is behind in time: now − time it was last seen caught up; 0 while
    /// caught up. `None` before the first answer.
    pub lag_ms: Option<i64>,
    /// Batches were appended since the assignment was added (clears the failure record).
    pub appended: bool,
    /// Bytes appended since the broker started.
    pub bytes_total: u64,
    /// Offsets that were gone at the source before they could be copied.
    pub skipped_offsets: u64,
    /// Offsets cut from the local log because the source diverged.
    pub truncated_offsets: u64,
    /// What is wrong right now although the state stays MIRRORING (disconnected, no leader, …).
    pub error: Option<Str>,
    /// Epoch ms since when `error` has been there.
    pub error_since_ms: Option<i64>,
}

/// The data plane as the control plane sees it.
pub trait DataPlane: Send + Sync + 'static {
    /// Where the work on partitions runs, apart from who serves clients: thousands of them are
    /// resumed or retried together.
    fn threads(&self) -> tokio::runtime::Handle {
        tokio::runtime::Handle::current()
    }

    /// Makes the source of a mirror known, or changes it. No I/O. Equal settings: no-op. Changed
    /// connection keys: all connections are made anew and **every partition already added goes on
    /// by itself**. Changed fetch keys: in place.
    fn configure(&self, settings: SourceSettings) -> Arc<dyn Source>;
    /// A source for one question (preflight); closed when dropped, not part of any mirror.
    fn probe(&self, settings: SourceSettings) -> Arc<dyn Source>;
    /// Ends everything of a mirror: tasks, connections, progress. The mirror is gone, and no append
    /// in flight, when the call returns (so that a new one of the name can follow at once); the
    /// future resolves when its tasks have ended.
    fn forget_mirror(&self, mirror: Str) -> BoxFuture<'static, ()>;
    /// Fetches this partition from now on, starting at its local log end. The same assignment again
    /// is a cheap no-op that only makes sure a task really serves it (called on every reconcile
    /// pass). An unknown source leader is not an error: wait for metadata.
    fn add_partition(&self, assignment: FetchAssignment);
    /// Stops fetching; returns when no append to the partition is in flight and none can start.
    /// Never talks to the source.
    fn remove_partition<'a>(&'a self, partition: &'a MirrorPartition) -> BoxFuture<'a, ()>;
    /// Makes the local log a prefix of the source's (PREPARING, ULE_RECOVERY). The partition is not
    /// being fetched meanwhile. Dropping the future cancels it at the next await.
    fn prepare(
        &self,
        request: PrepareRequest,
        intent: PersistIntent,
    ) -> BoxFuture<'static, PrepareOutcome>;
    /// Last known progress; `None` = never fetched here.
    fn progress(&self, partition: &MirrorPartition) -> Option<FetchProgress>;
    /// Drops what `progress` keeps.
    fn forget_partition(&self, partition: &MirrorPartition);
    /// The refresh loop hands over fresh source metadata (leaders, epochs), so that fetchers need
    /// no metadata calls of their own in the normal case.
    fn source_metadata(&self, mirror: &Str, topics: &[SourceTopic]);
}

/// The control plane as the data plane sees it. Calls return at once unless they give a future.
pub trait FetchEvents: Send + Sync + 'static {
    /// Asks for a local leader epoch of at least `min_epoch`; resolves with the epoch in force once
    /// this broker's own partition carries it. Requests are coalesced. Called *before* a batch with
    /// a higher epoch is exposed (reactive), or early (proactive; ignore the result).
    fn raise_epoch(
        &self,
        partition: &MirrorPartition,
        min_epoch: i32,
    ) -> BoxFuture<'static, Result<i32, String>>;
    /// The source's log diverged from ours (DivergingEpoch, or its end is below ours). The data
    /// plane has stopped fetching the partition; the control plane goes through ULE_RECOVERY:
    /// `prepare(Divergence)`, then `add_partition`.
    fn diverged(&self, partition: &MirrorPartition, text: String);
    /// The partition cannot go on; the data plane has stopped fetching it. The control plane makes
    /// it FAILED and retries by `add_partition` or `prepare` by its policy.
    fn failed(&self, partition: &MirrorPartition, failure: FetchFailure);
    /// Fresh source metadata of this topic would help (unknown topic id, moved leader without a
    /// hint, …): look at it now instead of at the next interval. Coalesced, and limited in rate by
    /// topic, by the control plane.
    fn refresh_wanted(&self, mirror: &Str, topic: &Str);
    /// The source answered another cluster id than the stored one. Nothing is fetched until
    /// `configure` changes.
    fn wrong_cluster(&self, mirror: &Str, found: &str);
}
