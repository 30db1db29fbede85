//! One task that fetches some partitions from one source broker over one connection.
//!
//! Every round: build a Fetch from the partitions, send it, append what comes while it comes, then send the next one before the progress of the
//! last is recorded. Over a WAN link the next one goes out while the answer still comes ([`super::pipelining`]). A round never holds more than one piece of
//! records, and its work grows with the partitions that changed, not with all of them: those are scanned every few seconds ([`SCAN_EVERY`]).
//! Everything that happens to a partition stays in its state; an error of the connection ends the task and the fetcher manager decides what follows.

mod bounds;
mod request;

use std::sync::Arc;
use std::time::Duration;

use tarn_client::{BrokerNode, ClientError, Connection, HostPort};
use tarn_wire::fetch_stream::{
    FetchEvent, FetchHeader, FetchLimits, FetchPartitionEnd, FetchPartitionStart, NodeEndpoint,
};
use tarn_wire::messages::{FetchRequest, MetadataRequest};
use tarn_wire::{ErrorCode, Message, Str, VersionRange};
use tokio::time::Instant;

use super::answers::{OnError, on_error};
use super::assignment::{Assignment, SharedAssignment};
use super::fetch_session::{Ask, FetchSession, Wants};
use super::idle::Idle;
use super::mirror::MirrorPlane;
use super::partition_response::{Asked, PartitionOutcome, PartitionResponse};
use super::partition_state::{SourceLeader, is_empty, last_epoch};
use super::pipelining::{Coming, Pipelining};
use super::proof::tail;
use super::sizing::{Answer, Sizing};
use crate::source::{AskError, SourceClient, now_ms};

/// Versions of Fetch that can be used towards a source.
const FETCH_VERSIONS: VersionRange = VersionRange::new(4, 18);
/// Last version that names topics by name.
const FETCH_BY_NAME_MAX: i16 = 12;
/// First version with fetch sessions.
const FETCH_SESSIONS_FROM: i16 = 7;
/// First version in which the source compares the leader epoch that we know with its own.
const FETCH_FENCED_FROM: i16 = 9;
/// Sessions refused in a row before the connection is given up.
const SESSION_LOSSES_MAX: u32 = 5;
/// A waiting Fetch is given up for new partitions at most once in this time, by connecting again.
const INTERRUPT_EVERY: Duration = Duration::from_millis(250);
/// Longest time a task sleeps when no partition may be asked for.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(30);
/// All partitions are scanned after this time for each [`SCAN_PARTITIONS`] of them, within these bounds; between two scans only those that an
/// answer spoke of.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const SCAN_EVERY_MAX: Duration = Duration::from_secs(5);
const SCAN_PARTITIONS: usize = 500;

/// How a fetcher ended.
#[derive(Debug)]
pub(super) struct FetcherEnd {
    /// `None` = it had no partitions any more.
    pub(super) error: Option<FetcherError>,
    /// At least one answer was good.
    pub(super) answered: bool,
}

/// Why a fetcher ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetcherError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Ask(#[from] AskError),
}

type Result<T> = std::result::Result<T, FetcherError>;

/// How often all of so many partitions are scanned.
fn scan_every(partitions: usize) -> Duration {
    let parts = u32::try_from(partitions / SCAN_PARTITIONS).unwrap_or(u32::MAX);
    SCAN_EVERY
        .saturating_mul(parts)
        .clamp(SCAN_EVERY, SCAN_EVERY_MAX)
}

/// A fetcher.
pub(super) struct Fetcher {
    mirror: Arc<MirrorPlane>,
    source: Arc<SourceClient>,
    shared: Arc<SharedAssignment>,
    node: i32,
    index: i32,
    assignment: Arc<Assignment>,
    fetch: FetchSession,
    wants: Wants,
    /// Partitions whose ask may be another one now.
    touched: Vec<usize>,
    /// Partitions that have records for us, as far as we know, and their number.
    behind: Vec<bool>,
    lagging: usize,
    /// When the next scan of all partitions is due, and the nudges seen at the last one.
    scan_at: Instant,
    nudges_seen: u64,
    sizing: Sizing,
    pipelining: Pipelining,
    /// A Fetch that went out while an earlier answer came, and has no answer yet.
    is_pipelined: bool,
    /// The partition that it asks for from an estimated offset.
    estimated: Option<usize>,
    /// Partitions that wait for what only a connection without open requests can ask.
    starts_wanted: bool,
    /// The last Fetch: when it went out, and most bytes of its answer.
    sent_at: Instant,
    asked_bytes: i32,
    /// When the answer being read began.
    begun: Instant,
    /// Number of the answer, and by partition the last answer that spoke of it.
    round: u64,
    answered_in: Vec<u64>,
    by_id: bool,
    answered: bool,
    losses: u32,
    compare: Vec<usize>,
    progress: Vec<(usize, PartitionOutcome)>,
    /// A response was complete since the last scan.
    complete: bool,
    /// Whether the version that was sent carries the leader epoch that fences it.
    fences: bool,
    idle: Idle,
}

impl Fetcher {
    pub(super) fn new(
        mirror: Arc<MirrorPlane>,
        source: Arc<SourceClient>,
        shared: Arc<SharedAssignment>,
        (node, index): (i32, i32),
    ) -> Fetcher {
        let sizing = Sizing::new(mirror.settings().fetch.response_bytes_max);
        let mut fetcher = Fetcher {
            mirror,
            source,
            assignment: Arc::default(),
            shared,
            node,
            index,
            fetch: FetchSession::default(),
            wants: Wants::default(),
            touched: Vec::new(),
            behind: Vec::new(),
            lagging: 0,
            scan_at: Instant::now(),
            nudges_seen: 0,
            sizing,
            pipelining: Pipelining::default(),
            is_pipelined: false,
            estimated: None,
            starts_wanted: false,
            sent_at: Instant::now(),
            begun: Instant::now(),
            asked_bytes: 0,
            round: 0,
            answered_in: Vec::new(),
            by_id: false,
            answered: false,
            losses: 0,
            compare: Vec::new(),
            progress: Vec::new(),
            complete: false,
            fences: false,
            idle: Idle::default(),
        };
        fetcher.take_assignment();
        fetcher
    }

    /// Fetches until there is nothing to fetch or the connection breaks.
    pub(super) async fn run(mut self) -> FetcherEnd {
        let error = self.serve().await.err();
        if let Some(FetcherError::Client(e)) = &error
            && e.is_connectivity()
        {
            self.source.reach().broker_failed(now_ms());
        }
        FetcherEnd {
            error,
            answered: self.answered,
        }
    }

    async fn serve(&mut self) -> Result<()> {
        let mut connection = self.connect().await?;
        let mut connected_at = Instant::now();
        let negotiated = connection
            .versions()
            .require::<FetchRequest>(connection.peer(), FETCH_VERSIONS)?;
        loop {
            let assignment = Arc::clone(&self.assignment);
            if !self.take_assignment() {
                return Ok(());
            }
            if self.is_pipelined && !Arc::ptr_eq(&assignment, &self.assignment) {
                // The answer that is due speaks of the old assignment.
                connection = self.connect_again().await?;
                connected_at = Instant::now();
            }
            let is_pipelined = std::mem::take(&mut self.is_pipelined);
            if is_pipelined {
                self.scan(None).await?;
            } else {
                self.scan(Some(&mut connection)).await?;
                self.compare_bounds(&mut connection).await?;
                let (by_id, version) = self.version(negotiated);
                if by_id != self.by_id {
                    self.fetch.reset();
                    self.by_id = by_id;
                }
                self.renew_wants(version);
                if self.wants.is_empty() {
                    self.record_progress();
                    self.idle_wait().await;
                    continue;
                }
                self.estimated = None;
                self.send(&mut connection, version).await?;
            }
            // While the source works on the next answer.
            self.record_progress();
            let Some(first) = self
                .first_event(&mut connection, connected_at + INTERRUPT_EVERY)
                .await?
            else {
                connection = self.connect_again().await?;
                connected_at = Instant::now();
                continue;
            };
            self.read_answer(&mut connection, first, is_pipelined, negotiated)
                .await?;
            if let Some(pause) = self.idle.take_pause() {
                self.record_progress();
                self.show_idle();
                tokio::time::sleep(pause).await;
            }
            if self.lagging == 0
                && let Some(rest) = self.sizing.rest(self.assignment.partitions.len())
            {
                self.record_progress();
                tokio::time::sleep(rest).await;
            }
        }
    }

    async fn send(&mut self, connection: &mut Connection, version: i16) -> Result<()> {
        let plan = self
            .fetch
            .plan(&mut self.wants, version >= FETCH_SESSIONS_FROM);
        let request = self.request(&plan, version);
        (self.sent_at, self.asked_bytes) = (Instant::now(), request.max_bytes);
        self.idle.asked(request.max_wait_ms);
        self.fences = version >= FETCH_FENCED_FROM;
        connection.send_fetch(&request, version).await?;
        Ok(())
    }

    /// Sends the next Fetch while an answer still comes, when all that is behind is the partition that `response` is about: it is asked for from
    /// an estimated offset. Where several are behind, the source's other fetchers fill the link meanwhile.
    async fn send_next(
        &mut self,
        connection: &mut Connection,
        response: &PartitionResponse,
        negotiated: i16,
    ) -> Result<()> {
        let index = response.index;
        let (Some(known), Some(fetch_offset)) = (self.fetch.asked(index), response.estimate())
        else {
            return Ok(());
        };
        // Without a leader epoch the source could not tell that it is another log by now.
        if known.current_leader_epoch < 0 {
            return Ok(());
        }
        let (_, version) = self.version(negotiated);
        self.renew_wants(version);
        let ask = Ask {
            fetch_offset,
            // Whether the epochs agree is said for our log end only.
            last_fetched_epoch: -1,
            ..known
        };
        self.wants.set(index, Some(ask));
        self.touched.push(index);
        self.estimated = Some(index);
        self.is_pipelined = true;
        self.send(connection, version).await
    }

    /// The begin of the answer that is due; `None` when partitions came that must not wait for the end of a long poll.
    async fn first_event(
        &self,
        connection: &mut Connection,
        not_before: Instant,
    ) -> Result<Option<FetchEvent>> {
        tokio::select! {
            biased;
            event = connection.next_fetch_event(self.limits()) => Ok(Some(event?)),
            () = self.new_partitions(not_before) => Ok(None),
        }
    }

    async fn new_partitions(&self, not_before: Instant) {
        loop {
            self.shared.changed().await;
            if self.shared.assignment().adds_to(&self.assignment) {
                tokio::time::sleep_until(not_before).await;
                return;
            }
        }
    }

    fn limits(&self) -> FetchLimits {
        let count = self.assignment.partitions.len();
        FetchLimits {
            topics_max: count,
            partitions_max: count,
            ..FetchLimits::default()
        }
    }

    /// Connects and makes sure that this is still the cluster the mirror was made for.
    async fn connect(&self) -> Result<Connection> {
        let settings = self.mirror.settings();
        let client_id = Str::from(format!(
            "fetcherId-{}-mirrorName-{}",
            self.index, &*settings.mirror
        ));
        let timeout = Duration::from_millis(
            u64::try_from(settings.connection.socket_timeout_ms)
                .unwrap_or(0)
                .max(1_000),
        );
        let cluster = self.source.cluster().map_err(AskError::from)?;
        let mut connection = cluster
            .open_dedicated(self.node, client_id, timeout)
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

    async fn connect_again(&mut self) -> Result<Connection> {
        self.fetch.reset();
        self.is_pipelined = false;
        self.estimated = None;
        // What was asked for and will not be answered.
        self.scan_at = Instant::now();
        self.connect().await
    }

    /// Takes the newest assignment; false when there is nothing to fetch any more.
    fn take_assignment(&mut self) -> bool {
        let assignment = self.shared.assignment();
        if !Arc::ptr_eq(&assignment, &self.assignment) {
            self.record_progress();
            self.compare.clear();
            let count = assignment.partitions.len();
            self.assignment = assignment;
            self.fetch.reset();
            self.wants = Wants::new(count);
            self.touched.clear();
            (self.behind, self.lagging) = (vec![true; count], count);
            self.answered_in = vec![0; count];
            self.complete = false;
            self.scan_at = Instant::now();
        }
        !self.assignment.partitions.is_empty()
    }

    fn version(&self, negotiated: i16) -> (bool, i16) {
        let by_id = negotiated > FETCH_BY_NAME_MAX && self.assignment.all_have_ids;
        (
            by_id,
            if by_id {
                negotiated
            } else {
                negotiated.min(FETCH_BY_NAME_MAX)
            },
        )
    }

    /// Scans all partitions when that is due: what waits for its start, what may be asked for again, what changed without an answer. Without
    /// a connection nothing can be asked.
    async fn scan(&mut self, connection: Option<&mut Connection>) -> Result<()> {
        let (now, nudges) = (Instant::now(), self.shared.nudges());
        let asks = self.starts_wanted && connection.is_some();
        if now < self.scan_at && nudges == self.nudges_seen && !asks {
            return Ok(());
        }
        (self.scan_at, self.nudges_seen) =
            (now + scan_every(self.assignment.partitions.len()), nudges);
        self.find_starts(connection).await?;
        self.sizing
            .configure(self.mirror.settings().fetch.response_bytes_max);
        if std::mem::take(&mut self.complete) {
            // What complete answers left out had nothing new, which is an answer too.
            let now = now_ms();
            for (index, partition) in self.assignment.partitions.iter().enumerate() {
                if self.fetch.asked(index).is_some_and(|a| a.fetch_offset >= 0) {
                    partition.tracked.lock().still_good(now);
                }
            }
        }
        self.touched.clear();
        self.touched.extend(0..self.assignment.partitions.len());
        Ok(())
    }

    /// Asks anew for what was touched, with offsets as they are on our disk.
    fn renew_wants(&mut self, version: i16) {
        let now = Instant::now();
        let settings = self.mirror.settings();
        let configured = settings.fetch.partition_bytes_max;
        // The limit per partition keeps them fair; where few are behind, they share what one answer may hold.
        let lagging = i32::try_from(self.lagging.max(1)).unwrap_or(i32::MAX);
        let share = configured.max(self.sizing.bytes_max() / lagging);
        for index in std::mem::take(&mut self.touched) {
            let partition = &self.assignment.partitions[index];
            let (leader, bytes_min, blocked, starts) =
                partition.with(|s| (s.leader, s.bytes_min, s.blocked_until, s.needs_start));
            let overlap = if partition.assignment.source_topic_id.is_some() {
                None
            } else {
                let overlaps = partition.with(|s| s.continuity.overlaps());
                overlaps.then(|| tail(partition.local.log())).flatten()
            };
            if !partition.is_ready(now) || starts {
                self.wants.set(index, None);
                if let Some(until) = blocked.filter(|&until| until > now) {
                    self.scan_at = self.scan_at.min(until);
                }
                continue;
            }
            let bytes = if self.behind[index] {
                share
            } else {
                configured
            };
            let ask = Ask {
                current_leader_epoch: leader.map_or(-1, |l| l.epoch),
                fetch_offset: overlap
                    .map_or_else(|| partition.local.log().log_end_offset(), |o| o.0),
                last_fetched_epoch: if version >= 12 && overlap.is_none() {
                    last_epoch(&partition.local)
                } else {
                    -1
                },
                bytes_max: bytes
                    .max(bytes_min)
                    .saturating_add(overlap.map_or(0, |o| o.1)),
            };
            self.wants.set(index, Some(ask));
        }
    }

    fn set_behind(&mut self, index: usize, behind: bool) {
        self.lagging = self.lagging + usize::from(behind) - usize::from(self.behind[index]);
        self.behind[index] = behind;
    }

    /// Takes one answer, appending as it arrives; `pipelined` = its request went out while the one before it came.
    async fn read_answer(
        &mut self,
        connection: &mut Connection,
        first: FetchEvent,
        pipelined: bool,
        negotiated: i16,
    ) -> Result<()> {
        let limits = self.limits();
        let mut response: Option<PartitionResponse> = None;
        let mut event = first;
        let begun = Instant::now();
        self.begun = begun;
        let waited = begun.saturating_duration_since(self.sent_at);
        let asked_bytes = self.asked_bytes;
        let mut bytes = 0;
        self.round += 1;
        loop {
            match event {
                FetchEvent::Header(header) => {
                    self.idle.begin(header.throttle_time_ms);
                    self.header(connection, &header).await?;
                }
                FetchEvent::Topic { .. } => {}
                FetchEvent::PartitionStart(start) => response = self.begin(start),
                FetchEvent::Records(piece) => {
                    bytes += piece.len() as u64;
                    if let Some(response) = &mut response {
                        response.take(&piece);
                        let coming = Coming {
                            receiving: begun.elapsed(),
                            bytes,
                            left: connection.fetch_bytes_to_come(),
                        };
                        if self.may_pipeline(response.index) && self.pipelining.is_due(coming) {
                            self.send_next(connection, response, negotiated).await?;
                        }
                    }
                }
                FetchEvent::PartitionEnd(end) => {
                    if let Some(response) = response.take() {
                        self.finish(response, &end);
                    }
                }
                FetchEvent::End { node_endpoints } => {
                    self.learn(&node_endpoints);
                    let is_news = self.idle.end(waited + begun.elapsed(), bytes);
                    self.complete |= is_news;
                    if !is_news {
                        return Ok(());
                    }
                    let answer = Answer {
                        asked_bytes,
                        waited,
                        receiving: begun.elapsed(),
                        bytes,
                    };
                    let is_full = Sizing::is_full(answer);
                    self.pipelining
                        .answered((!pipelined).then_some(waited), is_full);
                    self.sizing.answered(answer);
                    return Ok(());
                }
            }
            event = connection.next_fetch_event(limits).await?;
        }
    }

    /// Whether a Fetch for this partition may go out now; what only a connection without open requests can ask goes first.
    fn may_pipeline(&self, index: usize) -> bool {
        let is_free = !self.is_pipelined && !self.starts_wanted && self.compare.is_empty();
        let has_id = self.assignment.partitions[index]
            .assignment
            .source_topic_id
            .is_some();
        is_free && has_id && self.lagging == 1 && self.behind[index] && self.pipelining.estimates()
    }

    async fn header(&mut self, connection: &Connection, header: &FetchHeader) -> Result<()> {
        match ErrorCode(header.error_code) {
            ErrorCode::NONE => {
                self.fetch.answered(header.session_id);
                self.losses = 0;
                self.answered = true;
                self.source.reach().answered();
                Ok(())
            }
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::UNKNOWN_TOPIC_ID
                if self.losses < SESSION_LOSSES_MAX =>
            {
                self.fetch.lost();
                self.losses += 1;
                // Twice in a row is not an eviction any more.
                if self.losses > 1 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Ok(())
            }
            code => Err(ClientError::refused(connection.peer(), "Fetch", code.0, None).into()),
        }
    }

    /// A partition's part of the answer begins; `None` when it is nothing we asked for.
    fn begin(&mut self, start: FetchPartitionStart) -> Option<PartitionResponse> {
        let index = self.assignment.find(&start)?;
        let known = self.fetch.asked(index);
        let asked = if self.estimated == Some(index) {
            self.estimated = None;
            Asked::Pipelined
        } else {
            self.asked_at(index, known?.fetch_offset)
        };
        let fenced_with = known
            .map(|ask| ask.current_leader_epoch)
            .filter(|&epoch| self.fences && epoch >= 0);
        let before = std::mem::replace(&mut self.answered_in[index], self.round);
        if before == self.round {
            return None;
        }
        self.touched.push(index);
        let has_records = start.records_len.is_some_and(|len| len > 0);
        if has_records && !self.may_take(index, asked) {
            return None;
        }
        Some(PartitionResponse::new(
            index,
            self.assignment.partitions[index].clone(),
            start,
            asked,
            fenced_with,
        ))
    }

    fn asked_at(&self, index: usize, offset: i64) -> Asked {
        let partition = &self.assignment.partitions[index];
        let needs_proof = partition.assignment.source_topic_id.is_none();
        if needs_proof && offset >= 0 && offset < partition.local.log().log_end_offset() {
            Asked::AtTail
        } else {
            Asked::AtEnd(offset)
        }
    }

    /// Whether records behind our log end may be taken without our last batch in front of them.
    fn may_take(&self, index: usize, asked: Asked) -> bool {
        let partition = &self.assignment.partitions[index];
        if partition.assignment.source_topic_id.is_some() || asked == Asked::AtTail {
            return true;
        }
        let end = partition.local.log().log_end_offset();
        is_empty(&partition.local) || partition.with(|s| s.continuity.may_take(self.begun, end))
    }

    fn finish(&mut self, response: PartitionResponse, tags: &FetchPartitionEnd) {
        let (index, partition) = (response.index, response.partition.clone());
        let code = ErrorCode(response.start.error_code);
        if code != ErrorCode::NONE {
            self.idle.moved();
            self.fetch.name_again(index, &mut self.wants);
            self.partition_error(index, code, tags);
            return;
        }
        if let Some(diverging) = tags.diverging_epoch {
            self.idle.moved();
            self.fetch.name_again(index, &mut self.wants);
            let text = format!(
                "the source's log differs from ours: its epoch {} ends at offset {}, ours goes on to {}",
                diverging.epoch,
                diverging.end_offset,
                partition.local.log().log_end_offset()
            );
            self.mirror.diverged(&partition, text);
            return;
        }
        let bytes = response.start.records_len.unwrap_or(0);
        match response.end() {
            Ok(end) if end.doubtful => {
                // It is compared in full, as compaction may have changed the batch.
                partition.with(|s| s.doubt());
                self.mirror.wake();
            }
            Ok(end) => {
                partition.with(|s| s.bytes_min = end.cut_batch_bytes);
                if end.proven {
                    let behind = end.high_watermark > partition.local.log().log_end_offset();
                    partition.with(|s| s.continuity.proven(self.begun, behind));
                }
                if end.moved_nothing {
                    self.mirror.took_nothing(&partition, &end, bytes);
                    return;
                }
                if end.appended.is_some() {
                    self.idle.moved();
                }
                if end.left_a_gap {
                    self.pipelining.left_a_gap();
                }
                let local_end = partition.local.log().log_end_offset();
                self.set_behind(index, end.high_watermark > local_end);
                self.progress.push((index, end));
            }
            Err(trouble) => {
                self.fetch.name_again(index, &mut self.wants);
                self.mirror.append_failed(&partition, trouble);
            }
        }
    }

    fn partition_error(&mut self, index: usize, code: ErrorCode, tags: &FetchPartitionEnd) {
        let partition = self.assignment.partitions[index].clone();
        let text = format!(
            "the source answered {} for {}: {}",
            code.name(),
            partition.name(),
            code.message()
        );
        match on_error(code) {
            OnError::FindLeader => {
                let hint = tags.current_leader.filter(|l| l.leader_id >= 0);
                let hint = hint.map(|l| SourceLeader {
                    node: l.leader_id,
                    epoch: l.leader_epoch,
                });
                let known = partition.with(|s| s.leader);
                let moved = hint.filter(|h| known.is_none_or(|k| h.epoch >= k.epoch && *h != k));
                partition.with(|s| s.set_leader(moved));
                if moved.is_none() {
                    partition.back_off(&text, now_ms());
                    self.mirror.refresh_wanted(&partition.name().topic);
                } else {
                    self.mirror.stalled(&partition, &text);
                }
                self.mirror.wake();
            }
            OnError::LookAtTopic => {
                partition.with(|s| s.set_leader(None));
                partition.back_off(&text, now_ms());
                self.mirror.refresh_wanted(&partition.name().topic);
                self.mirror.wake();
            }
            OnError::Wait => partition.back_off(&text, now_ms()),
            OnError::CompareBounds => {
                self.compare.push(index);
                self.mirror.stalled(&partition, &text);
            }
            OnError::Fail(failure) => self.mirror.failed(&partition, failure),
        }
    }

    fn learn(&self, endpoints: &[NodeEndpoint]) {
        let Ok(cluster) = self.source.cluster() else {
            return;
        };
        for endpoint in endpoints {
            let Some(port) = u16::try_from(endpoint.port).ok().filter(|&p| p > 0) else {
                continue;
            };
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

    /// What is left to do after an answer that nothing waits for: progress, log start, leader epochs.
    fn record_progress(&mut self) {
        let now = now_ms();
        for (index, end) in std::mem::take(&mut self.progress) {
            self.mirror
                .answered(&self.assignment.partitions[index], &end, now);
        }
    }

    /// Says on every partition that the source holds its answers back, or gives none.
    fn show_idle(&self) {
        let Some(text) = self.idle.text() else { return };
        let now = now_ms();
        for partition in self.assignment.partitions.iter().filter(|s| s.is_live()) {
            partition.tracked.lock().set_error(&text, now);
        }
    }

    /// Sleeps until a partition may be asked for again or the table changes.
    async fn idle_wait(&mut self) {
        let now = Instant::now();
        let live = self.assignment.partitions.iter().filter(|s| s.is_live());
        let next = live.filter_map(|s| s.with(|s| s.blocked_until)).min();
        let until = next.unwrap_or(now + IDLE_WAIT_MAX).min(now + IDLE_WAIT_MAX);
        let _ = tokio::time::timeout_at(until, self.shared.changed()).await;
        self.scan_at = Instant::now();
    }
}
