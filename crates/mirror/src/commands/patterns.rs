//! The stored lists of a mirror (`mirror.topics.include`, `mirror.topics.exclude`) as an add changes them, and what they say about the topics
//! that it names. Pure: gives records and refusals.

use tarn_metadata::config::split_list;
use tarn_metadata::{DesiredState, Image, Membership, Record};
use tarn_wire::Str;

use super::definition::{config_record, merged};
use super::topics::AddTopics;
use crate::config::patterns::{PatternError, Patterns};
use crate::config::{MirrorConfig, TOPICS_EXCLUDE, TOPICS_INCLUDE};
use crate::dialect::MirrorError;

/// The lists in force and what the request says about them.
pub(super) struct PatternChange<'a> {
    request: &'a AddTopics,
    /// What is in force, defaults included: writing a list must not lose the default exclusion (A7).
    include: String,
    exclude: String,
    /// Somebody wrote the exclusion: members that match it are failed over at the next refresh.
    exclude_is_written: bool,
}

fn bad(error: PatternError) -> MirrorError {
    MirrorError::InvalidRequest(error.to_string())
}

fn strings(list: &[Str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

impl<'a> PatternChange<'a> {
    /// Checks what the request says about patterns. `Err`: the whole request is refused.
    pub(super) fn new(
        image: &Image,
        stored: &MirrorConfig,
        request: &'a AddTopics,
    ) -> Result<PatternChange<'a>, MirrorError> {
        Patterns::new(&request.include).map_err(bad)?;
        let exclude = Patterns::new(&request.exclude).map_err(bad)?;
        if let Some(both) = request.include.iter().find(|p| request.exclude.contains(p)) {
            return Err(MirrorError::InvalidRequest(format!(
                "'{both}' is to be included and excluded by one request"
            )));
        }
        let would_stop = |topic: &Str, member: &Membership| {
            member.desired != DesiredState::Stopped && exclude.matches(topic)
        };
        if let Some((topic, _)) = image
            .members_of(&request.mirror)
            .find(|(topic, member)| would_stop(topic, member))
        {
            return Err(MirrorError::InvalidRequest(format!(
                "Topic '{topic}' is being mirrored and would be excluded by {}; a start stops nothing: stop the topic first",
                culprit(topic, &strings(&request.exclude))
            )));
        }
        let in_force = |key: &str| {
            let default = crate::config::definition(key)
                .and_then(|d| d.default)
                .unwrap_or_default();
            stored.get(key).unwrap_or(default).to_owned()
        };
        Ok(PatternChange {
            request,
            include: in_force(TOPICS_INCLUDE),
            exclude: in_force(TOPICS_EXCLUDE),
            exclude_is_written: stored.get(TOPICS_EXCLUDE).is_some(),
        })
    }

    /// Whether the request is about stored patterns (late form).
    fn stores(&self) -> bool {
        self.request.store_names
            || !self.request.include.is_empty()
            || !self.request.exclude.is_empty()
    }

    /// Why this topic must not join: an exclusion other than its literal name, which starting the name takes out.
    pub(super) fn refusal(&self, topic: &str) -> Option<MirrorError> {
        if !self.stores() && !self.exclude_is_written {
            return None;
        }
        let list = split_list(&self.exclude)
            .into_iter()
            .filter(|pattern| pattern != topic)
            .chain(strings(&self.request.exclude));
        let list: Vec<String> = list.collect();
        let excluded = Patterns::new(&list).is_ok_and(|patterns| patterns.matches(topic));
        excluded.then(|| {
            MirrorError::InvalidRequest(format!(
                "Topic '{topic}' is excluded by {} in {TOPICS_EXCLUDE} of mirror '{}'; take it out of that list to mirror the topic",
                culprit(topic, &list),
                self.request.mirror
            ))
        })
    }

    /// The changed lists, given the topics that joined and those that were refused. A refused request changes nothing.
    pub(super) fn records(&self, done: &[Str], refused: &[Str]) -> Vec<Record> {
        if done.is_empty() && !refused.is_empty() {
            return Vec::new();
        }
        let is_refused = |name: &String| refused.iter().any(|r| *r == *name.as_str());
        let done = strings(done);
        let mut include = strings(&self.request.include);
        if self.request.store_names && include.is_empty() {
            include.clone_from(&done);
        }
        include.retain(|pattern| !is_refused(pattern));
        let exclude = strings(&self.request.exclude);
        let no_more: Vec<String> = include.iter().chain(&done).cloned().collect();
        let lists = [
            (TOPICS_INCLUDE, &self.include, &include, &exclude),
            (TOPICS_EXCLUDE, &self.exclude, &exclude, &no_more),
        ];
        lists
            .into_iter()
            .filter_map(|(key, before, add, remove)| {
                let after = merged(before, add, remove);
                let changed = split_list(before) != split_list(&after);
                changed.then(|| config_record(&self.request.mirror, key, Some(&after)))
            })
            .collect()
    }
}

/// The entry of a list that matches a topic, as a text shows it.
fn culprit(topic: &str, list: &[String]) -> String {
    let matching = list.iter().find(|pattern| {
        Patterns::new(std::slice::from_ref(*pattern)).is_ok_and(|p| p.matches(topic))
    });
    matching.map_or_else(
        || "a pattern".to_owned(),
        |pattern| format!("the pattern '{pattern}'"),
    )
}
