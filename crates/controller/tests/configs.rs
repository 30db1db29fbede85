//! Guards changes of configurations and features.

mod support;

use std::sync::Arc;

use support::*;
use tarn_controller::{ApiError, ConfigChange, ConfigOp, Controller};
use tarn_metadata::{ConfigResource, ResourceType};
use tarn_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, Str};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn ask(kind: i8, name: &str, ops: &[(&str, i8, Option<&str>)]) -> AlterConfigsResource {
    let config = |(name, config_operation, value): &(&str, i8, Option<&str>)| AlterableConfig {
        name: Str::from(*name),
        config_operation: *config_operation,
        value: value.map(Str::from),
        ..Default::default()
    };
    AlterConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configs: ops.iter().map(config).collect(),
        ..Default::default()
    }
}

async fn alter(
    controller: &Controller,
    resources: Vec<AlterConfigsResource>,
) -> Vec<(ErrorCode, Option<Str>)> {
    let request = IncrementalAlterConfigsRequest {
        resources,
        ..Default::default()
    };
    let responses = controller
        .incremental_alter_configs(request)
        .await
        .responses;
    responses
        .into_iter()
        .map(|r| (ErrorCode(r.error_code), r.error_message))
        .collect()
}

async fn alter_one(controller: &Controller, resource: AlterConfigsResource) -> ErrorCode {
    alter(controller, vec![resource]).await[0].0
}

fn value(controller: &Controller, topic: &str, key: &str) -> Option<Str> {
    controller
        .image()
        .config(&ConfigResource::topic(topic), key)
        .cloned()
}

#[tokio::test]
async fn keys_are_set_deleted_appended_and_subtracted() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    let none = ErrorCode::NONE;
    assert_eq!(
        alter_one(
            &controller,
            ask(
                2,
                "t",
                &[
                    ("retention.ms", SET, Some("5")),
                    ("cleanup.policy", APPEND, Some("compact"))
                ]
            )
        )
        .await,
        none
    );
    assert_eq!(
        value(&controller, "t", "retention.ms").as_deref(),
        Some("5")
    );
    assert_eq!(
        value(&controller, "t", "cleanup.policy").as_deref(),
        Some("delete,compact"),
        "appending starts from the default"
    );
    assert_eq!(
        alter_one(
            &controller,
            ask(
                2,
                "t",
                &[
                    ("cleanup.policy", SUBTRACT, Some("delete")),
                    ("retention.ms", DELETE, None)
                ]
            )
        )
        .await,
        none
    );
    assert_eq!(
        value(&controller, "t", "cleanup.policy").as_deref(),
        Some("compact")
    );
    assert_eq!(value(&controller, "t", "retention.ms"), None);
}

#[tokio::test]
async fn one_bad_resource_spoils_only_itself_and_nothing_of_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    create_one(&controller, "u", 1).await;
    let answers = alter(
        &controller,
        vec![
            ask(
                2,
                "t",
                &[
                    ("retention.ms", SET, Some("5")),
                    ("segment.bytes", SET, Some("7")),
                ],
            ),
            ask(2, "u", &[("retention.ms", SET, Some("5"))]),
            ask(2, "missing", &[("retention.ms", SET, Some("5"))]),
            ask(64, "m", &[("bootstrap.servers", SET, Some("h:1"))]),
            ask(4, "7", &[]),
            ask(8, "1", &[]),
        ],
    )
    .await;
    let codes: Vec<ErrorCode> = answers.iter().map(|(code, _)| *code).collect();
    let invalid = ErrorCode::INVALID_REQUEST;
    assert_eq!(
        codes,
        [
            ErrorCode::INVALID_CONFIG,
            ErrorCode::NONE,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            invalid,
            invalid,
            invalid
        ]
    );
    assert!(
        answers[0]
            .1
            .as_ref()
            .unwrap()
            .contains("must be at least 1048576"),
        "{answers:?}"
    );
    assert_eq!(value(&controller, "t", "retention.ms"), None);
    assert_eq!(
        value(&controller, "u", "retention.ms").as_deref(),
        Some("5")
    );
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    let code =
        async |op: &[(&str, i8, Option<&str>)]| alter_one(&controller, ask(2, "t", op)).await;
    assert_eq!(
        code(&[("mirror.name", SET, Some("m"))]).await,
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(
        code(&[("no.such.key", SET, Some("1"))]).await,
        ErrorCode::INVALID_CONFIG
    );
    assert_eq!(
        code(&[("retention.ms", APPEND, Some("1"))]).await,
        ErrorCode::INVALID_CONFIG
    );
    assert_eq!(
        code(&[("retention.ms", SET, None)]).await,
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(
        code(&[("retention.ms", 9, Some("1"))]).await,
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(
        code(&[
            ("retention.ms", SET, Some("1")),
            ("retention.ms", DELETE, None)
        ])
        .await,
        ErrorCode::INVALID_REQUEST
    );
    let twice = alter(&controller, vec![ask(2, "t", &[]), ask(2, "t", &[])]).await;
    assert!(
        twice
            .iter()
            .all(|(code, _)| *code == ErrorCode::INVALID_REQUEST)
            && twice.len() == 2
    );
}

#[tokio::test]
async fn the_legacy_form_replaces_everything() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    alter_one(
        &controller,
        ask(
            2,
            "t",
            &[
                ("retention.ms", SET, Some("5")),
                ("segment.ms", SET, Some("6")),
            ],
        ),
    )
    .await;
    let config = alter_configs_request::AlterableConfig {
        name: "segment.ms".into(),
        value: Some("9".into()),
        ..Default::default()
    };
    let resource = alter_configs_request::AlterConfigsResource {
        resource_type: 2,
        resource_name: "t".into(),
        configs: vec![config],
        ..Default::default()
    };
    let response = controller
        .alter_configs(AlterConfigsRequest {
            resources: vec![resource],
            ..Default::default()
        })
        .await;
    assert_eq!(response.responses[0].error_code, 0);
    assert_eq!(
        (
            value(&controller, "t", "retention.ms"),
            value(&controller, "t", "segment.ms").as_deref()
        ),
        (None, Some("9"))
    );
}

#[tokio::test]
async fn validate_only_changes_nothing_and_no_change_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    let resources = vec![ask(2, "t", &[("retention.ms", SET, Some("5"))])];
    let request = IncrementalAlterConfigsRequest {
        resources: resources.clone(),
        validate_only: true,
        ..Default::default()
    };
    assert_eq!(
        controller
            .incremental_alter_configs(request)
            .await
            .responses[0]
            .error_code,
        0
    );
    assert_eq!(value(&controller, "t", "retention.ms"), None);
    alter(&controller, resources.clone()).await;
    let offset = controller.image().offset();
    alter(&controller, resources).await;
    assert_eq!(controller.image().offset(), offset);
}

#[tokio::test]
async fn a_hook_owns_its_resource_type_and_may_rewrite_keys() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    let hook = |_: &tarn_metadata::Image, _: &ConfigResource, ops: &[ConfigOp]| {
        if ops.iter().any(|op| op.key == *"unknown") {
            return Err(ApiError::new(
                ErrorCode::INVALID_CONFIG,
                "Unknown mirror configuration: unknown",
            ));
        }
        let rename = |op: &ConfigOp| ConfigOp {
            key: if op.key == *"alias" {
                "name".into()
            } else {
                op.key.clone()
            },
            change: op.change.clone(),
        };
        Ok(ops.iter().map(rename).collect())
    };
    settings
        .rules
        .alter_hooks
        .push((ResourceType::MIRROR, Arc::new(hook)));
    let controller = Controller::start(settings).await.unwrap();
    assert_eq!(
        alter_one(&controller, ask(64, "m", &[("unknown", SET, Some("1"))])).await,
        ErrorCode::INVALID_CONFIG
    );
    assert!(controller.image().mirror("m").is_none());
    assert_eq!(
        alter_one(&controller, ask(64, "m", &[("alias", SET, Some("1"))])).await,
        ErrorCode::NONE
    );
    assert_eq!(
        controller
            .image()
            .mirror("m")
            .unwrap()
            .get("name")
            .map(|v| v.as_str().to_owned()),
        Some("1".to_owned())
    );
    assert_eq!(
        alter_one(&controller, ask(64, "m", &[("name", DELETE, None)])).await,
        ErrorCode::NONE
    );
    assert!(
        controller.image().mirror("m").is_none(),
        "a mirror without keys does not exist"
    );
    assert!(matches!(ConfigChange::Delete, ConfigChange::Delete));
}

#[tokio::test]
async fn mirror_version_goes_up_and_only_down_without_mirrors() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.rules.alter_hooks.push((
        ResourceType::MIRROR,
        Arc::new(|_, _, ops: &[ConfigOp]| Ok(ops.to_vec())),
    ));
    let controller = Controller::start(settings).await.unwrap();
    assert_eq!(controller.image().feature("metadata.version"), 30);
    assert_eq!(
        controller.image().feature("mirror.version"),
        0,
        "no record before the first mirror"
    );
    let update = async |feature: &str, max_version_level, upgrade_type| {
        let update = update_features_request::FeatureUpdateKey {
            feature: feature.into(),
            max_version_level,
            upgrade_type,
            ..Default::default()
        };
        let response = controller
            .update_features(UpdateFeaturesRequest {
                feature_updates: vec![update],
                ..Default::default()
            })
            .await;
        ErrorCode(response.error_code)
    };
    assert_eq!(update("mirror.version", 1, 1).await, ErrorCode::NONE);
    assert_eq!(
        update("mirror.version", 2, 1).await,
        ErrorCode::INVALID_UPDATE_VERSION
    );
    assert_eq!(
        update("metadata.version", 29, 3).await,
        ErrorCode::INVALID_UPDATE_VERSION
    );
    assert_eq!(
        update("no.such", 1, 1).await,
        ErrorCode::INVALID_UPDATE_VERSION
    );
    alter_one(
        &controller,
        ask(64, "m", &[("bootstrap.servers", SET, Some("h:1"))]),
    )
    .await;
    assert_eq!(
        update("mirror.version", 0, 2).await,
        ErrorCode::INVALID_UPDATE_VERSION
    );
    alter_one(
        &controller,
        ask(64, "m", &[("bootstrap.servers", DELETE, None)]),
    )
    .await;
    assert_eq!(
        update("mirror.version", 0, 1).await,
        ErrorCode::INVALID_UPDATE_VERSION,
        "a downgrade must be asked for"
    );
    assert_eq!(update("mirror.version", 0, 2).await, ErrorCode::NONE);
    assert_eq!(controller.image().feature("mirror.version"), 0);
}
