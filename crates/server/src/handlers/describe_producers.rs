//! DescribeProducers (61): producers with state in a partition's log.

use std::sync::Arc;

use tarn_wire::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use tarn_wire::messages::{DescribeProducersRequest, DescribeProducersResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for &index in &topic.partition_indexes {
            partitions.push(describe(node, call, &topic.name, index));
            // Each look copies the producers of a partition.
            tokio::task::yield_now().await;
        }
        topics.push(TopicResponse {
            name: topic.name.clone(),
            partitions,
            ..TopicResponse::default()
        });
    }
    DescribeProducersResponse {
        topics,
        ..DescribeProducersResponse::default()
    }
}

/// Bytes of one producer in an answer.
const PRODUCER_BYTES: usize = 40;

fn describe(node: &Node, call: &Call, topic: &Str, index: i32) -> PartitionResponse {
    let mut response = PartitionResponse {
        partition_index: index,
        error_code: ErrorCode::NONE.0,
        error_message: None,
        ..PartitionResponse::default()
    };
    match node
        .replicas
        .partition(topic, index)
        .and_then(|partition| partition.producers())
    {
        Ok(producers) => {
            // A partition named again is described again, as Kafka does, as long as there is room.
            if let Err(error) = call.room(producers.len() * PRODUCER_BYTES) {
                response.error_code = error.0;
                return response;
            }
            response.active_producers = producers
                .into_iter()
                .map(|producer| ProducerState {
                    producer_id: producer.producer_id,
                    producer_epoch: i32::from(producer.producer_epoch),
                    last_sequence: producer.last_sequence,
                    last_timestamp: producer.last_timestamp,
                    coordinator_epoch: producer.coordinator_epoch,
                    current_txn_start_offset: producer.current_txn_start_offset.unwrap_or(-1),
                    ..ProducerState::default()
                })
                .collect();
        }
        Err(error) => {
            response.error_code = error.code().0;
            response.error_message = Some(Str::from(error.to_string()));
        }
    }
    response
}
