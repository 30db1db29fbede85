//! Fetch (1): session, resolution of topics, the read (with its wait) in the replica room, and the
//! answer with file ranges.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tarn_replica::{FetchData, FetchParams, FetchRead, Isolation};
use tarn_wire::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use tarn_wire::messages::{FetchRequest, FetchResponse};
use tarn_wire::{ErrorCode, Records, Str, Uuid};

use crate::dispatch::Call;
use crate::fetch_session::{Asked, PartitionKey, Plan, Told, TopicKey, Wanted};
use crate::node::{Node, now_ms};
use crate::turn::Turn;

/// First version that names topics by id.
const BY_ID_FROM: i16 = 13;
/// First version with sessions.
const SESSIONS_FROM: i16 = 7;
/// First version whose answers carry the addresses of new leaders.
const ENDPOINTS_FROM: i16 = 16;
/// The session epoch of a request outside of any session.
const SESSIONLESS_EPOCH: i32 = -1;

/// The answer for one partition of the plan.
struct Piece {
    key: PartitionKey,
    data: FetchData,
}

pub(crate) async fn handle(node: &Arc<Node>, call: &Call, request: FetchRequest) -> FetchResponse {
    let plan = match begin(node, call, &request) {
        Ok(plan) => plan,
        Err(error) => {
            return FetchResponse {
                error_code: error.0,
                ..FetchResponse::default()
            };
        }
    };
    let limit = node.live.fetch_bytes_max();
    let mut params = FetchParams {
        max_wait_ms: request.max_wait_ms.min(node.live.fetch_wait_ms_max()),
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes.min(limit),
        isolation: Isolation::from_wire(request.isolation_level),
    };
    let (session_id, incremental) = (plan.session_id, plan.incremental);
    let mut pieces: Vec<Option<Piece>> = Vec::with_capacity(plan.partitions.len());
    let mut reads = Vec::with_capacity(plan.partitions.len());
    let mut read_keys = Vec::with_capacity(plan.partitions.len());
    let mut turn = Turn::default();
    for (key, wanted) in plan.partitions {
        turn.spend(1).await;
        let found = match &key.0 {
            TopicKey::Name(name) => node.replicas.partition(name, key.1),
            TopicKey::Id(id) => node.replicas.partition_by_id(id, key.1),
        };
        match found {
            Ok(partition) => {
                read_keys.push((pieces.len(), key));
                pieces.push(None);
                reads.push(FetchRead {
                    partition,
                    fetch_offset: wanted.fetch_offset,
                    max_bytes: wanted.max_bytes,
                    current_leader_epoch: wanted.current_leader_epoch,
                    last_fetched_epoch: wanted.last_fetched_epoch,
                });
            }
            Err(error) => {
                // An error is told at once, whatever there is to wait for.
                params.max_wait_ms = 0;
                pieces.push(Some(Piece {
                    key,
                    data: failed(error.code()),
                }));
            }
        }
    }
    let answers = tokio::select! {
        answers = tarn_replica::fetch(&params, &reads) => answers,
        () = node.stop.cancelled() => {
            params.max_wait_ms = 0;
            tarn_replica::fetch(&params, &reads).await
        }
    };
    drop(reads);
    for ((at, key), data) in read_keys.into_iter().zip(answers) {
        pieces[at] = Some(Piece { key, data });
    }
    let mut pieces: Vec<Piece> = pieces.into_iter().flatten().collect();
    if session_id != 0 {
        keep_news(node, session_id, incremental, &mut pieces);
    }
    respond(node, call, session_id, pieces)
}

fn begin(node: &Node, call: &Call, request: &FetchRequest) -> Result<Plan, ErrorCode> {
    let by_id = call.version >= BY_ID_FROM;
    let topic_key = |name: &Str, id: &Uuid| {
        if by_id {
            TopicKey::Id(*id)
        } else {
            TopicKey::Name(name.detach())
        }
    };
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let key = topic_key(&topic.topic, &topic.topic_id);
        for p in &topic.partitions {
            let wanted = Wanted {
                fetch_offset: p.fetch_offset,
                max_bytes: p.partition_max_bytes,
                current_leader_epoch: p.current_leader_epoch,
                last_fetched_epoch: p.last_fetched_epoch,
            };
            partitions.push(((key.clone(), p.partition), wanted));
        }
    }
    fold(&mut partitions);
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let key = topic_key(&topic.topic, &topic.topic_id);
        forgotten.extend(topic.partitions.iter().map(|p| (key.clone(), *p)));
    }
    let in_session = call.version >= SESSIONS_FROM;
    let asked = Asked {
        session_id: if in_session { request.session_id } else { 0 },
        session_epoch: if in_session {
            request.session_epoch
        } else {
            SESSIONLESS_EPOCH
        },
        by_id,
        partitions,
        forgotten,
    };
    let random = || {
        let [a, b, c, d, ..] = Uuid::random().0;
        i32::from_be_bytes([a, b, c, d])
    };
    node.sessions.lock().begin(asked, now_ms(), random)
}

/// Partitions up to which duplicates are looked for one by one.
const SMALL_REQUEST: usize = 16;

/// A partition that is named again is read once, where it stands first and as it is wanted last, as
/// Kafka does.
fn fold(partitions: &mut Vec<(PartitionKey, Wanted)>) {
    let small = partitions.len() <= SMALL_REQUEST;
    let is_new = |(at, (key, _)): (usize, &(PartitionKey, Wanted))| {
        partitions[..at].iter().all(|(earlier, _)| earlier != key)
    };
    if small && partitions.iter().enumerate().all(is_new) {
        return;
    }
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(partitions.len());
    let mut kept: Vec<(PartitionKey, Wanted)> = Vec::with_capacity(partitions.len());
    for (key, wanted) in partitions.drain(..) {
        match places.entry(key.clone()) {
            Entry::Occupied(place) => kept[*place.get()].1 = wanted,
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push((key, wanted));
            }
        }
    }
    *partitions = kept;
}

/// Leaves out of an incremental answer what has not changed, and notes what is told.
fn keep_news(node: &Node, session_id: i32, incremental: bool, pieces: &mut Vec<Piece>) {
    let mut sessions = node.sessions.lock();
    pieces.retain(|piece| {
        let told = Told {
            high_watermark: piece.data.high_watermark,
            log_start_offset: piece.data.log_start_offset,
        };
        let urgent = !piece.data.error.is_none() || piece.data.diverging_epoch.is_some();
        let news = sessions.tell(session_id, &piece.key, told, urgent, !piece.data.is_empty());
        news || !incremental
    });
}

fn failed(error: ErrorCode) -> FetchData {
    FetchData {
        error,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        ..FetchData::default()
    }
}

fn respond(node: &Node, call: &Call, session_id: i32, pieces: Vec<Piece>) -> FetchResponse {
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    let mut last: Option<TopicKey> = None;
    let mut leaders: Vec<i32> = Vec::new();
    for Piece {
        key: (topic, index),
        data,
    } in pieces
    {
        if let Some((leader, _)) = data
            .current_leader
            .filter(|(leader, _)| *leader >= 0 && !leaders.contains(leader))
        {
            leaders.push(leader);
        }
        if last.as_ref() != Some(&topic) {
            let (name, topic_id) = match &topic {
                TopicKey::Name(name) => (name.clone(), Uuid::ZERO),
                TopicKey::Id(id) => (Str::default(), *id),
            };
            responses.push(FetchableTopicResponse {
                topic: name,
                topic_id,
                ..FetchableTopicResponse::default()
            });
            last = Some(topic);
        }
        if let Some(response) = responses.last_mut() {
            response.partitions.push(partition_data(index, data));
        }
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
    let node_endpoints = if call.version >= ENDPOINTS_FROM {
        leaders.into_iter().filter_map(endpoint).collect()
    } else {
        Vec::new()
    };
    FetchResponse {
        session_id,
        responses,
        node_endpoints,
        ..FetchResponse::default()
    }
}

fn partition_data(index: i32, data: FetchData) -> PartitionData {
    let mut out = PartitionData {
        partition_index: index,
        error_code: data.error.0,
        high_watermark: data.high_watermark,
        last_stable_offset: data.last_stable_offset,
        log_start_offset: data.log_start_offset,
        aborted_transactions: data.aborted.map(|aborted| {
            let wire = aborted.into_iter().map(|txn| AbortedTransaction {
                producer_id: txn.producer_id,
                first_offset: txn.first_offset,
                ..AbortedTransaction::default()
            });
            wire.collect()
        }),
        preferred_read_replica: -1,
        records: Some(if data.error.is_none() {
            data.records
        } else {
            Records::EMPTY
        }),
        ..PartitionData::default()
    };
    if let Some(end) = data.diverging_epoch {
        out.diverging_epoch = EpochEndOffset {
            epoch: end.epoch,
            end_offset: end.end_offset,
            ..EpochEndOffset::default()
        };
    }
    if let Some((leader_id, leader_epoch)) = data.current_leader {
        out.current_leader = LeaderIdAndEpoch {
            leader_id,
            leader_epoch,
            ..LeaderIdAndEpoch::default()
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(fetch_offset: i64) -> Wanted {
        Wanted {
            fetch_offset,
            max_bytes: 1,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
        }
    }

    /// A partition named 400,000 times is read once, as the last of them wants it.
    #[test]
    fn partitions_named_again_are_folded() {
        let key = |index: i32| (TopicKey::Name(Str::from_static("t")), index);
        for len in [2, SMALL_REQUEST, 400_000] {
            let mut partitions = vec![(key(7), wanted(0))];
            partitions.extend((1..len as i64).map(|at| (key(3), wanted(at))));
            fold(&mut partitions);
            let kept = [(key(7), wanted(0)), (key(3), wanted(len as i64 - 1))];
            assert_eq!(partitions, kept);
        }
        let mut distinct: Vec<_> = (0..100).map(|index| (key(index), wanted(5))).collect();
        let before = distinct.clone();
        fold(&mut distinct);
        assert_eq!(distinct, before);
    }
}
