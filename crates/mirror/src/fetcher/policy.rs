//! What a mirror asks for, does with a response, and makes of an error: its policy of the fetch
//! engine.
//!
//! A mirror asks as a consumer. Records are taken within what the source claims
//! ([`crate::claims`]), and, where the source has no topic ids, only when they are proven to follow
//! ours ([`super::proof`]).

use std::sync::Arc;
use std::time::Duration;

use tarn_client::{BrokerNode, ClientError, Connection, HostPort};
use tarn_fetch::{
    AfterError, Ask, AskLimits, Asked, FetchOptions, FetchPolicy, FetcherKey, Finished,
    HeldBackReason, LogBounds, NextAsk, NoOffset,
};
use tarn_wire::fetch_stream::{
    DivergingEpoch, FetchPartitionEnd, FetchPartitionStart, NodeEndpoint,
};
use tarn_wire::messages::MetadataRequest;
use tarn_wire::{ErrorCode, Message, Str, VersionRange};
use tokio::time::Instant;

use super::answers::{OnError, OutOfRange, on_error, out_of_range};
use super::checks::no_value;
use super::mirror::MirrorPlane;
use super::partition_response::{AskedFrom, PartitionOutcome, PartitionResponse};
use super::partition_state::{PartitionFetchState, SourceLeader, is_empty, last_epoch};
use super::proof::tail;
use crate::claims::believed_bound;
use crate::seam::Isolation;
use crate::source::{AskError, NoValue, SourceClient, now_ms, throttled};

/// Replica id and epoch of a consumer.
const CONSUMER: i32 = -1;
/// First version of Fetch in which the source compares the epoch of our last record with its log.
const DIVERGING_FROM: i16 = 12;
/// The least of `mirror.socket.timeout.ms` that is obeyed.
const SOCKET_TIMEOUT_MS_MIN: u64 = 1_000;

/// One mirror over one set of connections; a changed source makes a new one.
pub(super) struct MirrorPolicy {
    mirror: Arc<MirrorPlane>,
    source: Arc<SourceClient>,
}

/// Why a fetcher ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetcherError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl MirrorPolicy {
    pub(super) fn new(mirror: Arc<MirrorPlane>, source: Arc<SourceClient>) -> Arc<MirrorPolicy> {
        Arc::new(MirrorPolicy { mirror, source })
    }

    fn find_leader(
        &self,
        partition: &Arc<PartitionFetchState>,
        tags: &FetchPartitionEnd,
        text: &str,
    ) {
        let hint = tags.current_leader.filter(|l| l.leader_id >= 0);
        let hint = hint.map(|l| SourceLeader {
            node: l.leader_id,
            epoch: l.leader_epoch,
        });
        let known = partition.with(|s| s.leader);
        let moved = hint.filter(|h| known.is_none_or(|k| h.epoch >= k.epoch && *h != k));
        partition.with(|s| s.set_leader(moved));
        if moved.is_none() {
            partition.back_off(text, now_ms());
            self.mirror.refresh_wanted(&partition.name().topic);
        } else {
            self.mirror.stalled(partition, text);
        }
        self.mirror.wake();
    }

    fn look_at_topic(&self, partition: &Arc<PartitionFetchState>, text: &str) {
        partition.with(|s| s.set_leader(None));
        partition.back_off(text, now_ms());
        self.mirror.refresh_wanted(&partition.name().topic);
        self.mirror.wake();
    }

    fn no_bounds(&self, partition: &Arc<PartitionFetchState>, why: &NoValue) {
        no_value(&self.mirror, partition, why, "ListOffsets");
        self.mirror.wake();
    }
}

/// From where a partition was asked for with this offset.
fn asked_from(partition: &PartitionFetchState, offset: Option<i64>) -> AskedFrom {
    let Some(offset) = offset else {
        return AskedFrom::Pipelined;
    };
    let needs_proof = partition.assignment.source_topic_id.is_none();
    if needs_proof && offset >= 0 && offset < partition.local.log().log_end_offset() {
        AskedFrom::AtTail
    } else {
        AskedFrom::AtEnd(offset)
    }
}

/// Whether records behind our log end may be taken without our last batch in front of them.
fn may_take(partition: &PartitionFetchState, from: AskedFrom, begun: Instant) -> bool {
    if partition.assignment.source_topic_id.is_some() || from == AskedFrom::AtTail {
        return true;
    }
    let end = partition.local.log().log_end_offset();
    is_empty(&partition.local) || partition.with(|s| s.continuity.may_take(begun, end))
}

impl FetchPolicy for MirrorPolicy {
    type Partition = PartitionFetchState;
    type Response = PartitionResponse;
    type Progress = PartitionOutcome;
    type Error = FetcherError;

    fn options(&self) -> FetchOptions {
        let settings = self.mirror.settings();
        let fetch = &settings.fetch;
        FetchOptions {
            replica_id: CONSUMER,
            replica_epoch: CONSUMER.into(),
            wait_ms_max: fetch.wait_ms_max,
            min_bytes: fetch.min_bytes,
            partition_bytes_max: fetch.partition_bytes_max,
            response_bytes_max: fetch.response_bytes_max,
            read_committed: fetch.isolation == Isolation::ReadCommitted,
        }
    }

    /// Connects and makes sure that this is still the cluster the mirror was made for.
    async fn connect(&self, key: FetcherKey) -> Result<Connection, FetcherError> {
        let settings = self.mirror.settings();
        let client_id = Str::from(format!(
            "fetcherId-{}-mirrorName-{}",
            key.index, &*settings.mirror
        ));
        let timeout_ms = u64::try_from(settings.connection.socket_timeout_ms).unwrap_or(0);
        let timeout = Duration::from_millis(timeout_ms.max(SOCKET_TIMEOUT_MS_MIN));
        let cluster = self.source.cluster().map_err(AskError::from)?;
        let mut connection = cluster
            .open_dedicated(key.broker, client_id, timeout)
            .await?;
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let wanted = VersionRange::new(4, MetadataRequest::VERSIONS.max);
        let version = connection
            .versions()
            .require::<MetadataRequest>(connection.peer(), wanted)?;
        let response = connection.call_at(&request, version).await?;
        self.source
            .check_cluster_id(response.cluster_id.as_deref())?;
        Ok(connection)
    }

    fn answered(&self) {
        self.source.reach().answered();
    }

    fn failed(&self, error: &FetcherError) {
        if let FetcherError::Client(e) = error
            && e.is_connectivity()
        {
            self.source.reach().broker_failed(now_ms());
        }
    }

    fn learn_broker(&self, endpoint: &NodeEndpoint) {
        let port = u16::try_from(endpoint.port).ok().filter(|&p| p > 0);
        if let (Ok(cluster), Some(port)) = (self.source.cluster(), port) {
            let address = HostPort {
                host: endpoint.host.clone(),
                port,
            };
            cluster.learn_node(BrokerNode {
                id: endpoint.node_id,
                address,
                rack: endpoint.rack.clone(),
            });
        }
    }

    fn ask(&self, partition: &PartitionFetchState, limits: AskLimits, now: Instant) -> NextAsk {
        let (leader, bytes_min, blocked, starts) =
            partition.with(|s| (s.leader, s.bytes_min, s.blocked_until, s.needs_start));
        if !partition.is_ready(now) || starts {
            let later = blocked.filter(|&until| until > now);
            return later.map_or(NextAsk::No, NextAsk::NotBefore);
        }
        let overlap = if partition.assignment.source_topic_id.is_some() {
            None
        } else {
            let overlaps = partition.with(|s| s.continuity.overlaps());
            overlaps.then(|| tail(partition.local.log())).flatten()
        };
        let (fetch_offset, overlap_bytes) =
            overlap.unwrap_or_else(|| (partition.local.log().log_end_offset(), 0));
        let last_fetched_epoch = if limits.version >= DIVERGING_FROM && overlap.is_none() {
            last_epoch(&partition.local)
        } else {
            -1
        };
        NextAsk::Ask(Ask {
            current_leader_epoch: leader.map_or(-1, |l| l.epoch),
            fetch_offset,
            last_fetched_epoch,
            log_start_offset: -1,
            bytes_max: limits
                .bytes_max
                .max(bytes_min)
                .saturating_add(overlap_bytes),
        })
    }

    fn next_try(&self, partitions: &[Arc<PartitionFetchState>]) -> Option<Instant> {
        let live = partitions.iter().filter(|p| p.is_live());
        live.filter_map(|p| p.with(|s| s.blocked_until)).min()
    }

    fn needs_start(&self, partition: &PartitionFetchState, now: Instant) -> bool {
        partition.is_ready(now) && partition.with(|s| s.needs_start)
    }

    fn start_found(&self, partition: &Arc<PartitionFetchState>, start: Result<i64, NoOffset>) {
        match start.map_err(NoValue::from).and_then(believed_bound) {
            Ok(start) => self.mirror.start_at(partition, start),
            Err(e) => self.no_bounds(partition, &e),
        }
    }

    fn out_of_range(
        &self,
        partition: &Arc<PartitionFetchState>,
        bounds: Result<LogBounds, NoOffset>,
    ) {
        let believed = bounds.map_err(NoValue::from).and_then(|b| {
            believed_bound(b.start)?;
            believed_bound(b.end)?;
            Ok(b)
        });
        let LogBounds { start, end } = match believed {
            Ok(bounds) => bounds,
            Err(e) => return self.no_bounds(partition, &e),
        };
        let local_end = partition.local.log().log_end_offset();
        match out_of_range(local_end, last_epoch(&partition.local), start, end) {
            OutOfRange::StartAt { offset, skipped } => {
                self.mirror.skip_to(partition, offset, skipped);
            }
            OutOfRange::Diverged(text) => self.mirror.diverged(partition, text),
            OutOfRange::Again(text) => partition.back_off(&text, now_ms()),
        }
    }

    fn begin(
        &self,
        partition: &Arc<PartitionFetchState>,
        start: FetchPartitionStart,
        asked: Asked,
    ) -> Option<PartitionResponse> {
        let from = asked_from(partition, asked.offset);
        let has_records = start.records_len.is_some_and(|len| len > 0);
        if has_records && !may_take(partition, from, asked.begun) {
            return None;
        }
        Some(PartitionResponse::new(
            partition.clone(),
            start,
            from,
            asked,
        ))
    }

    fn take(&self, response: &mut PartitionResponse, piece: &[u8]) {
        response.take(piece);
    }

    fn estimate(&self, response: &PartitionResponse) -> Option<i64> {
        response.estimate()
    }

    fn finish(
        &self,
        partition: &Arc<PartitionFetchState>,
        response: PartitionResponse,
    ) -> Finished<PartitionOutcome> {
        let begun = response.begun;
        let bytes = response.start.records_len.unwrap_or(0);
        let end = match response.end() {
            Ok(end) => end,
            Err(error) => {
                self.mirror.append_failed(partition, error);
                return Finished::Failed;
            }
        };
        if end.doubtful {
            // It is compared in full, as compaction may have changed the batch.
            partition.with(|s| s.doubt());
            self.mirror.wake();
            return Finished::Unused;
        }
        partition.with(|s| s.bytes_min = end.cut_batch_bytes);
        if end.proven {
            let behind = end.high_watermark > partition.local.log().log_end_offset();
            partition.with(|s| s.continuity.proven(begun, behind));
        }
        if end.moved_nothing {
            self.mirror.took_nothing(partition, &end, bytes);
            return Finished::Unused;
        }
        Finished::Good {
            appended: end.appended.is_some(),
            lagging: end.high_watermark > partition.local.log().log_end_offset(),
            left_a_gap: end.left_a_gap,
            progress: end,
        }
    }

    fn error(
        &self,
        partition: &Arc<PartitionFetchState>,
        code: ErrorCode,
        tags: &FetchPartitionEnd,
    ) -> AfterError {
        let text = format!(
            "the source answered {} for {}: {}",
            code.name(),
            partition.name(),
            code.message()
        );
        match on_error(code) {
            OnError::FindLeader => self.find_leader(partition, tags, &text),
            OnError::LookAtTopic => self.look_at_topic(partition, &text),
            OnError::Wait => partition.back_off(&text, now_ms()),
            OnError::CompareBounds => {
                self.mirror.stalled(partition, &text);
                return AfterError::AskBounds;
            }
            OnError::Fail(failure) => self.mirror.failed(partition, failure),
        }
        AfterError::Nothing
    }

    fn diverged(&self, partition: &Arc<PartitionFetchState>, diverging: DivergingEpoch) {
        let text = format!(
            "the source's log differs from ours: its epoch {} ends at offset {}, ours goes on to {}",
            diverging.epoch,
            diverging.end_offset,
            partition.local.log().log_end_offset()
        );
        self.mirror.diverged(partition, text);
    }

    fn record_progress(&self, progress: Vec<(Arc<PartitionFetchState>, PartitionOutcome)>) {
        let now = now_ms();
        for (partition, end) in progress {
            self.mirror.answered(&partition, &end, now);
        }
    }

    fn nothing_new<'a>(&self, partitions: impl Iterator<Item = &'a Arc<PartitionFetchState>>) {
        let now = now_ms();
        for partition in partitions {
            partition.tracked.lock().still_good(now);
        }
    }

    fn held_back(&self, partitions: &[Arc<PartitionFetchState>], reason: HeldBackReason) {
        let text = match reason {
            HeldBackReason::Throttled(throttle_ms) => throttled(throttle_ms),
            HeldBackReason::Empty(times) => {
                format!("the source answers at once and brings nothing ({times} times in a row)")
            }
        };
        let now = now_ms();
        for partition in partitions.iter().filter(|p| p.is_live()) {
            partition.tracked.lock().set_error(&text, now);
        }
    }
}
