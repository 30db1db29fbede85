//! Metadata (3): brokers and topics by name or id, and the creation of topics that a client asks
//! for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tarn_metadata::{Image, PartitionImage, TopicImage, check_topic_name};
use tarn_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use tarn_wire::messages::{MetadataRequest, MetadataResponse};
use tarn_wire::{ErrorCode, Str, Uuid};

use super::{authorized, create_topics};
use crate::dispatch::Call;
use crate::node::Node;
use crate::turn::Turn;

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
    let mut turn = Turn::default();
    let create = call.version < AUTO_CREATE_FLAG_FROM || request.allow_auto_topic_creation;
    let (image, topics) = match asked {
        None => {
            let image = node.image();
            let mut topics = Vec::with_capacity(image.topics().len());
            for topic in image.topics().iter() {
                turn.spend(1 + topic.partitions.len()).await;
                topics.push(describe(&image, topic, with_operations));
            }
            (image, topics)
        }
        Some(asked) => {
            // A topic that is named again is answered once, as Kafka does.
            let (mut names, mut ids) = (Vec::new(), Vec::new());
            let (mut seen_names, mut seen_ids) = (HashSet::new(), HashSet::new());
            for topic in asked {
                match &topic.name {
                    Some(name) if seen_names.insert(name.as_str()) => names.push(name),
                    None if seen_ids.insert(topic.topic_id) => ids.push(topic.topic_id),
                    _ => {}
                }
            }
            if !ids.is_empty() && call.version < BY_ID_FROM {
                ids.clear();
            }
            let created = if create {
                create_missing(node, &names, &mut turn).await
            } else {
                HashMap::new()
            };
            let image = node.image();
            let mut topics = Vec::with_capacity(names.len() + ids.len());
            for name in names {
                let topic = by_name(node, &image, name, &created, with_operations);
                turn.spend(1 + topic.partitions.len()).await;
                topics.push(topic);
            }
            for id in ids {
                let topic = by_id(&image, &id, with_operations);
                turn.spend(1 + topic.partitions.len()).await;
                topics.push(topic);
            }
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

/// Creates what is missing and may be created, at most `auto.create.topics.request.max`; gives the
/// error of what could not be made, and none for what was made.
async fn create_missing(
    node: &Arc<Node>,
    names: &[&Str],
    turn: &mut Turn,
) -> HashMap<Str, ErrorCode> {
    if !node.config.flag("auto.create.topics.enable") {
        return HashMap::new();
    }
    let image = node.image();
    let most = usize::try_from(node.config.number("auto.create.topics.request.max")).unwrap_or(1);
    let mut missing: Vec<Str> = Vec::new();
    for name in names {
        if missing.len() >= most {
            break;
        }
        turn.spend(1).await;
        // A topic that a mirror wants must come with the source's id: a local one would stand in
        // its way.
        let is_wanted = || {
            let mirror = node.mirror.as_ref();
            mirror.is_some_and(|mirror| mirror.service.wants_topic(&image, name))
        };
        if image.topic(name).is_none()
            && check_topic_name(name).is_ok()
            && !tarn_replica::is_internal_topic(name)
            && !is_wanted()
        {
            missing.push(name.detach());
        }
    }
    if missing.is_empty() {
        return HashMap::new();
    }
    let created = create_topics::create_with_defaults(node, missing).await;
    created.into_iter().collect()
}

fn by_name(
    node: &Node,
    image: &Image,
    name: &Str,
    created: &HashMap<Str, ErrorCode>,
    with_operations: bool,
) -> MetadataResponseTopic {
    if let Some(topic) = image.topic(name) {
        let mut described = describe(image, topic, with_operations);
        // Metadata knows the topic a moment before its logs are open; the client is told to come
        // back.
        let is_opening = |(index, partition): (usize, &Arc<PartitionImage>)| {
            partition.leader == node.id() && node.replicas.partition(name, index as i32).is_err()
        };
        if created.contains_key(name) && topic.partitions.iter().enumerate().any(is_opening) {
            described.error_code = ErrorCode::LEADER_NOT_AVAILABLE.0;
            described.partitions.clear();
        }
        return described;
    }
    let error = match check_topic_name(name) {
        Err(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        Ok(_) => created
            .get(name)
            .copied()
            .unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
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
