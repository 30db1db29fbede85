//! ListOffsets (2): ends, starts and times of partitions.

use std::sync::Arc;
use std::time::Duration;

use tarn_records::{StreamPace, Unpaced};
use tarn_replica::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, Isolation,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, must_look_up,
};
use tarn_wire::messages::list_offsets_request::ListOffsetsPartition;
use tarn_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use tarn_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;
use crate::turn::Turn;

/// Longest wait for the disk before an end is told that may lie behind what was acknowledged with
/// `acks=1`.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(1);

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = Isolation::from_wire(request.isolation_level);
    let mut turn = Turn::default();
    wait_visible(node, &request).await;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            turn.spend(1).await;
            partitions.push(list(node, call, &topic.name, asked, isolation).await);
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
            ..ListOffsetsTopicResponse::default()
        });
    }
    ListOffsetsResponse {
        topics,
        ..ListOffsetsResponse::default()
    }
}

/// Has brought to the disk what is acknowledged and not visible before, all partitions together.
async fn wait_visible(node: &Node, request: &ListOffsetsRequest) {
    let mut waits = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            let ends_somewhere =
                asked.timestamp == LATEST_TIMESTAMP || must_look_up(asked.timestamp);
            if ends_somewhere
                && let Ok(partition) = node.replicas.partition(&topic.name, asked.partition_index)
            {
                waits.extend(partition.wait_visible());
            }
        }
    }
    let deadline = tokio::time::Instant::now() + SYNC_WAIT_MAX;
    for wait in waits {
        if tokio::time::timeout_at(deadline, wait).await.is_err() {
            return;
        }
    }
}

/// First version in which a special timestamp may be asked for; `None` = not a special timestamp at
/// all.
fn first_version(timestamp: i64) -> Option<i16> {
    match timestamp {
        LATEST_TIMESTAMP | EARLIEST_TIMESTAMP => Some(0),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL_TIMESTAMP => Some(8),
        LATEST_TIERED_TIMESTAMP => Some(9),
        EARLIEST_PENDING_UPLOAD_TIMESTAMP => Some(11),
        timestamp if timestamp >= 0 => Some(0),
        _ => None,
    }
}

async fn list(
    node: &Node,
    call: &Call,
    topic: &Str,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> ListOffsetsPartitionResponse {
    let mut response = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
        ..ListOffsetsPartitionResponse::default()
    };
    if first_version(asked.timestamp).is_none_or(|first| call.version < first) {
        response.error_code = ErrorCode::UNSUPPORTED_VERSION.0;
        return response;
    }
    let found = match node.replicas.partition(topic, asked.partition_index) {
        Ok(partition) => partition,
        Err(error) => {
            response.error_code = error.code().0;
            return response;
        }
    };
    let (timestamp, epoch) = (asked.timestamp, asked.current_leader_epoch);
    let listed = if must_look_up(timestamp) {
        let work =
            move |pace: &mut dyn StreamPace| found.list_offset(timestamp, isolation, epoch, pace);
        let Ok(listed) = node.decompression.run(work).await else {
            response.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
            return response;
        };
        listed
    } else {
        found.list_offset(timestamp, isolation, epoch, &mut Unpaced)
    };
    match listed {
        Ok(found) => {
            response.timestamp = found.timestamp;
            response.offset = found.offset;
            response.leader_epoch = found.leader_epoch;
        }
        Err(error) => response.error_code = error.code().0,
    }
    response
}
