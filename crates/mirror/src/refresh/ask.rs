//! Questions to a source that both the refresh and the add command ask, with their answers brought into the form of decisions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tarn_metadata::config::topic as topic_keys;
use tarn_wire::Str;

use crate::commands::SourceFacts;
use crate::config::patterns::Patterns;
use crate::seam::{ForeignMirror, Source, SourceError, SourceTopic};

/// How long create and add wait for a source before they give up (mirror-cli.md §6).
pub const PREFLIGHT_MS_MAX: u64 = 15_000;

/// Names asked for in one request to the source.
pub const NAMES_PER_REQUEST_MAX: usize = 1_000;

/// Bounds a question to the source.
pub async fn within<T>(
    ms: u64,
    question: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(Duration::from_millis(ms), question).await {
        Ok(answer) => answer,
        Err(_) => Err(SourceError::Unreachable(format!(
            "no answer within {} s",
            ms / 1_000
        ))),
    }
}

/// Which of a source topic's configs may and can be set here, and why the others are left out.
pub fn usable_configs(
    entries: &[(Str, Str)],
    excluded: &Patterns,
) -> (Vec<(Str, Str)>, Vec<String>) {
    let mut usable = Vec::new();
    let mut skipped = Vec::new();
    for (key, value) in entries {
        if excluded.matches(key) || *key == topic_keys::MIRROR_NAME {
            continue;
        }
        match topic_keys::find(key) {
            None => skipped.push(format!("{key}: not known to this broker")),
            Some(def) => match def.parse(value) {
                Ok(_) => usable.push((key.detach(), value.detach())),
                Err(error) => skipped.push(format!("{key}: {error}")),
            },
        }
    }
    (usable, skipped)
}

/// Topics at the source as facts for a decision: partitions, id, usable configs. A topic whose configs cannot be read is taken without them;
/// the next refresh sets them.
pub async fn facts(
    source: &Arc<dyn Source>,
    topics: &[SourceTopic],
    excluded: &Patterns,
) -> Result<BTreeMap<Str, SourceFacts>, SourceError> {
    let mut configs: BTreeMap<Str, Vec<(Str, Str)>> = BTreeMap::new();
    for names in topics.chunks(NAMES_PER_REQUEST_MAX) {
        for topic in source
            .topic_configs(names.iter().map(|t| t.name.clone()).collect())
            .await?
        {
            if let Ok(entries) = topic.entries {
                configs.insert(topic.name, usable_configs(&entries, excluded).0);
            }
        }
    }
    let fact = |topic: &SourceTopic| {
        let facts = SourceFacts {
            topic_id: topic.id.filter(|id| !id.is_zero()),
            partitions: topic.partitions.len() as i32,
            configs: configs.remove(&topic.name).unwrap_or_default(),
        };
        (topic.name.detach(), facts)
    };
    Ok(topics.iter().map(fact).collect())
}

/// Topics that the source itself mirrors from this cluster, with the mirror that does: adding them here would close a loop.
pub fn looping(mirrors: &[ForeignMirror]) -> BTreeMap<Str, Str> {
    let pairs = mirrors
        .iter()
        .flat_map(|m| m.active_topics.iter().map(|t| (t.clone(), m.name.clone())));
    pairs.collect()
}

/// Text of a refused loop.
pub fn loop_text(topic: &str, foreign_mirror: &str) -> String {
    format!(
        "Detected mirror loop: the source mirrors topic '{topic}' from this cluster with its mirror '{foreign_mirror}'; remove it there first"
    )
}

/// Source topics that patterns name: matched by `wanted` and not by `without`; internal topics never.
pub fn select<'a>(
    topics: &'a [SourceTopic],
    wanted: &Patterns,
    without: &Patterns,
) -> Vec<&'a SourceTopic> {
    topics
        .iter()
        .filter(|t| !crate::commands::is_internal(&t.name))
        .filter(|t| wanted.matches(&t.name) && !without.matches(&t.name))
        .collect()
}
