//! Questions to a source that both the refresh and the add command ask, with their answers brought
//! into the form of decisions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tarn_metadata::config::{ConfigValue, topic as topic_keys};
use tarn_replica::ReplicaManager;
use tarn_wire::Str;

use crate::commands::SourceFacts;
use crate::config::compiled::blocking;
use crate::config::patterns::Patterns;
use crate::config::{CARRIED, MirrorConfig};
use crate::lifecycle::Tools;
use crate::seam::{ForeignMirror, Source, SourceEntries, SourceError, SourceTopic};

/// How long create and add wait for a source before they give up (docs/mirroring.md §2).
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

/// A source topic's configs as far as they hold here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsableConfigs {
    /// Set on the topic there, and valid here.
    pub own: Vec<(Str, Str)>,
    /// Decided by the source's brokers or defaults, and another value than a topic has here by
    /// itself.
    pub carried: Vec<(Str, Str)>,
    /// What is left out although it is not excluded, with the reason.
    pub skipped: Vec<String>,
}

/// The values that a topic without values of its own has here, of the keys in [`CARRIED`].
pub type HereValues = BTreeMap<&'static str, ConfigValue>;

/// What holds on this broker by itself.
pub fn here_values(replicas: &ReplicaManager) -> HereValues {
    let value = |key: &&'static str| Some((*key, replicas.inherited_topic_config(key)?));
    CARRIED.iter().filter_map(value).collect()
}

/// Which of a source topic's configs may, can and must be set here.
pub fn usable_configs(
    entries: &SourceEntries,
    excluded: &Patterns,
    here: &HereValues,
) -> UsableConfigs {
    let mut usable = UsableConfigs::default();
    let own = entries.own.iter().map(|entry| (entry, true));
    let inherited = entries.inherited.iter().map(|entry| (entry, false));
    for ((key, value), is_own) in own.chain(inherited) {
        if excluded.matches(key) || *key == topic_keys::MIRROR_NAME {
            continue;
        }
        let Some(def) = topic_keys::find(key) else {
            let text = format!("{key}: not known to this broker");
            usable.skipped.push(text);
            continue;
        };
        match def.parse(value) {
            Ok(_) if is_own => usable.own.push((key.detach(), value.detach())),
            Ok(parsed) if here.get(&**key) != Some(&parsed) => {
                usable.carried.push((key.detach(), value.detach()));
            }
            Ok(_) => {}
            Err(error) => usable.skipped.push(format!("{key}: {error}")),
        }
    }
    usable
}

/// What a source says of topics that are to join: facts for the decision, and those that would
/// close a loop, with the mirror that does.
pub async fn joining(
    tools: &Tools,
    source: &Arc<dyn Source>,
    config: &MirrorConfig,
    topics: &[SourceTopic],
) -> Result<(BTreeMap<Str, SourceFacts>, BTreeMap<Str, Str>), SourceError> {
    let excluded = config.excluded_properties().unwrap_or_default();
    let here = here_values(&tools.replicas);
    let facts = facts(source, topics, &excluded, &here).await?;
    let cluster_id = tools.settings.cluster_id.clone();
    let loops = looping(&source.mirrors_from(cluster_id).await?);
    Ok((facts, loops))
}

/// Topics at the source as facts for a decision: partitions, id, usable configs. A topic whose
/// configs cannot be read is taken without them; the next refresh sets them.
async fn facts(
    source: &Arc<dyn Source>,
    topics: &[SourceTopic],
    excluded: &Patterns,
    here: &HereValues,
) -> Result<BTreeMap<Str, SourceFacts>, SourceError> {
    let mut configs: BTreeMap<Str, UsableConfigs> = BTreeMap::new();
    for names in topics.chunks(NAMES_PER_REQUEST_MAX) {
        let names = names.iter().map(|t| t.name.clone()).collect();
        let told = match source.topic_configs(names).await {
            // A source that does not serve configs can be copied all the same; the refresh says so.
            Err(e) if !e.is_unreachable() => continue,
            told => told?,
        };
        for topic in told {
            if let Ok(entries) = topic.entries {
                configs.insert(topic.name, usable_configs(&entries, excluded, here));
            }
        }
    }
    let fact = |topic: &SourceTopic| {
        let UsableConfigs { own, carried, .. } = configs.remove(&topic.name).unwrap_or_default();
        let facts = SourceFacts {
            topic_id: topic.id.filter(|id| !id.is_zero()),
            partitions: topic.partitions.len() as i32,
            configs: own,
            carried,
        };
        (topic.name.detach(), facts)
    };
    Ok(topics.iter().map(fact).collect())
}

/// Topics that the source itself mirrors from this cluster, with the mirror that does: adding them
/// here would close a loop.
fn looping(mirrors: &[ForeignMirror]) -> BTreeMap<Str, Str> {
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

/// Source topics that patterns name: matched by `wanted` and not by `without`; internal topics
/// never.
pub async fn select(
    mut topics: Vec<SourceTopic>,
    wanted: &Arc<Patterns>,
    without: &Arc<Patterns>,
) -> Vec<SourceTopic> {
    let (wanted, without) = (wanted.clone(), without.clone());
    blocking(move || {
        topics.retain(|t| {
            let name = &t.name;
            !crate::commands::is_internal(name) && wanted.matches(name) && !without.matches(name)
        });
        topics
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(Str, Str)> {
        list.iter()
            .map(|(k, v)| (Str::from(*k), Str::from(*v)))
            .collect()
    }

    /// What the source's broker decides is carried where this broker would decide otherwise, and
    /// only there.
    #[test]
    fn an_inherited_value_is_carried_only_where_it_differs_from_what_holds_here() {
        let entries = SourceEntries {
            own: pairs(&[("segment.ms", "5000"), ("retention.bytes", "many")]),
            inherited: pairs(&[
                ("retention.ms", "-1"),
                ("cleanup.policy", "delete"),
                ("max.message.bytes", "1048588"),
                ("message.timestamp.type", "LogAppendTime"),
            ]),
        };
        let by_default = |key: &&'static str| {
            let def = topic_keys::find(key)?;
            Some((*key, def.parse(def.default?).ok()?))
        };
        let here: HereValues = CARRIED.iter().filter_map(by_default).collect();
        let none = Patterns::default();
        let usable = usable_configs(&entries, &none, &here);
        assert_eq!(usable.own, pairs(&[("segment.ms", "5000")]));
        let carried = [
            ("retention.ms", "-1"),
            ("message.timestamp.type", "LogAppendTime"),
        ];
        assert_eq!(usable.carried, pairs(&carried));
        assert!(usable.skipped[0].starts_with("retention.bytes:"));
        let excluded = Patterns::new(&["retention.*"]).unwrap();
        let usable = usable_configs(&entries, &excluded, &here);
        assert_eq!(usable.carried, pairs(&[carried[1]]));
    }
}
