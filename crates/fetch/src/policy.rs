//! What a user of the engine decides: what is asked for, what is done with a response, what an
//! error means.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use tarn_client::{ClientError, Connection};
use tarn_wire::fetch_stream::{
    DivergingEpoch, FetchPartitionEnd, FetchPartitionStart, NodeEndpoint,
};
use tarn_wire::{ErrorCode, Str, Uuid};
use tokio::time::Instant;

use crate::{Ask, FetcherKey, HeldBackReason, LogBounds, NoOffset};

/// Options of all Fetches of a fetcher. Read before each, so that a change applies in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// Node id of a replica, −1 = a consumer.
    pub replica_id: i32,
    /// Broker epoch of a replica, −1 = a consumer.
    pub replica_epoch: i64,
    /// Longest wait for the first record.
    pub wait_ms_max: i32,
    /// Least bytes of a response before the wait ends.
    pub min_bytes: i32,
    /// Most bytes for each partition, unless few partitions lag.
    pub partition_bytes_max: i32,
    /// Most bytes of a response, where the engine does not choose.
    pub response_bytes_max: i32,
    /// Nothing beyond the last stable offset.
    pub read_committed: bool,
}

/// A partition being fetched, as the engine sees it.
pub trait FetchedPartition: Send + Sync + 'static {
    /// Topic id here and partition number: the order in which partitions are asked for.
    fn key(&self) -> (Uuid, i32);
    /// Name of the topic.
    fn topic(&self) -> &Str;
    /// Partition number.
    fn partition(&self) -> i32;
    /// Topic id at the leader; `None` = it has none, and the topic is asked for by name.
    fn topic_id(&self) -> Option<Uuid>;
    /// The log directory that it is written to.
    fn directory(&self) -> &Path;
}

/// Bounds of what a policy may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskLimits {
    /// Version of the Fetch.
    pub version: i16,
    /// Most bytes, unless a batch is larger.
    pub bytes_max: i32,
}

/// Whether a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAsk {
    /// Like this.
    Ask(Ask),
    /// Not before this time.
    NotBefore(Instant),
    /// Not until something changes.
    No,
}

/// From where a partition was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The offset; `None` = an estimate of what our log end would be, so that batches that we have
    /// by now come first.
    pub offset: Option<i64>,
    /// The leader epoch that the leader compared with its own, `None` = none.
    pub fenced_with: Option<i32>,
    /// When the response began.
    pub begun: Instant,
}

/// What the records of a partition came to.
#[derive(Debug)]
pub enum Finished<P> {
    /// They were taken, or there were none.
    Good {
        /// What is left to record.
        progress: P,
        /// Something was appended.
        appended: bool,
        /// The leader has more.
        lagging: bool,
        /// They began after our log end, because the offset was an estimate.
        left_a_gap: bool,
    },
    /// They were of no use, which the policy has dealt with.
    Unused,
    /// They could not be kept, which the policy has dealt with; the partition is named again in the
    /// session.
    Failed,
}

/// What follows an error of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// The policy has dealt with it.
    Nothing,
    /// The leader is asked for the bounds of its log ([`FetchPolicy::out_of_range`]).
    AskBounds,
}

/// See the module. Calls come from the task of a fetcher, are short, and wait for nothing unless
/// they give a future. Which connection serves which partition is told to
/// [`FetcherManager::assign`](crate::FetcherManager::assign).
///
/// A **mirror** asks as a consumer, takes records within what the source claims, and reports a
/// divergence to its control plane. A **follower** asks with its replica id and epoch, appends
/// whole batches, truncates on a diverging epoch, and reports its log end with its next ask.
pub trait FetchPolicy: Send + Sync + 'static {
    /// One partition.
    type Partition: FetchedPartition;
    /// A partition's part of a response while it is read. Dropped without [`FetchPolicy::finish`],
    /// it drops an unfinished batch.
    type Response: Send + 'static;
    /// What a good response leaves to record, after the next Fetch went out.
    type Progress: Send + Sync + 'static;
    /// Why a fetcher ended.
    type Error: From<ClientError> + std::fmt::Debug + Send + 'static;

    /// Options of the Fetches.
    fn options(&self) -> FetchOptions;

    /// Opens the connection of a fetcher, and proves that it leads to the right cluster.
    fn connect(
        &self,
        key: FetcherKey,
    ) -> impl Future<Output = Result<Connection, Self::Error>> + Send;

    /// The broker answered a Fetch.
    fn answered(&self);

    /// The fetcher ends because of this.
    fn failed(&self, error: &Self::Error);

    /// A response names a broker, which may lead some partitions by now.
    fn learn_broker(&self, endpoint: &NodeEndpoint);

    /// How the partition is asked for next. Called for partitions whose answer may be another one
    /// now, and for all every few seconds.
    fn ask(&self, partition: &Self::Partition, limits: AskLimits, now: Instant) -> NextAsk;

    /// When one of the partitions may be asked for that may not be now.
    fn next_try(&self, partitions: &[Arc<Self::Partition>]) -> Option<Instant>;

    /// Whether the leader has to be asked where its log begins before the partition can be fetched.
    fn needs_start(&self, partition: &Self::Partition, now: Instant) -> bool;

    /// Where the leader's log begins.
    fn start_found(&self, partition: &Arc<Self::Partition>, start: Result<i64, NoOffset>);

    /// The bounds of the leader's log, which does not have the offset that was asked for.
    fn out_of_range(&self, partition: &Arc<Self::Partition>, bounds: Result<LogBounds, NoOffset>);

    /// A partition's part of a response begins. `None` = what it brings is not wanted.
    fn begin(
        &self,
        partition: &Arc<Self::Partition>,
        start: FetchPartitionStart,
        asked: Asked,
    ) -> Option<Self::Response>;

    /// The next piece of its records.
    fn take(&self, response: &mut Self::Response, piece: &[u8]);

    /// The offset up to which it will surely bring whole batches ([`estimate`](crate::estimate)),
    /// as far as can be told.
    fn estimate(&self, response: &Self::Response) -> Option<i64>;

    /// All its records came, without an error.
    fn finish(
        &self,
        partition: &Arc<Self::Partition>,
        response: Self::Response,
    ) -> Finished<Self::Progress>;

    /// The leader answered the partition with an error.
    fn error(
        &self,
        partition: &Arc<Self::Partition>,
        code: ErrorCode,
        tags: &FetchPartitionEnd,
    ) -> AfterError;

    /// The leader's log differs from ours.
    fn diverged(&self, partition: &Arc<Self::Partition>, diverging: DivergingEpoch);

    /// Good responses, once nothing waits for it any more.
    fn record_progress(&self, progress: Vec<(Arc<Self::Partition>, Self::Progress)>);

    /// Complete responses left these out: the leader has nothing new, which is an answer too.
    fn nothing_new<'a>(&self, partitions: impl Iterator<Item = &'a Arc<Self::Partition>>);

    /// The broker holds its responses back, or answers without anything.
    fn held_back(&self, partitions: &[Arc<Self::Partition>], reason: HeldBackReason);
}
