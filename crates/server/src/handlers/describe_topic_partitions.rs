//! DescribeTopicPartitions (75): partitions of topics in pages, with a cursor (KIP-966).

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_metadata::Image;
use tarn_wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use tarn_wire::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use tarn_wire::{ErrorCode, Str, Uuid};

use super::{authorized, metadata};
use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    _call: &Call,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = node.image();
    let cursor = request.cursor.as_ref();
    let mut names: BTreeSet<Str> = if request.topics.is_empty() {
        image
            .topics()
            .iter()
            .map(|topic| topic.name.clone())
            .collect()
    } else {
        request
            .topics
            .iter()
            .map(|topic| topic.name.clone())
            .collect()
    };
    if let Some(cursor) = cursor {
        names = names.split_off(&cursor.topic_name);
    }
    let limit_max =
        usize::try_from(node.config.number("max.request.partition.size.limit")).unwrap_or(1);
    let mut left = usize::try_from(request.response_partition_limit)
        .unwrap_or(0)
        .clamp(1, limit_max);
    let mut topics = Vec::new();
    let mut next_cursor = None;
    for name in names {
        let first = cursor
            .filter(|cursor| cursor.topic_name == name)
            .map_or(0, |cursor| cursor.partition_index.max(0));
        if left == 0 {
            next_cursor = Some(Cursor {
                topic_name: name,
                partition_index: first,
                ..Cursor::default()
            });
            break;
        }
        let (topic, stopped_at) = describe(&image, name.clone(), first, left);
        left -= topic.partitions.len().min(left);
        topics.push(topic);
        if let Some(partition_index) = stopped_at {
            next_cursor = Some(Cursor {
                topic_name: name,
                partition_index,
                ..Cursor::default()
            });
            break;
        }
    }
    DescribeTopicPartitionsResponse {
        topics,
        next_cursor,
        ..DescribeTopicPartitionsResponse::default()
    }
}

/// One topic from partition `first`, at most `limit` partitions, and the partition at which it
/// stopped.
fn describe(
    image: &Image,
    name: Str,
    first: i32,
    limit: usize,
) -> (DescribeTopicPartitionsResponseTopic, Option<i32>) {
    let Some(topic) = image.topic(&name) else {
        let error = match tarn_metadata::check_topic_name(&name) {
            Ok(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        };
        let missing = DescribeTopicPartitionsResponseTopic {
            error_code: error.0,
            is_internal: tarn_replica::is_internal_topic(&name),
            name: Some(name),
            topic_id: Uuid::ZERO,
            topic_authorized_operations: authorized::topic(true),
            ..DescribeTopicPartitionsResponseTopic::default()
        };
        return (missing, None);
    };
    let from = first as usize;
    let partitions: Vec<_> = topic
        .partitions
        .iter()
        .enumerate()
        .skip(from)
        .take(limit)
        .map(
            |(index, partition)| DescribeTopicPartitionsResponsePartition {
                error_code: if partition.leader < 0 {
                    ErrorCode::LEADER_NOT_AVAILABLE.0
                } else {
                    ErrorCode::NONE.0
                },
                partition_index: index as i32,
                leader_id: partition.leader,
                leader_epoch: partition.leader_epoch,
                replica_nodes: partition.replicas.clone(),
                isr_nodes: partition.isr.clone(),
                eligible_leader_replicas: Some(partition.eligible_leader_replicas.clone()),
                last_known_elr: Some(partition.last_known_elr.clone()),
                offline_replicas: metadata::offline(image, &partition.replicas),
                ..DescribeTopicPartitionsResponsePartition::default()
            },
        )
        .collect();
    let end = from.saturating_add(partitions.len());
    let stopped_at = (end < topic.partitions.len()).then_some(end as i32);
    let described = DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::NONE.0,
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: tarn_replica::is_internal_topic(&topic.name),
        partitions,
        topic_authorized_operations: authorized::topic(true),
        ..DescribeTopicPartitionsResponseTopic::default()
    };
    (described, stopped_at)
}
