//! Raising leader epochs (BumpLeaderEpochs, docs/mirroring.md §4.4).

use tarn_metadata::{Image, Record};
use tarn_wire::messages::{PartitionChangeRecord, PartitionEpochRecord};
use tarn_wire::{ErrorCode, Uuid};

use crate::ApiError;

/// Highest leader epoch a bump may reach; room is left for the elections of the rest of a
/// partition's life.
pub const LEADER_EPOCH_MAX: i32 = i32::MAX - 1_000;

/// A wish: this partition's epoch shall exceed `min_leader_epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bump {
    /// Topic id.
    pub topic_id: Uuid,
    /// Partition.
    pub partition: i32,
    /// The epoch to exceed.
    pub min_leader_epoch: i32,
}

/// What became of each wish, in order: the epoch the partition has afterwards, or the refusal.
pub type BumpOutcome = Vec<Result<i32, ApiError>>;

/// Records for these wishes: a partition whose epoch is at most the minimum gets the minimum + 1
/// and keeps its leader; others need nothing. A wish that cannot be granted spoils only itself. A
/// partition named twice gets the higher wish.
pub fn plan_epoch_bumps(image: &Image, bumps: &[Bump]) -> (Vec<Record>, BumpOutcome) {
    let mut records = Vec::new();
    let mut granted = std::collections::BTreeMap::new();
    for bump in bumps {
        let Ok(epoch) = wanted_epoch(image, bump) else {
            continue;
        };
        let highest = granted
            .entry((bump.topic_id, bump.partition))
            .or_insert(epoch);
        *highest = epoch.max(*highest);
    }
    for ((topic_id, partition), epoch) in &granted {
        let Some(present) = image
            .partition_by_id(topic_id, *partition)
            .filter(|present| present.leader_epoch < *epoch)
        else {
            continue;
        };
        records.push(if *epoch == present.leader_epoch + 1 {
            let (topic_id, leader) = (*topic_id, present.leader);
            PartitionChangeRecord {
                topic_id,
                partition_id: *partition,
                leader,
                ..unchanged()
            }
            .into()
        } else {
            let partition_epoch = present.partition_epoch + 1;
            let (topic_id, partition_id, leader_epoch) = (*topic_id, *partition, *epoch);
            PartitionEpochRecord {
                topic_id,
                partition_id,
                leader_epoch,
                partition_epoch,
                ..PartitionEpochRecord::default()
            }
            .into()
        });
    }
    let outcome = |bump: &Bump| {
        wanted_epoch(image, bump).map(|epoch| {
            *granted
                .get(&(bump.topic_id, bump.partition))
                .unwrap_or(&epoch)
        })
    };
    let outcomes = bumps.iter().map(outcome).collect();
    (records, outcomes)
}

/// A change record that changes nothing.
pub(super) fn unchanged() -> PartitionChangeRecord {
    PartitionChangeRecord {
        isr: None,
        replicas: None,
        removing_replicas: None,
        adding_replicas: None,
        directories: None,
        eligible_leader_replicas: None,
        last_known_elr: None,
        ..PartitionChangeRecord::default()
    }
}

fn wanted_epoch(image: &Image, bump: &Bump) -> Result<i32, ApiError> {
    let Some(topic) = image.topic_by_id(&bump.topic_id) else {
        return Err(ApiError::new(
            ErrorCode::UNKNOWN_TOPIC_ID,
            format!("topic id {} does not exist", bump.topic_id),
        ));
    };
    let Some(partition) = topic.partition(bump.partition) else {
        let message = format!("topic {} has no partition {}", topic.name, bump.partition);
        return Err(ApiError::new(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            message,
        ));
    };
    if partition.leader_epoch > bump.min_leader_epoch {
        return Ok(partition.leader_epoch);
    }
    if bump.min_leader_epoch >= LEADER_EPOCH_MAX {
        let message = format!(
            "leader epoch {} of {}-{} cannot be exceeded: at most {LEADER_EPOCH_MAX} is allowed",
            bump.min_leader_epoch, topic.name, bump.partition
        );
        return Err(ApiError::new(ErrorCode::INVALID_REQUEST, message));
    }
    Ok(bump.min_leader_epoch + 1)
}
