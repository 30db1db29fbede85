//! A source that plays a Kafka of any release over a socket, and lies where a test tells it to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_records::{BatchBuilder, BatchHeader};
use tarn_wire::messages as m;
use tarn_wire::messages::fetch_request::FetchPartition;
use tarn_wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use tarn_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use tarn_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use tarn_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use tarn_wire::{
    ApiKey, ErrorCode, Frame, Message, Records, Str, Uuid, decode_exact, decode_request_header,
    response_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The node id of the only broker.
pub(crate) const NODE: i32 = 7;
/// Timestamp of the first record of each batch.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// Changes an answer to a Fetch of one partition: topic, what was asked, and what would be
/// answered.
pub(crate) type Lie = Arc<dyn Fn(&str, &FetchPartition, &mut PartitionData) + Send + Sync>;

#[derive(Clone, Default)]
pub(crate) struct Partition {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) epoch: i32,
    pub(crate) start: i64,
}

impl Partition {
    pub(crate) fn end(&self) -> i64 {
        self.batches
            .last()
            .map_or(self.start, |b| header(b).next_offset())
    }

    fn epochs(&self) -> Vec<(i32, i64)> {
        let mut epochs: Vec<(i32, i64)> = Vec::new();
        for batch in &self.batches {
            let h = header(batch);
            if h.last_offset() >= self.start
                && epochs.last().is_none_or(|&(e, _)| e < h.leader_epoch)
            {
                epochs.push((h.leader_epoch, h.base_offset.max(self.start)));
            }
        }
        epochs
    }

    /// As a Kafka leader answers OffsetForLeaderEpoch.
    fn end_of_epoch(&self, asked: i32) -> (i32, i64) {
        let epochs = self.epochs();
        if asked == self.epoch {
            return (asked, self.end());
        }
        let Some(&(first, start)) = epochs.first() else {
            return (-1, -1);
        };
        if asked < first {
            return (asked, start);
        }
        if asked > epochs.last().map_or(-1, |e| e.0) {
            return (-1, -1);
        }
        let above = epochs.partition_point(|&(e, _)| e <= asked);
        let end = epochs.get(above).map_or(self.end(), |e| e.1);
        (epochs[above - 1].0, end)
    }
}

/// A fetch session as the source keeps it: what it was asked for, by topic name, id and partition.
#[derive(Default)]
pub(crate) struct Session {
    /// Epoch of the next request in it.
    epoch: i32,
    partitions: BTreeMap<(Str, Uuid, i32), FetchPartition>,
}

pub(crate) struct State {
    pub(crate) cluster_id: String,
    /// `None` = a release without topic ids.
    pub(crate) ids: bool,
    pub(crate) fetch_version_max: i16,
    pub(crate) topics: BTreeMap<String, (Uuid, Vec<Partition>)>,
    /// Requests by key.
    pub(crate) requests: BTreeMap<i16, usize>,
    pub(crate) lie: Option<Lie>,
    pub(crate) throttle_ms: i32,
    /// Answers to ListOffsets and OffsetForLeaderEpoch leave all partitions out.
    pub(crate) leaves_out: bool,
    /// Answers Fetch at once although there is nothing.
    pub(crate) hasty: bool,
    /// Error of each Metadata answer for each topic.
    pub(crate) topic_error: i16,
    /// Grants fetch sessions (KIP-227).
    pub(crate) grants_sessions: bool,
    /// The sessions by id; one that is taken out was evicted.
    pub(crate) sessions: BTreeMap<i32, Session>,
    sessions_made: i32,
    /// How many partitions each Fetch named.
    pub(crate) named: Vec<usize>,
    /// Each answer to a Fetch waits so long and then comes piece by piece, as over a WAN link.
    pub(crate) round_trip: Option<Duration>,
    /// Offsets asked for by Fetches that say nothing of our last epoch: only pipelined ones.
    pub(crate) estimated: Vec<i64>,
    /// Grows when all connections have to close.
    generation: u64,
    /// No connection is taken.
    pub(crate) away: bool,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) port: u16,
}

pub(crate) fn header(batch: &[u8]) -> BatchHeader {
    BatchHeader::parse(batch).expect("a good batch")
}

/// A batch of `count` records whose values say which history they are of.
pub(crate) fn batch(base_offset: i64, epoch: i32, count: usize, history: &str) -> Bytes {
    let mut builder = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(epoch);
    for index in 0..count {
        let value = format!("{history}-{}", base_offset + index as i64);
        builder.add(NOW + index as i64, None, Some(value.as_bytes()), &[]);
    }
    builder.build().expect("builds").into()
}

impl Fake {
    /// A source of a release with (or without) topic ids, whose newest Fetch is
    /// `fetch_version_max`.
    pub(crate) async fn start(fetch_version_max: i16) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let state = State {
            cluster_id: "scripted-source-cluster".to_owned(),
            ids: fetch_version_max >= 13,
            fetch_version_max,
            topics: BTreeMap::new(),
            requests: BTreeMap::new(),
            lie: None,
            throttle_ms: 0,
            leaves_out: false,
            hasty: false,
            topic_error: 0,
            grants_sessions: false,
            sessions: BTreeMap::new(),
            sessions_made: 0,
            named: Vec::new(),
            round_trip: None,
            estimated: Vec::new(),
            generation: 0,
            away: false,
        };
        let fake = Fake {
            state: Arc::new(Mutex::new(state)),
            port,
        };
        let accepting = fake.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                if !accepting.state.lock().away {
                    tokio::spawn(accepting.clone().serve(socket));
                }
            }
        });
        fake
    }

    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes a topic of one partition with these batches, under this leader epoch; an existing one
    /// is replaced.
    pub(crate) fn put(&self, topic: &str, epoch: i32, batches: Vec<Bytes>) {
        let mut state = self.state.lock();
        let id = state.topics.get(topic).map_or(Uuid::random(), |t| t.0);
        let start = batches.first().map_or(0, |b| header(b).base_offset);
        let partition = Partition {
            batches,
            epoch,
            start,
        };
        state.topics.insert(topic.to_owned(), (id, vec![partition]));
    }

    /// Changes partition 0 of a topic.
    pub(crate) fn with(&self, topic: &str, change: impl FnOnce(&mut Partition)) {
        let mut state = self.state.lock();
        change(&mut state.topics.get_mut(topic).expect("the topic is there").1[0]);
    }

    pub(crate) fn lie(
        &self,
        lie: impl Fn(&str, &FetchPartition, &mut PartitionData) + Send + Sync + 'static,
    ) {
        self.state.lock().lie = Some(Arc::new(lie));
    }

    pub(crate) fn requests(&self, key: ApiKey) -> usize {
        self.state.lock().requests.get(&key.0).copied().unwrap_or(0)
    }

    /// Closes every connection, as a restart does.
    pub(crate) fn hang_up(&self) {
        self.state.lock().generation += 1;
    }

    async fn serve(self, mut socket: TcpStream) {
        let generation = self.state.lock().generation;
        loop {
            let serve = self.one(&mut socket, generation);
            if serve.await.is_none() {
                return;
            }
        }
    }

    async fn one(&self, socket: &mut TcpStream, generation: u64) -> Option<()> {
        let over = async {
            while self.state.lock().generation == generation {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let exchange = async {
            let len = usize::try_from(socket.read_i32().await.ok()?).ok()?;
            let mut frame = vec![0; len];
            socket.read_exact(&mut frame).await.ok()?;
            let is_fetch = frame.first_chunk() == Some(&ApiKey::FETCH.0.to_be_bytes());
            let answer = self.answer(frame.into()).await?;
            let bytes = answer.to_bytes()?;
            let round_trip = self.state.lock().round_trip.filter(|_| is_fetch);
            if let Some(round_trip) = round_trip {
                return write_slowly(socket, &bytes, round_trip).await;
            }
            socket.write_all(&bytes).await.ok()
        };
        tokio::select! {
            () = over => None,
            done = exchange => done,
        }
    }

    async fn answer(&self, frame: Bytes) -> Option<Frame> {
        let (head, body) = decode_request_header(frame).ok()?;
        let (key, version, id) = (head.key, head.version, head.correlation_id);
        *self.state.lock().requests.entry(key.0).or_default() += 1;
        fn frame_of<M: Message>(key: ApiKey, id: i32, version: i16, message: &M) -> Option<Frame> {
            response_frame(key, id, version, message).ok()
        }
        match key {
            ApiKey::API_VERSIONS => frame_of(key, id, version, &self.versions()),
            ApiKey::METADATA => {
                let request = decode_exact::<m::MetadataRequest>(body, version).ok()?;
                frame_of(key, id, version, &self.metadata(&request))
            }
            ApiKey::LIST_OFFSETS => {
                let request = decode_exact::<m::ListOffsetsRequest>(body, version).ok()?;
                frame_of(key, id, version, &self.offsets(&request))
            }
            ApiKey::OFFSET_FOR_LEADER_EPOCH => {
                let request = decode_exact::<m::OffsetForLeaderEpochRequest>(body, version).ok()?;
                frame_of(key, id, version, &self.epoch_ends(&request))
            }
            ApiKey::DESCRIBE_CONFIGS => {
                let request = decode_exact::<m::DescribeConfigsRequest>(body, version).ok()?;
                let result = |r: &m::describe_configs_request::DescribeConfigsResource| {
                    m::describe_configs_response::DescribeConfigsResult {
                        resource_type: r.resource_type,
                        resource_name: r.resource_name.clone(),
                        ..Default::default()
                    }
                };
                let response = m::DescribeConfigsResponse {
                    results: request.resources.iter().map(result).collect(),
                    ..Default::default()
                };
                frame_of(key, id, version, &response)
            }
            ApiKey::FETCH => {
                let request = decode_exact::<m::FetchRequest>(body, version).ok()?;
                frame_of(key, id, version, &self.fetch(&request, version).await)
            }
            _ => None,
        }
    }

    fn versions(&self) -> m::ApiVersionsResponse {
        let state = self.state.lock();
        let metadata_max = if state.ids { 12 } else { 9 };
        let ranges = [
            (ApiKey::FETCH, 4, state.fetch_version_max),
            (ApiKey::LIST_OFFSETS, 1, 5),
            (ApiKey::METADATA, 4, metadata_max),
            (ApiKey::API_VERSIONS, 0, 3),
            (ApiKey::OFFSET_FOR_LEADER_EPOCH, 0, 3),
            (ApiKey::DESCRIBE_CONFIGS, 1, 2),
        ];
        let range = |&(key, min, max): &(ApiKey, i16, i16)| m::api_versions_response::ApiVersion {
            api_key: key.0,
            min_version: min,
            max_version: max,
            ..Default::default()
        };
        m::ApiVersionsResponse {
            api_keys: ranges.iter().map(range).collect(),
            ..Default::default()
        }
    }

    fn metadata(&self, request: &m::MetadataRequest) -> m::MetadataResponse {
        let state = self.state.lock();
        let topic = |name: &str| match state.topics.get(name) {
            Some((id, partitions)) => MetadataResponseTopic {
                error_code: state.topic_error,
                name: Some(Str::from(name)),
                topic_id: if state.ids { *id } else { Uuid::ZERO },
                partitions: (0..)
                    .zip(partitions)
                    .map(|(index, p)| MetadataResponsePartition {
                        partition_index: index,
                        leader_id: NODE,
                        leader_epoch: p.epoch,
                        replica_nodes: vec![NODE],
                        isr_nodes: vec![NODE],
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            },
            None => MetadataResponseTopic {
                error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
                name: Some(Str::from(name)),
                ..Default::default()
            },
        };
        let topics = match &request.topics {
            None => state.topics.keys().map(|name| topic(name)).collect(),
            Some(names) => names
                .iter()
                .filter_map(|t| t.name.as_deref())
                .map(topic)
                .collect(),
        };
        m::MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: NODE,
                host: "127.0.0.1".into(),
                port: i32::from(self.port),
                ..Default::default()
            }],
            cluster_id: Some(Str::from(state.cluster_id.as_str())),
            controller_id: NODE,
            topics,
            ..Default::default()
        }
    }

    fn offsets(&self, request: &m::ListOffsetsRequest) -> m::ListOffsetsResponse {
        let state = self.state.lock();
        let topics = request.topics.iter().map(|topic| {
            let found = state.topics.get(&*topic.name);
            let partitions = topic.partitions.iter().map(|asked| {
                let index = usize::try_from(asked.partition_index).unwrap_or(usize::MAX);
                let partition = found.and_then(|t| t.1.get(index));
                let mut answer = ListOffsetsPartitionResponse {
                    partition_index: asked.partition_index,
                    ..Default::default()
                };
                match partition {
                    Some(p) if asked.timestamp == -1 => answer.offset = p.end(),
                    Some(p) => answer.offset = p.start,
                    None => answer.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
                }
                answer
            });
            ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }
        });
        m::ListOffsetsResponse {
            topics: topics.filter(|_| !state.leaves_out).collect(),
            ..Default::default()
        }
    }

    fn epoch_ends(
        &self,
        request: &m::OffsetForLeaderEpochRequest,
    ) -> m::OffsetForLeaderEpochResponse {
        let state = self.state.lock();
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let index = usize::try_from(asked.partition).unwrap_or(usize::MAX);
                let found = state.topics.get(&*topic.topic).and_then(|t| t.1.get(index));
                let mut answer = EpochEndOffset {
                    partition: asked.partition,
                    ..Default::default()
                };
                match found {
                    None => answer.error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
                    Some(p) => match fenced(p, asked.current_leader_epoch) {
                        Some(code) => answer.error_code = code.0,
                        None => {
                            (answer.leader_epoch, answer.end_offset) =
                                p.end_of_epoch(asked.leader_epoch);
                        }
                    },
                }
                answer
            });
            OffsetForLeaderTopicResult {
                topic: topic.topic.clone(),
                partitions: partitions.collect(),
                ..Default::default()
            }
        });
        m::OffsetForLeaderEpochResponse {
            topics: topics.filter(|_| !state.leaves_out).collect(),
            ..Default::default()
        }
    }

    async fn fetch(&self, request: &m::FetchRequest, version: i16) -> m::FetchResponse {
        let (request, session_id) = match self.in_session(request) {
            Ok(whole) => whole,
            Err(code) => {
                return m::FetchResponse {
                    error_code: code.0,
                    ..Default::default()
                };
            }
        };
        let is_first = request.session_epoch <= 0;
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        let until = Instant::now() + wait;
        loop {
            let (mut response, has_news) = self.fetch_now(&request, version);
            if has_news || Instant::now() >= until {
                response.session_id = session_id;
                if session_id != 0 && !is_first {
                    response.responses.retain_mut(|topic| {
                        topic.partitions.retain(is_news);
                        !topic.partitions.is_empty()
                    });
                }
                return response;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a Fetch asks for with what its session knows already, and the session's id, 0 = none.
    fn in_session(&self, request: &m::FetchRequest) -> Result<(m::FetchRequest, i32), ErrorCode> {
        let mut state = self.state.lock();
        let named = || request.topics.iter().flat_map(|t| &t.partitions);
        state.named.push(named().count());
        let estimated = named().filter(|p| p.fetch_offset > 0 && p.last_fetched_epoch < 0);
        state.estimated.extend(estimated.map(|p| p.fetch_offset));
        if !state.grants_sessions || request.session_epoch < 0 {
            return Ok((request.clone(), 0));
        }
        let mut id = request.session_id;
        let old = state.sessions.remove(&id);
        let mut session = match old {
            _ if request.session_epoch == 0 => {
                state.sessions_made += 1;
                id = state.sessions_made;
                Session::default()
            }
            Some(session) => session,
            None => return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        };
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        session.epoch += 1;
        for topic in &request.topics {
            for p in &topic.partitions {
                let key = (topic.topic.clone(), topic.topic_id, p.partition);
                session.partitions.insert(key, p.clone());
            }
        }
        for topic in &request.forgotten_topics_data {
            for p in &topic.partitions {
                let key = (topic.topic.clone(), topic.topic_id, *p);
                session.partitions.remove(&key);
            }
        }
        let topic = |((topic, topic_id, _), asked): (&(Str, Uuid, i32), &FetchPartition)| {
            m::fetch_request::FetchTopic {
                topic: topic.clone(),
                topic_id: *topic_id,
                partitions: vec![asked.clone()],
                ..Default::default()
            }
        };
        let mut whole = request.clone();
        whole.topics = session.partitions.iter().map(topic).collect();
        state.sessions.insert(id, session);
        Ok((whole, id))
    }

    fn fetch_now(&self, request: &m::FetchRequest, version: i16) -> (m::FetchResponse, bool) {
        let state = self.state.lock();
        let throttled = state.throttle_ms > 0;
        let mut has_news = throttled || state.hasty;
        let mut responses = Vec::new();
        for asked in request.topics.iter().filter(|_| !throttled) {
            let by_id = version >= 13;
            let named = state.topics.iter().find(|(name, (id, _))| {
                if by_id {
                    *id == asked.topic_id
                } else {
                    **name == *asked.topic
                }
            });
            let mut partitions = Vec::new();
            for p in &asked.partitions {
                let mut data = match named {
                    Some((_, (_, all))) => read(&all[p.partition as usize], p, version),
                    None => PartitionData {
                        error_code: if by_id { 100 } else { 3 },
                        high_watermark: -1,
                        ..Default::default()
                    },
                };
                data.partition_index = p.partition;
                if let (Some(lie), Some((name, _))) = (&state.lie, named) {
                    lie(name, p, &mut data);
                }
                has_news |= is_news(&data);
                partitions.push(data);
            }
            responses.push(FetchableTopicResponse {
                topic: asked.topic.clone(),
                topic_id: asked.topic_id,
                partitions,
                ..Default::default()
            });
        }
        let response = m::FetchResponse {
            throttle_time_ms: state.throttle_ms,
            responses,
            ..Default::default()
        };
        (response, has_news)
    }
}

fn is_news(data: &PartitionData) -> bool {
    data.error_code != 0
        || data.diverging_epoch.epoch >= 0
        || data.records.as_ref().is_some_and(|r| !r.is_empty())
}

/// Writes as a WAN link does: nothing for a round trip, then some 50 MB/s.
async fn write_slowly(socket: &mut TcpStream, bytes: &[u8], round_trip: Duration) -> Option<()> {
    tokio::time::sleep(round_trip).await;
    for piece in bytes.chunks(256 << 10) {
        socket.write_all(piece).await.ok()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Some(())
}

fn fenced(partition: &Partition, current_leader_epoch: i32) -> Option<ErrorCode> {
    match current_leader_epoch {
        e if e < 0 || e == partition.epoch => None,
        e if e < partition.epoch => Some(ErrorCode::FENCED_LEADER_EPOCH),
        _ => Some(ErrorCode::UNKNOWN_LEADER_EPOCH),
    }
}

/// What a leader answers to a Fetch of one partition.
fn read(partition: &Partition, asked: &FetchPartition, version: i16) -> PartitionData {
    let end = partition.end();
    let mut data = PartitionData {
        high_watermark: end,
        last_stable_offset: end,
        log_start_offset: partition.start,
        records: Some(Records::EMPTY),
        ..Default::default()
    };
    if let Some(code) = fenced(partition, asked.current_leader_epoch) {
        data.error_code = code.0;
        return data;
    }
    if asked.fetch_offset < partition.start || asked.fetch_offset > end {
        data.error_code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
        return data;
    }
    if version >= 12 && asked.last_fetched_epoch >= 0 {
        let (epoch, epoch_end) = partition.end_of_epoch(asked.last_fetched_epoch);
        if epoch < 0 {
            data.error_code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
            return data;
        }
        if epoch < asked.last_fetched_epoch || epoch_end < asked.fetch_offset {
            data.diverging_epoch.epoch = epoch;
            data.diverging_epoch.end_offset = epoch_end;
            return data;
        }
    }
    let room = usize::try_from(asked.partition_max_bytes).unwrap_or(0);
    let mut bytes = Vec::new();
    let wanted = |b: &&Bytes| header(b).last_offset() >= asked.fetch_offset;
    for batch in partition.batches.iter().filter(wanted) {
        if !bytes.is_empty() && bytes.len() + batch.len() > room {
            break;
        }
        bytes.extend_from_slice(batch);
    }
    data.records = Some(Records::Bytes(bytes.into()));
    data
}
