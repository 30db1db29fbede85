//! Adding partitions to a topic.

use tarn_metadata::{Image, Record, TopicImage};
use tarn_wire::ErrorCode;

use super::directories::Placement;
use super::topics::{check_partition_limit, check_replicas, new_partition, place};
use crate::ApiError;

/// Records that grow a topic to `total` partitions; `assignments` gives the replicas of the new
/// ones, or is `None` for placement by the controller. Does not ask whether the topic is a mirror's
/// (see [`read_only_refusal`]): the mirror itself grows its topics.
pub fn plan_partitions(
    image: &Image,
    topic: &str,
    total: i32,
    assignments: Option<&[Vec<i32>]>,
) -> Result<Vec<Record>, ApiError> {
    let Some(topic) = image.topic(topic) else {
        return Err(ApiError::new(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("topic {topic} does not exist"),
        ));
    };
    let present = topic.partition_count();
    if total <= present {
        let message = match total == present {
            true => format!("topic {} has {present} partitions already", topic.name),
            false => format!(
                "topic {} has {present} partitions, the number cannot be lowered to {total}",
                topic.name
            ),
        };
        return Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    }
    check_partition_limit(total)?;
    let added = (total - present) as usize;
    let factor = topic
        .partition(0)
        .map_or(1, |partition| partition.replicas.len());
    let replicas = match assignments {
        None => {
            let start = topic
                .id
                .0
                .iter()
                .map(|byte| usize::from(*byte))
                .sum::<usize>()
                + present as usize;
            place(image, added, factor as i16, start)?
        }
        Some(assignments) => check_assignments(image, topic, added, factor, assignments)?,
    };
    let mut placement = Placement::new(image);
    let record = |(index, replicas)| {
        Ok(new_partition(image, &mut placement, replicas)?
            .to_record(topic.id, present + index as i32)
            .into())
    };
    replicas.into_iter().enumerate().map(record).collect()
}

fn check_assignments(
    image: &Image,
    topic: &TopicImage,
    added: usize,
    factor: usize,
    assignments: &[Vec<i32>],
) -> Result<Vec<Vec<i32>>, ApiError> {
    let refuse = |message: String| {
        Err(ApiError::new(
            ErrorCode::INVALID_REPLICA_ASSIGNMENT,
            message,
        ))
    };
    if assignments.len() != added {
        return refuse(format!(
            "{added} new partitions need {added} assignments, {} are given",
            assignments.len()
        ));
    }
    for (index, replicas) in assignments.iter().enumerate() {
        let partition = topic.partitions.len() + index;
        check_replicas(image, partition, replicas)?;
        if replicas.len() != factor {
            return refuse(format!(
                "topic {} has {factor} replicas a partition, partition {partition} would have {}",
                topic.name,
                replicas.len()
            ));
        }
    }
    Ok(assignments.to_vec())
}

/// The topic that holds the states of mirrors.
const MIRROR_STATE_TOPIC: &str = "__mirror_state";

/// Why clients must not change the partitions of this topic: it is a mirror's and not failed over
/// yet, or the states of mirrors are found in it by its partition count, and one that is not found
/// would pass for one that was never written.
pub fn read_only_refusal(image: &Image, topic: &str) -> Result<(), ApiError> {
    if topic == MIRROR_STATE_TOPIC && image.mirrors().next().is_some() {
        let message = format!(
            "topic {topic} holds the states of mirrors, which are found by its partition count; it can only grow while there are no mirrors"
        );
        return Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message));
    }
    match image
        .membership(topic)
        .filter(|membership| membership.is_read_only())
    {
        None => Ok(()),
        Some(membership) => {
            let message = format!(
                "topic {topic} is a read-only mirror of {} ({})",
                membership.mirror,
                membership.desired.name()
            );
            Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message))
        }
    }
}
