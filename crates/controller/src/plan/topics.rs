//! Creating and deleting topics.

use std::collections::BTreeSet;

use tarn_metadata::{Image, PartitionImage, Record, TopicImage, check_topic_name, names_collide};
use tarn_wire::messages::{ConfigRecord, RemoveTopicRecord, TopicRecord};
use tarn_wire::{ErrorCode, Str, Uuid};

use super::directories::Placement;
use super::{ConfigChange, ConfigOp, Ctx, plan_alter};
use crate::ApiError;

/// Most partitions of one topic, made here or copied from a source.
const TOPIC_PARTITIONS_MAX: i32 = 100_000;

/// A topic to create.
#[derive(Clone, Debug, Default)]
pub struct NewTopic {
    /// Name.
    pub name: Str,
    /// Id to use; `None` = a fresh one.
    pub id: Option<Uuid>,
    /// Partitions; −1 = the default.
    pub partitions: i32,
    /// Replicas; −1 = the default.
    pub replication_factor: i16,
    /// Replicas by partition; if not empty the two counts above must be −1.
    pub assignments: Vec<Vec<i32>>,
    /// Values to set.
    pub configs: Vec<(Str, Str)>,
}

/// Records that create a topic with its partitions and configuration.
///
/// Refuses: a bad name (17) or one that collides with an existing topic's (17), an existing name
/// (36), an id that another topic has (36), counts out of range (37, 38), bad assignments (39), bad
/// configurations (40).
pub fn plan_topic(image: &Image, ctx: &mut Ctx, topic: &NewTopic) -> Result<Vec<Record>, ApiError> {
    check_name(image, &topic.name)?;
    let id = match topic.id.filter(|id| !id.is_zero()) {
        None => ctx.new_id(),
        Some(id) => match image.topic_by_id(&id) {
            None => id,
            Some(other) => {
                let message = format!(
                    "topic id {id} is used by topic {}: it cannot be given to {}",
                    other.name, topic.name
                );
                return Err(ApiError::new(ErrorCode::TOPIC_ALREADY_EXISTS, message));
            }
        },
    };
    let assignments = match topic.assignments.is_empty() {
        true => placement(image, ctx, topic, &id)?,
        false => check_manual(image, topic)?,
    };
    let mut records = Vec::with_capacity(assignments.len() + topic.configs.len() + 1);
    records.push(
        TopicRecord {
            name: topic.name.clone(),
            topic_id: id,
            ..TopicRecord::default()
        }
        .into(),
    );
    let mut placement = Placement::new(image);
    for (index, replicas) in assignments.into_iter().enumerate() {
        records.push(
            new_partition(image, &mut placement, replicas)?
                .to_record(id, index as i32)
                .into(),
        );
    }
    records.extend(config_records(image, ctx, topic)?);
    Ok(records)
}

/// Records that delete a topic with its configuration and its membership.
pub fn plan_deletion(topic: &TopicImage) -> Vec<Record> {
    vec![
        RemoveTopicRecord {
            topic_id: topic.id,
            ..RemoveTopicRecord::default()
        }
        .into(),
    ]
}

fn check_name(image: &Image, name: &Str) -> Result<(), ApiError> {
    if let Err(problem) = check_topic_name(name) {
        return Err(ApiError::new(
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("topic {problem}"),
        ));
    }
    if image.topic(name).is_some() {
        return Err(ApiError::new(
            ErrorCode::TOPIC_ALREADY_EXISTS,
            format!("topic {name} already exists"),
        ));
    }
    if let Some(other) = colliding(image, name) {
        let message = format!(
            "topic {name} collides with topic {other}: their metrics could not be told apart"
        );
        return Err(ApiError::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
    }
    Ok(())
}

/// The existing topic whose name differs from `name` only in dots and underscores.
fn colliding<'a>(image: &'a Image, name: &str) -> Option<&'a Str> {
    // Names share everything before the first such character, which bounds the part of the sorted
    // map that has to be looked at.
    let prefix = &name[..name.find(['.', '_'])?];
    let candidates = image
        .topics()
        .from(prefix)
        .map(|topic| &topic.name)
        .take_while(|other| other.starts_with(prefix));
    candidates
        .filter(|other| other.len() == name.len())
        .find(|other| names_collide(other.as_bytes(), name.as_bytes()))
}

fn placement(
    image: &Image,
    ctx: &Ctx,
    topic: &NewTopic,
    id: &Uuid,
) -> Result<Vec<Vec<i32>>, ApiError> {
    let partitions = match topic.partitions {
        -1 => ctx.rules.num_partitions,
        count => count,
    };
    if partitions < 1 {
        let message = format!(
            "topic {} needs at least 1 partition, {partitions} were asked for",
            topic.name
        );
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    check_partition_limit(partitions)?;
    let factor = match topic.replication_factor {
        -1 => ctx.rules.default_replication_factor,
        factor => factor,
    };
    // Different topics start at different brokers, the same topic always at the same one: decisions
    // stay repeatable.
    let start = id.0.iter().map(|byte| usize::from(*byte)).sum();
    place(image, partitions as usize, factor, start)
}

/// Round robin over the brokers that may lead.
pub(super) fn place(
    image: &Image,
    partitions: usize,
    factor: i16,
    start: usize,
) -> Result<Vec<Vec<i32>>, ApiError> {
    let brokers: Vec<i32> = image.active_brokers().collect();
    if factor < 1 {
        let message = format!("replication factor must be at least 1, {factor} was asked for");
        return Err(ApiError::new(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            message,
        ));
    }
    let factor = factor as usize;
    if factor > brokers.len() {
        let message = format!(
            "replication factor {factor} needs {factor} live brokers, there are {}",
            brokers.len()
        );
        return Err(ApiError::new(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            message,
        ));
    }
    let replicas = |partition: usize| {
        (0..factor)
            .map(|replica| brokers[(start + partition + replica) % brokers.len()])
            .collect()
    };
    Ok((0..partitions).map(replicas).collect())
}

pub(super) fn check_partition_limit(partitions: i32) -> Result<(), ApiError> {
    if partitions > TOPIC_PARTITIONS_MAX {
        let message = format!(
            "a topic of {partitions} partitions, at most {TOPIC_PARTITIONS_MAX} are allowed"
        );
        return Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message));
    }
    Ok(())
}

fn check_manual(image: &Image, topic: &NewTopic) -> Result<Vec<Vec<i32>>, ApiError> {
    if topic.partitions != -1 || topic.replication_factor != -1 {
        let message =
            "partitions and replication factor must be -1 when replicas are assigned by hand";
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    let factor = topic.assignments[0].len();
    for (partition, replicas) in topic.assignments.iter().enumerate() {
        check_replicas(image, partition, replicas)?;
        if replicas.len() != factor {
            return Err(bad_assignment(
                partition,
                "has another number of replicas than partition 0",
            ));
        }
    }
    Ok(topic.assignments.clone())
}

pub(super) fn check_replicas(
    image: &Image,
    partition: usize,
    replicas: &[i32],
) -> Result<(), ApiError> {
    if replicas.is_empty() {
        return Err(bad_assignment(partition, "has no replicas"));
    }
    if replicas.iter().collect::<BTreeSet<_>>().len() != replicas.len() {
        return Err(bad_assignment(partition, "names a broker twice"));
    }
    match replicas.iter().find(|id| image.broker(**id).is_none()) {
        Some(unknown) => Err(bad_assignment(
            partition,
            &format!("names broker {unknown}, which is not registered"),
        )),
        None => Ok(()),
    }
}

fn bad_assignment(partition: usize, what: &str) -> ApiError {
    ApiError::new(
        ErrorCode::INVALID_REPLICA_ASSIGNMENT,
        format!("assignment of partition {partition} {what}"),
    )
}

/// A new partition on these replicas: the active ones are in sync, the first of them leads.
pub(super) fn new_partition(
    image: &Image,
    placement: &mut Placement<'_>,
    replicas: Vec<i32>,
) -> Result<PartitionImage, ApiError> {
    let active = |id: &i32| image.broker(*id).is_some_and(|broker| broker.is_active());
    let isr: Vec<i32> = replicas.iter().copied().filter(active).collect();
    let Some(leader) = isr.first().copied() else {
        let message = format!("none of the brokers {replicas:?} is alive");
        return Err(ApiError::new(
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            message,
        ));
    };
    let directories = replicas.iter().map(|id| placement.next(*id)).collect();
    Ok(PartitionImage {
        replicas,
        directories,
        isr,
        leader,
        ..PartitionImage::default()
    })
}

fn config_records(image: &Image, ctx: &Ctx, topic: &NewTopic) -> Result<Vec<Record>, ApiError> {
    if topic.configs.is_empty() {
        return Ok(Vec::new());
    }
    let set = |(key, value): &(Str, Str)| ConfigOp {
        key: key.clone(),
        change: ConfigChange::Set(value.clone()),
    };
    let ops: Vec<ConfigOp> = topic.configs.iter().map(set).collect();
    let resource = tarn_metadata::ConfigResource::topic(topic.name.clone());
    let records = plan_alter(image, ctx, &resource, &ops)?;
    debug_assert!(
        records
            .iter()
            .all(|record| matches!(record, Record::Config(ConfigRecord { .. })))
    );
    Ok(records)
}
