//! Broker-wide mirroring keys (mirroring.md §16.1) and the settings made of them. The server's own key table includes [`BROKER_KEYS`].

use tarn_metadata::config::ConfigType::{Boolean, Int, Long, Short, String as Text};
use tarn_metadata::config::{ConfigDef, Validator};
use tarn_wire::Str;

use crate::dialect::WireDialect;
use crate::transition::RetryPolicy;

/// Keys of server.properties that belong to mirroring.
pub static BROKER_KEYS: &[ConfigDef] = &[
    ConfigDef::new("mirror.enable", Boolean, Some("true"), "Serve the mirror APIs and announce the feature mirror.version.").read_only(),
    ConfigDef::new("mirror.state.topic.num.partitions", Int, Some("50"), "Partitions of __mirror_state when it is created.")
        .valid(Validator::AtLeast(1)).read_only(),
    ConfigDef::new("mirror.state.topic.replication.factor", Short, None, "Replicas of __mirror_state; unset = min(3, live brokers).")
        .valid(Validator::AtLeast(1)).read_only(),
    ConfigDef::new("mirror.num.replica.fetchers", Int, Some("1"), "Fetcher tasks per mirror and source broker.").valid(Validator::AtLeast(1)).read_only(),
    ConfigDef::new("mirror.metadata.refresh.interval.ms", Long, Some("30000"), "Pause between two refreshes of a mirror from its source.")
        .valid(Validator::AtLeast(100)).read_only(),
    ConfigDef::new("mirror.failed.retry.initial.backoff.ms", Long, Some("1000"), "First pause before a FAILED partition is tried again.")
        .valid(Validator::AtLeast(1)).read_only(),
    ConfigDef::new("mirror.failed.retry.max.backoff.ms", Long, Some("300000"), "Longest pause before a FAILED partition is tried again.")
        .valid(Validator::AtLeast(1)).read_only(),
    ConfigDef::new("mirror.failed.retry.max.attempts", Short, Some("100"), "Tries of a FAILED partition before an operator is needed; 0 = none.")
        .valid(Validator::Between(0, 32_767)).read_only(),
    ConfigDef::new("mirror.wire.dialect", Text, Some("auto"), "Generation of the mirror APIs spoken on this broker.")
        .valid(Validator::OneOf(&["auto", "early", "late", "next"])).read_only(),
    ConfigDef::new("mirror.describe.configs.sensitive.values", Boolean, Some("false"), "Show passwords of mirrors in DescribeConfigs.").read_only(),
];

/// Spellings of the early prototype: (alias, key).
pub const BROKER_ALIASES: &[(&str, &str)] = &[
    ("mirror.topic.num.partitions", "mirror.state.topic.num.partitions"),
    ("mirror.topic.replication.factor", "mirror.state.topic.replication.factor"),
];

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
    /// `mirror.describe.configs.sensitive.values`.
    pub show_sensitive: bool,
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
            fetchers: 1,
            refresh_interval_ms: 30_000,
            retry: RetryPolicy::default(),
            wire_dialect: WireDialect::Auto,
            show_sensitive: false,
        }
    }
}
