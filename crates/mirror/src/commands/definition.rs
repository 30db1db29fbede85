//! Creating, altering and deleting the definition of a mirror. A definition is a set of config
//! records; it exists while it has a key.

use std::collections::BTreeMap;

use tarn_metadata::config::{ConfigType, split_list};
use tarn_metadata::{DesiredState, Image, Record};
use tarn_wire::Str;
use tarn_wire::messages::{ConfigRecord, FeatureLevelRecord};

use super::members;
use crate::config::{self, BOOTSTRAP_SERVERS, MirrorConfig, SOURCE_CLUSTER_ID};
use crate::dialect::{Dialect, MirrorError};
use crate::placement::validate_mirror_name;

/// The feature that says "this cluster mirrors".
pub(crate) const FEATURE: &str = "mirror.version";

/// Prefix of hidden keys that remember which topic configs this mirror has set (`.synced.<topic>` →
/// key list). Not part of any table, so never shown and never alterable.
const SYNCED_PREFIX: &str = ".synced.";

/// Hidden key that remembers which generation's tool created the mirror: after a restart it answers
/// for callers that have proven nothing.
const CREATOR: &str = ".creator";

/// A create request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateMirror {
    /// Name asked for.
    pub name: Str,
    /// Keys (any spelling) and values; null values are ignored.
    pub configs: Vec<(Str, Option<Str>)>,
    /// What the source said its id is; `None` when it was not reached and that was allowed.
    pub found_cluster_id: Option<Str>,
    /// This cluster's id: a mirror of oneself is refused.
    pub own_cluster_id: Str,
    /// The generation of the tool that asks, when it is not the default one.
    pub creator: Option<Dialect>,
}

pub(super) fn config_record(mirror: &str, key: &str, value: Option<&str>) -> Record {
    Record::Config(ConfigRecord {
        resource_type: config::RESOURCE_TYPE,
        resource_name: Str::from(mirror),
        name: Str::from(key),
        value: value.map(Str::from),
        ..Default::default()
    })
}

/// The part of create that needs no source: name, duplicates, keys. Gives the definition as it
/// would be stored.
pub(crate) fn check_create(
    image: &Image,
    request: &CreateMirror,
) -> Result<MirrorConfig, MirrorError> {
    validate_mirror_name(&request.name)?;
    if members::mirror_exists(image, &request.name) {
        return Err(MirrorError::AlreadyExists(request.name.to_string()));
    }
    let mut definition = MirrorConfig::default();
    for (key, value) in &request.configs {
        let Some(value) = value else { continue };
        let canonical = config::validate(key, value)?;
        definition.set(canonical, value);
    }
    if definition.get(BOOTSTRAP_SERVERS).is_none() {
        return Err(MirrorError::InvalidRequest(format!(
            "Missing required config {BOOTSTRAP_SERVERS} for mirror '{}'",
            request.name
        )));
    }
    Ok(definition)
}

/// Stores a new mirror.
pub fn create_mirror(image: &Image, request: &CreateMirror) -> Result<Vec<Record>, MirrorError> {
    let mut definition = check_create(image, request)?;
    if let Some(found) = &request.found_cluster_id {
        if *found == request.own_cluster_id {
            return Err(MirrorError::InvalidRequest(format!(
                "The source of mirror '{}' is this very cluster ({found})",
                request.name
            )));
        }
        if let Some(given) = definition
            .source_cluster_id()
            .filter(|given| given != found)
        {
            return Err(MirrorError::InvalidConfig(format!(
                "{SOURCE_CLUSTER_ID} is {given}, but the cluster at {} has the id {found}",
                definition.get(BOOTSTRAP_SERVERS).unwrap_or_default()
            )));
        }
        definition.set(SOURCE_CLUSTER_ID, found);
    }
    let mut records = Vec::new();
    // Written at the first mirror and not before: until then a stock controller can read this log.
    if image.feature(FEATURE) == 0 {
        records.push(Record::FeatureLevel(FeatureLevelRecord {
            name: Str::from(FEATURE),
            feature_level: 1,
            ..Default::default()
        }));
    }
    records.extend(
        definition
            .iter()
            .map(|(key, value)| config_record(&request.name, key, Some(value))),
    );
    if let Some(creator) = request.creator {
        records.push(config_record(&request.name, CREATOR, Some(creator.name())));
    }
    Ok(records)
}

/// The generation of the tool that created one of these mirrors (empty = any); `None` when that is
/// not on record.
pub fn creators_dialect(image: &Image, mirrors: &[Str]) -> Option<Dialect> {
    image
        .mirrors()
        .filter(|(name, _)| mirrors.is_empty() || mirrors.contains(name))
        .find_map(|(_, configs)| configs.get(CREATOR))
        .and_then(|name| Dialect::parse(name))
}

/// One operation of IncrementalAlterConfigs on a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterOp {
    /// SET.
    Set(Str),
    /// DELETE: back to the default.
    Delete,
    /// APPEND to a list.
    Append(Str),
    /// SUBTRACT from a list.
    Subtract(Str),
}

/// Changes the definition. Gives the changed keys with their new values under their canonical
/// spelling, `None` = deleted.
pub fn alter_mirror(
    image: &Image,
    mirror: &str,
    ops: &[(Str, AlterOp)],
) -> Result<Vec<(Str, Option<Str>)>, MirrorError> {
    let Some(stored) = image.mirror(mirror).filter(|c| !c.is_empty()) else {
        return Err(MirrorError::UnknownMirror(mirror.to_owned()));
    };
    let before = MirrorConfig::new(stored.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let mut changes: BTreeMap<&'static str, Option<String>> = BTreeMap::new();
    for (key, op) in ops {
        let Some(def) = config::definition(key) else {
            return Err(MirrorError::InvalidConfig(format!(
                "Unknown mirror configuration: {key}"
            )));
        };
        let current = || {
            before
                .get(def.name)
                .or(def.default)
                .unwrap_or_default()
                .to_owned()
        };
        let value = match op {
            AlterOp::Set(value) => Some(value.to_string()),
            AlterOp::Delete => None,
            AlterOp::Append(_) | AlterOp::Subtract(_) if def.kind != ConfigType::List => {
                return Err(MirrorError::InvalidConfig(format!(
                    "{key} is not a list: use SET or DELETE"
                )));
            }
            AlterOp::Append(value) => Some(merged(&current(), &split_list(value), &[])),
            AlterOp::Subtract(value) => Some(merged(&current(), &[], &split_list(value))),
        };
        if let Some(value) = &value {
            config::validate(key, value)?;
        }
        check_immutable(&before, def.name, value.as_deref())?;
        changes.insert(def.name, value);
    }
    Ok(changes
        .into_iter()
        .map(|(k, v)| (Str::from(k), v.map(Str::from)))
        .collect())
}

fn check_immutable(
    before: &MirrorConfig,
    key: &str,
    value: Option<&str>,
) -> Result<(), MirrorError> {
    if key == BOOTSTRAP_SERVERS && value.is_none() {
        return Err(MirrorError::InvalidConfig(format!(
            "{BOOTSTRAP_SERVERS} cannot be deleted, delete the mirror instead"
        )));
    }
    if key == SOURCE_CLUSTER_ID
        && let Some(known) = before.source_cluster_id()
        && value != Some(known.as_str())
    {
        return Err(MirrorError::InvalidConfig(format!(
            "{SOURCE_CLUSTER_ID} is {known} and cannot be changed, make a new mirror for another cluster"
        )));
    }
    Ok(())
}

/// A list value with entries added (once) and taken away.
pub(super) fn merged(current: &str, add: &[String], remove: &[String]) -> String {
    let mut list: Vec<String> = split_list(current)
        .into_iter()
        .filter(|e| !remove.contains(e))
        .collect();
    for entry in add {
        if !list.contains(entry) {
            list.push(entry.clone());
        }
    }
    list.join(",")
}

/// Fills in the source's cluster id at the first contact of a mirror that was created without one.
/// Never replaces a known one.
pub fn set_cluster_id(
    image: &Image,
    mirror: &str,
    found: &str,
) -> Result<Vec<Record>, MirrorError> {
    let Some(stored) = image.mirror(mirror).filter(|c| !c.is_empty()) else {
        return Err(MirrorError::UnknownMirror(mirror.to_owned()));
    };
    match stored.get(SOURCE_CLUSTER_ID) {
        Some(known) if !known.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![config_record(mirror, SOURCE_CLUSTER_ID, Some(found))]),
    }
}

/// Deletes a mirror: its keys and the memberships of its topics, all or nothing. Only when every
/// topic has been failed over.
///
/// `checked_at`: see [`check_unchanged`](super::members::check_unchanged).
pub fn delete_mirror(
    image: &Image,
    mirror: &str,
    checked_at: Option<i64>,
) -> Result<Vec<Record>, MirrorError> {
    let Some(stored) = image.mirror(mirror).filter(|c| !c.is_empty()) else {
        return Err(MirrorError::UnknownMirror(mirror.to_owned()));
    };
    let mut records = Vec::new();
    for (topic, member) in image.members_of(mirror) {
        if member.desired != DesiredState::Stopped {
            return Err(MirrorError::NotEmpty {
                mirror: mirror.to_owned(),
                topic: topic.to_string(),
            });
        }
        if !member.stopped && image.topic_by_id(&member.topic_id).is_some() {
            return Err(MirrorError::InvalidStates(format!(
                "Topic '{topic}' of mirror '{mirror}' is still being stopped, retry when describe shows STOPPED"
            )));
        }
        members::check_unchanged(member, checked_at)?;
        records.push(members::cleared(member));
    }
    records.extend(stored.keys().map(|key| config_record(mirror, key, None)));
    Ok(records)
}

/// Topic configs this mirror has set on a topic.
pub fn synced_keys(image: &Image, mirror: &str, topic: &str) -> Vec<String> {
    let key = synced_key(topic);
    image
        .mirror(mirror)
        .and_then(|c| c.get(key.as_str()))
        .map(|list| split_list(list))
        .unwrap_or_default()
}

pub(super) fn synced_key(topic: &str) -> String {
    format!("{SYNCED_PREFIX}{topic}")
}
