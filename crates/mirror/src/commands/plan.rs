//! Where new topics and partitions are placed is the controller's business: this is what the
//! decisions here ask of it.

use tarn_controller::plan::{self, Bump};
use tarn_controller::{ApiError, Ctx};
use tarn_metadata::{Image, Record};
use tarn_wire::{ErrorCode, Str, Uuid};

use crate::dialect::MirrorError;

/// Highest leader epoch that a bump may give (docs/mirroring.md §4.4): beyond it a partition fails
/// instead of overflowing.
pub use tarn_controller::plan::LEADER_EPOCH_MAX;

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
    fn create_topic(
        &mut self,
        image: &Image,
        topic: NewTopic<'_>,
    ) -> Result<Vec<Record>, MirrorError>;
    /// Records that grow the topic to `partitions` in all.
    fn grow(
        &mut self,
        image: &Image,
        topic: &str,
        partitions: i32,
    ) -> Result<Vec<Record>, MirrorError>;
}

fn refused(error: ApiError) -> MirrorError {
    match error.code {
        ErrorCode::INVALID_TOPIC_EXCEPTION => MirrorError::InvalidTopic(error.message),
        ErrorCode::TOPIC_ALREADY_EXISTS => MirrorError::TopicExists(error.message),
        ErrorCode::INVALID_REPLICATION_FACTOR => {
            MirrorError::InvalidReplicationFactor(error.message)
        }
        code => MirrorError::Other {
            code,
            text: error.message,
        },
    }
}

impl Planner for Ctx {
    fn create_topic(
        &mut self,
        image: &Image,
        topic: NewTopic<'_>,
    ) -> Result<Vec<Record>, MirrorError> {
        let new = plan::NewTopic {
            name: topic.name.clone(),
            id: Some(topic.id),
            partitions: topic.partitions,
            replication_factor: topic.replication_factor.unwrap_or(-1),
            assignments: Vec::new(),
            configs: topic.configs.to_vec(),
        };
        plan::plan_topic(image, self, &new).map_err(refused)
    }

    fn grow(
        &mut self,
        image: &Image,
        topic: &str,
        partitions: i32,
    ) -> Result<Vec<Record>, MirrorError> {
        plan::plan_partitions(image, topic, partitions, None).map_err(refused)
    }
}

/// Raises leader epochs: each partition whose epoch is not above the given one gets that + 1 and
/// keeps its leader. Others, and partitions that are gone, get nothing.
pub fn bump_epochs(image: &Image, wanted: &[(Uuid, i32, i32)]) -> Vec<Record> {
    let bump = |(topic_id, partition, min): &(Uuid, i32, i32)| Bump {
        topic_id: *topic_id,
        partition: *partition,
        min_leader_epoch: *min,
    };
    let bumps: Vec<Bump> = wanted.iter().map(bump).collect();
    plan::plan_epoch_bumps(image, &bumps).0
}

/// Why one partition of a BumpLeaderEpochs gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpRefusal {
    /// Topic id as asked.
    pub topic_id: Uuid,
    /// Its name; empty when nobody has that id.
    pub topic: Str,
    /// Partition number as asked.
    pub partition: i32,
    /// Why.
    pub error: MirrorError,
}

/// The bumps of a request that may be made: of partitions of topics that a mirror holds. The others
/// are refused each for itself.
pub fn bump_members(
    image: &Image,
    wanted: &[(Uuid, i32, i32)],
) -> (Vec<(Uuid, i32, i32)>, Vec<BumpRefusal>) {
    let mut granted = Vec::new();
    let mut refused = Vec::new();
    for (topic_id, partition, min) in wanted {
        let topic = image.topic_by_id(topic_id);
        let name = topic.map_or(Str::EMPTY, |t| t.name.clone());
        let error = match topic {
            None => Some(MirrorError::UnknownTopicId(topic_id.to_string())),
            Some(topic) if topic.partition(*partition).is_none() => {
                Some(MirrorError::UnknownTopic(format!("{name}-{partition}")))
            }
            Some(_) => {
                let held = image
                    .membership(&name)
                    .is_some_and(|m| m.topic_id == *topic_id && !m.stopped);
                (!held).then(|| MirrorError::TopicInNoMirror(name.to_string()))
            }
        };
        match error {
            None => granted.push((*topic_id, *partition, *min)),
            Some(error) => refused.push(BumpRefusal {
                topic_id: *topic_id,
                topic: name,
                partition: *partition,
                error,
            }),
        }
    }
    (granted, refused)
}
