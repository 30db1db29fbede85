//! One task that fetches some partitions from one source broker over one connection.
//!
//! Every round: build a Fetch from the slots, send it, append what comes while it comes, then send the next one before the books of the last
//! are kept. A round never holds more than one piece of records. Everything a partition meets stays in its slot; an error of the connection
//! ends the task and the conductor decides what follows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_client::{BrokerNode, ClientError, Connection, HostPort};
use tarn_wire::fetch_stream::{
    FetchEvent, FetchHeader, FetchLimits, FetchPartitionEnd, FetchPartitionStart, NodeEndpoint,
};
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use tarn_wire::messages::{FetchRequest, ListOffsetsRequest, MetadataRequest};
use tarn_wire::{ErrorCode, Message, Str, Uuid, VersionRange};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::answers::{OnError, OutOfRange, on_error, out_of_range};
use super::incremental::{Ask, FetchSession, Plan};
use super::mirror::MirrorPlane;
use super::reading::{Reading, ReadingEnd};
use super::slot::{Slot, SourceLeader, last_epoch};
use crate::seam::Isolation;
use crate::source::{AskError, SourceClient, bounds_request, now_ms, read_bounds};

/// Versions of Fetch that can be used towards a source.
const FETCH_VERSIONS: VersionRange = VersionRange::new(4, 18);
/// Last version that names topics by name.
const FETCH_BY_NAME_MAX: i16 = 12;
/// First version with fetch sessions.
const FETCH_SESSIONS_FROM: i16 = 7;
/// Partitions in one ListOffsets.
const BOUNDS_CHUNK: usize = 1_000;
/// Sessions refused in a row before the connection is given up.
const SESSION_LOSSES_MAX: u32 = 5;
/// A waiting Fetch is given up for new partitions at most once in this time, by connecting again.
const INTERRUPT_EVERY: Duration = Duration::from_millis(250);
/// Longest time a task sleeps when no partition may be asked for.
const NAP_MAX: Duration = Duration::from_secs(30);

/// The partitions of one session; replaced as a whole.
#[derive(Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Arc<Slot>>,
    by_id: HashMap<(Uuid, i32), usize>,
    by_name: HashMap<(Str, i32), usize>,
    all_have_ids: bool,
}

impl Table {
    pub(super) fn new(slots: Vec<Arc<Slot>>) -> Arc<Table> {
        let mut table = Table {
            all_have_ids: true,
            ..Table::default()
        };
        for (index, slot) in slots.iter().enumerate() {
            let name = slot.name();
            table
                .by_name
                .insert((name.topic.clone(), name.partition), index);
            match slot.assignment.source_topic_id {
                Some(id) => {
                    table.by_id.insert((id, name.partition), index);
                }
                None => table.all_have_ids = false,
            }
        }
        table.slots = slots;
        Arc::new(table)
    }

    fn find(&self, start: &FetchPartitionStart) -> Option<usize> {
        if start.topic_id.is_zero() {
            self.by_name
                .get(&(start.topic.clone(), start.partition_index))
                .copied()
        } else {
            self.by_id
                .get(&(start.topic_id, start.partition_index))
                .copied()
        }
    }

    /// Whether it holds a slot that `other` has not.
    fn adds_to(&self, other: &Table) -> bool {
        let known: HashSet<*const Slot> = other.slots.iter().map(Arc::as_ptr).collect();
        self.slots
            .iter()
            .any(|slot| !known.contains(&Arc::as_ptr(slot)))
    }

    /// Whether it holds exactly these slots.
    pub(super) fn is(&self, slots: &[Arc<Slot>]) -> bool {
        self.slots.len() == slots.len()
            && self.slots.iter().zip(slots).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// What the conductor and the task of a session share.
#[derive(Default)]
pub(super) struct SessionShared {
    table: Mutex<Arc<Table>>,
    changed: Notify,
}

impl SessionShared {
    pub(super) fn table(&self) -> Arc<Table> {
        self.table.lock().clone()
    }

    pub(super) fn replace(&self, table: Arc<Table>) {
        *self.table.lock() = table;
        self.changed.notify_one();
    }

    pub(super) fn nudge(&self) {
        self.changed.notify_one();
    }
}

/// How a session ended.
#[derive(Debug)]
pub(super) struct SessionEnd {
    /// `None` = it had no partitions any more.
    pub(super) error: Option<SessionError>,
    /// At least one answer was good.
    pub(super) answered: bool,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Ask(#[from] AskError),
}

type Result<T> = std::result::Result<T, SessionError>;

/// A session.
pub(super) struct Session {
    mirror: Arc<MirrorPlane>,
    source: Arc<SourceClient>,
    shared: Arc<SessionShared>,
    node: i32,
    index: i32,
    table: Arc<Table>,
    fetch: FetchSession,
    asked: HashMap<usize, Ask>,
    by_id: bool,
    answered: bool,
    losses: u32,
    compare: Vec<usize>,
    good: Vec<(usize, ReadingEnd)>,
    /// Partitions the last answer left out: nothing new there.
    quiet: Vec<usize>,
}

impl Session {
    pub(super) fn new(
        mirror: Arc<MirrorPlane>,
        source: Arc<SourceClient>,
        shared: Arc<SessionShared>,
        (node, index): (i32, i32),
    ) -> Session {
        Session {
            mirror,
            source,
            table: shared.table(),
            shared,
            node,
            index,
            fetch: FetchSession::default(),
            asked: HashMap::new(),
            by_id: false,
            answered: false,
            losses: 0,
            compare: Vec::new(),
            good: Vec::new(),
            quiet: Vec::new(),
        }
    }

    /// Fetches until there is nothing to fetch or the connection breaks.
    pub(super) async fn run(mut self) -> SessionEnd {
        let error = self.serve().await.err();
        if let Some(SessionError::Client(e)) = &error
            && e.is_connectivity()
        {
            self.source.reach().failed(&e.to_string(), now_ms());
        }
        SessionEnd {
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
            if !self.take_table() {
                return Ok(());
            }
            self.find_starts(&mut connection).await?;
            self.compare_bounds(&mut connection).await?;
            let (by_id, version) = self.version(negotiated);
            if by_id != self.by_id {
                self.fetch.reset();
                self.by_id = by_id;
            }
            let asks = self.asks(version);
            if asks.is_empty() {
                self.keep_books();
                self.nap().await;
                continue;
            }
            let plan = self.fetch.plan(&asks, version >= FETCH_SESSIONS_FROM);
            self.asked = asks.into_iter().collect();
            let request = self.request(&plan, version);
            connection.send_fetch(&request, version).await?;
            // While the source works on the next answer.
            self.keep_books();
            let Some(first) = self
                .first_event(&mut connection, connected_at + INTERRUPT_EVERY)
                .await?
            else {
                connection = self.connect().await?;
                connected_at = Instant::now();
                self.fetch.reset();
                continue;
            };
            self.read_answer(&mut connection, first).await?;
        }
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
            self.shared.changed.notified().await;
            if self.shared.table().adds_to(&self.table) {
                tokio::time::sleep_until(not_before).await;
                return;
            }
        }
    }

    fn limits(&self) -> FetchLimits {
        let count = self.table.slots.len();
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

    /// Takes the newest table; false when there is nothing to fetch any more.
    fn take_table(&mut self) -> bool {
        let table = self.shared.table();
        if !Arc::ptr_eq(&table, &self.table) {
            self.keep_books();
            self.compare.clear();
            self.table = table;
            self.fetch.reset();
        }
        !self.table.slots.is_empty()
    }

    fn version(&self, negotiated: i16) -> (bool, i16) {
        let by_id = negotiated > FETCH_BY_NAME_MAX && self.table.all_have_ids;
        (
            by_id,
            if by_id {
                negotiated
            } else {
                negotiated.min(FETCH_BY_NAME_MAX)
            },
        )
    }

    /// What may be asked for now, with offsets as they are on our disk.
    fn asks(&self, version: i16) -> Vec<(usize, Ask)> {
        let now = Instant::now();
        let ready = |slot: &Arc<Slot>| slot.is_ready(now) && !slot.with(|s| s.needs_start);
        let indices: Vec<usize> = self
            .table
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| ready(slot))
            .map(|(i, _)| i)
            .collect();
        let settings = self.mirror.settings();
        let behind = |slot: &Slot| {
            let end = slot.local.log().log_end_offset();
            slot.tracked
                .lock()
                .progress
                .source_high_watermark
                .is_none_or(|hw| hw > end)
        };
        let hungry = indices
            .iter()
            .filter(|&&i| behind(&self.table.slots[i]))
            .count()
            .max(1);
        // The limit per partition keeps them fair; where few are behind, they share what one answer may hold.
        let share =
            i32::try_from(settings.fetch.response_bytes_max as usize / hungry).unwrap_or(i32::MAX);
        let ask = |index: usize| {
            let slot = &self.table.slots[index];
            let configured = settings.fetch.partition_bytes_max;
            let bytes = if behind(slot) {
                configured.max(share)
            } else {
                configured
            };
            let (leader, bytes_min) = slot.with(|s| (s.leader, s.bytes_min));
            let ask = Ask {
                current_leader_epoch: leader.map_or(-1, |l| l.epoch),
                fetch_offset: slot.local.log().log_end_offset(),
                last_fetched_epoch: if version >= 12 {
                    last_epoch(&slot.local)
                } else {
                    -1
                },
                bytes_max: bytes.max(bytes_min),
            };
            (index, ask)
        };
        indices.into_iter().map(ask).collect()
    }

    fn request(&self, plan: &Plan, version: i16) -> FetchRequest {
        let settings = self.mirror.settings();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for &(index, ask) in &plan.named {
            let name = self.table.slots[index].name();
            let partition = FetchPartition {
                partition: name.partition,
                current_leader_epoch: ask.current_leader_epoch,
                fetch_offset: ask.fetch_offset,
                last_fetched_epoch: ask.last_fetched_epoch,
                log_start_offset: -1,
                partition_max_bytes: ask.bytes_max,
                ..Default::default()
            };
            let (topic, topic_id) = self.wire_name(index);
            match topics
                .last_mut()
                .filter(|t| t.topic == topic && t.topic_id == topic_id)
            {
                Some(last) => last.partitions.push(partition),
                None => topics.push(FetchTopic {
                    topic,
                    topic_id,
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        }
        let forget = |&index: &usize| {
            let (topic, topic_id) = self.wire_name(index);
            let partitions = vec![self.table.slots[index].name().partition];
            ForgottenTopic {
                topic,
                topic_id,
                partitions,
                ..Default::default()
            }
        };
        let sessions = version >= FETCH_SESSIONS_FROM;
        FetchRequest {
            replica_id: -1,
            max_wait_ms: settings.fetch.wait_ms_max,
            min_bytes: settings.fetch.min_bytes,
            max_bytes: settings.fetch.response_bytes_max,
            isolation_level: i8::from(settings.fetch.isolation == Isolation::ReadCommitted),
            session_id: if sessions { plan.session_id } else { 0 },
            session_epoch: if sessions { plan.session_epoch } else { -1 },
            topics,
            forgotten_topics_data: plan.forgotten.iter().map(forget).collect(),
            ..Default::default()
        }
    }

    fn wire_name(&self, index: usize) -> (Str, Uuid) {
        let slot = &self.table.slots[index];
        match slot.assignment.source_topic_id {
            Some(id) if self.by_id => (Str::EMPTY, id),
            _ => (slot.name().topic.clone(), Uuid::ZERO),
        }
    }

    /// Takes one answer, appending as it arrives.
    async fn read_answer(&mut self, connection: &mut Connection, first: FetchEvent) -> Result<()> {
        let limits = self.limits();
        let mut reading: Option<Reading> = None;
        let mut event = first;
        loop {
            match event {
                FetchEvent::Header(header) => self.header(connection, &header).await?,
                FetchEvent::Topic { .. } => {}
                FetchEvent::PartitionStart(start) => reading = self.begin(start),
                FetchEvent::Records(piece) => {
                    if let Some(reading) = &mut reading {
                        reading.take(&piece);
                    }
                }
                FetchEvent::PartitionEnd(end) => {
                    if let Some(reading) = reading.take() {
                        self.finish(reading, &end);
                    }
                }
                FetchEvent::End { node_endpoints } => {
                    self.learn(&node_endpoints);
                    self.quiet = self.asked.drain().map(|(index, _)| index).collect();
                    return Ok(());
                }
            }
            event = connection.next_fetch_event(limits).await?;
        }
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
                self.asked.clear();
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
    fn begin(&mut self, start: FetchPartitionStart) -> Option<Reading> {
        let index = self.table.find(&start)?;
        let asked = self.asked.remove(&index)?;
        Some(Reading::new(
            index,
            self.table.slots[index].clone(),
            start,
            asked.fetch_offset,
        ))
    }

    fn finish(&mut self, reading: Reading, tags: &FetchPartitionEnd) {
        let (index, slot) = (reading.index, reading.slot.clone());
        let code = ErrorCode(reading.start.error_code);
        if code != ErrorCode::NONE {
            self.fetch.name_again(index);
            self.partition_error(index, code, tags);
            return;
        }
        if let Some(diverging) = tags.diverging_epoch {
            self.fetch.name_again(index);
            let text = format!(
                "the source's log differs from ours: its epoch {} ends at offset {}, ours goes on to {}",
                diverging.epoch,
                diverging.end_offset,
                slot.local.log().log_end_offset()
            );
            self.mirror.diverged(&slot, text);
            return;
        }
        match reading.end() {
            Ok(end) => self.good.push((index, end)),
            Err(trouble) => {
                self.fetch.name_again(index);
                self.mirror.troubled(&slot, trouble);
            }
        }
    }

    fn partition_error(&mut self, index: usize, code: ErrorCode, tags: &FetchPartitionEnd) {
        let slot = self.table.slots[index].clone();
        let text = format!(
            "the source answered {} for {}: {}",
            code.name(),
            slot.name(),
            code.message()
        );
        match on_error(code) {
            OnError::FindLeader => {
                let hint = tags.current_leader.filter(|l| l.leader_id >= 0);
                let hint = hint.map(|l| SourceLeader {
                    node: l.leader_id,
                    epoch: l.leader_epoch,
                });
                let known = slot.with(|s| s.leader);
                let moved = hint.filter(|h| known.is_none_or(|k| h.epoch >= k.epoch && *h != k));
                slot.with(|s| s.leader = moved);
                if moved.is_none() {
                    slot.back_off(&text, now_ms());
                    self.mirror.refresh_wanted();
                }
                self.mirror.wake();
            }
            OnError::LookAtTopic => {
                slot.with(|s| s.leader = None);
                slot.back_off(&text, now_ms());
                self.mirror.refresh_wanted();
                self.mirror.wake();
            }
            OnError::Wait => slot.back_off(&text, now_ms()),
            OnError::CompareBounds => self.compare.push(index),
            OnError::Fail(failure) => self.mirror.failed(&slot, failure),
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
    fn keep_books(&mut self) {
        let now = now_ms();
        for (index, end) in std::mem::take(&mut self.good) {
            self.mirror.answered(&self.table.slots[index], &end, now);
        }
        for index in std::mem::take(&mut self.quiet) {
            self.table.slots[index].tracked.lock().still_good(now);
        }
    }

    /// Empty logs begin where the source's log begins.
    async fn find_starts(&mut self, connection: &mut Connection) -> Result<()> {
        let now = Instant::now();
        let needs = |slot: &&Arc<Slot>| slot.is_ready(now) && slot.with(|s| s.needs_start);
        let slots: Vec<Arc<Slot>> = self.table.slots.iter().filter(needs).cloned().collect();
        for chunk in slots.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            for (slot, start) in chunk.iter().zip(starts) {
                match start {
                    Ok(start) => self.mirror.start_at(slot, start),
                    Err(code) => self.bounds_error(slot, code),
                }
            }
        }
        Ok(())
    }

    /// Partitions whose log end was out of range at the source.
    async fn compare_bounds(&mut self, connection: &mut Connection) -> Result<()> {
        let indices = std::mem::take(&mut self.compare);
        let slots: Vec<Arc<Slot>> = indices
            .iter()
            .map(|&i| self.table.slots[i].clone())
            .collect();
        for chunk in slots.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            let ends = self.bounds(connection, chunk, true).await?;
            for ((slot, start), end) in chunk.iter().zip(starts).zip(ends) {
                match (start, end) {
                    (Ok(start), Ok(end)) => self.resolve_range(slot, start, end),
                    (Err(code), _) | (_, Err(code)) => self.bounds_error(slot, code),
                }
            }
        }
        Ok(())
    }

    fn resolve_range(&self, slot: &Arc<Slot>, source_start: i64, source_end: i64) {
        let local_end = slot.local.log().log_end_offset();
        match out_of_range(local_end, last_epoch(&slot.local), source_start, source_end) {
            OutOfRange::StartAt { offset, skipped } => self.mirror.skip_to(slot, offset, skipped),
            OutOfRange::Diverged(text) => self.mirror.diverged(slot, text),
            OutOfRange::Again => slot.back_off("the source answered OFFSET_OUT_OF_RANGE", now_ms()),
        }
    }

    fn bounds_error(&self, slot: &Arc<Slot>, code: ErrorCode) {
        let text = format!(
            "the source refused ListOffsets of {}: {}",
            slot.name(),
            code.name()
        );
        match on_error(code) {
            OnError::Fail(failure) => self.mirror.failed(slot, failure),
            OnError::FindLeader | OnError::LookAtTopic => {
                slot.with(|s| s.leader = None);
                slot.back_off(&text, now_ms());
                self.mirror.refresh_wanted();
                self.mirror.wake();
            }
            OnError::Wait | OnError::CompareBounds => slot.back_off(&text, now_ms()),
        }
    }

    async fn bounds(
        &self,
        connection: &mut Connection,
        slots: &[Arc<Slot>],
        end: bool,
    ) -> Result<Vec<std::result::Result<i64, ErrorCode>>> {
        let names: Vec<(Str, i32)> = slots
            .iter()
            .map(|s| (s.name().topic.clone(), s.name().partition))
            .collect();
        let wanted = VersionRange::new(1, ListOffsetsRequest::VERSIONS.max);
        let version = connection
            .versions()
            .require::<ListOffsetsRequest>(connection.peer(), wanted)?;
        let response = connection
            .call_at(&bounds_request(&names, end), version)
            .await?;
        Ok(names
            .iter()
            .map(|(topic, partition)| read_bounds(&response, topic, *partition))
            .collect())
    }

    /// Sleeps until a partition may be asked for again or the table changes.
    async fn nap(&self) {
        let now = Instant::now();
        let live = self.table.slots.iter().filter(|s| s.is_live());
        let next = live.filter_map(|s| s.with(|s| s.blocked_until)).min();
        let until = next.unwrap_or(now + NAP_MAX).min(now + NAP_MAX);
        let _ = tokio::time::timeout_at(until, self.shared.changed.notified()).await;
    }
}
