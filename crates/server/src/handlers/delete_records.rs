//! DeleteRecords (21): raises log start offsets. Refused on mirror topics: their log start follows
//! the source.

use std::sync::Arc;

use tarn_wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use tarn_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            partitions
                .push(delete(node, call, &topic.name, asked.partition_index, asked.offset).await);
        }
        topics.push(DeleteRecordsTopicResult {
            name: topic.name.clone(),
            partitions,
            ..DeleteRecordsTopicResult::default()
        });
    }
    DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    }
}

async fn delete(
    node: &Arc<Node>,
    call: &Call,
    topic: &Str,
    index: i32,
    offset: i64,
) -> DeleteRecordsPartitionResult {
    let result = |low_watermark: i64, error: ErrorCode| DeleteRecordsPartitionResult {
        partition_index: index,
        low_watermark,
        error_code: error.0,
        ..DeleteRecordsPartitionResult::default()
    };
    if tarn_replica::is_internal_topic(topic) {
        return result(-1, ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let partition = match node.replicas.partition(topic, index) {
        Ok(partition) => partition,
        Err(error) => return result(-1, error.code()),
    };
    // Removing segments touches the disk.
    match tokio::task::spawn_blocking(move || partition.delete_records(offset)).await {
        Ok(Ok(low_watermark)) => result(low_watermark, ErrorCode::NONE),
        Ok(Err(error)) => result(-1, node.code(&error, &call.connection)),
        Err(_) => result(-1, ErrorCode::UNKNOWN_SERVER_ERROR),
    }
}
