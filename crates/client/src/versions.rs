//! Which version of which request both sides speak.

use std::collections::BTreeMap;

use tarn_wire::messages::ApiVersionsResponse;
use tarn_wire::{ApiKey, Request, VersionRange};

use crate::{ClientError, Peer, Result};

/// What a broker announced in ApiVersions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    ranges: BTreeMap<i16, (i16, i16)>,
}

impl Versions {
    /// Keeps the ranges of an answer; impossible ones are left out.
    pub(crate) fn from_response(response: &ApiVersionsResponse) -> Self {
        let ranges = response
            .api_keys
            .iter()
            .filter(|k| k.min_version >= 0 && k.max_version >= k.min_version)
            .map(|k| (k.api_key, (k.min_version, k.max_version)))
            .collect();
        Versions { ranges }
    }

    /// The range announced for a key, `None` = the broker has no such request.
    pub fn range(&self, key: ApiKey) -> Option<VersionRange> {
        self.ranges
            .get(&key.0)
            .map(|&(min, max)| VersionRange { min, max })
    }

    /// True when nothing was announced, as of something that only resembles a Kafka.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The highest version of `R` within `wanted` that the broker announced.
    pub fn common<R: Request>(&self, wanted: VersionRange) -> Option<i16> {
        self.range(R::KEY)?.highest_common(wanted)
    }

    /// As [`Versions::common`], with an error that names both sides.
    ///
    /// # Errors
    /// [`ClientError::Unsupported`].
    pub fn require<R: Request>(&self, peer: &Peer, wanted: VersionRange) -> Result<i16> {
        self.common::<R>(wanted)
            .ok_or_else(|| ClientError::Unsupported {
                peer: peer.clone(),
                api: R::NAME.strip_suffix("Request").unwrap_or(R::NAME),
                wanted: format!("version {} to {}", wanted.min, wanted.max),
                offered: match self.range(R::KEY) {
                    Some(range) => format!("version {} to {}", range.min, range.max),
                    None => "none".to_string(),
                },
            })
    }
}
