//! Adding topics to a mirror: the table of docs/mirroring.md §2.2.

use std::collections::{BTreeMap, BTreeSet};

use tarn_metadata::{
    DesiredState, Image, Membership, Record, TopicImage, check_topic_name, collision_key,
};
use tarn_wire::{Str, Uuid};

use super::carried::carried_record;
use super::definition::config_record;
use super::patterns::PatternChange;
use super::plan::{NewTopic, Planner};
use super::{Decision, TopicResult, is_internal, members};
use crate::config::MirrorConfig;
use crate::dialect::MirrorError;

/// What the source says about a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// Its id there; `None` when the source has no topic ids.
    pub topic_id: Option<Uuid>,
    /// Partitions there, ≥ 1.
    pub partitions: i32,
    /// Configs set on the topic there, exclusions already taken out, values already known to be
    /// valid here.
    pub configs: Vec<(Str, Str)>,
    /// Configs that the source's brokers or defaults decide, as far as they differ from what holds
    /// here; valid here.
    pub carried: Vec<(Str, Str)>,
}

/// One topic to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddTopic {
    /// Name, the same on both sides.
    pub name: Str,
    /// Id in the request; zero = none given.
    pub asked_id: Uuid,
    /// What the source said; `None` = the source does not have it (yet): it becomes wanted.
    pub source: Option<SourceFacts>,
    /// A fresh random id, used when the source has no topic ids.
    pub fresh_id: Uuid,
    /// The topic exists here and holds records.
    pub has_local_data: bool,
    /// An error found before (at the source, by the loop check): reported, nothing done.
    pub refused: Option<MirrorError>,
}

/// An add request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddTopics {
    /// The mirror.
    pub mirror: Str,
    /// Topics, each name once.
    pub topics: Vec<AddTopic>,
    /// Replicas of new topics; `None` = the broker's default.
    pub replication_factor: Option<i16>,
    /// Late form: patterns to be stored as include. Named topics are then not stored.
    pub include: Vec<Str>,
    /// Late form: patterns to be stored as exclude.
    pub exclude: Vec<Str>,
    /// Late form without patterns: store the names as include.
    pub store_names: bool,
    /// Metadata offset up to which the caller has looked at the topics; `None` = it has not.
    pub checked_at: Option<i64>,
    /// What came of the parts of this request that were decided before.
    pub earlier: EarlierParts,
    /// Further parts follow: the last one stores the patterns.
    pub more_follow: bool,
}

/// Results of the earlier parts of a large request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierParts {
    /// Topics that joined.
    pub done: Vec<Str>,
    /// Topics that were refused.
    pub refused: Vec<Str>,
}

/// What other topics of the same request already claimed: the image does not show them yet.
#[derive(Default)]
struct Claimed {
    ids: BTreeMap<Uuid, Str>,
    names: BTreeMap<String, Str>,
}

/// Adds topics. Each gets its own result; an error of the whole request, or of all its topics,
/// leaves no record behind.
pub fn add_topics(
    image: &Image,
    planner: &mut dyn Planner,
    request: &AddTopics,
) -> Result<Decision, MirrorError> {
    if !members::mirror_exists(image, &request.mirror) {
        return Err(MirrorError::UnknownMirror(request.mirror.to_string()));
    }
    let stored = stored_config(image, &request.mirror);
    let patterns = PatternChange::new(image, &stored, request)?;
    let mut decision = Decision::default();
    let mut claimed = Claimed::default();
    let mut seen = BTreeSet::new();
    let EarlierParts {
        mut done,
        mut refused,
    } = request.earlier.clone();
    for topic in &request.topics {
        if !seen.insert(topic.name.clone()) {
            continue;
        }
        let error = topic
            .refused
            .clone()
            .or_else(|| patterns.refusal(&topic.name));
        let result = match error {
            Some(error) => Err(error),
            None => add_one(image, planner, request, &stored, topic, &mut claimed),
        };
        match result {
            Ok(records) => {
                decision.records.extend(records);
                decision.topics.push(TopicResult::done(&topic.name));
                done.push(topic.name.clone());
            }
            Err(error) => {
                decision
                    .topics
                    .push(TopicResult::refused(&topic.name, error));
                refused.push(topic.name.clone());
            }
        }
    }
    if !request.more_follow {
        decision.records.extend(patterns.records(&done, &refused));
    }
    Ok(decision)
}

fn stored_config(image: &Image, mirror: &str) -> MirrorConfig {
    let stored = image.mirror(mirror);
    MirrorConfig::new(
        stored
            .iter()
            .flat_map(|c| c.iter())
            .map(|(k, v)| (k.as_str(), v.as_str())),
    )
}

fn add_one(
    image: &Image,
    planner: &mut dyn Planner,
    request: &AddTopics,
    stored: &MirrorConfig,
    topic: &AddTopic,
    claimed: &mut Claimed,
) -> Result<Vec<Record>, MirrorError> {
    check_topic_name(&topic.name)
        .map_err(|e| MirrorError::InvalidTopic(format!("Topic '{}': {e}", topic.name)))?;
    if is_internal(&topic.name) {
        return Err(MirrorError::InvalidTopic(format!(
            "Topic '{}' is internal and cannot be mirrored",
            topic.name
        )));
    }
    let member = image.membership(&topic.name);
    if let Some(member) = member {
        check_member(member, request, topic)?;
    }
    match image.topic(&topic.name) {
        Some(local) => join(
            local,
            member.map(|m| &**m),
            request,
            stored,
            topic,
            (image, planner),
        ),
        None => create(image, planner, request, topic, claimed),
    }
}

/// Whether the topic's present membership lets it be added (again).
fn check_member(
    member: &Membership,
    request: &AddTopics,
    topic: &AddTopic,
) -> Result<(), MirrorError> {
    let name = &topic.name;
    members::check_unchanged(member, request.checked_at)?;
    if member.mirror != request.mirror {
        if member.desired != DesiredState::Stopped {
            return Err(MirrorError::TopicAlreadyInMirror(format!(
                "Topic '{name}' is in mirror '{}'",
                member.mirror
            )));
        }
        if !member.stopped && !member.is_wanted() {
            return Err(MirrorError::InvalidStates(format!(
                "Topic '{name}' is still being stopped in mirror '{}'",
                member.mirror
            )));
        }
        return Ok(());
    }
    match member.desired {
        DesiredState::Paused => Err(MirrorError::TopicNotStopped(name.to_string())),
        // Adding what is already mirrored is how an operator says "try again now".
        DesiredState::Mirroring | DesiredState::Stopped => Ok(()),
    }
}

fn mismatch(name: &str, local: Uuid, other: Uuid, whose: &str) -> MirrorError {
    MirrorError::InconsistentTopicId(format!(
        "Topic '{name}' has the id {local} here and {other} {whose}: they are different topics; delete the local one to mirror the other"
    ))
}

/// The topic exists here.
fn join(
    local: &TopicImage,
    member: Option<&Membership>,
    request: &AddTopics,
    stored: &MirrorConfig,
    topic: &AddTopic,
    (image, planner): (&Image, &mut dyn Planner),
) -> Result<Vec<Record>, MirrorError> {
    let name = &topic.name;
    // Joining would make it read-only at once, and then FAILED.
    let Some(source) = &topic.source else {
        return Err(MirrorError::NotAtSource(name.to_string()));
    };
    // The source's id that this local topic is known to correspond to, when it is not the same one
    // (a source without ids, upgraded later).
    let known_source = member.map(|m| m.source_topic_id).filter(|id| !id.is_zero());
    if !topic.asked_id.is_zero()
        && topic.asked_id != local.id
        && Some(topic.asked_id) != known_source
    {
        return Err(mismatch(name, local.id, topic.asked_id, "in the request"));
    }
    let mut source_id = known_source.unwrap_or(Uuid::ZERO);
    let mut records = Vec::new();
    match source.topic_id {
        Some(id) if id == local.id || Some(id) == known_source => source_id = id,
        // Mirrored before from a source without ids: the preparation's epoch comparison proves that
        // it is the same topic.
        Some(id) if member.is_some_and(|m| m.source_topic_id.is_zero() && !m.is_wanted()) => {
            source_id = id
        }
        Some(id) => return Err(mismatch(name, local.id, id, "at the source")),
        None if member.is_none() && topic.has_local_data && !stored.may_adopt_topics() => {
            return Err(MirrorError::TopicExists(format!(
                "Topic '{name}' exists here with data this mirror did not write, and the source has no topic ids to tell whether it is the same; \
                 set mirror.allow.adopting.topics=true to let mirroring replace it"
            )));
        }
        None => {}
    }
    let (here, there) = (local.partition_count(), source.partitions);
    if here > there {
        return Err(MirrorError::InvalidRequest(format!(
            "Topic '{name}' has {here} partitions here and only {there} at the source"
        )));
    }
    if here < there {
        records.extend(planner.grow(image, name, there)?);
    }
    records.push(members::wish(
        name,
        local.id,
        &request.mirror,
        DesiredState::Mirroring,
        source_id,
    ));
    Ok(records)
}

/// The topic does not exist here: created from what the source said, or kept as wanted.
fn create(
    image: &Image,
    planner: &mut dyn Planner,
    request: &AddTopics,
    topic: &AddTopic,
    claimed: &mut Claimed,
) -> Result<Vec<Record>, MirrorError> {
    let name = &topic.name;
    let Some(source) = &topic.source else {
        return Ok(vec![members::wish(
            name,
            Uuid::ZERO,
            &request.mirror,
            DesiredState::Mirroring,
            Uuid::ZERO,
        )]);
    };
    if let (false, Some(id)) = (topic.asked_id.is_zero(), source.topic_id)
        && topic.asked_id != id
    {
        return Err(MirrorError::InconsistentTopicId(format!(
            "Topic '{name}' has the id {id} at the source, not {}",
            topic.asked_id
        )));
    }
    let id = source.topic_id.unwrap_or(topic.fresh_id);
    if let Some(other) = image.topic_by_id(&id) {
        return Err(MirrorError::TopicExists(format!(
            "The id {id} of topic '{name}' belongs to topic '{}' here",
            other.name
        )));
    }
    if let Some(other) = claimed.ids.get(&id) {
        return Err(MirrorError::TopicExists(format!(
            "The id {id} of topic '{name}' belongs to topic '{other}'"
        )));
    }
    if let Some(other) = claimed.names.get(&collision_key(name)) {
        return Err(MirrorError::InvalidTopic(format!(
            "Topic '{name}' collides with topic '{other}'"
        )));
    }
    let configs = [source.configs.as_slice(), source.carried.as_slice()].concat();
    let mut records = planner.create_topic(
        image,
        NewTopic {
            name,
            id,
            partitions: source.partitions,
            replication_factor: request.replication_factor,
            configs: &configs,
        },
    )?;
    claimed.ids.insert(id, name.clone());
    claimed.names.insert(collision_key(name), name.clone());
    records.push(members::wish(
        name,
        id,
        &request.mirror,
        DesiredState::Mirroring,
        source.topic_id.unwrap_or(Uuid::ZERO),
    ));
    records.extend(synced_record(request, name, &source.configs));
    if !source.carried.is_empty() {
        let carried = source.carried.iter().cloned().collect();
        records.push(carried_record(&request.mirror, name, &carried));
    }
    Ok(records)
}

/// Remembers which configs came from the source, so that they can be taken back when they vanish
/// there.
fn synced_record(request: &AddTopics, topic: &Str, configs: &[(Str, Str)]) -> Option<Record> {
    if configs.is_empty() {
        return None;
    }
    let keys: Vec<&str> = configs.iter().map(|(k, _)| k.as_str()).collect();
    Some(config_record(
        &request.mirror,
        &super::definition::synced_key(topic),
        Some(&keys.join(",")),
    ))
}

/// Creates a topic that was wanted and has now been found at the source. Nothing happens if it is
/// not wanted by this mirror any more.
pub fn fulfil_wanted(
    image: &Image,
    planner: &mut dyn Planner,
    mirror: &Str,
    topic: &AddTopic,
) -> Result<Vec<Record>, MirrorError> {
    let wanted = image
        .membership(&topic.name)
        .filter(|m| m.is_wanted() && m.mirror == *mirror && m.desired == DesiredState::Mirroring);
    if wanted.is_none() || topic.source.is_none() {
        return Ok(Vec::new());
    }
    let request = AddTopics {
        mirror: mirror.clone(),
        ..Default::default()
    };
    let stored = stored_config(image, mirror);
    add_one(
        image,
        planner,
        &request,
        &stored,
        topic,
        &mut Claimed::default(),
    )
}
