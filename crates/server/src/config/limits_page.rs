//! The page of limits, `docs/limits.md`, from the tables of keys: a key that bounds something
//! appears by itself. Written by `cargo run -p xtask -- limits-doc`.

use std::fmt::Write as _;

use tarn_metadata::config::{ConfigDef, ConfigType, topic};

use super::keys;

const INTRODUCTION: &str = "\
# Limits

Generated from the tables of keys by `cargo run -p xtask -- limits-doc`; a test keeps it up to date.

Whatever a client or a source can make large, long or many has a bound: a key of the broker, of a
topic or of a mirror, with the default and with what happens at it. *Now*: the key can be changed
with `kafka-configs`, and the change is in force at once and after a restart; the others are read at
the start. A default of -1 is explained in the last column.

Error codes by name: POLICY_VIOLATION is for what will never fit (ask for less),
THROTTLING_QUOTA_EXCEEDED for what does not fit now (ask again), INVALID_REQUEST for what no client
sends. Lines of log that callers can cause are limited to ten a minute for each kind, and the number
left out is told.
";

/// Parts of key names that tell a bound.
const BOUND_WORDS: &[&str] = &["max", "limit", "slots", "percent", "timeout", "idle"];
/// Bounds whose names do not tell.
const OTHER_BOUNDS: &[&str] = &[
    "decompression.memory.bytes",
    "decompression.threads",
    "log.roll.min.interval.ms",
    "mirror.disconnect.fail.after.ms",
    "offsets.retention.minutes",
    "producer.id.expiration.ms",
    "socket.listen.backlog.size",
];

fn is_bound(def: &ConfigDef) -> bool {
    let is_number = matches!(
        def.kind,
        ConfigType::Short | ConfigType::Int | ConfigType::Long | ConfigType::Double
    );
    let told = def.name.split('.').any(|word| BOUND_WORDS.contains(&word));
    is_number && (told || OTHER_BOUNDS.contains(&def.name))
}

/// The page.
pub fn limits_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let broker: Vec<(&ConfigDef, bool)> = keys::all()
        .filter(|key| key.effect && !key.internal)
        .map(|key| (&key.def, key.is_dynamic()))
        .collect();
    let all = |defs: &'static [ConfigDef]| defs.iter().map(|def| (def, true)).collect::<Vec<_>>();
    section(&mut page, "Keys of the broker", broker);
    section(&mut page, "Keys of a topic", all(topic::TOPIC_CONFIGS));
    section(
        &mut page,
        "Keys of a mirror",
        all(tarn_mirror::config::KEYS),
    );
    page
}

fn section(page: &mut String, title: &str, mut rows: Vec<(&ConfigDef, bool)>) {
    rows.retain(|(def, _)| is_bound(def));
    rows.sort_by_key(|(def, _)| def.name);
    page.push_str(&format!(
        "\n## {title}\n\n| Key | Default | Now | What it bounds, and what happens at it |\n|---|---|---|---|\n"
    ));
    for (def, is_dynamic) in rows {
        let default = def.default.unwrap_or("");
        let now = if is_dynamic { "yes" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {default} | {now} | {} |", def.name, def.doc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            limits_page() == written,
            "docs/limits.md is old: cargo run -p xtask -- limits-doc"
        );
    }

    #[test]
    fn every_named_bound_is_a_key() {
        for name in OTHER_BOUNDS {
            let is_there = keys::find(name).is_some_and(|key| key.effect);
            assert!(is_there, "{name} is no key with effect");
        }
    }
}
