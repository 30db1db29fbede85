//! Keys that ask for protection which this broker does not give: any value but a harmless one ends
//! the start. A broker that only warned would serve everybody while its operator believes
//! otherwise.
//!
//! Not here: listeners that are mapped to TLS or SASL (`rules`), which are refused too.

use std::collections::BTreeMap;

use super::{ConfigError, SetValue, keys};

/// A key, the values that ask for nothing (beside its default and the empty one), and what the
/// broker cannot do.
struct Guard {
    key: &'static str,
    harmless: &'static [&'static str],
    lacks: &'static str,
}

const NO_ACLS: &str =
    "this version checks no permissions: everybody who reaches the port is served";
const NO_SASL: &str = "this version has no SASL: nobody is asked who they are";
const NO_POLICIES: &str = "this version runs no classes: what the policy forbids would be allowed";

/// Single keys. Whole families follow in [`FAMILIES`].
const GUARDS: &[Guard] = &[
    Guard {
        key: "authorizer.class.name",
        harmless: &[],
        lacks: NO_ACLS,
    },
    Guard {
        key: "super.users",
        harmless: &[],
        lacks: NO_ACLS,
    },
    Guard {
        key: "allow.everyone.if.no.acl.found",
        harmless: &["true"],
        lacks: NO_ACLS,
    },
    Guard {
        key: "sasl.enabled.mechanisms",
        harmless: &[],
        lacks: NO_SASL,
    },
    Guard {
        key: "security.inter.broker.protocol",
        harmless: &["PLAINTEXT"],
        lacks: "this version encrypts nothing and asks nobody who they are",
    },
];

/// Features of keys without effect (the meaning in the table of keys) that protect something, and
/// what the broker cannot do.
const FAMILIES: &[(&str, &str)] = &[
    ("authorisation", NO_ACLS),
    ("authentication", "this version asks nobody who they are"),
    ("SASL", NO_SASL),
    (
        "TLS",
        "this version has no TLS: everything is readable on the wire",
    ),
    ("delegation tokens", "this version has no delegation tokens"),
    ("policy classes", NO_POLICIES),
];

/// What a key asks for that the broker lacks; `None` = the key may stand as it is.
fn lack(key: &str, value: &str) -> Option<&'static str> {
    let value = value.trim();
    if value.is_empty() {
        return None;
    }
    let row = keys::find(key);
    let is_default = row.is_some_and(|row| row.def.default == Some(value));
    // `listener.name.NAME.KEY` asks for the same as KEY.
    let name = row.map_or(key, |row| row.def.name);
    if let Some(guard) = GUARDS.iter().find(|guard| guard.key == name) {
        let is_harmless = guard
            .harmless
            .iter()
            .any(|ok| ok.eq_ignore_ascii_case(value));
        return (!is_harmless && !is_default).then_some(guard.lacks);
    }
    let row = row.filter(|row| !row.effect && !is_default)?;
    let family = FAMILIES.iter().find(|(feature, _)| *feature == row.def.doc);
    family.map(|(_, lacks)| *lacks)
}

/// Refuses the first key that asks for protection the broker does not give.
pub(super) fn check(set: &BTreeMap<String, SetValue>) -> Result<(), ConfigError> {
    for (key, value) in set {
        if let Some(lacks) = lack(key, &value.value) {
            return Err(ConfigError::Invalid {
                location: value.location.clone(),
                message: format!(
                    "`{key}` asks for protection that this broker does not give: {lacks}; \
                     remove the key to start without it"
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A security key that is not obeyed is refused, in every spelling; what asks for nothing is
    /// not.
    #[test]
    fn keys_that_ask_for_protection_are_refused() {
        for (key, value) in [
            (
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            ),
            ("super.users", "User:admin"),
            ("allow.everyone.if.no.acl.found", "false"),
            ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
            ("security.inter.broker.protocol", "SSL"),
            ("ssl.keystore.location", "/etc/kafka/keystore.p12"),
            ("ssl.client.auth", "required"),
            ("listener.name.external.ssl.client.auth", "required"),
            (
                "listener.name.external.plain.sasl.jaas.config",
                "PlainLoginModule required;",
            ),
            ("sasl.jaas.config", "PlainLoginModule required;"),
            ("create.topic.policy.class.name", "com.example.Policy"),
            ("connections.max.reauth.ms", "3600000"),
        ] {
            assert!(lack(key, value).is_some(), "{key}={value}");
        }
        for (key, value) in [
            ("authorizer.class.name", ""),
            ("allow.everyone.if.no.acl.found", "true"),
            ("security.inter.broker.protocol", "PLAINTEXT"),
            ("ssl.client.auth", "none"),
            ("sasl.enabled.mechanisms", "GSSAPI"),
            ("num.io.threads", "16"),
            ("no.such.key", "1"),
        ] {
            assert!(lack(key, value).is_none(), "{key}={value}");
        }
    }
}
