//! The stored lists of a mirror (`mirror.topics.include`, `mirror.topics.exclude`) as an add
//! changes them, and what they say about the topics that it names. Pure: gives records and
//! refusals.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use tarn_metadata::config::split_list;
use tarn_metadata::{DesiredState, Image, Membership, Record};
use tarn_wire::Str;

use super::definition::{config_record, merged};
use super::topics::AddTopics;
use crate::config::patterns::{PatternError, Patterns};
use crate::config::{MirrorConfig, TOPICS_EXCLUDE, TOPICS_INCLUDE};
use crate::dialect::MirrorError;

/// Refusals of one decision that name the pattern they are for; the others say "a pattern".
const NAMINGS_MAX: usize = 10;

/// The lists in force and what the request says about them.
pub(super) struct PatternChange<'a> {
    request: &'a AddTopics,
    /// What is in force, defaults included: writing a list must not lose the default exclusion.
    include: String,
    exclude: String,
    /// Somebody wrote the exclusion: members that match it are failed over at the next refresh.
    exclude_is_written: bool,
    /// The exclusions of the request and of the mirror, compiled once for all topics of a decision.
    asked: Arc<Patterns>,
    stored: OnceCell<Option<Arc<Patterns>>>,
    /// Refusals that may still name the pattern they are for.
    namings: Cell<usize>,
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
        Patterns::shared(&strings(&request.include)).map_err(bad)?;
        let exclude = Patterns::shared(&strings(&request.exclude)).map_err(bad)?;
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
            asked: exclude,
            stored: OnceCell::new(),
            namings: Cell::new(NAMINGS_MAX),
        })
    }

    /// Whether the request is about stored patterns (late form).
    fn stores(&self) -> bool {
        self.request.store_names
            || !self.request.include.is_empty()
            || !self.request.exclude.is_empty()
    }

    /// Why this topic must not join: an exclusion other than its literal name, which starting the
    /// name takes out.
    pub(super) fn refusal(&self, topic: &str) -> Option<MirrorError> {
        if !self.stores() && !self.exclude_is_written {
            return None;
        }
        let stored = self
            .stored
            .get_or_init(|| Patterns::shared(&split_list(&self.exclude)).ok());
        let by_stored = stored.as_ref().is_some_and(|p| p.match_besides(topic));
        if !by_stored && !self.asked.matches(topic) {
            return None;
        }
        let mut list = if by_stored {
            split_list(&self.exclude)
        } else {
            strings(&self.request.exclude)
        };
        list.retain(|pattern| !by_stored || pattern != topic);
        let left = self.namings.get();
        self.namings.set(left.saturating_sub(1));
        if left == 0 {
            list.clear();
        }
        Some(MirrorError::InvalidRequest(format!(
            "Topic '{topic}' is excluded by {} in {TOPICS_EXCLUDE} of mirror '{}'; take it out of that list to mirror the topic",
            culprit(topic, &list),
            self.request.mirror
        )))
    }

    /// The changed lists, given the topics that joined and those that were refused. A refused
    /// request changes nothing.
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

/// The first entry of a list that matches a topic, as a text shows it. Found by halves, so that it
/// costs at most what compiling the list did.
fn culprit(topic: &str, list: &[String]) -> String {
    let mut rest = list;
    while rest.len() > 1 {
        let (first, second) = rest.split_at(rest.len() / 2);
        let is_in_first = Patterns::new(first).is_ok_and(|p| p.matches(topic));
        rest = if is_in_first { first } else { second };
    }
    rest.first().map_or_else(
        || "a pattern".to_owned(),
        |pattern| format!("the pattern '{pattern}'"),
    )
}
