//! OffsetForLeaderEpoch (23): where an epoch ends in a partition's log (KIP-101, KIP-320).

use std::sync::Arc;

use tarn_wire::Str;
use tarn_wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use tarn_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use tarn_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::dispatch::Call;
use crate::node::Node;
use crate::turn::Turn;

pub(crate) async fn handle(
    node: &Arc<Node>,
    _call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut turn = Turn::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            turn.spend(1).await;
            partitions.push(end_of(node, &topic.topic, asked));
        }
        topics.push(OffsetForLeaderTopicResult {
            topic: topic.topic.clone(),
            partitions,
            ..OffsetForLeaderTopicResult::default()
        });
    }
    OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn end_of(node: &Node, topic: &Str, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let found = node
        .replicas
        .partition(topic, asked.partition)
        .and_then(|p| p.offset_for_leader_epoch(asked.leader_epoch, asked.current_leader_epoch));
    let mut result = EpochEndOffset {
        partition: asked.partition,
        leader_epoch: -1,
        end_offset: -1,
        ..EpochEndOffset::default()
    };
    match found {
        Ok(Some(end)) => (result.leader_epoch, result.end_offset) = (end.epoch, end.end_offset),
        Ok(None) => {}
        Err(error) => result.error_code = error.code().0,
    }
    result
}
