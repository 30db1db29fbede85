//! CreateTopics (19): the controller decides; here the answer gets the settings a topic starts
//! with, and the caller waits until the logs are open.

use std::sync::Arc;

use tarn_metadata::config::topic as topic_keys;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::messages::create_topics_response::CreatableTopicConfigs;
use tarn_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::{CREATE_TOPICS_WITH_MIRROR, Call};
use crate::node::Node;

/// First version whose answers carry counts and settings.
const SETTINGS_FROM: i16 = 5;

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut request = request;
    if call.version < CREATE_TOPICS_WITH_MIRROR || !node.mirror_enabled() {
        for topic in &mut request.topics {
            topic.mirror_info = None;
        }
    }
    let overrides: Vec<_> = request
        .topics
        .iter()
        .map(|topic| (topic.name.detach(), topic.configs.clone()))
        .collect();
    let mut response = node.controller.create_topics(request).await;
    node.wait_applied().await;
    if call.version >= SETTINGS_FROM {
        for topic in response
            .topics
            .iter_mut()
            .filter(|topic| topic.error_code == 0)
        {
            let set = overrides
                .iter()
                .find(|(name, _)| *name == topic.name)
                .map(|(_, configs)| configs.as_slice());
            topic.configs = Some(settings(node, set.unwrap_or_default()));
        }
    }
    response
}

fn settings(
    node: &Node,
    set: &[tarn_wire::messages::create_topics_request::CreatableTopicConfig],
) -> Vec<CreatableTopicConfigs> {
    /// `config_source` of a value set for the topic.
    const TOPIC: i8 = 1;
    /// `config_source` of a value of the broker's file.
    const STATIC_BROKER: i8 = 4;
    /// `config_source` of a default.
    const DEFAULT: i8 = 5;
    topic_keys::TOPIC_CONFIGS
        .iter()
        .map(|def| {
            let own = set
                .iter()
                .rev()
                .find(|config| config.name.as_str() == def.name)
                .and_then(|config| config.value.clone());
            let from_file = def
                .synonyms
                .iter()
                .any(|synonym| node.config.set.contains_key(synonym.name));
            let config_source = match (&own, from_file) {
                (Some(_), _) => TOPIC,
                (None, true) => STATIC_BROKER,
                (None, false) => DEFAULT,
            };
            CreatableTopicConfigs {
                name: Str::from(def.name),
                value: own.or_else(|| node.config.topic_default(def).map(Str::from)),
                read_only: false,
                config_source,
                is_sensitive: def.sensitive,
                ..CreatableTopicConfigs::default()
            }
        })
        .collect()
}

/// Creates topics with the broker's defaults, for Metadata; gives name and error of each (NONE =
/// there now).
pub(crate) async fn create_with_defaults(
    node: &Arc<Node>,
    names: Vec<Str>,
) -> Vec<(Str, ErrorCode)> {
    let topics = names
        .into_iter()
        .map(|name| CreatableTopic {
            name,
            num_partitions: -1,
            replication_factor: -1,
            mirror_info: None,
            ..CreatableTopic::default()
        })
        .collect();
    let request = CreateTopicsRequest {
        topics,
        ..CreateTopicsRequest::default()
    };
    let response = node.controller.create_topics(request).await;
    node.wait_applied().await;
    let outcome = |code: i16| match ErrorCode(code) {
        // Another client was faster: that is what was wanted.
        ErrorCode::TOPIC_ALREADY_EXISTS => ErrorCode::LEADER_NOT_AVAILABLE,
        other => other,
    };
    response
        .topics
        .into_iter()
        .map(|topic| (topic.name, outcome(topic.error_code)))
        .collect()
}
