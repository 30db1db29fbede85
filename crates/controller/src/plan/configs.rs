//! Changing configurations, the incremental and the legacy way.

use std::collections::{BTreeMap, BTreeSet};

use tarn_metadata::config::{self, ConfigDef, ConfigType, split_list, topic as topic_keys};
use tarn_metadata::{ConfigResource, Image, Record, ResourceType};
use tarn_wire::messages::ConfigRecord;
use tarn_wire::{ErrorCode, Str};

use super::{ConfigChange, ConfigOp, Ctx};
use crate::ApiError;

/// Records for these changes of one resource, all or none. A change that changes nothing writes
/// nothing.
pub fn plan_alter(
    image: &Image,
    ctx: &Ctx,
    resource: &ConfigResource,
    ops: &[ConfigOp],
) -> Result<Vec<Record>, ApiError> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = ops.iter().find(|op| !seen.insert(&op.key)) {
        return Err(ApiError::new(
            ErrorCode::INVALID_REQUEST,
            format!("configuration {} is named twice", twice.key),
        ));
    }
    check_resource(image, ctx, resource)?;
    let rewritten = match ctx
        .rules
        .alter_hooks
        .iter()
        .find(|(kind, _)| *kind == resource.kind)
    {
        Some((_, hook)) => Some(hook(image, resource, ops)?),
        None => None,
    };
    let empty = BTreeMap::new();
    let present = image
        .configs(resource)
        .map_or(&empty, |configs| configs.as_ref());
    let mut records = Vec::new();
    for op in rewritten.as_deref().unwrap_or(ops) {
        let value = new_value(ctx, resource, present, op)?;
        if present.get(&op.key) != value.as_ref() {
            records.push(record(resource, &op.key, value));
        }
    }
    Ok(records)
}

/// Records that make these the only values of a resource (legacy AlterConfigs).
pub fn plan_replace(
    image: &Image,
    ctx: &Ctx,
    resource: &ConfigResource,
    values: &[(Str, Str)],
) -> Result<Vec<Record>, ApiError> {
    let set = |(key, value): &(Str, Str)| ConfigOp {
        key: key.clone(),
        change: ConfigChange::Set(value.clone()),
    };
    let mut ops: Vec<ConfigOp> = values.iter().map(set).collect();
    if let Some(present) = image.configs(resource) {
        // Keys that begin with a dot are notes of the room that owns the resource: nobody can set
        // them, so nobody leaves them out.
        let gone = present
            .keys()
            .filter(|key| !key.starts_with('.') && !values.iter().any(|(kept, _)| kept == *key));
        ops.extend(gone.map(|key| ConfigOp {
            key: key.clone(),
            change: ConfigChange::Delete,
        }));
    }
    plan_alter(image, ctx, resource, &ops)
}

/// The refusal of a topic key that nobody may set, or that does not exist; `Ok` with its definition
/// otherwise.
pub fn topic_config_refusal(key: &str) -> Result<&'static ConfigDef, ApiError> {
    if key == topic_keys::MIRROR_NAME {
        return Err(ApiError::new(
            ErrorCode::INVALID_REQUEST,
            topic_keys::MIRROR_NAME_REFUSAL,
        ));
    }
    topic_keys::find(key).ok_or_else(|| {
        ApiError::new(
            ErrorCode::INVALID_CONFIG,
            format!("unknown topic configuration: {key}"),
        )
    })
}

fn check_resource(image: &Image, ctx: &Ctx, resource: &ConfigResource) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    match resource.kind {
        // Whether the topic exists is the caller's question: a new topic's values are planned
        // before it does.
        ResourceType::TOPIC => Ok(()),
        ResourceType::BROKER if resource.name.is_empty() => Ok(()),
        ResourceType::BROKER => match resource.name.parse::<i32>() {
            Ok(id) if image.broker(id).is_some() => Ok(()),
            _ => invalid(format!("broker {} is not registered", resource.name)),
        },
        kind if ctx
            .rules
            .alter_hooks
            .iter()
            .any(|(hooked, _)| *hooked == kind) =>
        {
            Ok(())
        }
        kind => invalid(format!(
            "configurations of resource type {} cannot be changed here",
            kind.0
        )),
    }
}

fn definition(
    ctx: &Ctx,
    resource: &ConfigResource,
    key: &str,
) -> Result<Option<&'static ConfigDef>, ApiError> {
    match resource.kind {
        ResourceType::TOPIC => topic_config_refusal(key).map(Some),
        ResourceType::BROKER => match config::find(ctx.rules.broker_configs, key) {
            None => Err(ApiError::new(
                ErrorCode::INVALID_CONFIG,
                format!("unknown broker configuration: {key}"),
            )),
            Some(def) if !def.dynamic => {
                let message = format!(
                    "configuration {key} is read only when the broker starts: set it in the configuration file"
                );
                Err(ApiError::new(ErrorCode::INVALID_REQUEST, message))
            }
            Some(def) => Ok(Some(def)),
        },
        _ => Ok(None),
    }
}

fn new_value(
    ctx: &Ctx,
    resource: &ConfigResource,
    present: &BTreeMap<Str, Str>,
    op: &ConfigOp,
) -> Result<Option<Str>, ApiError> {
    let def = definition(ctx, resource, &op.key)?;
    let value = match &op.change {
        ConfigChange::Delete => return Ok(None),
        ConfigChange::Set(value) => value.clone(),
        ConfigChange::Append(elements) => edit_list(ctx, def, present, &op.key, |list| {
            let fresh: Vec<String> = split_list(elements)
                .into_iter()
                .filter(|element| !list.contains(element))
                .collect();
            list.extend(fresh);
        })?,
        ConfigChange::Subtract(elements) => {
            let gone = split_list(elements);
            edit_list(ctx, def, present, &op.key, |list| {
                list.retain(|element| !gone.contains(element))
            })?
        }
    };
    if let Some(def) = def {
        def.parse(&value)?;
    }
    Ok(Some(value))
}

fn edit_list(
    ctx: &Ctx,
    def: Option<&ConfigDef>,
    present: &BTreeMap<Str, Str>,
    key: &Str,
    edit: impl FnOnce(&mut Vec<String>),
) -> Result<Str, ApiError> {
    if def.is_some_and(|def| def.kind != ConfigType::List) {
        return Err(ApiError::new(
            ErrorCode::INVALID_CONFIG,
            format!("configuration {key} is not a list: only set and delete are possible"),
        ));
    }
    let default = def.and_then(|def| {
        let from_broker = def.synonyms.iter().find_map(|synonym| {
            ctx.rules
                .broker_values
                .get(synonym.name)
                .map(|value| synonym.to_topic_value(value))
        });
        from_broker.or_else(|| def.default.map(str::to_owned))
    });
    let now = present
        .get(key)
        .map(|value| value.as_str().to_owned())
        .or(default)
        .unwrap_or_default();
    let mut list = split_list(&now);
    edit(&mut list);
    Ok(Str::from(list.join(",")))
}

fn record(resource: &ConfigResource, key: &Str, value: Option<Str>) -> Record {
    ConfigRecord {
        resource_type: resource.kind.0,
        resource_name: resource.name.clone(),
        name: key.clone(),
        value,
        ..ConfigRecord::default()
    }
    .into()
}
