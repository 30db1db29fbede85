//! Requests whose decision is the controller's alone: topics, partitions, configurations, features,
//! quorum. What is checked here needs the broker: its own settings, and the wait until a change is
//! in force.

use std::sync::Arc;

use tarn_metadata::ResourceType;
use tarn_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use tarn_wire::messages::delete_topics_response::DeletableTopicResult;
use tarn_wire::messages::incremental_alter_configs_request::AlterConfigsResource;
use tarn_wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeQuorumRequest, DescribeQuorumResponse,
    ElectLeadersRequest, ElectLeadersResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
    UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use tarn_wire::{ErrorCode, Str};

use super::broker_loggers;
use crate::dispatch::Call;
use crate::node::Node;

/// First version of DeleteTopics with topic ids.
const DELETE_BY_ID_FROM: i16 = 6;
/// First version of DeleteTopics that knows TOPIC_DELETION_DISABLED.
const DELETION_DISABLED_FROM: i16 = 3;

/// DeleteTopics (20).
pub(crate) async fn delete_topics(
    node: &Arc<Node>,
    call: &Call,
    mut request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    if call.version < DELETE_BY_ID_FROM {
        request.topics = std::mem::take(&mut request.topic_names)
            .into_iter()
            .map(
                |name| tarn_wire::messages::delete_topics_request::DeleteTopicState {
                    name: Some(name),
                    ..Default::default()
                },
            )
            .collect();
    }
    if !node.config.flag("delete.topic.enable") {
        let error = if call.version < DELETION_DISABLED_FROM {
            ErrorCode::INVALID_REQUEST
        } else {
            ErrorCode::TOPIC_DELETION_DISABLED
        };
        let responses = request
            .topics
            .into_iter()
            .map(|topic| DeletableTopicResult {
                name: topic.name,
                topic_id: topic.topic_id,
                error_code: error.0,
                error_message: Some(Str::from_static(
                    "topics are not deleted here (delete.topic.enable=false)",
                )),
                ..DeletableTopicResult::default()
            })
            .collect();
        return DeleteTopicsResponse {
            responses,
            ..DeleteTopicsResponse::default()
        };
    }
    let response = node.controller.delete_topics(request).await;
    node.wait_applied().await;
    response
}

/// CreatePartitions (37). Refused for mirror topics: their partitions follow the source.
pub(crate) async fn create_partitions(
    node: &Arc<Node>,
    call: &Call,
    mut request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let image = node.image();
    let mut refused = Vec::new();
    request.topics.retain(|topic| {
        match image
            .membership(&topic.name)
            .filter(|membership| membership.is_read_only())
        {
            None => true,
            Some(membership) => {
                let text = format!(
                    "topic {} is a read-only mirror of {} ({})",
                    topic.name,
                    membership.mirror,
                    membership.desired.name()
                );
                refused.push(CreatePartitionsTopicResult {
                    name: topic.name.clone(),
                    error_code: node.read_only_code(&call.connection).0,
                    error_message: Some(Str::from(text)),
                    ..CreatePartitionsTopicResult::default()
                });
                false
            }
        }
    });
    let mut response = node.controller.create_partitions(request).await;
    node.wait_applied().await;
    response.results.extend(refused);
    response
}

/// IncrementalAlterConfigs (44).
pub(crate) async fn incremental_alter_configs(
    node: &Arc<Node>,
    _call: &Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    for resource in &request.resources {
        warn_synced(
            node,
            resource.resource_type,
            &resource.resource_name,
            resource.configs.iter().map(|config| &config.name),
        );
    }
    // Levels of the log are this broker's own and are not stored.
    let is_logger = |resource: &AlterConfigsResource| {
        ResourceType(resource.resource_type) == ResourceType::BROKER_LOGGER
    };
    let order: Vec<bool> = request.resources.iter().map(is_logger).collect();
    let (loggers, stored) = request.resources.into_iter().partition(is_logger);
    let loggers: Vec<AlterConfigsResource> = loggers;
    let validate_only = request.validate_only;
    let mut response = IncrementalAlterConfigsResponse::default();
    if loggers.is_empty() || order.contains(&false) {
        let request = IncrementalAlterConfigsRequest {
            resources: stored,
            ..request
        };
        response = node.controller.incremental_alter_configs(request).await;
        node.wait_applied().await;
    }
    let mut stored = std::mem::take(&mut response.responses).into_iter();
    let mut loggers = loggers
        .iter()
        .map(|resource| broker_loggers::alter(node, resource, validate_only));
    response.responses = order
        .into_iter()
        .filter_map(|logger| {
            if logger {
                loggers.next()
            } else {
                stored.next()
            }
        })
        .collect();
    response
}

/// AlterConfigs (33).
pub(crate) async fn alter_configs(
    node: &Arc<Node>,
    _call: &Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    for resource in &request.resources {
        warn_synced(
            node,
            resource.resource_type,
            &resource.resource_name,
            resource.configs.iter().map(|config| &config.name),
        );
    }
    let response = node.controller.alter_configs(request).await;
    node.wait_applied().await;
    response
}

/// A key of a mirror topic that the mirror keeps in step with the source is allowed, but will not
/// stay.
fn warn_synced<'a>(node: &Node, kind: i8, topic: &Str, keys: impl Iterator<Item = &'a Str>) {
    if ResourceType(kind) != ResourceType::TOPIC {
        return;
    }
    let image = node.image();
    let Some(membership) = image
        .membership(topic)
        .filter(|membership| membership.is_read_only())
    else {
        return;
    };
    let synced = tarn_mirror::commands::synced_keys(&image, &membership.mirror, topic);
    for key in keys.filter(|key| synced.iter().any(|synced| synced == key.as_str())) {
        tracing::warn!(%topic, %key, mirror = %membership.mirror, "the mirror will set this key back to the value of its source");
    }
}

/// UpdateFeatures (57).
pub(crate) async fn update_features(
    node: &Arc<Node>,
    _call: &Call,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    node.controller.update_features(request).await
}

/// DescribeQuorum (55).
pub(crate) async fn describe_quorum(
    node: &Arc<Node>,
    _call: &Call,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    node.controller.describe_quorum(request).await
}

/// ElectLeaders (43).
pub(crate) async fn elect_leaders(
    node: &Arc<Node>,
    _call: &Call,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let response = node.controller.elect_leaders(request).await;
    node.wait_applied().await;
    response
}

/// UnregisterBroker (64).
pub(crate) async fn unregister_broker(
    node: &Arc<Node>,
    _call: &Call,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    if request.broker_id == node.id() {
        return UnregisterBrokerResponse {
            error_code: ErrorCode::INVALID_REQUEST.0,
            error_message: Some(Str::from_static(
                "this broker is alive; stop it before it is unregistered",
            )),
            ..UnregisterBrokerResponse::default()
        };
    }
    node.controller.unregister_broker(request).await
}
