//! IncrementalAlterConfigs, AlterConfigs, UpdateFeatures.

use std::collections::BTreeSet;

use tarn_metadata::{ConfigResource, Image, Record, ResourceType};
use tarn_wire::messages::alter_configs_response::AlterConfigsResourceResponse as ReplacedResource;
use tarn_wire::messages::incremental_alter_configs_request::AlterableConfig;
use tarn_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as AlteredResource;
use tarn_wire::messages::update_features_response::UpdatableFeatureResult;
use tarn_wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use tarn_wire::{ErrorCode, Str};

use crate::plan::{ConfigChange, ConfigOp, plan_alter, plan_feature, plan_replace};
use crate::{ApiError, Controller, Ctx};

/// Upgrade type of UpdateFeatures that only raises.
const UPGRADE_ONLY: i8 = 1;

impl Controller {
    /// IncrementalAlterConfigs. One bad resource spoils only itself.
    pub async fn incremental_alter_configs(
        &self,
        request: IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let resources: Vec<_> = request
            .resources
            .iter()
            .map(|r| resource(r.resource_type, &r.resource_name))
            .collect();
        let asked = resources.clone();
        let altered = self.submit("alter configurations", move |image, ctx| {
            let plan = |image: &Image, ctx: &Ctx, index: usize, resource: &ConfigResource| {
                let ops: Result<Vec<ConfigOp>, ApiError> =
                    request.resources[index].configs.iter().map(op).collect();
                plan_alter(image, ctx, resource, &ops?)
            };
            alter_each(image, ctx, &resources, request.validate_only, plan)
        });
        let outcomes = altered
            .await
            .unwrap_or_else(|error: ApiError| asked.iter().map(|_| Err(error.clone())).collect());
        let responses = asked.into_iter().zip(outcomes).map(|(resource, outcome)| {
            let (error_code, error_message) = code_and_text(outcome);
            AlteredResource {
                error_code,
                error_message,
                resource_type: resource.kind.0,
                resource_name: resource.name,
                ..AlteredResource::default()
            }
        });
        IncrementalAlterConfigsResponse {
            responses: responses.collect(),
            ..IncrementalAlterConfigsResponse::default()
        }
    }

    /// AlterConfigs (the old form: what is not named goes back to its default).
    pub async fn alter_configs(&self, request: AlterConfigsRequest) -> AlterConfigsResponse {
        let resources: Vec<_> = request
            .resources
            .iter()
            .map(|r| resource(r.resource_type, &r.resource_name))
            .collect();
        let asked = resources.clone();
        let altered = self.submit("replace configurations", move |image, ctx| {
            let plan = |image: &Image, ctx: &Ctx, index: usize, resource: &ConfigResource| {
                let value =
                    |config: &tarn_wire::messages::alter_configs_request::AlterableConfig| {
                        match &config.value {
                            Some(value) => Ok((config.name.clone(), value.clone())),
                            None => Err(ApiError::new(
                                ErrorCode::INVALID_REQUEST,
                                format!("configuration {} has no value", config.name),
                            )),
                        }
                    };
                let values: Result<Vec<(Str, Str)>, ApiError> =
                    request.resources[index].configs.iter().map(value).collect();
                plan_replace(image, ctx, resource, &values?)
            };
            alter_each(image, ctx, &resources, request.validate_only, plan)
        });
        let outcomes = altered
            .await
            .unwrap_or_else(|error: ApiError| asked.iter().map(|_| Err(error.clone())).collect());
        let responses = asked.into_iter().zip(outcomes).map(|(resource, outcome)| {
            let (error_code, error_message) = code_and_text(outcome);
            ReplacedResource {
                error_code,
                error_message,
                resource_type: resource.kind.0,
                resource_name: resource.name,
                ..ReplacedResource::default()
            }
        });
        AlterConfigsResponse {
            responses: responses.collect(),
            ..AlterConfigsResponse::default()
        }
    }

    /// UpdateFeatures: all or none.
    pub async fn update_features(&self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse {
        let names: Vec<Str> = request
            .feature_updates
            .iter()
            .map(|update| update.feature.clone())
            .collect();
        let updated = self
            .submit("update features", move |image, _| {
                update_features(image, &request)
            })
            .await;
        let (error_code, error_message) = code_and_text(updated);
        let results = names.into_iter().map(|feature| UpdatableFeatureResult {
            feature,
            error_code,
            error_message: error_message.clone(),
            ..UpdatableFeatureResult::default()
        });
        UpdateFeaturesResponse {
            error_code,
            results: results.collect(),
            error_message,
            ..UpdateFeaturesResponse::default()
        }
    }
}

type Outcomes = Vec<Result<(), ApiError>>;

fn alter_each(
    image: &Image,
    ctx: &Ctx,
    resources: &[ConfigResource],
    validate_only: bool,
    plan: impl Fn(&Image, &Ctx, usize, &ConfigResource) -> Result<Vec<Record>, ApiError>,
) -> Result<(Vec<Record>, Outcomes), ApiError> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&ConfigResource> = resources
        .iter()
        .filter(|resource| !seen.insert(*resource))
        .collect();
    let mut records = Vec::new();
    let mut outcomes = Vec::with_capacity(resources.len());
    for (index, resource) in resources.iter().enumerate() {
        let planned = match resource {
            resource if twice.contains(resource) => Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("resource {} is named twice in one request", resource.name),
            )),
            resource
                if resource.kind == ResourceType::TOPIC
                    && image.topic(&resource.name).is_none() =>
            {
                Err(ApiError::new(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("topic {} does not exist", resource.name),
                ))
            }
            resource => plan(image, ctx, index, resource),
        };
        outcomes.push(planned.map(|planned| records.extend(planned)));
    }
    if validate_only {
        records.clear();
    }
    Ok((records, outcomes))
}

fn op(config: &AlterableConfig) -> Result<ConfigOp, ApiError> {
    let value = || match &config.value {
        Some(value) => Ok(value.clone()),
        None => Err(ApiError::new(
            ErrorCode::INVALID_REQUEST,
            format!("configuration {} has no value", config.name),
        )),
    };
    let change = match config.config_operation {
        0 => ConfigChange::Set(value()?),
        1 => ConfigChange::Delete,
        2 => ConfigChange::Append(value()?),
        3 => ConfigChange::Subtract(value()?),
        other => {
            return Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("configuration operation {other} is not known"),
            ));
        }
    };
    Ok(ConfigOp {
        key: config.name.clone(),
        change,
    })
}

fn update_features(
    image: &Image,
    request: &UpdateFeaturesRequest,
) -> Result<(Vec<Record>, ()), ApiError> {
    let mut records = Vec::new();
    for update in &request.feature_updates {
        let may_lower = update.allow_downgrade || update.upgrade_type != UPGRADE_ONLY;
        records.extend(plan_feature(
            image,
            &update.feature,
            update.max_version_level,
            may_lower,
        )?);
    }
    if request.validate_only {
        records.clear();
    }
    Ok((records, ()))
}

fn resource(kind: i8, name: &Str) -> ConfigResource {
    ConfigResource {
        kind: ResourceType(kind),
        name: name.clone(),
    }
}

fn code_and_text(outcome: Result<(), ApiError>) -> (i16, Option<Str>) {
    outcome.map_or_else(
        |error| (error.code.0, error.text()),
        |()| (ErrorCode::NONE.0, None),
    )
}
