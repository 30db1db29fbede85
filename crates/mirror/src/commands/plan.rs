//! Where new topics and partitions are placed is the controller's business: this is what the decisions here ask of it.

use tarn_metadata::{Image, Record};
use tarn_wire::messages::PartitionEpochRecord;
use tarn_wire::{Str, Uuid};

use crate::dialect::MirrorError;

/// Highest leader epoch that a bump may give (mirroring.md §12): beyond it a partition fails instead of overflowing.
pub const LEADER_EPOCH_MAX: i32 = i32::MAX - 1_000;

/// A topic to be created as a copy of one at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTopic<'a> {
    /// Name.
    pub name: &'a Str,
    /// Id; never zero.
    pub id: Uuid,
    /// Partitions, ≥ 1.
    pub partitions: i32,
    /// Replicas; `None` = the default.
    pub replication_factor: Option<i16>,
    /// Topic configs, valid here.
    pub configs: &'a [(Str, Str)],
}

/// The controller's pure planning, with all its checks (name, collisions, placement).
pub trait Planner {
    /// Records that create the topic.
    fn create_topic(&self, image: &Image, topic: NewTopic<'_>) -> Result<Vec<Record>, MirrorError>;
    /// Records that grow the topic to `partitions` in all.
    fn grow(&self, image: &Image, topic: &str, partitions: i32)
    -> Result<Vec<Record>, MirrorError>;
}

/// Raises leader epochs: each partition whose epoch is not above `min_epoch` gets `min_epoch + 1` and keeps its leader. Others, and
/// partitions that are gone, get nothing.
pub fn bump_epochs(image: &Image, wanted: &[(Uuid, i32, i32)]) -> Vec<Record> {
    let mut records = Vec::new();
    for (topic_id, partition, min_epoch) in wanted {
        let Some(current) = image.partition_by_id(topic_id, *partition) else {
            continue;
        };
        if current.leader_epoch > *min_epoch || *min_epoch >= LEADER_EPOCH_MAX {
            continue;
        }
        records.push(Record::PartitionEpoch(PartitionEpochRecord {
            topic_id: *topic_id,
            partition_id: *partition,
            leader_epoch: min_epoch + 1,
            partition_epoch: current.partition_epoch + 1,
            ..Default::default()
        }));
    }
    records
}
