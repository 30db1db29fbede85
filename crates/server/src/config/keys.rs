//! The one table of broker keys: Kafka 4.3's and ours. Parsing, DescribeConfigs (type BROKER), the
//! defaults of topic keys and the documentation read it.
//!
//! Not here: topic keys (`tarn_metadata::config::topic`) and mirror keys (`tarn_mirror::config`).

mod effective;
mod inert;
mod own;
pub(crate) mod unserved;

use std::collections::HashMap;
use std::sync::LazyLock;

use tarn_metadata::config::{ConfigDef, ConfigType, Validator};

/// One broker key.
#[derive(Clone, Copy, Debug)]
pub struct BrokerKey {
    /// Name, type, default, range, whether it can be changed at run time, meaning.
    pub def: ConfigDef,
    /// False: known and checked, without effect; the meaning then names the feature it belongs to.
    pub effect: bool,
    /// True: Kafka shows it only when it is set.
    pub internal: bool,
}

impl BrokerKey {
    /// Whether a change at run time is taken, and then in force at once: never for a key without
    /// effect.
    pub fn is_dynamic(&self) -> bool {
        self.def.dynamic && self.effect
    }

    /// The definition as the rules of the controller see it.
    fn alterable(&self) -> ConfigDef {
        ConfigDef {
            dynamic: self.is_dynamic(),
            ..self.def
        }
    }

    /// The meaning as users read it.
    pub fn doc(&self) -> String {
        if self.effect {
            self.def.doc.to_owned()
        } else {
            format!(
                "Accepted for compatibility, without effect here ({}).",
                self.def.doc
            )
        }
    }
}

type Text = Option<&'static str>;

const fn dynamic(
    name: &'static str,
    kind: ConfigType,
    default: Text,
    valid: Validator,
    doc: &'static str,
) -> BrokerKey {
    BrokerKey {
        def: ConfigDef::new(name, kind, default, doc).valid(valid),
        effect: true,
        internal: false,
    }
}

const fn read_only(
    name: &'static str,
    kind: ConfigType,
    default: Text,
    valid: Validator,
    doc: &'static str,
) -> BrokerKey {
    BrokerKey {
        def: ConfigDef::new(name, kind, default, doc)
            .valid(valid)
            .read_only(),
        effect: true,
        internal: false,
    }
}

const fn inert(
    name: &'static str,
    kind: ConfigType,
    default: Text,
    valid: Validator,
    feature: &'static str,
) -> BrokerKey {
    BrokerKey {
        def: ConfigDef::new(name, kind, default, feature)
            .valid(valid)
            .read_only(),
        effect: false,
        internal: false,
    }
}

const fn inert_dynamic(
    name: &'static str,
    kind: ConfigType,
    default: Text,
    valid: Validator,
    feature: &'static str,
) -> BrokerKey {
    BrokerKey {
        def: ConfigDef::new(name, kind, default, feature).valid(valid),
        effect: false,
        internal: false,
    }
}

const fn inert_internal(
    name: &'static str,
    kind: ConfigType,
    default: Text,
    valid: Validator,
    feature: &'static str,
) -> BrokerKey {
    BrokerKey {
        def: ConfigDef::new(name, kind, default, feature)
            .valid(valid)
            .read_only(),
        effect: false,
        internal: true,
    }
}

static BY_NAME: LazyLock<HashMap<&'static str, &'static BrokerKey>> =
    LazyLock::new(|| all().map(|key| (key.def.name, key)).collect());

static DEFINITIONS: LazyLock<Vec<ConfigDef>> =
    LazyLock::new(|| all().map(BrokerKey::alterable).collect());

/// The definitions alone, for the rules of the controller.
pub fn definitions() -> &'static [ConfigDef] {
    &DEFINITIONS
}

/// Broker keys that stand in for each other, the strongest first (`log.retention.ms` before its
/// minutes and hours).
pub fn weaker_spellings(name: &str) -> &'static [&'static str] {
    match name {
        "log.retention.ms" => &["log.retention.minutes", "log.retention.hours"],
        "log.roll.ms" => &["log.roll.hours"],
        "log.roll.jitter.ms" => &["log.roll.jitter.hours"],
        "log.flush.interval.ms" => &["log.flush.scheduler.interval.ms"],
        _ => &[],
    }
}

/// All keys: Kafka's with effect, ours, Kafka's without effect.
pub fn all() -> impl Iterator<Item = &'static BrokerKey> {
    effective::KEYS.iter().chain(own::KEYS).chain(inert::KEYS)
}

/// Finds a key. Per-listener forms (`listener.name.NAME.KEY`) are looked up by the key inside.
pub fn find(name: &str) -> Option<&'static BrokerKey> {
    if let Some(key) = BY_NAME.get(name) {
        return Some(key);
    }
    let inner = name.strip_prefix("listener.name.")?.split_once('.')?.1;
    // Mechanism prefixes of SASL keys: `listener.name.N.plain.sasl.jaas.config`.
    BY_NAME
        .get(inner)
        .or_else(|| BY_NAME.get(inner.split_once('.')?.1))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_inside_its_own_range() {
        for key in all() {
            if let Some(default) = key.def.default {
                assert!(
                    key.def.parse(default).is_ok(),
                    "{}: {:?}",
                    key.def.name,
                    key.def.parse(default)
                );
            }
        }
    }

    #[test]
    fn names_are_unique_and_documented() {
        assert_eq!(all().count(), BY_NAME.len());
        assert!(all().all(|key| !key.def.doc.is_empty()));
    }

    #[test]
    fn kafkas_keys_are_all_there() {
        assert_eq!(effective::KEYS.len() + inert::KEYS.len(), 360);
        for name in [
            "log.retention.ms",
            "ssl.keystore.password",
            "remote.log.reader.threads",
            "listener.name.internal.ssl.key.password",
        ] {
            assert!(find(name).is_some(), "{name}");
        }
    }
}
