//! Resource type 8 of DescribeConfigs and IncrementalAlterConfigs: the levels of this broker's log,
//! by target.
//!
//! The levels themselves are [`crate::log_levels`]'s; here stand Kafka's error codes.

use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_configs_response::DescribeConfigsResourceResult;
use tarn_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use tarn_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use tarn_wire::{ErrorCode, Str};

use crate::log_levels;
use crate::node::Node;

/// `config_source` of a logger.
const SOURCE: i8 = 6;
/// Operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;

type Refused = (ErrorCode, String);

/// Only the broker that is asked knows its levels.
fn check_broker(node: &Node, name: &str) -> Result<(), Refused> {
    if name.parse::<i32>().ok() == Some(node.id()) {
        return Ok(());
    }
    let text = format!(
        "this is broker {}; ask broker `{name}` for its own loggers",
        node.id()
    );
    Err((ErrorCode::INVALID_REQUEST, text))
}

/// The loggers that `is_asked` selects.
pub(crate) fn describe(
    node: &Node,
    resource: &DescribeConfigsResource,
    is_asked: impl Fn(&str) -> bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    check_broker(node, &resource.resource_name)?;
    let asked = log_levels::all()
        .into_iter()
        .filter(|(name, _)| is_asked(name));
    Ok(asked
        .map(|(name, level)| DescribeConfigsResourceResult {
            name: Str::from(name),
            value: Some(Str::from_static(level)),
            config_source: SOURCE,
            documentation: None,
            ..DescribeConfigsResourceResult::default()
        })
        .collect())
}

/// Changes levels, all of one resource or none.
pub(crate) fn alter(
    node: &Node,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> AlterConfigsResourceResponse {
    let changed = check_broker(node, &resource.resource_name)
        .and_then(|()| resource.configs.iter().try_for_each(check))
        .and_then(|()| {
            let changes = if validate_only {
                &[]
            } else {
                &resource.configs[..]
            };
            changes.iter().try_for_each(change)
        });
    let (code, message) = match changed {
        Ok(()) => (ErrorCode::NONE, None),
        Err((code, text)) => (code, Some(Str::from(text))),
    };
    AlterConfigsResourceResponse {
        error_code: code.0,
        error_message: message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..AlterConfigsResourceResponse::default()
    }
}

/// The level that an operation asks for; `None` = that of the root.
fn level(config: &AlterableConfig) -> Result<Option<&str>, Refused> {
    match (config.config_operation, &config.value) {
        (SET, Some(level)) => Ok(Some(level)),
        (DELETE, _) => Ok(None),
        _ => Err((
            ErrorCode::INVALID_REQUEST,
            format!(
                "the level of logger {} can be set or deleted only",
                config.name
            ),
        )),
    }
}

fn check(config: &AlterableConfig) -> Result<(), Refused> {
    let level = level(config)?;
    log_levels::check(&config.name, level)
        .map_err(|error| (ErrorCode::INVALID_CONFIG, error.to_string()))
}

fn change(config: &AlterableConfig) -> Result<(), Refused> {
    let level = level(config)?;
    log_levels::set(&config.name, level)
        .map_err(|error| (ErrorCode::INVALID_CONFIG, error.to_string()))?;
    tracing::info!(logger = %config.name, level = level.unwrap_or("as root"), "log level changed");
    Ok(())
}
