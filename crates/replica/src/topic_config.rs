//! From configuration values to the settings of a log: topic value, then broker values by synonym,
//! then Kafka's default.

use std::collections::BTreeMap;

use tarn_log::{LogConfig, TimestampType};
use tarn_metadata::config::{ConfigValue, topic};
use tarn_metadata::{ConfigResource, Image, Membership, ResourceType};
use tarn_records::{Compression, Compressor};
use tarn_wire::Str;
use tracing::warn;

/// What this room needs of a topic's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// Settings of the logs.
    pub log: LogConfig,
    /// `min.insync.replicas`.
    pub min_in_sync_replicas: i32,
}

/// The broker's own values, by broker key (`log.retention.hours`), as far as they are set in its
/// file.
pub type BrokerValues = BTreeMap<Str, Str>;

/// Looks values up for one topic.
struct Lookup<'a> {
    image: &'a Image,
    topic: &'a str,
    node: ConfigResource,
    cluster: ConfigResource,
    broker: &'a BrokerValues,
}

impl TopicConfig {
    /// The settings of `topic` under `image`, on the broker `node_id` with these own values. A
    /// stored value that cannot be read is skipped with a warning, so that one bad value spoils
    /// neither its topic nor the others.
    pub fn resolve(image: &Image, topic: &str, node_id: i32, broker: &BrokerValues) -> Self {
        let lookup = Lookup::new(image, topic, node_id, broker);
        let defaults = LogConfig::default();
        let policies = lookup.list("cleanup.policy");
        let log_append_time = lookup
            .text("message.timestamp.type")
            .is_some_and(|text| text == "LogAppendTime");
        TopicConfig {
            min_in_sync_replicas: lookup.number("min.insync.replicas", 1) as i32,
            log: LogConfig {
                segment_bytes: lookup.number("segment.bytes", i64::from(defaults.segment_bytes))
                    as u32,
                segment_ms: lookup.number("segment.ms", defaults.segment_ms),
                roll_interval_ms: lookup
                    .broker_value("log.roll.min.interval.ms")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(defaults.roll_interval_ms),
                segment_index_bytes: lookup.number(
                    "segment.index.bytes",
                    i64::from(defaults.segment_index_bytes),
                ) as u32,
                index_interval_bytes: lookup.number(
                    "index.interval.bytes",
                    i64::from(defaults.index_interval_bytes),
                ) as u32,
                retention_ms: lookup.number("retention.ms", defaults.retention_ms),
                retention_bytes: lookup.number("retention.bytes", defaults.retention_bytes),
                delete: policies.iter().any(|policy| policy == "delete"),
                compact: policies.iter().any(|policy| policy == "compact"),
                compression: compressor(&lookup),
                delete_retention_ms: lookup
                    .number("delete.retention.ms", defaults.delete_retention_ms),
                min_compaction_lag_ms: lookup
                    .number("min.compaction.lag.ms", defaults.min_compaction_lag_ms),
                min_cleanable_dirty_ppm: match lookup.value("min.cleanable.dirty.ratio") {
                    Some(ConfigValue::Double(ratio)) => (ratio * 1e6) as u32,
                    _ => defaults.min_cleanable_dirty_ppm,
                },
                max_message_bytes: lookup
                    .number("max.message.bytes", i64::from(defaults.max_message_bytes))
                    as u32,
                timestamp_type: if log_append_time {
                    TimestampType::LogAppendTime
                } else {
                    TimestampType::CreateTime
                },
                timestamp_before_max_ms: lookup.number(
                    "message.timestamp.before.max.ms",
                    defaults.timestamp_before_max_ms,
                ),
                timestamp_after_max_ms: lookup.number(
                    "message.timestamp.after.max.ms",
                    defaults.timestamp_after_max_ms,
                ),
                producer_id_expiration_ms: lookup
                    .broker_value("producer.id.expiration.ms")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(defaults.producer_id_expiration_ms),
                producer_ids_max: lookup
                    .broker_value("producer.ids.per.partition.max")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(defaults.producer_ids_max),
            },
        }
    }
}

/// What `compression.type` asks for.
fn compressor(lookup: &Lookup<'_>) -> Option<Compressor> {
    let (codec, level) = match lookup.text("compression.type")?.as_str() {
        "uncompressed" => (Compression::None, None),
        "gzip" => (Compression::Gzip, Some("compression.gzip.level")),
        "snappy" => (Compression::Snappy, None),
        "lz4" => (Compression::Lz4, None),
        "zstd" => (Compression::Zstd, Some("compression.zstd.level")),
        _ => return None,
    };
    let level = level.and_then(|key| lookup.value(key)?.as_i64());
    // gzip's −1 is its default.
    let level = level.filter(|level| codec != Compression::Gzip || *level >= 0);
    Some(Compressor {
        codec,
        level: level.map(|level| level as i32),
    })
}

/// Key, of a topic or of its mirror, that lets local retention delete from a mirror.
const LOCAL_RETENTION: &str = "mirror.local.retention";

/// Whether local retention deletes from a mirror topic: its own `mirror.local.retention`, else its
/// mirror's, else the broker's, else not.
pub(crate) fn has_local_retention(
    image: &Image,
    membership: &Membership,
    node_id: i32,
    broker: &BrokerValues,
) -> bool {
    let lookup = Lookup::new(image, &membership.topic, node_id, broker);
    let of_topic = image
        .topic_configs(&membership.topic)
        .and_then(|configs| configs.get(LOCAL_RETENTION).cloned());
    let of_mirror = || {
        image
            .mirror(&membership.mirror)
            .and_then(|keys| keys.get(LOCAL_RETENTION).cloned())
    };
    of_topic
        .or_else(of_mirror)
        .or_else(|| lookup.broker_value(LOCAL_RETENTION))
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// `mirror.visible.after`: when readers see what a mirror copied.
const VISIBLE_AFTER: &str = "mirror.visible.after";

/// Whether readers of a mirror topic see only what is on disk: by its mirror's
/// `mirror.visible.after`, else the broker's, else not.
pub(crate) fn is_visible_after_durable(
    image: &Image,
    membership: &Membership,
    node_id: i32,
    broker: &BrokerValues,
) -> bool {
    let lookup = Lookup::new(image, &membership.topic, node_id, broker);
    let of_mirror = image
        .mirror(&membership.mirror)
        .and_then(|keys| keys.get(VISIBLE_AFTER).cloned());
    of_mirror
        .or_else(|| lookup.broker_value(VISIBLE_AFTER))
        .is_some_and(|value| value == "durable")
}

/// A number among the broker's own values; `default` when it is not set or cannot be read.
pub(crate) fn broker_number(
    image: &Image,
    node_id: i32,
    broker: &BrokerValues,
    key: &str,
    default: i64,
) -> i64 {
    Lookup::new(image, "", node_id, broker)
        .broker_value(key)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(default)
}

/// The value a topic without a value of its own has under `image` on the broker `node_id`: broker
/// values by synonym, then the default. `None` = no such topic key.
pub(crate) fn inherited(
    image: &Image,
    node_id: i32,
    broker: &BrokerValues,
    key: &str,
) -> Option<ConfigValue> {
    // No topic has an empty name, so nothing is set on it.
    Lookup::new(image, "", node_id, broker).value(key)
}

impl<'a> Lookup<'a> {
    fn new(image: &'a Image, topic: &'a str, node_id: i32, broker: &'a BrokerValues) -> Self {
        Lookup {
            image,
            topic,
            node: ConfigResource::new(ResourceType::BROKER, node_id.to_string()),
            cluster: ConfigResource::new(ResourceType::BROKER, ""),
            broker,
        }
    }

    fn broker_value(&self, key: &str) -> Option<Str> {
        let dynamic = self
            .image
            .config(&self.node, key)
            .or_else(|| self.image.config(&self.cluster, key));
        dynamic.or_else(|| self.broker.get(key)).cloned()
    }

    /// The strongest value of a topic key that can be read.
    fn value(&self, key: &str) -> Option<ConfigValue> {
        let def = topic::find(key)?;
        let set = self
            .image
            .topic_configs(self.topic)
            .and_then(|configs| configs.get(key))
            .map(|text| text.to_string());
        let synonyms = def.synonyms.iter().filter_map(|synonym| {
            self.broker_value(synonym.name)
                .map(|text| synonym.to_topic_value(&text))
        });
        let candidates = set
            .into_iter()
            .chain(synonyms)
            .chain(def.default.map(str::to_owned));
        for text in candidates {
            match def.parse(&text) {
                Ok(value) => return Some(value),
                Err(error) => {
                    warn!(topic = self.topic, %error, "a stored configuration value is ignored")
                }
            }
        }
        None
    }

    fn number(&self, key: &str, default: i64) -> i64 {
        self.value(key)
            .and_then(|value| value.as_i64())
            .unwrap_or(default)
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(ConfigValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(ConfigValue::List(list)) => list,
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_metadata::Record;
    use tarn_wire::messages::ConfigRecord;

    fn config(kind: ResourceType, name: &str, key: &str, value: &str) -> Record {
        Record::Config(ConfigRecord {
            resource_type: kind.0,
            resource_name: Str::from(name),
            name: Str::from(key),
            value: Some(Str::from(value)),
            ..ConfigRecord::default()
        })
    }

    fn image(records: &[Record]) -> Image {
        Image::default()
            .apply(records, 1, 1)
            .expect("records fit")
            .0
    }

    #[test]
    fn the_topics_own_value_wins_over_broker_values_and_they_over_defaults() {
        let broker = BrokerValues::from([(Str::from("log.retention.hours"), Str::from("2"))]);
        let resolve = |records: &[Record]| {
            TopicConfig::resolve(&image(records), "t", 1, &broker)
                .log
                .retention_ms
        };
        assert_eq!(
            TopicConfig::resolve(&image(&[]), "t", 1, &BrokerValues::new())
                .log
                .retention_ms,
            604_800_000
        );
        assert_eq!(resolve(&[]), 7_200_000);
        let cluster = config(ResourceType::BROKER, "", "log.retention.ms", "77");
        assert_eq!(resolve(std::slice::from_ref(&cluster)), 77);
        assert_eq!(
            resolve(&[
                cluster,
                config(ResourceType::TOPIC, "t", "retention.ms", "5")
            ]),
            5
        );
    }

    #[test]
    fn local_retention_of_a_mirror_is_off_unless_topic_mirror_or_broker_ask_for_it() {
        let member = Membership {
            topic: Str::from("t"),
            topic_id: tarn_wire::Uuid::ZERO,
            mirror: Str::from("m"),
            desired: tarn_metadata::DesiredState::Mirroring,
            source_topic_id: tarn_wire::Uuid::ZERO,
            stopped: false,
            change_offset: 1,
        };
        let on_broker = BrokerValues::from([(Str::from(LOCAL_RETENTION), Str::from("true"))]);
        let local = |records: &[Record], broker: &BrokerValues| {
            has_local_retention(&image(records), &member, 1, broker)
        };
        let of_mirror = config(ResourceType::MIRROR, "m", LOCAL_RETENTION, "true");
        let of_topic = config(ResourceType::TOPIC, "t", LOCAL_RETENTION, "false");
        assert!(!local(&[], &BrokerValues::new()));
        assert!(local(&[], &on_broker));
        assert!(local(
            std::slice::from_ref(&of_mirror),
            &BrokerValues::new()
        ));
        assert!(
            !local(&[of_mirror, of_topic], &on_broker),
            "the topic's own value wins"
        );
    }

    #[test]
    fn what_a_topic_inherits_is_the_brokers_value_and_never_another_topics() {
        let broker = BrokerValues::from([(Str::from("log.retention.hours"), Str::from("2"))]);
        let image = image(&[config(ResourceType::TOPIC, "t", "retention.ms", "5")]);
        let value = |key| inherited(&image, 1, &broker, key).and_then(|v| v.as_i64());
        assert_eq!(value("retention.ms"), Some(7_200_000));
        assert_eq!(value("retention.bytes"), Some(-1));
        assert_eq!(value("no.such.key"), None);
    }

    #[test]
    fn a_stored_value_that_cannot_be_read_is_skipped() {
        let image = image(&[
            config(ResourceType::TOPIC, "t", "retention.ms", "soon"),
            config(ResourceType::TOPIC, "t", "cleanup.policy", "compact"),
        ]);
        let resolved = TopicConfig::resolve(&image, "t", 1, &BrokerValues::new());
        assert_eq!(resolved.log.retention_ms, 604_800_000);
        assert!(resolved.log.compact && !resolved.log.delete);
    }
}
