//! Topic configs carried from what decides them at the source without being set on the topic: its
//! brokers or Kafka's defaults.
//!
//! They are ordinary topic configs here, so that they hold after failover too. What this mirror has
//! set is on record with its value in a hidden key of the mirror (`.carried.<topic>`): a value
//! somebody else wrote is never touched, ours is changed and taken back with the source's. The keys
//! that are set on the source's topic are in [`super::growth`].
//!
//! Guards F-12: a mirror keeps what its source keeps.

use std::collections::BTreeMap;

use tarn_metadata::{Image, Record};
use tarn_wire::Str;

use super::definition::config_record;

/// Prefix of the hidden keys. Not part of any table, so never shown as a key and never alterable.
const CARRIED_PREFIX: &str = ".carried.";

/// Between two entries of the record; values are lists at most, and lists have commas.
const SEPARATOR: char = ';';

/// Keys and values of a topic.
pub(super) type Values = BTreeMap<Str, Str>;

/// The configs this mirror carried to a topic, with the values it set.
pub fn carried_configs(image: &Image, mirror: &str, topic: &str) -> BTreeMap<Str, Str> {
    let key = format!("{CARRIED_PREFIX}{topic}");
    let stored = image.mirror(mirror).and_then(|c| c.get(key.as_str()));
    stored
        .into_iter()
        .flat_map(|list| list.split(SEPARATOR))
        .filter_map(|entry| entry.split_once('='))
        .map(|(key, value)| (Str::from(key), Str::from(value)))
        .collect()
}

/// Remembers what was carried.
pub(super) fn carried_record(mirror: &str, topic: &str, carried: &Values) -> Record {
    let entry = |(key, value): (&Str, &Str)| format!("{key}={value}");
    let list: Vec<String> = carried.iter().map(entry).collect();
    let list = list.join(&SEPARATOR.to_string());
    let key = format!("{CARRIED_PREFIX}{topic}");
    config_record(mirror, &key, (!list.is_empty()).then_some(list.as_str()))
}

/// What changes on a topic: keys to set (`Some`) or to take back (`None`), and what is carried from
/// now on. `local` = the topic's own values without those that are being taken back anyway, `own` =
/// keys set on the topic at the source, `wanted` = what is to be carried, `before` = what was.
pub(super) fn plan(
    local: &Values,
    own: &[&str],
    wanted: &[(Str, Str)],
    before: &Values,
) -> (Vec<(Str, Option<Str>)>, Values) {
    let mut changes = Vec::new();
    let mut carried = Values::new();
    for (key, value) in wanted.iter().filter(|(key, _)| !own.contains(&&**key)) {
        let is_ours = match local.get(key) {
            Some(found) => before.get(key) == Some(found),
            None => true,
        };
        if !is_ours {
            continue;
        }
        if local.get(key) != Some(value) {
            changes.push((key.clone(), Some(value.clone())));
        }
        carried.insert(key.clone(), value.clone());
    }
    for (key, value) in before {
        let is_over = !carried.contains_key(key) && !own.contains(&&**key);
        if is_over && local.get(key) == Some(value) {
            changes.push((key.clone(), None));
        }
    }
    (changes, carried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(list: &[(&str, &str)]) -> Values {
        list.iter()
            .map(|(k, v)| (Str::from(*k), Str::from(*v)))
            .collect()
    }

    fn run(
        local: &[(&str, &str)],
        own: &[&str],
        wanted: &[(&str, &str)],
        before: &[(&str, &str)],
    ) -> (Vec<(String, Option<String>)>, Values) {
        let wanted: Vec<(Str, Str)> = values(wanted).into_iter().collect();
        let (changes, carried) = plan(&values(local), own, &wanted, &values(before));
        let text = |(k, v): (Str, Option<Str>)| (k.to_string(), v.map(|v| v.to_string()));
        (changes.into_iter().map(text).collect(), carried)
    }

    fn set(key: &str, value: &str) -> (String, Option<String>) {
        (key.to_owned(), Some(value.to_owned()))
    }

    #[test]
    fn a_carried_value_is_set_follows_the_source_and_is_taken_back() {
        let forever = [("retention.ms", "-1")];
        let (changes, carried) = run(&[], &[], &forever, &[]);
        assert_eq!(changes, [set("retention.ms", "-1")]);
        assert_eq!(carried, values(&forever));
        let (changes, carried) = run(&forever, &[], &forever, &forever);
        assert!(changes.is_empty() && carried == values(&forever));
        let (changes, _) = run(&forever, &[], &[("retention.ms", "9")], &forever);
        assert_eq!(changes, [set("retention.ms", "9")]);
        let (changes, carried) = run(&forever, &[], &[], &forever);
        assert_eq!(changes, [("retention.ms".to_owned(), None)]);
        assert!(carried.is_empty());
    }

    #[test]
    fn what_an_operator_set_here_stays() {
        let (forever, day) = ([("retention.ms", "-1")], [("retention.ms", "86400000")]);
        assert_eq!(run(&day, &[], &forever, &[]), (vec![], values(&[])));
        // Changed here after it had been carried: theirs from now on, also when the source changes.
        assert_eq!(run(&day, &[], &forever, &forever), (vec![], values(&[])));
        assert_eq!(run(&day, &[], &[], &forever), (vec![], values(&[])));
    }

    #[test]
    fn a_value_set_on_the_source_topic_takes_over_from_a_carried_one() {
        let forever = [("retention.ms", "-1")];
        let (changes, carried) = run(&forever, &["retention.ms"], &[], &forever);
        assert!(changes.is_empty() && carried.is_empty());
    }

    #[test]
    fn lists_survive_being_remembered() {
        let carried = values(&[("cleanup.policy", "compact,delete"), ("retention.ms", "-1")]);
        let record = carried_record("m", "t", &carried);
        let image = Image::default().apply(&[record], 1, 1).unwrap().0;
        assert_eq!(carried_configs(&image, "m", "t"), carried);
    }
}
