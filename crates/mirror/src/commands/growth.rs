//! What the broker itself changes while mirroring: partitions, configs, the "stopped" mark, the
//! source's topic id, exclusions.

use std::collections::BTreeMap;

use tarn_metadata::config::split_list;
use tarn_metadata::{DesiredState, Image, Record};
use tarn_wire::messages::ConfigRecord;
use tarn_wire::{Str, Uuid};

use super::carried::{self, carried_configs, carried_record};
use super::definition::{config_record, merged, synced_key, synced_keys};
use super::members;
use super::plan::Planner;
use crate::config::{TOPICS_EXCLUDE, definition};
use crate::dialect::MirrorError;

/// Marks a topic whose partitions are all STOPPED. Only for the wish it was found under: a topic
/// that was added again meanwhile is left alone.
pub fn set_stopped(image: &Image, topic: &str, topic_id: Uuid, change_offset: i64) -> Vec<Record> {
    image
        .membership(topic)
        .filter(|m| {
            m.topic_id == topic_id
                && m.change_offset == change_offset
                && m.desired == DesiredState::Stopped
                && !m.stopped
        })
        .map(|m| members::stopped(m))
        .into_iter()
        .collect()
}

/// Grows a mirrored topic to the source's partition count. Only while it is wished to be mirrored.
pub fn grow_topic(
    image: &Image,
    planner: &mut dyn Planner,
    mirror: &str,
    topic: &str,
    topic_id: Uuid,
    partitions: i32,
) -> Result<Vec<Record>, MirrorError> {
    let active = image.membership(topic).is_some_and(|m| {
        m.mirror == *mirror && m.topic_id == topic_id && m.desired == DesiredState::Mirroring
    });
    let here = image.topic(topic).map_or(0, |t| t.partition_count());
    if !active || here == 0 || here >= partitions {
        return Ok(Vec::new());
    }
    planner.grow(image, topic, partitions)
}

/// Remembers the id a source has given to a topic that had none when it was added.
pub fn adopt_source_id(
    image: &Image,
    mirror: &str,
    topic: &str,
    source_topic_id: Uuid,
) -> Vec<Record> {
    image
        .membership(topic)
        .filter(|m| {
            m.mirror == *mirror
                && m.source_topic_id.is_zero()
                && !m.is_wanted()
                && m.desired != DesiredState::Stopped
        })
        .map(|m| members::with_source_id(m, source_topic_id))
        .into_iter()
        .collect()
}

/// Changes of one topic's configs that follow the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// Topic name.
    pub topic: Str,
    /// Every key the source sets that may and can be set here, with its value.
    pub wanted: Vec<(Str, Str)>,
    /// What the source's brokers or defaults decide, as far as it differs from what holds here,
    /// with its value.
    pub carried: Vec<(Str, Str)>,
}

/// Sets what is missing or different, and takes back keys this mirror set earlier that vanished at
/// the source. Keys set by others stay.
pub fn sync_configs(image: &Image, mirror: &str, changes: &ConfigChanges) -> Vec<Record> {
    let topic = &changes.topic;
    let active = image.membership(topic).is_some_and(|m| {
        m.mirror == *mirror && m.desired == DesiredState::Mirroring && !m.is_wanted()
    });
    if !active {
        return Vec::new();
    }
    let record = |key: &str, value: Option<&Str>| {
        Record::Config(ConfigRecord {
            resource_type: tarn_metadata::ResourceType::TOPIC.0,
            resource_name: topic.clone(),
            name: Str::from(key),
            value: value.cloned(),
            ..Default::default()
        })
    };
    let local = image.topic_configs(topic);
    let mut records = Vec::new();
    for (key, value) in &changes.wanted {
        if local.and_then(|c| c.get(key.as_str())) != Some(value) {
            records.push(record(key, Some(value)));
        }
    }
    let before = synced_keys(image, mirror, topic);
    let mut left: BTreeMap<Str, Str> = local
        .into_iter()
        .flat_map(|c| c.iter())
        .map(owned)
        .collect();
    for key in &before {
        let vanished = !changes.wanted.iter().any(|(k, _)| k == key.as_str());
        if vanished && left.remove(key.as_str()).is_some() {
            records.push(record(key, None));
        }
    }
    let own: Vec<&str> = changes.wanted.iter().map(|(key, _)| key.as_str()).collect();
    let carried_before = carried_configs(image, mirror, topic);
    let (carried_changes, carried_now) =
        carried::plan(&left, &own, &changes.carried, &carried_before);
    for (key, value) in &carried_changes {
        records.push(record(key, value.as_ref()));
    }
    if carried_now != carried_before {
        records.push(carried_record(mirror, topic, &carried_now));
    }
    let mut now: Vec<String> = changes.wanted.iter().map(|(k, _)| k.to_string()).collect();
    now.sort();
    let mut sorted_before = before;
    sorted_before.sort();
    if now != sorted_before {
        let list = now.join(",");
        records.push(config_record(
            mirror,
            &synced_key(topic),
            (!now.is_empty()).then_some(list.as_str()),
        ));
    }
    records
}

fn owned((key, value): (&Str, &Str)) -> (Str, Str) {
    (key.clone(), value.clone())
}

/// A mirror topic was deleted here by an operator: pattern discovery must not bring it back.
pub fn exclude_topic(image: &Image, mirror: &str, topic: &str) -> Vec<Record> {
    let Some(stored) = image.mirror(mirror) else {
        return Vec::new();
    };
    let default = definition(TOPICS_EXCLUDE)
        .and_then(|d| d.default)
        .unwrap_or_default();
    let before = stored.get(TOPICS_EXCLUDE).map_or(default, |v| v.as_str());
    let after = merged(before, &[topic.to_owned()], &[]);
    if split_list(before) == split_list(&after) {
        return Vec::new();
    }
    vec![config_record(mirror, TOPICS_EXCLUDE, Some(&after))]
}
