//! Who leads which partition when brokers come, go, or an operator asks.

use tarn_metadata::{Image, NO_LEADER, PartitionImage, Record, TopicImage};
use tarn_wire::ErrorCode;
use tarn_wire::messages::PartitionChangeRecord;

use super::epochs::unchanged;
use crate::ApiError;

/// What an ElectLeaders request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica shall lead.
    Preferred,
    /// Any live replica shall lead a partition that has no leader, even if records are lost.
    Unclean,
}

/// Records for a broker that stopped serving: it leaves the ISR where others remain, and its
/// partitions go to another in-sync replica or to nobody. One pass over all partitions.
pub fn fence_broker(image: &Image, broker: i32) -> Vec<Record> {
    each_partition(image, |topic, index, partition| {
        if !partition.isr.contains(&broker) {
            return None;
        }
        let rest: Vec<i32> = partition
            .isr
            .iter()
            .copied()
            .filter(|id| *id != broker)
            .collect();
        let leader = match partition.leader == broker {
            false => None,
            true => Some(elect(image, partition, |id| id != broker).unwrap_or(NO_LEADER)),
        };
        // The last member stays in the ISR: it is the only one known to have everything.
        let isr = if rest.is_empty() { None } else { Some(rest) };
        if isr.is_none() && leader.is_none() {
            return None;
        }
        Some(change(topic, index, isr, leader))
    })
}

/// Records for a broker that serves again: it leads the partitions without a leader whose ISR it is
/// in. `image` must show it as active already, or `broker` is taken to be.
pub fn unfence_broker(image: &Image, broker: i32) -> Vec<Record> {
    each_partition(image, |topic, index, partition| {
        let waits_for_it = partition.leader == NO_LEADER && partition.isr.contains(&broker);
        waits_for_it.then(|| change(topic, index, None, Some(broker)))
    })
}

/// The record for an election an operator asked for. Refusals: 84 not needed, 80 the preferred
/// leader is not available, 83 nobody is.
pub fn plan_election(
    image: &Image,
    topic: &TopicImage,
    index: i32,
    kind: ElectionType,
) -> Result<Record, ApiError> {
    let Some(partition) = topic.partition(index) else {
        let message = format!("topic {} has no partition {index}", topic.name);
        return Err(ApiError::new(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            message,
        ));
    };
    let name = format!("{}-{index}", topic.name);
    match kind {
        ElectionType::Preferred => {
            let preferred = partition.replicas.first().copied().unwrap_or(NO_LEADER);
            if partition.leader == preferred {
                return Err(ApiError::new(
                    ErrorCode::ELECTION_NOT_NEEDED,
                    format!("the preferred replica leads {name} already"),
                ));
            }
            if !partition.isr.contains(&preferred) || !is_active(image, preferred) {
                let message =
                    format!("the preferred leader {preferred} of {name} is not alive and in sync");
                return Err(ApiError::new(
                    ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE,
                    message,
                ));
            }
            Ok(change(topic, index, None, Some(preferred)))
        }
        ElectionType::Unclean => {
            if partition.leader != NO_LEADER {
                return Err(ApiError::new(
                    ErrorCode::ELECTION_NOT_NEEDED,
                    format!("{name} has a leader"),
                ));
            }
            if let Some(leader) = elect(image, partition, |_| true) {
                return Ok(change(topic, index, None, Some(leader)));
            }
            match partition
                .replicas
                .iter()
                .copied()
                .find(|id| is_active(image, *id))
            {
                Some(leader) => Ok(change(topic, index, Some(vec![leader]), Some(leader))),
                None => Err(ApiError::new(
                    ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE,
                    format!("no replica of {name} is alive"),
                )),
            }
        }
    }
}

fn is_active(image: &Image, broker: i32) -> bool {
    image
        .broker(broker)
        .is_some_and(|broker| broker.is_active())
}

/// The first replica, in preference order, that is in sync and alive.
fn elect(image: &Image, partition: &PartitionImage, allowed: impl Fn(i32) -> bool) -> Option<i32> {
    partition
        .replicas
        .iter()
        .copied()
        .find(|id| partition.isr.contains(id) && allowed(*id) && is_active(image, *id))
}

fn change(topic: &TopicImage, index: i32, isr: Option<Vec<i32>>, leader: Option<i32>) -> Record {
    let plain = unchanged();
    let leader = leader.unwrap_or(plain.leader);
    PartitionChangeRecord {
        topic_id: topic.id,
        partition_id: index,
        isr,
        leader,
        ..plain
    }
    .into()
}

fn each_partition(
    image: &Image,
    mut decide: impl FnMut(&TopicImage, i32, &PartitionImage) -> Option<Record>,
) -> Vec<Record> {
    let mut records = Vec::new();
    for topic in image.topics().iter() {
        for (index, partition) in topic.partitions.iter().enumerate() {
            records.extend(decide(topic, index as i32, partition));
        }
    }
    records
}
