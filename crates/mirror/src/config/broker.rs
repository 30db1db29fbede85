//! What this broker is and how it mirrors: the broker-wide settings (docs/mirroring.md §7.1),
//! filled by the server room, which owns their keys.

use std::collections::BTreeMap;

use tarn_wire::Str;

use crate::dialect::WireDialect;
use crate::transition::RetryPolicy;

/// What this broker is, and how it mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerSettings {
    /// This broker.
    pub broker_id: i32,
    /// This cluster.
    pub cluster_id: Str,
    /// `tarn <version>`: told to tools in ListMirrors.
    pub product: Str,
    /// `mirror.enable`.
    pub enabled: bool,
    /// `mirror.state.topic.num.partitions`.
    pub state_topic_partitions: i32,
    /// `mirror.state.topic.replication.factor`.
    pub state_topic_replication_factor: Option<i16>,
    /// `mirror.num.replica.fetchers`.
    pub fetchers: i32,
    /// `mirror.metadata.refresh.interval.ms`.
    pub refresh_interval_ms: i64,
    /// The three `mirror.failed.retry.*`.
    pub retry: RetryPolicy,
    /// `mirror.wire.dialect`.
    pub wire_dialect: WireDialect,
    /// `mirror.wire.dialect.callers.max`: callers whose proven dialect is remembered.
    pub callers_max: usize,
    /// `mirror.describe.configs.sensitive.values`.
    pub show_sensitive: bool,
    /// Values of mirror-level keys in server.properties: defaults for every mirror (canonical key →
    /// value). Only keys that were set.
    pub defaults: BTreeMap<String, String>,
}

impl BrokerSettings {
    /// Defaults for this broker.
    pub fn new(broker_id: i32, cluster_id: Str) -> BrokerSettings {
        BrokerSettings {
            broker_id,
            cluster_id,
            product: Str::from(concat!("tarn ", env!("CARGO_PKG_VERSION"))),
            enabled: true,
            state_topic_partitions: crate::placement::STATE_TOPIC_PARTITIONS,
            state_topic_replication_factor: None,
            fetchers: 2,
            refresh_interval_ms: 30_000,
            retry: RetryPolicy::default(),
            wire_dialect: WireDialect::Auto,
            callers_max: 1_000,
            show_sensitive: false,
            defaults: BTreeMap::new(),
        }
    }
}
