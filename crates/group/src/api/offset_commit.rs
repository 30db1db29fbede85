//! OffsetCommit and OffsetDelete.

use std::collections::BTreeSet;

use tarn_metadata::Image;
use tarn_wire::messages::offset_commit_request::OffsetCommitRequestTopic;
use tarn_wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use tarn_wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use tarn_wire::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};
use tarn_wire::{ErrorCode, Str};

use crate::config::OFFSET_METADATA_BYTES_MAX;
use crate::coordinator::{GroupCoordinator, PIECE_PARTITIONS, Refused};
use crate::offsets::CommittedOffset;
use crate::records;
use crate::shard::GroupShard;

/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 10;

/// An offset to commit, checked; or why it is not committed.
struct Item {
    topic: Str,
    partition: i32,
    value: Result<CommittedOffset, ErrorCode>,
}

/// Who commits, and under which conditions.
#[derive(Clone)]
struct Committer {
    group: Str,
    member: Str,
    instance: Option<Str>,
    generation: i32,
    retention_ms: i64,
    version: i16,
}

/// Whether the code says that a topic or partition is not there.
fn is_missing(error: ErrorCode) -> bool {
    error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION || error == ErrorCode::UNKNOWN_TOPIC_ID
}

impl GroupCoordinator {
    /// OffsetCommit v2–10. Offsets of mirror topics are committed like all others.
    pub async fn offset_commit(
        &self,
        request: OffsetCommitRequest,
        version: i16,
    ) -> OffsetCommitResponse {
        let codes = match self.commit_codes(&request, version).await {
            Ok(codes) => codes,
            Err(Refused(error)) => vec![
                error;
                request
                    .topics
                    .iter()
                    .map(|topic| topic.partitions.len())
                    .sum()
            ],
        };
        let mut codes = codes.into_iter();
        let topics = request
            .topics
            .into_iter()
            .map(|topic| OffsetCommitResponseTopic {
                name: topic.name,
                topic_id: topic.topic_id,
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| OffsetCommitResponsePartition {
                        partition_index: partition.partition_index,
                        error_code: codes.next().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR).0,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            });
        OffsetCommitResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    async fn commit_codes(
        &self,
        request: &OffsetCommitRequest,
        version: i16,
    ) -> Result<Vec<ErrorCode>, Refused> {
        if request.group_id.is_empty() {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        let partition = self.partition_of(&request.group_id)?;
        let image = self.replicas.image();
        let mut items: Vec<Item> = Vec::new();
        for topic in &request.topics {
            self.check_topic(&image, topic, version, &mut items);
        }
        let group = request.group_id.detach();
        let committer = Committer {
            group,
            member: request.member_id.detach(),
            instance: request.group_instance_id.as_ref().map(Str::detach),
            generation: request.generation_id_or_member_epoch,
            retention_ms: request.retention_time_ms,
            version,
        };
        // In pieces: other requests of the partition get their turn between two of them. An
        // ordinary commit is one.
        let mut codes = Vec::with_capacity(items.len());
        while !items.is_empty() {
            let rest = items.split_off(items.len().min(PIECE_PARTITIONS));
            let piece = std::mem::replace(&mut items, rest);
            let len = piece.len();
            match self.commit_piece(partition, committer.clone(), piece).await {
                Ok(piece) => codes.extend(piece),
                Err(Refused(error)) => codes.extend(std::iter::repeat_n(error, len)),
            }
        }
        Ok(codes)
    }

    async fn commit_piece(
        &self,
        partition: i32,
        committer: Committer,
        items: Vec<Item>,
    ) -> Result<Vec<ErrorCode>, Refused> {
        let commit = move |shard: &mut GroupShard, now_ms: i64| {
            let Committer {
                group,
                member,
                instance,
                generation,
                retention_ms,
                version,
            } = committer;
            if generation >= 0 && !shard.groups.contains_key(&group) {
                return Err(Refused(if version >= 9 {
                    ErrorCode::GROUP_ID_NOT_FOUND
                } else {
                    ErrorCode::ILLEGAL_GENERATION
                }));
            }
            let classic = &mut shard.group_for_commit(&group, now_ms).classic;
            let allowed = classic.check_commit(&member, instance.as_ref(), generation, now_ms);
            let (mut records, mut codes) = (Vec::new(), Vec::with_capacity(items.len()));
            for item in &items {
                let value = match &item.value {
                    // A topic that does not exist is told before anything of the group, as Kafka
                    // does.
                    Err(error) if is_missing(*error) => Err(*error),
                    value => allowed.and_then(|()| value.as_ref().map_err(|error| *error)),
                };
                codes.push(value.err().unwrap_or(ErrorCode::NONE));
                if let Ok(value) = value {
                    let mut value = value.clone();
                    value.commit_ms = now_ms;
                    value.expire_ms =
                        (retention_ms >= 0).then(|| now_ms.saturating_add(retention_ms));
                    match records::offset(&group, &item.topic, item.partition, Some(&value)) {
                        Ok(record) => records.push(record),
                        Err(_) => {
                            codes.pop();
                            codes.push(ErrorCode::INVALID_REQUEST);
                        }
                    }
                }
            }
            if records.is_empty() {
                shard.settle(&group);
            }
            Ok((records, codes))
        };
        self.runtime.write(partition, commit).await
    }

    fn check_topic(
        &self,
        image: &Image,
        topic: &OffsetCommitRequestTopic,
        version: i16,
        items: &mut Vec<Item>,
    ) {
        let (found, missing) = if version >= TOPIC_IDS_FROM {
            (
                image.topic_by_id(&topic.topic_id),
                ErrorCode::UNKNOWN_TOPIC_ID,
            )
        } else {
            (
                image.topic(&topic.name),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            )
        };
        let metadata_bytes_max = self
            .config
            .offset_metadata_bytes_max
            .min(OFFSET_METADATA_BYTES_MAX);
        for partition in &topic.partitions {
            let metadata = partition
                .committed_metadata
                .as_ref()
                .map(Str::detach)
                .unwrap_or_default();
            let value = match found {
                None => Err(missing),
                Some(found) if found.partition(partition.partition_index).is_none() => {
                    Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
                }
                Some(_) if metadata.len() > metadata_bytes_max => {
                    Err(ErrorCode::OFFSET_METADATA_TOO_LARGE)
                }
                Some(found) => Ok(CommittedOffset {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata,
                    commit_ms: 0,
                    expire_ms: None,
                    topic_id: found.id,
                }),
            };
            let name = found.map_or_else(|| topic.name.detach(), |found| found.name.clone());
            items.push(Item {
                topic: name,
                partition: partition.partition_index,
                value,
            });
        }
    }

    /// OffsetDelete v0.
    pub async fn offset_delete(&self, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
        let subscribed = match self.delete_offsets(&request).await {
            Ok(subscribed) => subscribed,
            Err(Refused(error)) => {
                return OffsetDeleteResponse {
                    error_code: error.0,
                    ..Default::default()
                };
            }
        };
        let image = self.replicas.image();
        let topics = request.topics.into_iter().map(|topic| {
            let code = |partition: i32| match image.topic(&topic.name) {
                Some(found) if found.partition(partition).is_some() => {
                    if subscribed.contains(&topic.name) {
                        ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
                    } else {
                        ErrorCode::NONE
                    }
                }
                _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            };
            let partitions =
                topic
                    .partitions
                    .iter()
                    .map(|partition| OffsetDeleteResponsePartition {
                        partition_index: partition.partition_index,
                        error_code: code(partition.partition_index).0,
                        ..Default::default()
                    });
            OffsetDeleteResponseTopic {
                partitions: partitions.collect(),
                name: topic.name.clone(),
                ..Default::default()
            }
        });
        OffsetDeleteResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }

    /// Deletes what may be deleted; gives the topics that may not, because a member reads them.
    async fn delete_offsets(
        &self,
        request: &OffsetDeleteRequest,
    ) -> Result<BTreeSet<Str>, Refused> {
        let partition = self.partition_of(&request.group_id)?;
        let group = request.group_id.detach();
        let wanted: Vec<(Str, i32)> = request
            .topics
            .iter()
            .flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|partition| (topic.name.detach(), partition.partition_index))
            })
            .collect();
        let delete = move |shard: &mut GroupShard, _: i64| {
            let found = shard
                .groups
                .get(&group)
                .ok_or(Refused(ErrorCode::GROUP_ID_NOT_FOUND))?;
            let subscribed = if found.classic.is_empty() {
                BTreeSet::new()
            } else {
                found
                    .subscribed_topics()
                    .ok_or(Refused(ErrorCode::NON_EMPTY_GROUP))?
            };
            let tombstones = wanted
                .iter()
                .filter(|(topic, index)| {
                    !subscribed.contains(topic) && found.offsets.get(topic, *index).is_some()
                })
                .flat_map(|(topic, index)| records::offset(&group, topic, *index, None))
                .collect();
            Ok::<_, Refused>((tombstones, subscribed))
        };
        self.runtime.write(partition, delete).await
    }
}
