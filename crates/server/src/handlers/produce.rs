//! Produce (0): batches are changed in place in the receive buffer and written from there; the
//! acknowledgement is awaited without holding up the next request of the connection. Compressed
//! batches are checked on other threads first, and brought into the topic's codec there.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tarn_log::{AppendInfo, CheckedBatch, PRODUCED_BYTES_MAX};
use tarn_records::{BatchHeader, Compression, Compressor, StreamPace, Unpaced};
use tarn_replica::{AppendSource, Partition, ReplicaError};
use tarn_wire::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use tarn_wire::messages::{ProduceRequest, ProduceResponse};
use tarn_wire::{ErrorCode, Records, Str, Uuid};

use crate::dispatch::{Answer, BoxFuture, Call, Decision, Refusal};
use crate::node::{Node, now_ms};

/// First version whose record sets are batches of today's form.
const BATCHES_FROM: i16 = 3;
/// First version that names topics by id.
const BY_ID_FROM: i16 = 13;
/// First version that may carry zstd.
const ZSTD_FROM: i16 = 7;
/// First version whose answers name the current leader.
const LEADER_HINT_FROM: i16 = 10;
/// The byte of a batch with the codec in its low bits, in every format.
const COMPRESSION_OFFSET: usize = 22;
const COMPRESSION_BITS: u8 = 0x07;
/// Compressed batches up to this size are checked without leaving the worker, as long as not more
/// than the next bound comes out of them: less than a millisecond of work.
const INLINE_BYTES_MAX: usize = 16 * 1024;
const INLINE_RECORDS_BYTES_MAX: usize = 128 * 1024;
/// What the codec may hold meanwhile.
const INLINE_MEMORY_BYTES_MAX: usize = 4 << 20;

/// What is to be appended to one partition.
struct Part {
    topic: usize,
    index: i32,
    target: Result<Arc<Partition>, ReplicaError>,
    /// Place of the batch in the frame.
    range: Option<Range<usize>>,
    /// What came out of checking it apart.
    checked: Option<Result<Prepared, ReplicaError>>,
}

/// Result for one partition, complete except for the wait.
struct Outcome {
    topic: usize,
    response: PartitionProduceResponse,
    /// What the acknowledgement still waits for; under way already.
    wait: Option<BoxFuture<Result<(), ReplicaError>>>,
}

pub(crate) fn handle(node: &Arc<Node>, call: Call, body: Bytes) -> Result<Decision, Refusal> {
    let request: ProduceRequest = call.decode(body.clone())?;
    let wait_ms_max = node.live.produce_wait_ms_max();
    let by_id = call.version >= BY_ID_FROM;
    let (topics, mut parts) = plan(node, &request, by_id, &body);
    let asked = Asked {
        acks: request.acks,
        timeout: Duration::from_millis(i64::from(request.timeout_ms).clamp(0, wait_ms_max) as u64),
        transactional: request.transactional_id.is_some(),
        topics,
    };
    // From here on nothing but `body` holds the frame, so that it can be changed in place.
    drop(request);
    if !parts.iter().any(|part| part.codecs(&body).is_some()) {
        return append_all(node, call, asked, parts, body).map(Decision::Made);
    }
    let node = node.clone();
    Ok(Decision::Pending(Box::pin(async move {
        for part in &mut parts {
            if let Some(codecs) = part.codecs(&body) {
                part.checked = check_records(&node, part, codecs, &body).await;
            }
        }
        append_all(&node, call, asked, parts, body)
    })))
}

/// What one request asks for all its parts.
struct Asked {
    acks: i16,
    timeout: Duration,
    transactional: bool,
    topics: Vec<(Str, Uuid)>,
}

/// Codec of a batch, and what its topic wants it brought into.
#[derive(Clone, Copy)]
struct Codecs {
    from: u8,
    to: Option<Compressor>,
}

impl Part {
    /// The codecs when either makes the batch more than bytes to be walked.
    fn codecs(&self, body: &Bytes) -> Option<Codecs> {
        let partition = self.target.as_ref().ok()?;
        let batch = body.get(self.range.clone()?)?;
        let from = batch.get(COMPRESSION_OFFSET)? & COMPRESSION_BITS;
        let to = partition.log().target_compression();
        let to = to.filter(|to| to.codec.bits() != from);
        (from != 0 || to.is_some()).then_some(Codecs { from, to })
    }
}

/// Checks a batch whose records take work to read: at once when they are few, else on another
/// thread. `None` leaves it to the append.
async fn check_records(
    node: &Node,
    part: &Part,
    codecs: Codecs,
    body: &Bytes,
) -> Option<Result<Prepared, ReplicaError>> {
    let partition = part.target.as_ref().ok()?.clone();
    if partition.check_leader().is_err() || partition.check_writable().is_err() {
        return None;
    }
    let batch = body.slice(part.range.clone()?);
    let small = Compression::from_bits(codecs.from).is_ok_and(|from| {
        batch.len() <= INLINE_BYTES_MAX && from.stream_bytes(&batch) <= INLINE_MEMORY_BYTES_MAX
    });
    if small && codecs.to.is_none() {
        let (limit, pace) = (INLINE_RECORDS_BYTES_MAX, &mut Unpaced);
        // More than that comes out of it, or it is bad: both are told by the thorough way.
        if let Ok(checked) = partition.check_produced(&batch, now_ms(), limit, pace) {
            return Some(Ok(Prepared::as_sent(checked)));
        }
    }
    let work = move |pace: &mut dyn StreamPace| {
        let checked = partition.check_produced(&batch, now_ms(), PRODUCED_BYTES_MAX, pace)?;
        let Some(to) = codecs.to else {
            return Ok(Prepared::as_sent(checked));
        };
        let (bytes, checked) = partition.recompress(&batch, &checked, to, pace)?;
        Ok(Prepared {
            checked,
            recompressed: Some(bytes),
        })
    };
    let done = node.decompression.run(work).await;
    Some(done.unwrap_or_else(|stopped| Err(ReplicaError::Policy(stopped.to_string()))))
}

/// A batch that is ready to be appended.
struct Prepared {
    checked: CheckedBatch,
    /// Its bytes when they are not those of the request.
    recompressed: Option<Vec<u8>>,
}

impl Prepared {
    fn as_sent(checked: CheckedBatch) -> Prepared {
        Prepared {
            checked,
            recompressed: None,
        }
    }
}

fn append_all(
    node: &Arc<Node>,
    call: Call,
    asked: Asked,
    parts: Vec<Part>,
    body: Bytes,
) -> Result<Answer, Refusal> {
    let mut frame = match body.try_into_mut() {
        Ok(frame) => frame,
        Err(shared) => BytesMut::from(&shared[..]),
    };
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(parts.len());
    for part in parts {
        outcomes.push(append(node, &call, &asked, part, &mut frame));
    }
    drop(frame);
    if asked.acks == 0 {
        let failed = outcomes
            .iter()
            .any(|outcome| outcome.response.error_code != 0);
        // The client asked for no answer; closing is the only way to tell it that something was
        // refused.
        return if failed {
            Err(Refusal::Close("a produce request with acks=0 was refused"))
        } else {
            Ok(Answer::Nothing)
        };
    }
    let topics = asked.topics;
    if outcomes.iter().all(|outcome| outcome.wait.is_none()) {
        return call
            .encode(&response(node, &call, topics, outcomes))
            .map(Answer::Ready);
    }
    let node = node.clone();
    let deadline = tokio::time::Instant::now() + asked.timeout;
    Ok(Answer::Later(Box::pin(async move {
        wait(deadline, &mut outcomes).await;
        let response = response(&node, &call, topics, outcomes);
        call.encode(&response)
            .map(Some)
            .map_err(|_| "not even an error could be encoded for a produce request")
    })))
}

/// Resolves partitions and notes where in the frame each batch stands.
fn plan(
    node: &Node,
    request: &ProduceRequest,
    by_id: bool,
    body: &Bytes,
) -> (Vec<(Str, Uuid)>, Vec<Part>) {
    let mut topics = Vec::with_capacity(request.topic_data.len());
    let mut parts = Vec::new();
    for data in &request.topic_data {
        let topic = topics.len();
        topics.push((data.name.detach(), data.topic_id));
        for partition in &data.partition_data {
            let target = if by_id {
                node.replicas
                    .partition_by_id(&data.topic_id, partition.index)
            } else {
                node.replicas.partition(&data.name, partition.index)
            };
            let range = partition
                .records
                .as_ref()
                .and_then(Records::as_bytes)
                .and_then(|records| place_in(body, records));
            parts.push(Part {
                topic,
                index: partition.index,
                target,
                range,
                checked: None,
            });
        }
    }
    (topics, parts)
}

/// Where `part`, a slice of `whole`, stands in it. `None` for an empty part.
fn place_in(whole: &Bytes, part: &Bytes) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start + part.len();
    (!part.is_empty() && end <= whole.len()).then_some(start..end)
}

/// What is wrong with one partition's part: code, text, and the leader to name with it.
type PartRefusal = (ErrorCode, String, Option<(i32, i32)>);

fn append(node: &Node, call: &Call, asked: &Asked, part: Part, frame: &mut BytesMut) -> Outcome {
    let (topic, index) = (part.topic, part.index);
    match try_append(node, call, asked, part, frame) {
        Ok((partition, info)) => Outcome {
            topic,
            response: PartitionProduceResponse {
                index,
                error_code: ErrorCode::NONE.0,
                base_offset: info.first_offset,
                log_append_time_ms: info.log_append_time.unwrap_or(-1),
                log_start_offset: info.log_start_offset,
                error_message: None,
                ..PartitionProduceResponse::default()
            },
            wait: partition
                .begin_wait(info.last_offset + 1, asked.acks)
                .map(|wait| -> BoxFuture<_> { Box::pin(wait) }),
        },
        Err((code, message, leader)) => {
            let leader = leader.filter(|_| call.version >= LEADER_HINT_FROM);
            Outcome {
                topic,
                response: refused(index, code, message, leader),
                wait: None,
            }
        }
    }
}

fn try_append(
    node: &Node,
    call: &Call,
    asked: &Asked,
    part: Part,
    frame: &mut BytesMut,
) -> Result<(Arc<Partition>, AppendInfo), PartRefusal> {
    let (acks, (name, id)) = (asked.acks, &asked.topics[part.topic]);
    if call.version < BATCHES_FROM {
        let text = format!("Produce below version {BATCHES_FROM} is not supported");
        return Err((ErrorCode::UNSUPPORTED_VERSION, text, None));
    }
    if !(-1..=1).contains(&acks) {
        return Err((
            ErrorCode::INVALID_REQUIRED_ACKS,
            format!("acks must be -1, 0 or 1, not {acks}"),
            None,
        ));
    }
    let partition = part.target.map_err(|error| {
        let image = node.image();
        let known = image
            .partition(name, part.index)
            .or_else(|| image.partition_by_id(id, part.index));
        let moved = error.code() == ErrorCode::NOT_LEADER_OR_FOLLOWER;
        let leader = known.filter(|_| moved).map(|p| (p.leader, p.leader_epoch));
        (error.code(), error.to_string(), leader)
    })?;
    let batches = part
        .range
        .and_then(|range| frame.get_mut(range))
        .ok_or_else(|| {
            let text = "a produce request needs exactly one record batch a partition".to_owned();
            (ErrorCode::INVALID_RECORD, text, None)
        })?;
    check(call, asked.transactional, &partition, batches)
        .map_err(|(code, text)| (code, text, None))?;
    let in_sync = if acks == -1 {
        partition.check_in_sync()
    } else {
        Ok(())
    };
    let appended = in_sync.and_then(|()| match part.checked {
        None => partition.append(batches, AppendSource::Client, now_ms()),
        Some(prepared) => {
            let Prepared {
                checked,
                recompressed,
            } = prepared?;
            let mut recompressed = recompressed;
            let bytes = recompressed.as_deref_mut().unwrap_or(batches);
            partition.append_produced(bytes, &checked, now_ms())
        }
    });
    match appended {
        Ok(info) => Ok((partition, info)),
        Err(error) => {
            let code = node.code(&error, &call.connection);
            let leader = (code == ErrorCode::NOT_LEADER_OR_FOLLOWER)
                .then(|| (partition.leader(), partition.leader_epoch()));
            Err((code, error.to_string(), leader))
        }
    }
}

/// Rules that need more than the log: internal topics, transactions, codecs by version. The mirror
/// guard speaks first: it is the truer reason.
fn check(
    call: &Call,
    transactional: bool,
    partition: &Partition,
    batches: &[u8],
) -> Result<(), (ErrorCode, String)> {
    if tarn_replica::is_internal_topic(partition.topic()) {
        return Err((
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("{} is the broker's own topic", partition.topic()),
        ));
    }
    let Ok(header) = BatchHeader::parse(batches) else {
        // The log names what is wrong with it.
        return Ok(());
    };
    if call.version < ZSTD_FROM && matches!(header.compression(), Ok(Compression::Zstd)) {
        return Err((
            ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            format!("zstd needs Produce version {ZSTD_FROM} or above"),
        ));
    }
    let of_transaction = transactional || header.is_transactional();
    if of_transaction && partition.check_writable().is_ok() {
        return Err((
            ErrorCode::INVALID_TXN_STATE,
            "transactions are not supported by this broker yet".to_owned(),
        ));
    }
    Ok(())
}

fn refused(
    index: i32,
    code: ErrorCode,
    message: String,
    leader: Option<(i32, i32)>,
) -> PartitionProduceResponse {
    let mut response = PartitionProduceResponse {
        index,
        error_code: code.0,
        base_offset: -1,
        error_message: Some(Str::from(message)),
        ..PartitionProduceResponse::default()
    };
    if let Some((leader_id, leader_epoch)) = leader {
        response.current_leader = LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..LeaderIdAndEpoch::default()
        };
    }
    response
}

/// Waits for all partitions together; what is not done in time is answered with REQUEST_TIMED_OUT.
async fn wait(deadline: tokio::time::Instant, outcomes: &mut [Outcome]) {
    for outcome in outcomes {
        let Some(wait) = outcome.wait.take() else {
            continue;
        };
        let error = match tokio::time::timeout_at(deadline, wait).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => (error.code(), error.to_string()),
            Err(_) => (
                ErrorCode::REQUEST_TIMED_OUT,
                "the records are stored but were not acknowledged in time".to_owned(),
            ),
        };
        outcome.response = refused(outcome.response.index, error.0, error.1, None);
    }
}

fn response(
    node: &Node,
    call: &Call,
    topics: Vec<(Str, Uuid)>,
    outcomes: Vec<Outcome>,
) -> ProduceResponse {
    let mut responses: Vec<TopicProduceResponse> = topics
        .into_iter()
        .map(|(name, topic_id)| TopicProduceResponse {
            name,
            topic_id,
            ..TopicProduceResponse::default()
        })
        .collect();
    let mut leaders: Vec<i32> = Vec::new();
    for outcome in outcomes {
        let leader = outcome.response.current_leader.leader_id;
        if leader >= 0 && !leaders.contains(&leader) {
            leaders.push(leader);
        }
        responses[outcome.topic]
            .partition_responses
            .push(outcome.response);
    }
    let endpoint = |id: i32| {
        let (host, port) = node.endpoint(&node.image(), id, &call.connection.listener)?;
        Some(NodeEndpoint {
            node_id: id,
            host,
            port,
            ..NodeEndpoint::default()
        })
    };
    let node_endpoints = leaders.into_iter().filter_map(endpoint).collect();
    ProduceResponse {
        responses,
        node_endpoints,
        ..ProduceResponse::default()
    }
}
