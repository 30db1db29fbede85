//! Remove, pause and resume: changing what is wished of topics that are members. None of them asks
//! the source, and remove is possible in every state.

use std::collections::BTreeSet;

use tarn_metadata::config::split_list;
use tarn_metadata::{DesiredState, Image, Record};
use tarn_wire::{Str, Uuid};

use super::definition::{config_record, merged};
use super::{Decision, TopicResult, members};
use crate::config::{TOPICS_EXCLUDE, TOPICS_INCLUDE, definition};
use crate::dialect::MirrorError;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Failover.
    Remove,
    /// Hold.
    Pause,
    /// Go on.
    Resume,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeTopics {
    /// The mirror.
    pub mirror: Str,
    /// What.
    pub wish: Wish,
    /// Topics, with the id from the request (zero = none).
    pub topics: Vec<(Str, Uuid)>,
    /// Late form of remove: taken out of include, or else put into exclude.
    pub patterns: Vec<Str>,
    /// Resume of a topic that is not paused is a success (late), for all or for these (FAILED ones,
    /// in every dialect: it means "now").
    pub resume_always: bool,
    /// Topics with a FAILED partition.
    pub failed: BTreeSet<Str>,
    /// Metadata offset up to which the caller has looked at the topics; `None` = it has not.
    pub checked_at: Option<i64>,
}

/// Members of a mirror that patterns mean. Those whose wish does not fit are left out, so that a
/// wide pattern is no error, unless they are named literally or nothing fits at all: then each says
/// why.
pub fn choose(
    image: &Image,
    mirror: &str,
    wish: Wish,
    failed: &BTreeSet<Str>,
    literal: &BTreeSet<Str>,
    chosen: &dyn Fn(&Str) -> bool,
) -> Vec<(Str, Uuid)> {
    let fits = |topic: &Str, desired: DesiredState| match wish {
        Wish::Remove => true,
        Wish::Pause => desired != DesiredState::Stopped,
        Wish::Resume => desired == DesiredState::Paused || failed.contains(topic),
    };
    let members: Vec<(&Str, DesiredState)> = image
        .members_of(mirror)
        .filter(|(topic, _)| chosen(topic))
        .map(|(topic, member)| (topic, member.desired))
        .collect();
    let none_fits = !members.iter().any(|(topic, desired)| fits(topic, *desired));
    members
        .into_iter()
        .filter(|(topic, desired)| none_fits || fits(topic, *desired) || literal.contains(*topic))
        .map(|(topic, _)| (topic.clone(), Uuid::ZERO))
        .collect()
}

/// Changes wishes. Each topic gets its own result.
pub fn change_topics(image: &Image, request: &ChangeTopics) -> Result<Decision, MirrorError> {
    if !members::mirror_exists(image, &request.mirror) {
        return Err(MirrorError::UnknownMirror(request.mirror.to_string()));
    }
    let mut decision = Decision::default();
    let mut seen = BTreeSet::new();
    for (topic, id) in &request.topics {
        if !seen.insert(topic.clone()) {
            continue;
        }
        match change_one(image, request, topic, *id) {
            Ok(record) => {
                decision.records.extend(record);
                decision.topics.push(TopicResult::done(topic));
            }
            Err(error) => decision.topics.push(TopicResult::refused(topic, error)),
        }
    }
    let refused: Vec<&Str> = decision
        .topics
        .iter()
        .filter(|t| t.error.is_some())
        .map(|t| &t.name)
        .collect();
    // A refused request changes nothing; a name that was refused is not put on a list either.
    let all_refused = !refused.is_empty() && refused.len() == decision.topics.len();
    if request.wish == Wish::Remove && !all_refused {
        let patterns: Vec<String> = request
            .patterns
            .iter()
            .filter(|p| !refused.contains(p))
            .map(|p| p.to_string())
            .collect();
        let records = drop_patterns(image, &request.mirror, patterns);
        decision.records.extend(records);
    }
    Ok(decision)
}

fn change_one(
    image: &Image,
    request: &ChangeTopics,
    topic: &Str,
    id: Uuid,
) -> Result<Option<Record>, MirrorError> {
    let Some(member) = image.membership(topic) else {
        return Err(match image.topic(topic) {
            Some(_) => MirrorError::TopicInNoMirror(topic.to_string()),
            None => MirrorError::UnknownTopic(topic.to_string()),
        });
    };
    if member.mirror != request.mirror {
        return Err(MirrorError::TopicNotInMirror(format!(
            "Topic '{topic}' is in mirror '{}', not in mirror '{}'",
            member.mirror, request.mirror
        )));
    }
    members::check_unchanged(member, request.checked_at)?;
    if !id.is_zero() && id != member.topic_id && id != member.source_topic_id {
        return Err(MirrorError::InconsistentTopicId(format!(
            "Topic '{topic}' has the id {}, not {id}",
            member.topic_id
        )));
    }
    let to = |desired| {
        Some(members::wish(
            topic,
            member.topic_id,
            &member.mirror,
            desired,
            member.source_topic_id,
        ))
    };
    match (request.wish, member.desired) {
        (Wish::Remove, _) if member.is_wanted() => Ok(Some(members::cleared(member))),
        (Wish::Remove, DesiredState::Stopped) | (Wish::Pause, DesiredState::Paused) => Ok(None),
        (Wish::Remove, _) => Ok(to(DesiredState::Stopped)),
        (Wish::Pause, DesiredState::Stopped) => {
            Err(MirrorError::TopicBeingRemoved(topic.to_string()))
        }
        (Wish::Pause, DesiredState::Mirroring) => Ok(to(DesiredState::Paused)),
        (Wish::Resume, DesiredState::Paused) => Ok(to(DesiredState::Mirroring)),
        (Wish::Resume, DesiredState::Stopped) => {
            Err(MirrorError::TopicNotPaused(topic.to_string()))
        }
        (Wish::Resume, DesiredState::Mirroring) => {
            resume_active(request, topic, to(DesiredState::Mirroring))
        }
    }
}

fn resume_active(
    request: &ChangeTopics,
    topic: &Str,
    again: Option<Record>,
) -> Result<Option<Record>, MirrorError> {
    if request.failed.contains(topic) {
        return Ok(again);
    }
    if request.resume_always {
        Ok(None)
    } else {
        Err(MirrorError::TopicNotPaused(topic.to_string()))
    }
}

/// Removal by pattern must last: out of include, or else into exclude (late form).
fn drop_patterns(image: &Image, mirror: &Str, patterns: Vec<String>) -> Vec<Record> {
    let stored = |key: &str| {
        let default = definition(key).and_then(|d| d.default).unwrap_or_default();
        image
            .mirror(mirror)
            .and_then(|c| c.get(key))
            .map_or(default.to_owned(), |v| v.to_string())
    };
    let include = stored(TOPICS_INCLUDE);
    let listed = split_list(&include);
    let (included, others): (Vec<String>, Vec<String>) =
        patterns.into_iter().partition(|p| listed.contains(p));
    let mut records = Vec::new();
    if !included.is_empty() {
        let include = merged(&include, &[], &included);
        records.push(config_record(mirror, TOPICS_INCLUDE, Some(&include)));
    }
    // A pattern that nothing includes only needs an exclusion while there are patterns that could
    // bring the topics back.
    if !others.is_empty() && !listed.is_empty() {
        let exclude = merged(&stored(TOPICS_EXCLUDE), &others, &[]);
        records.push(config_record(mirror, TOPICS_EXCLUDE, Some(&exclude)));
    }
    records
}
