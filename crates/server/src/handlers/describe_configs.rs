//! DescribeConfigs (32) for topics, brokers, their loggers, groups, client metrics and mirrors
//! (type 64): values with their sources, synonyms, types and documentation. Secrets leave as null.

use std::sync::Arc;

use tarn_metadata::config::{ConfigDef, topic as topic_keys};
use tarn_metadata::{ConfigResource, Image, ResourceType};
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use tarn_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use tarn_wire::{ErrorCode, Str};

use super::broker_loggers;
use crate::config::keys::unserved::{CLIENT_METRICS_KEYS, DOCUMENTATION, GROUP_KEYS, UnservedKey};
use crate::config::keys::{self, BrokerKey};
use crate::dispatch::Call;
use crate::node::Node;

/// Where a value comes from, as the wire numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
enum Source {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
}

/// A value with its source and the key it was set under.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    name: Str,
    value: Option<Str>,
    source: Source,
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    mut request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = node.image();
    for resource in &mut request.resources {
        sort_long(resource);
    }
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in &request.resources {
        // Hundreds of keys each.
        tokio::task::yield_now().await;
        let result = {
            let described = match ResourceType(resource.resource_type) {
                ResourceType::TOPIC => topic(node, &image, &request, resource),
                ResourceType::BROKER => broker(node, &image, &request, resource),
                ResourceType::MIRROR => mirror(node, &image, &request, resource),
                ResourceType::BROKER_LOGGER => {
                    broker_loggers::describe(node, resource, |name| is_asked(resource, name))
                }
                ResourceType::GROUP => unserved(GROUP_KEYS, "group", &request, resource),
                ResourceType::CLIENT_METRICS => unserved(
                    CLIENT_METRICS_KEYS,
                    "client metrics subscription",
                    &request,
                    resource,
                ),
                ResourceType(other) => Err((
                    ErrorCode::INVALID_REQUEST,
                    format!("configurations of resource type {other} are not supported"),
                )),
            };
            let described =
                described.and_then(|configs| match call.room(described_bytes(&configs)) {
                    Ok(()) => Ok(configs),
                    Err(code) => Err((code, NO_ROOM.to_owned())),
                });
            let (error_code, error_message, configs) = match described {
                Ok(configs) => (ErrorCode::NONE, None, configs),
                Err((code, text)) => (code, Some(Str::from(text)), Vec::new()),
            };
            DescribeConfigsResult {
                error_code: error_code.0,
                error_message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                configs,
                ..DescribeConfigsResult::default()
            }
        };
        results.push(result);
    }
    DescribeConfigsResponse {
        results,
        ..DescribeConfigsResponse::default()
    }
}

type Described = Result<Vec<DescribeConfigsResourceResult>, (ErrorCode, String)>;

/// The keys that the request names; `None` = all of them. An empty list means all, as in Kafka.
fn asked(resource: &DescribeConfigsResource) -> Option<&[Str]> {
    resource
        .configuration_keys
        .as_deref()
        .filter(|keys| !keys.is_empty())
}

/// Why a resource is left out of an answer.
const NO_ROOM: &str = "the answer would be too long or there is no memory for it now \
    (response.max.bytes, queued.max.response.bytes); ask for fewer resources at a time";

/// About how long the entries of a resource are in an answer.
fn described_bytes(configs: &[DescribeConfigsResourceResult]) -> usize {
    const ENTRY_BYTES: usize = 24;
    let text = |text: &Option<Str>| text.as_ref().map_or(0, |text| text.len());
    let synonym =
        |synonym: &DescribeConfigsSynonym| ENTRY_BYTES + synonym.name.len() + text(&synonym.value);
    let entry = |entry: &DescribeConfigsResourceResult| {
        ENTRY_BYTES
            + entry.name.len()
            + text(&entry.value)
            + text(&entry.documentation)
            + entry.synonyms.iter().map(synonym).sum::<usize>()
    };
    configs.iter().map(entry).sum()
}

/// Lists of keys up to this length are searched one by one; longer ones are sorted first.
const KEYS_UNSORTED_MAX: usize = 64;

fn sort_long(resource: &mut DescribeConfigsResource) {
    let keys = resource.configuration_keys.as_mut();
    if let Some(keys) = keys.filter(|keys| keys.len() > KEYS_UNSORTED_MAX) {
        keys.sort_unstable();
    }
}

/// Whether the request wants this key.
fn is_asked(resource: &DescribeConfigsResource, name: &str) -> bool {
    asked(resource).is_none_or(|keys| {
        if keys.len() > KEYS_UNSORTED_MAX {
            keys.binary_search_by(|key| key.as_str().cmp(name)).is_ok()
        } else {
            keys.iter().any(|key| key.as_str() == name)
        }
    })
}

/// One entry from its layers, the strongest first; the last one is the default.
fn entry(
    def: &ConfigDef,
    doc: String,
    layers: Vec<Layer>,
    read_only: bool,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResourceResult {
    let hide = |value: Option<Str>| if def.sensitive { None } else { value };
    let (value, source) = layers.first().map_or((None, Source::Default), |first| {
        (first.value.clone(), first.source)
    });
    let synonyms = if request.include_synonyms {
        let shown = layers.into_iter().filter(|layer| layer.value.is_some());
        shown
            .map(|layer| DescribeConfigsSynonym {
                name: layer.name,
                value: hide(layer.value),
                source: layer.source as i8,
                ..DescribeConfigsSynonym::default()
            })
            .collect()
    } else {
        Vec::new()
    };
    DescribeConfigsResourceResult {
        name: Str::from(def.name),
        value: hide(value),
        read_only,
        config_source: source as i8,
        is_sensitive: def.sensitive,
        synonyms,
        config_type: def.kind.code(),
        documentation: request.include_documentation.then(|| Str::from(doc)),
        ..DescribeConfigsResourceResult::default()
    }
}

/// Keys that are only shown, with their defaults.
fn unserved(
    keys: &[UnservedKey],
    what: &str,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Described {
    if resource.resource_name.is_empty() {
        let text = format!("the name of a {what} must not be empty");
        return Err((ErrorCode::INVALID_REQUEST, text));
    }
    let described = keys
        .iter()
        .filter(|key| is_asked(resource, key.name))
        .map(|key| {
            let def = ConfigDef::new(key.name, key.kind, Some(key.default), DOCUMENTATION);
            let layer = Layer {
                name: Str::from_static(key.synonym.unwrap_or(key.name)),
                value: Some(Str::from_static(key.default)),
                source: Source::Default,
            };
            let mut entry = entry(&def, def.doc.to_owned(), vec![layer], true, request);
            if key.synonym.is_none() {
                entry.synonyms.clear();
            }
            entry
        });
    Ok(described.collect())
}

/// Layers of one broker key: dynamic for this broker, dynamic for all, static.
fn broker_layers(node: &Node, image: &Image, name: &str) -> Vec<Layer> {
    let own = ConfigResource::new(ResourceType::BROKER, node.id().to_string());
    let all = ConfigResource::new(ResourceType::BROKER, "");
    let layer = |value: Str, source| Layer {
        name: Str::from(name),
        value: Some(value),
        source,
    };
    let mut layers = Vec::new();
    layers.extend(
        image
            .config(&own, name)
            .map(|value| layer(value.clone(), Source::DynamicBroker)),
    );
    layers.extend(
        image
            .config(&all, name)
            .map(|value| layer(value.clone(), Source::DynamicDefaultBroker)),
    );
    layers.extend(
        node.config
            .set
            .get(name)
            .map(|set| layer(Str::from(set.value.trim()), Source::StaticBroker)),
    );
    layers
}

fn topic(
    node: &Node,
    image: &Image,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Described {
    let name = &resource.resource_name;
    if tarn_metadata::check_topic_name(name).is_err() {
        return Err((
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("`{name}` is not a topic name"),
        ));
    }
    if image.topic(name).is_none() {
        return Err((
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("topic {name} does not exist"),
        ));
    }
    let set = image.topic_configs(name);
    let mut configs: Vec<_> = topic_keys::TOPIC_CONFIGS
        .iter()
        .filter(|def| is_asked(resource, def.name))
        .map(|def| {
            let mut layers = Vec::new();
            if let Some(value) = set.and_then(|set| set.get(def.name)) {
                layers.push(Layer {
                    name: Str::from(def.name),
                    value: Some(value.clone()),
                    source: Source::Topic,
                });
            }
            for synonym in def.synonyms {
                layers.extend(
                    broker_layers(node, image, synonym.name)
                        .into_iter()
                        .map(|layer| Layer {
                            value: layer
                                .value
                                .map(|value| Str::from(synonym.to_topic_value(&value))),
                            ..layer
                        }),
                );
            }
            let default_name = def
                .synonyms
                .first()
                .map_or(def.name, |synonym| synonym.name);
            layers.push(Layer {
                name: Str::from(default_name),
                value: def.default.map(Str::from),
                source: Source::Default,
            });
            entry(def, def.doc.to_owned(), layers, false, request)
        })
        .collect();
    configs.extend(mirror_name(image, name, resource, request));
    Ok(configs)
}

/// The virtual key `mirror.name`: only for who asks for it by name.
fn mirror_name(
    image: &Image,
    topic: &str,
    resource: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> Option<DescribeConfigsResourceResult> {
    const DEF: ConfigDef = ConfigDef::new(
        topic_keys::MIRROR_NAME,
        tarn_metadata::config::ConfigType::String,
        Some(""),
        "The mirror this topic belongs to; changed by the mirror commands only.",
    );
    resource
        .configuration_keys
        .as_ref()?
        .iter()
        .find(|key| key.as_str() == topic_keys::MIRROR_NAME)?;
    let value = image
        .membership(topic)
        .map_or_else(Str::default, |membership| membership.mirror.clone());
    let source = if value.is_empty() {
        Source::Default
    } else {
        Source::Topic
    };
    let layers = vec![Layer {
        name: Str::from(topic_keys::MIRROR_NAME),
        value: Some(value),
        source,
    }];
    Some(entry(&DEF, DEF.doc.to_owned(), layers, true, request))
}

fn broker(
    node: &Node,
    image: &Image,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Described {
    let name = resource.resource_name.as_str();
    if name.is_empty() {
        return Ok(cluster_wide(image, request, resource));
    }
    if name.parse::<i32>().ok() != Some(node.id()) {
        let text = format!(
            "this is broker {}; ask broker {name} for its own configuration, or use the empty name for all",
            node.id()
        );
        return Err((ErrorCode::INVALID_REQUEST, text));
    }
    let mut rows: Vec<&BrokerKey> = keys::all()
        .filter(|key| {
            is_asked(resource, key.def.name)
                && (!key.internal || node.config.set.contains_key(key.def.name))
        })
        .collect();
    rows.sort_by_key(|key| key.def.name);
    let described = rows.into_iter().map(|key| {
        let def = &key.def;
        let mut layers = broker_layers(node, image, def.name);
        for weaker in keys::weaker_spellings(def.name) {
            layers.extend(broker_layers(node, image, weaker));
        }
        // `node.id` and `broker.id` are two names of one number.
        if matches!(def.name, "node.id" | "broker.id") {
            layers = vec![Layer {
                name: Str::from(def.name),
                value: Some(Str::from(node.id().to_string())),
                source: Source::StaticBroker,
            }];
        }
        layers.push(Layer {
            name: Str::from(def.name),
            value: def.default.map(Str::from),
            source: Source::Default,
        });
        // A value under a weaker spelling is listed, but is not this key's own value.
        let own = layers
            .iter()
            .position(|layer| layer.name.as_str() == def.name)
            .unwrap_or(0);
        layers[..=own].rotate_right(1);
        entry(def, key.doc(), layers, !key.is_dynamic(), request)
    });
    Ok(described.collect())
}

/// The values that hold for all brokers, set at run time.
fn cluster_wide(
    image: &Image,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Vec<DescribeConfigsResourceResult> {
    let all = ConfigResource::new(ResourceType::BROKER, "");
    let set = image.configs(&all);
    let rows = set
        .into_iter()
        .flat_map(|set| set.iter())
        .filter(|(name, _)| is_asked(resource, name));
    rows.filter_map(|(name, value)| {
        let key = keys::find(name)?;
        let layers = vec![Layer {
            name: name.clone(),
            value: Some(value.clone()),
            source: Source::DynamicDefaultBroker,
        }];
        Some(entry(&key.def, key.doc(), layers, false, request))
    })
    .collect()
}

fn mirror(
    node: &Node,
    image: &Image,
    request: &DescribeConfigsRequest,
    resource: &DescribeConfigsResource,
) -> Described {
    let name = &resource.resource_name;
    let Some(room) = &node.mirror else {
        let text = "mirroring is switched off here (mirror.enable)".to_owned();
        return Err((ErrorCode::UNSUPPORTED_VERSION, text));
    };
    let with_defaults = request.include_mirror_defaults;
    let found = room
        .service
        .describe_configs(image, name, asked(resource), with_defaults);
    let Some(rows) = found else {
        return Err((
            ErrorCode::RESOURCE_NOT_FOUND,
            format!("mirror {name} does not exist"),
        ));
    };
    let described = rows.into_iter().map(|row| {
        let source = if row.is_set {
            Source::DynamicBroker
        } else {
            Source::Default
        };
        let key = Str::from(row.name.as_str());
        let layer = Layer {
            name: key.clone(),
            value: row.value.map(Str::from),
            source,
        };
        // What may be shown is the mirror room's decision; here nothing is hidden a second time.
        let shown = ConfigDef {
            sensitive: false,
            ..*row.definition
        };
        let mut entry = entry(
            &shown,
            row.definition.doc.to_owned(),
            vec![layer],
            false,
            request,
        );
        entry.name = key;
        entry.is_sensitive = row.sensitive;
        entry
    });
    Ok(described.collect())
}
