//! Finalized features: which exist, which levels they may have, and how they change.

use tarn_metadata::{Image, METADATA_VERSION, MIRROR_VERSION, Record};
use tarn_wire::messages::FeatureLevelRecord;
use tarn_wire::{ErrorCode, Str};

use crate::ApiError;

/// Level of metadata.version that this broker writes: that of Kafka 4.3.
pub const METADATA_VERSION_LEVEL: i16 = 30;

/// A feature this broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Name.
    pub name: &'static str,
    /// Lowest level that can be finalized (0 = off is always possible where this is 0).
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// The features this broker knows, for ApiVersions and broker registration.
pub fn supported_features() -> &'static [SupportedFeature] {
    &[
        SupportedFeature {
            name: METADATA_VERSION,
            min: METADATA_VERSION_LEVEL,
            max: METADATA_VERSION_LEVEL,
        },
        SupportedFeature {
            name: MIRROR_VERSION,
            min: 0,
            max: 1,
        },
    ]
}

/// The record that gives a feature a level, or `None` if it has it already. `may_lower` says
/// whether the caller asked for a downgrade.
///
/// Refuses an unknown feature or level (95), a lower level without `may_lower` (95), and
/// mirror.version 0 while mirrors exist (95).
pub fn plan_feature(
    image: &Image,
    name: &str,
    level: i16,
    may_lower: bool,
) -> Result<Option<Record>, ApiError> {
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, message));
    let Some(feature) = supported_features()
        .iter()
        .find(|feature| feature.name == name)
    else {
        return refuse(format!("feature {name} is not known to this cluster"));
    };
    if level < feature.min || level > feature.max {
        return refuse(format!(
            "feature {name} cannot have level {level}: levels {} to {} are supported",
            feature.min, feature.max
        ));
    }
    let present = image.feature(name);
    if level == present {
        return Ok(None);
    }
    if level < present && !may_lower {
        return refuse(format!(
            "feature {name} has level {present}: lowering it to {level} must be asked for as a downgrade"
        ));
    }
    if name == MIRROR_VERSION
        && level == 0
        && let Some((mirror, _)) = image.mirrors().next()
    {
        return refuse(format!(
            "mirror.version cannot be 0 while mirror {mirror} exists: delete all mirrors first"
        ));
    }
    Ok(Some(
        FeatureLevelRecord {
            name: Str::from(name),
            feature_level: level,
            ..FeatureLevelRecord::default()
        }
        .into(),
    ))
}
