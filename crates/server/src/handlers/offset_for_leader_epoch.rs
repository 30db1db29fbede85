//! OffsetForLeaderEpoch (23): where an epoch ends in a partition's log (KIP-101, KIP-320).

use std::sync::Arc;

use tarn_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use tarn_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    _call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic
                .partitions
                .iter()
                .map(|asked| {
                    let found = node
                        .replicas
                        .partition(&topic.topic, asked.partition)
                        .and_then(|p| {
                            p.offset_for_leader_epoch(
                                asked.leader_epoch,
                                asked.current_leader_epoch,
                            )
                        });
                    let mut result = EpochEndOffset {
                        partition: asked.partition,
                        leader_epoch: -1,
                        end_offset: -1,
                        ..EpochEndOffset::default()
                    };
                    match found {
                        Ok(Some(end)) => {
                            (result.leader_epoch, result.end_offset) = (end.epoch, end.end_offset)
                        }
                        Ok(None) => {}
                        Err(error) => result.error_code = error.code().0,
                    }
                    result
                })
                .collect();
            OffsetForLeaderTopicResult {
                topic: topic.topic.clone(),
                partitions,
                ..OffsetForLeaderTopicResult::default()
            }
        })
        .collect();
    OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    }
}
