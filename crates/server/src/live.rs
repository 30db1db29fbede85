//! Settings that change while the broker runs: read from the metadata image at the start and with
//! each image, and from here by those who use them, without a lock. Not here: defaults of topic
//! keys (`tarn_replica` reads them from the image itself) and what holds until the next start
//! (`config`).

use std::sync::atomic::{AtomicI64, Ordering};

use tarn_metadata::{ConfigResource, Image, ResourceType};

use crate::config::{Config, keys};

/// The settings. Each field is one key of the table.
#[derive(Debug, Default)]
pub(crate) struct Live {
    fetch_bytes_max: AtomicI64,
    fetch_wait_ms_max: AtomicI64,
    produce_wait_ms_max: AtomicI64,
}

impl Live {
    pub(crate) fn new(config: &Config, image: &Image) -> Live {
        let live = Live::default();
        live.follow(config, image);
        live
    }

    /// Takes over what the image says now.
    pub(crate) fn follow(&self, config: &Config, image: &Image) {
        let rows = [
            ("fetch.max.bytes", &self.fetch_bytes_max),
            ("fetch.wait.max.ms", &self.fetch_wait_ms_max),
            ("produce.wait.max.ms", &self.produce_wait_ms_max),
        ];
        for (key, field) in rows {
            field.store(number(config, image, key), Ordering::Relaxed);
        }
    }

    /// `fetch.max.bytes`.
    pub(crate) fn fetch_bytes_max(&self) -> i32 {
        self.fetch_bytes_max.load(Ordering::Relaxed) as i32
    }

    /// `fetch.wait.max.ms`.
    pub(crate) fn fetch_wait_ms_max(&self) -> i32 {
        self.fetch_wait_ms_max.load(Ordering::Relaxed) as i32
    }

    /// `produce.wait.max.ms`.
    pub(crate) fn produce_wait_ms_max(&self) -> i64 {
        self.produce_wait_ms_max.load(Ordering::Relaxed)
    }
}

/// Value of an integer key: set for this broker at run time, for all brokers, in the file, or its
/// default.
pub(crate) fn number(config: &Config, image: &Image, key: &str) -> i64 {
    let set = text(config, image, key);
    let parsed = set.and_then(|text| keys::find(key)?.def.parse(&text).ok()?.as_i64());
    parsed.unwrap_or_else(|| config.number(key))
}

/// Text of a key that was set at run time.
pub(crate) fn text(config: &Config, image: &Image, key: &str) -> Option<String> {
    let own = ConfigResource::new(ResourceType::BROKER, config.node_id.to_string());
    let all = ConfigResource::new(ResourceType::BROKER, "");
    let set = image.config(&own, key).or_else(|| image.config(&all, key));
    set.map(|value| value.trim().to_owned())
}
