//! ApiVersions (18), with the fall-back of KIP-511 and the features of KIP-584.

use std::sync::Arc;

use tarn_controller::plan::supported_features;
use tarn_metadata::MIRROR_VERSION;
use tarn_wire::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use tarn_wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use tarn_wire::{ApiKey, ErrorCode, Str};

use crate::dispatch::{Call, ROUTES, Route};
use crate::node::Node;

/// The answer to an ApiVersions version nobody here knows: error 35 and the versions of
/// ApiVersions, in the form of version 0.
pub(crate) fn unsupported() -> ApiVersionsResponse {
    let range = ApiKey::API_VERSIONS.api().map(|api| ApiVersion {
        api_key: api.key.0,
        min_version: api.versions.min,
        max_version: api.versions.max,
        ..ApiVersion::default()
    });
    ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        api_keys: range.into_iter().collect(),
        ..ApiVersionsResponse::default()
    }
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let names_ok = is_software_name(&request.client_software_name)
        && is_software_name(&request.client_software_version);
    if call.version >= 3 && !names_ok {
        return ApiVersionsResponse {
            error_code: ErrorCode::INVALID_REQUEST.0,
            ..ApiVersionsResponse::default()
        };
    }
    let may_speak_mirror = {
        let mut dialect = call.connection.dialect.lock();
        if call.version >= 3 {
            dialect.note_software(&request.client_software_name);
        }
        dialect.may_speak_mirror()
    };
    let mirror = node.mirror_enabled();
    // Some clients fail on keys that they do not know.
    let api_keys = announced(call, mirror && may_speak_mirror);
    let image = node.image();
    // Before version 4 a feature cannot have the lowest level 0: such features are left out
    // (KIP-1022).
    let supported_features = supported_features()
        .iter()
        .filter(|feature| {
            (call.version >= 4 || feature.min > 0) && (feature.name != MIRROR_VERSION || mirror)
        })
        .map(|feature| SupportedFeatureKey {
            name: Str::from(feature.name),
            min_version: feature.min,
            max_version: feature.max,
            ..SupportedFeatureKey::default()
        })
        .collect();
    let finalized = |name: &str, level: i16| FinalizedFeatureKey {
        name: Str::from(name),
        max_version_level: level,
        min_version_level: level,
        ..FinalizedFeatureKey::default()
    };
    let mut finalized_features: Vec<_> = image
        .features()
        .iter()
        .filter(|(name, _)| name.as_str() != MIRROR_VERSION)
        .map(|(name, level)| finalized(name, *level))
        .collect();
    if mirror {
        finalized_features.push(finalized(MIRROR_VERSION, 1));
    }
    ApiVersionsResponse {
        api_keys,
        supported_features,
        finalized_features_epoch: image.offset(),
        finalized_features,
        ..ApiVersionsResponse::default()
    }
}

/// What is announced on the caller's listener.
fn announced(call: &Call, mirror: bool) -> Vec<ApiVersion> {
    let row = |route: &Route| {
        let versions = route.announced(mirror, call.connection.controller)?;
        Some(ApiVersion {
            api_key: route.key.0,
            min_version: versions.min,
            max_version: versions.max,
            ..ApiVersion::default()
        })
    };
    ROUTES.iter().filter_map(row).collect()
}

/// Letters, digits, `-` and `.`, beginning and ending with a letter or a digit (KIP-511).
fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends_ok = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends_ok(bytes.first())
        && ends_ok(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
}
