//! Configuration of mirrors: the one table of keys of resource type 64 (docs/mirroring.md §7),
//! their three spellings, and the typed view the rest of the room uses. The broker-wide keys are in
//! [`broker`], the patterns in [`patterns`] and [`compiled`].
//!
//! A mirror exists if and only if it has at least one key in the metadata log; keys are stored
//! under their canonical (early/late) spelling.

pub mod broker;
pub mod compiled;
mod keys;
pub mod patterns;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tarn_metadata::config::{ConfigDef, ConfigValue, split_list};
use tarn_metadata::{ConfigResource, Image, ResourceType};
use tarn_wire::Str;

pub use self::broker::BrokerSettings;
pub use self::keys::{ALIASES, CARRIED, KEYS};
use self::patterns::{PatternError, Patterns};
use crate::dialect::MirrorError;
use crate::seam::{ConnectionSettings, FetchSettings, Isolation, SourceSettings};

/// Resource type of mirrors in DescribeConfigs, IncrementalAlterConfigs, ListConfigResources and
/// ConfigRecord.
pub const RESOURCE_TYPE: i8 = 64;

/// `mirror.source.cluster.id`: filled by the broker, then immutable.
pub const SOURCE_CLUSTER_ID: &str = "mirror.source.cluster.id";
/// `bootstrap.servers`: the one key every mirror must have.
pub const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";
/// `mirror.topics.include`.
pub const TOPICS_INCLUDE: &str = "mirror.topics.include";
/// `mirror.topics.exclude`.
pub const TOPICS_EXCLUDE: &str = "mirror.topics.exclude";
/// `mirror.topic.properties.exclude`.
const PROPERTIES_EXCLUDE: &str = "mirror.topic.properties.exclude";

/// Every key of the table stands behind this; hidden keys begin with a dot and stand before it.
const AFTER_HIDDEN: &str = "/";

/// Finds the definition behind any spelling of a key.
pub fn definition(key: &str) -> Option<&'static ConfigDef> {
    let canonical = canonical(key);
    KEYS.iter().find(|d| d.name == canonical)
}

/// The canonical spelling of a key: the one it is stored under. Unknown keys come back as they are.
pub fn canonical(key: &str) -> &str {
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == key)
        .map_or(key, |(_, name)| name)
}

/// Checks one key and value of a create or alter. Gives the canonical key.
pub fn validate(key: &str, value: &str) -> Result<&'static str, MirrorError> {
    let Some(def) = definition(key) else {
        return Err(MirrorError::InvalidConfig(format!(
            "Unknown mirror configuration: {key}"
        )));
    };
    let parsed = def
        .parse(value)
        .map_err(|e| MirrorError::InvalidConfig(e.to_string()))?;
    if def.name == "security.protocol" && parsed != ConfigValue::Text("PLAINTEXT".into()) {
        return Err(MirrorError::InvalidConfig(format!(
            "security.protocol={value} is not supported: this version reaches a source over PLAINTEXT only"
        )));
    }
    Ok(def.name)
}

/// Whether a change of this (canonical) key needs new connections. Everything else applies in
/// place.
pub fn reconnects(key: &str) -> bool {
    key == BOOTSTRAP_SERVERS
        || ["security.", "sasl.", "ssl.", "socket.", "mirror.socket."]
            .iter()
            .any(|p| key.starts_with(p))
        || matches!(key, "request.timeout.ms" | "connections.max.idle.ms")
}

/// What to do when a topic is gone at the source (docs/mirroring.md §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// FAILED, data kept, read-only (default).
    Fail,
    /// Fail over, as the seed does.
    Stop,
}

/// The configuration of one mirror: canonical key → value as written. Values are validated when
/// written; a value that no longer parses (written by another version) reads as its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorConfig {
    values: BTreeMap<String, String>,
    defaults: BTreeMap<String, String>,
}

impl MirrorConfig {
    /// From stored keys and values.
    pub fn new<K: AsRef<str>, V: Into<String>>(
        stored: impl IntoIterator<Item = (K, V)>,
    ) -> MirrorConfig {
        let values = stored
            .into_iter()
            .map(|(k, v)| (canonical(k.as_ref()).to_owned(), v.into()))
            .collect();
        MirrorConfig {
            values,
            defaults: BTreeMap::new(),
        }
    }

    /// The definition of a mirror in the image, over the broker's defaults; empty if there is no
    /// such mirror.
    pub fn of(image: &Image, mirror: &str, broker: &BrokerSettings) -> MirrorConfig {
        let stored = image.mirror(mirror);
        // What mirroring remembers of single topics stands before the keys; a mirror of thousands
        // of topics must not copy it each time.
        let mut config = MirrorConfig::new(
            stored
                .iter()
                .flat_map(|c| c.range::<str, _>((Bound::Included(AFTER_HIDDEN), Bound::Unbounded)))
                .map(|(k, v)| (k.as_str(), v.as_str())),
        );
        config.defaults = broker.defaults.clone();
        // Set at run time for all brokers, then for this one.
        for resource in [String::new(), broker.broker_id.to_string()] {
            let resource = ConfigResource::new(ResourceType::BROKER, resource);
            let set = image
                .configs(&resource)
                .into_iter()
                .flat_map(|set| set.iter());
            let of_mirrors = set.filter(|(key, _)| key.starts_with("mirror."));
            for (key, value) in of_mirrors.filter(|(key, _)| definition(key).is_some()) {
                config.defaults.insert(key.to_string(), value.to_string());
            }
        }
        config
    }

    /// Whether nothing is stored: such a mirror does not exist.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The written value, under any spelling.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(canonical(key)).map(String::as_str)
    }

    /// All written keys and values, canonical.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Sets a value (used by decisions to look at the outcome before writing it).
    pub fn set(&mut self, key: &str, value: &str) {
        self.values
            .insert(canonical(key).to_owned(), value.to_owned());
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.values.remove(canonical(key));
    }

    /// Whether somebody chose a value, for this mirror or for the broker.
    fn is_chosen(&self, key: &str) -> bool {
        self.get(key).is_some() || self.defaults.contains_key(canonical(key))
    }

    fn value(&self, key: &str) -> Option<ConfigValue> {
        let def = definition(key)?;
        let parse = |raw: &str| def.parse(raw).ok();
        let written = self.get(key).and_then(parse);
        written
            .or_else(|| self.defaults.get(def.name).and_then(|raw| parse(raw)))
            .or_else(|| def.default.and_then(parse))
    }

    fn integer(&self, key: &str) -> Option<i64> {
        self.value(key)?.as_i64()
    }

    fn int32(&self, key: &str, otherwise: i32) -> i32 {
        self.integer(key)
            .and_then(|v| i32::try_from(v).ok())
            .unwrap_or(otherwise)
    }

    fn flag(&self, key: &str) -> bool {
        self.value(key).and_then(|v| v.as_bool()).unwrap_or(false)
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

    /// `bootstrap.servers`; empty when missing.
    pub fn bootstrap_servers(&self) -> Vec<Str> {
        split_list(self.get(BOOTSTRAP_SERVERS).unwrap_or_default())
            .into_iter()
            .map(Str::from)
            .collect()
    }

    /// The stored source cluster id; `None` until it is known.
    pub fn source_cluster_id(&self) -> Option<Str> {
        self.get(SOURCE_CLUSTER_ID)
            .filter(|id| !id.is_empty())
            .map(Str::from)
    }

    /// `mirror.source.topic.deletion.policy`.
    pub fn deletion_policy(&self) -> DeletionPolicy {
        match self.text("mirror.source.topic.deletion.policy").as_deref() {
            Some("stop") => DeletionPolicy::Stop,
            _ => DeletionPolicy::Fail,
        }
    }

    /// `mirror.source.topic.deletion.after.ms`.
    pub fn deletion_after_ms(&self) -> i64 {
        self.integer("mirror.source.topic.deletion.after.ms")
            .unwrap_or(30_000)
    }

    /// `mirror.allow.adopting.topics`.
    pub fn may_adopt_topics(&self) -> bool {
        self.flag("mirror.allow.adopting.topics")
    }

    /// `mirror.allow.full.truncation`.
    pub fn may_truncate_fully(&self) -> bool {
        self.flag("mirror.allow.full.truncation")
    }

    /// `mirror.lme.lookup.timeout.ms`.
    pub fn lookup_timeout_ms(&self) -> i64 {
        self.integer("mirror.lme.lookup.timeout.ms")
            .unwrap_or(60_000)
    }

    /// `mirror.metadata.refresh.interval.ms` of this mirror, or the broker's.
    pub fn refresh_interval_ms(&self, broker: &BrokerSettings) -> i64 {
        self.integer("mirror.metadata.refresh.interval.ms")
            .unwrap_or(broker.refresh_interval_ms)
    }

    /// Topics that join by themselves: include minus exclude. Include is empty by default.
    pub fn topic_patterns(&self) -> Result<(Arc<Patterns>, Arc<Patterns>), PatternError> {
        let (include, exclude) = self.topic_lists();
        Ok((Patterns::shared(&include)?, Patterns::shared(&exclude)?))
    }

    /// Compiles every list of patterns that the room asks this definition for, away from async
    /// workers; known while the result is held.
    pub async fn prepare_patterns(&self) -> Vec<Arc<Patterns>> {
        let mut held = Vec::new();
        for key in [TOPICS_INCLUDE, TOPICS_EXCLUDE, PROPERTIES_EXCLUDE] {
            let written = self
                .get(key)
                .or_else(|| self.defaults.get(key).map(String::as_str));
            let default = definition(key).and_then(|def| def.default);
            // A written list that is refused is told where it is used.
            for list in written.into_iter().chain(default).map(split_list) {
                held.extend(Patterns::prepared(list).await.ok());
            }
        }
        held
    }

    /// The lists behind [`MirrorConfig::topic_patterns`], as written.
    pub(crate) fn topic_lists(&self) -> (Vec<String>, Vec<String>) {
        (self.list(TOPICS_INCLUDE), self.list(TOPICS_EXCLUDE))
    }

    /// Topic configs that are not synchronised.
    pub fn excluded_properties(&self) -> Result<Arc<Patterns>, PatternError> {
        Patterns::shared(&self.list(PROPERTIES_EXCLUDE))
    }

    /// What the data plane needs to reach and read the source.
    pub fn source_settings(&self, mirror: &Str, broker: &BrokerSettings) -> SourceSettings {
        let isolation = match self.text("mirror.fetch.isolation.level").as_deref() {
            Some("read_committed") => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        };
        SourceSettings {
            mirror: mirror.clone(),
            cluster_id: self.source_cluster_id(),
            connection: ConnectionSettings {
                bootstrap_servers: self.bootstrap_servers(),
                request_timeout_ms: self.int32("request.timeout.ms", 30_000),
                connect_timeout_ms: self
                    .integer("socket.connection.setup.timeout.ms")
                    .unwrap_or(10_000),
                connect_timeout_ms_max: self
                    .integer("socket.connection.setup.timeout.max.ms")
                    .unwrap_or(30_000),
                idle_ms_max: self.integer("connections.max.idle.ms").unwrap_or(600_000),
                socket_timeout_ms: self.int32("mirror.socket.timeout.ms", 30_000),
                // The table shows the prototype's default; a fixed size is applied only if somebody
                // asked for one.
                receive_buffer_bytes: if self.is_chosen("mirror.socket.receive.buffer.bytes") {
                    self.int32("mirror.socket.receive.buffer.bytes", -1)
                } else {
                    -1
                },
            },
            fetch: FetchSettings {
                wait_ms_max: self.int32("mirror.fetch.wait.max.ms", 1_000),
                min_bytes: self.int32("mirror.fetch.min.bytes", 1),
                partition_bytes_max: self.int32("mirror.fetch.max.bytes", 1_048_576),
                response_bytes_max: self.int32("mirror.fetch.response.max.bytes", 10_485_760),
                backoff_ms: self.integer("mirror.fetch.backoff.ms").unwrap_or(1_000),
                isolation,
                fetchers: broker.fetchers.max(1),
                disconnect_fail_after_ms: self
                    .integer("mirror.disconnect.fail.after.ms")
                    .filter(|ms| *ms > 0),
            },
        }
    }
}

/// One key as DescribeConfigs shows it.
#[derive(Clone, Debug)]
pub struct DescribedKey {
    /// The spelling the caller asked for, or the canonical one.
    pub name: String,
    /// Value; `None` when redacted or null.
    pub value: Option<String>,
    /// Whether it was written for this mirror (source DYNAMIC_BROKER_CONFIG, which the stock tools
    /// filter by) or is the default.
    pub is_set: bool,
    /// Never shown.
    pub sensitive: bool,
    /// The definition, for type and documentation.
    pub definition: &'static ConfigDef,
}

/// DescribeConfigs of a mirror: the keys asked for (any spelling; unknown ones are left out), or
/// all. `show_sensitive` is the broker switch `mirror.describe.configs.sensitive.values`.
pub fn describe(
    config: &MirrorConfig,
    asked: Option<&[Str]>,
    show_sensitive: bool,
) -> Vec<DescribedKey> {
    let one = |name: &str, def: &'static ConfigDef| {
        let written = config.get(def.name);
        let hidden = def.sensitive && !show_sensitive;
        DescribedKey {
            name: name.to_owned(),
            value: if hidden {
                None
            } else {
                written.or(def.default).map(str::to_owned)
            },
            is_set: written.is_some(),
            sensitive: hidden,
            definition: def,
        }
    };
    match asked {
        Some(names) => names
            .iter()
            .filter_map(|n| definition(n).map(|d| one(n, d)))
            .collect(),
        None => KEYS.iter().map(|d| one(d.name, d)).collect(),
    }
}

#[cfg(test)]
mod tests;
