//! Metadata (3): brokers and topics by name or id, and the creation of topics that a client asks for.

use std::collections::HashSet;
use std::sync::Arc;

use tarn_metadata::{Image, TopicImage, check_topic_name};
use tarn_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use tarn_wire::messages::{MetadataRequest, MetadataResponse};
use tarn_wire::{ErrorCode, Str, Uuid};

use super::{authorized, create_topics};
use crate::dispatch::Call;
use crate::node::Node;

/// First version that asks by topic id.
const BY_ID_FROM: i16 = 12;
/// First version that can forbid the creation of topics.
const AUTO_CREATE_FLAG_FROM: i16 = 4;

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: MetadataRequest,
) -> MetadataResponse {
    let with_operations = request.include_topic_authorized_operations;
    let asked = match &request.topics {
        Some(topics) if call.version == 0 && topics.is_empty() => None,
        topics => topics.as_ref(),
    };
    let create = call.version < AUTO_CREATE_FLAG_FROM || request.allow_auto_topic_creation;
    let (image, topics) = match asked {
        None => {
            let image = node.image();
            let topics = image
                .topics()
                .iter()
                .map(|topic| describe(&image, topic, with_operations))
                .collect();
            (image, topics)
        }
        Some(asked) => {
            let mut names = Vec::new();
            let mut ids = Vec::new();
            for topic in asked {
                match &topic.name {
                    Some(name) => names.push(name),
                    None => ids.push(topic.topic_id),
                }
            }
            if !ids.is_empty() && call.version < BY_ID_FROM {
                ids.clear();
            }
            let created = if create {
                create_missing(node, &names).await
            } else {
                Vec::new()
            };
            let image = node.image();
            let mut topics: Vec<_> = names
                .iter()
                .map(|name| by_name(node, &image, name, &created, with_operations))
                .collect();
            topics.extend(ids.iter().map(|id| by_id(&image, id, with_operations)));
            (image, topics)
        }
    };
    MetadataResponse {
        brokers: brokers(node, &image, &call.connection.listener),
        cluster_id: Some(node.cluster_id.clone()),
        controller_id: node.id(),
        topics,
        cluster_authorized_operations: authorized::cluster(
            request.include_cluster_authorized_operations,
        ),
        ..MetadataResponse::default()
    }
}

fn brokers(node: &Node, image: &Image, listener: &str) -> Vec<MetadataResponseBroker> {
    image
        .active_brokers()
        .filter_map(|id| {
            let (host, port) = node.endpoint(image, id, listener)?;
            let rack = image.broker(id).and_then(|broker| broker.rack.clone());
            Some(MetadataResponseBroker {
                node_id: id,
                host,
                port,
                rack,
                ..MetadataResponseBroker::default()
            })
        })
        .collect()
}

/// Creates what is missing and may be created; gives name and error of what could not be made.
async fn create_missing(node: &Arc<Node>, names: &[&Str]) -> Vec<(Str, ErrorCode)> {
    if !node.config.flag("auto.create.topics.enable") {
        return Vec::new();
    }
    let image = node.image();
    let mut seen = HashSet::new();
    let missing: Vec<Str> = names
        .iter()
        .filter(|name| {
            image.topic(name).is_none()
                && check_topic_name(name).is_ok()
                && seen.insert(name.as_str())
        })
        .filter(|name| !tarn_replica::is_internal_topic(name))
        // A topic that a mirror wants must come with the source's id: a local one would stand in its way.
        .filter(|name| {
            !node
                .mirror
                .as_ref()
                .is_some_and(|mirror| mirror.service.wants_topic(&image, name))
        })
        .map(|name| name.detach())
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    create_topics::create_with_defaults(node, missing).await
}

fn by_name(
    node: &Node,
    image: &Image,
    name: &Str,
    created: &[(Str, ErrorCode)],
    with_operations: bool,
) -> MetadataResponseTopic {
    if let Some(topic) = image.topic(name) {
        let mut described = describe(image, topic, with_operations);
        // Metadata knows the topic a moment before its logs are open; the client is told to come back.
        let opening = topic
            .partitions
            .iter()
            .enumerate()
            .any(|(index, partition)| {
                partition.leader == node.id()
                    && node.replicas.partition(name, index as i32).is_err()
            });
        if opening && created.iter().any(|(created, _)| created == name) {
            described.error_code = ErrorCode::LEADER_NOT_AVAILABLE.0;
            described.partitions.clear();
        }
        return described;
    }
    let error = match check_topic_name(name) {
        Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        Ok(_) => created
            .iter()
            .find(|(created, _)| created == name)
            .map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |(_, error)| *error),
    };
    missing(error, Some(name.clone()), Uuid::ZERO)
}

fn by_id(image: &Image, id: &Uuid, with_operations: bool) -> MetadataResponseTopic {
    match image.topic_by_id(id) {
        Some(topic) => describe(image, topic, with_operations),
        None => missing(ErrorCode::UNKNOWN_TOPIC_ID, None, *id),
    }
}

fn missing(error: ErrorCode, name: Option<Str>, topic_id: Uuid) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: error.0,
        is_internal: name
            .as_ref()
            .is_some_and(|name| tarn_replica::is_internal_topic(name)),
        name,
        topic_id,
        partitions: Vec::new(),
        topic_authorized_operations: authorized::topic(false),
        ..MetadataResponseTopic::default()
    }
}

fn describe(image: &Image, topic: &TopicImage, with_operations: bool) -> MetadataResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .enumerate()
        .map(|(index, partition)| MetadataResponsePartition {
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
            offline_replicas: offline(image, &partition.replicas),
            ..MetadataResponsePartition::default()
        })
        .collect();
    MetadataResponseTopic {
        error_code: ErrorCode::NONE.0,
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: tarn_replica::is_internal_topic(&topic.name),
        partitions,
        topic_authorized_operations: authorized::topic(with_operations),
        ..MetadataResponseTopic::default()
    }
}

/// Replicas on brokers that are not alive.
pub(crate) fn offline(image: &Image, replicas: &[i32]) -> Vec<i32> {
    replicas
        .iter()
        .copied()
        .filter(|id| !image.broker(*id).is_some_and(|broker| broker.is_active()))
        .collect()
}
