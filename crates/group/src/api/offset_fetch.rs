//! OffsetFetch: three shapes of one question (a group; from v8 several groups; from v10 by topic
//! id), and of one error.

use tarn_metadata::Image;
use tarn_wire::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use tarn_wire::messages::{OffsetFetchRequest, OffsetFetchResponse};
use tarn_wire::{ErrorCode, Str, Uuid};

use crate::coordinator::{AnswerRoom, GroupCoordinator, PIECE_PARTITIONS, Refused};
use crate::offsets::CommittedOffset;
use crate::shard::GroupShard;

/// First version with several groups.
const BATCH_FROM: i16 = 8;
/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 10;

/// What is asked of one topic.
#[derive(Clone)]
struct Asked {
    name: Str,
    topic_id: Uuid,
    partitions: Vec<i32>,
    /// The topic cannot be looked up (unknown id).
    error: ErrorCode,
}

/// The answer for one topic: index and offset, `None` where none is committed.
struct Answered {
    name: Str,
    topic_id: Uuid,
    partitions: Vec<(i32, Option<CommittedOffset>)>,
    error: ErrorCode,
}

impl GroupCoordinator {
    /// OffsetFetch v1–10. A partition named again is answered again, as Kafka does, as long as
    /// there is room.
    pub async fn offset_fetch(
        &self,
        request: OffsetFetchRequest,
        version: i16,
        room: AnswerRoom<'_>,
    ) -> OffsetFetchResponse {
        if version < BATCH_FROM {
            return self.fetch_single(request, version, room).await;
        }
        let image = self.replicas.image();
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            let asked = group.topics.map(|topics| {
                let ask =
                    |topic: tarn_wire::messages::offset_fetch_request::OffsetFetchRequestTopics| {
                        ask(
                            &image,
                            topic.name,
                            topic.topic_id,
                            topic.partition_indexes,
                            version,
                        )
                    };
                topics.into_iter().map(ask).collect()
            });
            groups.push(
                match self.fetch_offsets(&group.group_id, asked, room).await {
                    Ok(topics) => OffsetFetchResponseGroup {
                        group_id: group.group_id,
                        topics: topics
                            .into_iter()
                            .filter_map(|topic| batch_topic(&image, topic, version))
                            .collect(),
                        ..Default::default()
                    },
                    Err(Refused(error)) => OffsetFetchResponseGroup {
                        group_id: group.group_id,
                        error_code: error.0,
                        ..Default::default()
                    },
                },
            );
        }
        OffsetFetchResponse {
            groups,
            ..Default::default()
        }
    }

    async fn fetch_single(
        &self,
        request: OffsetFetchRequest,
        version: i16,
        room: AnswerRoom<'_>,
    ) -> OffsetFetchResponse {
        let asked: Option<Vec<Asked>> = request.topics.map(|topics| {
            let ask =
                |topic: tarn_wire::messages::offset_fetch_request::OffsetFetchRequestTopic| Asked {
                    name: topic.name,
                    topic_id: Uuid::ZERO,
                    partitions: topic.partition_indexes,
                    error: ErrorCode::NONE,
                };
            topics.into_iter().map(ask).collect()
        });
        // Only version 1 has to say an error for each partition.
        let again = asked.clone().filter(|_| version < 2);
        match self.fetch_offsets(&request.group_id, asked, room).await {
            Ok(topics) => OffsetFetchResponse {
                topics: topics.into_iter().map(single_topic).collect(),
                ..Default::default()
            },
            // Version 1 has no error above the partitions; a client of it takes "no error" for "no
            // offset".
            Err(Refused(error)) if version < 2 => OffsetFetchResponse {
                topics: again
                    .unwrap_or_default()
                    .into_iter()
                    .map(|topic| refused_topic(topic, error))
                    .collect(),
                ..Default::default()
            },
            Err(Refused(error)) => OffsetFetchResponse {
                error_code: error.0,
                ..Default::default()
            },
        }
    }

    /// The offsets asked for, or all of the group.
    async fn fetch_offsets(
        &self,
        group: &Str,
        asked: Option<Vec<Asked>>,
        room: AnswerRoom<'_>,
    ) -> Result<Vec<Answered>, Refused> {
        let partition = self.partition_of(group)?;
        let Some(mut asked) = asked else {
            let group = group.clone();
            let all = move |shard: &GroupShard, _: i64| all_offsets(shard, &group);
            let answered = self.runtime.read(partition, all).await?;
            room(answered.iter().map(Answered::bytes).sum()).map_err(Refused)?;
            return Ok(answered);
        };
        let mut answered: Vec<Answered> = Vec::with_capacity(asked.len());
        let mut cut = false;
        // In pieces: other requests of the partition get their turn between two of them. An
        // ordinary request is one.
        loop {
            let (piece, rest, goes_on_within) = split(asked);
            let group = group.clone();
            let look = move |shard: &GroupShard, _: i64| named_offsets(shard, &group, piece);
            let found = self.runtime.read(partition, look).await?;
            room(found.iter().map(Answered::bytes).sum()).map_err(Refused)?;
            let mut found = found.into_iter();
            if cut && let (Some(last), Some(first)) = (answered.last_mut(), found.next()) {
                last.partitions.extend(first.partitions);
            }
            answered.extend(found);
            cut = goes_on_within;
            match rest {
                Some(rest) => asked = rest,
                None => return Ok(answered),
            }
        }
    }
}

impl Answered {
    /// About how long it is in an answer.
    fn bytes(&self) -> usize {
        const PARTITION_BYTES: usize = 20;
        let partition = |(_, offset): &(i32, Option<CommittedOffset>)| {
            PARTITION_BYTES + offset.as_ref().map_or(0, |offset| offset.metadata.len())
        };
        self.name.len() + self.partitions.iter().map(partition).sum::<usize>()
    }
}

/// Takes what fits one turn off a request; the rest, if there is one; and whether the rest goes on
/// within the last topic.
fn split(mut asked: Vec<Asked>) -> (Vec<Asked>, Option<Vec<Asked>>, bool) {
    let mut left = PIECE_PARTITIONS;
    for index in 0..asked.len() {
        // A topic without partitions takes its time too.
        let len = asked[index].partitions.len().max(1);
        if len <= left {
            left -= len;
            continue;
        }
        let mut rest = asked.split_off(index);
        if left > 0 {
            let mut first = rest[0].clone();
            rest[0].partitions = first.partitions.split_off(left);
            asked.push(first);
        }
        return (asked, Some(rest), left > 0);
    }
    (asked, None, false)
}

fn named_offsets(shard: &GroupShard, group: &Str, asked: Vec<Asked>) -> Vec<Answered> {
    let offsets = shard.groups.get(group).map(|group| &group.offsets);
    let answer = |topic: Asked| {
        let find = |index: i32| {
            let found = offsets.and_then(|offsets| offsets.get(&topic.name, index));
            (index, found.cloned())
        };
        let partitions = topic.partitions.iter().copied().map(find).collect();
        Answered {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions,
            error: topic.error,
        }
    };
    asked.into_iter().map(answer).collect()
}

fn all_offsets(shard: &GroupShard, group: &Str) -> Vec<Answered> {
    let Some(group) = shard.groups.get(group) else {
        return Vec::new();
    };
    let topics = group.offsets.topics().iter();
    topics
        .map(|(name, partitions)| Answered {
            name: name.clone(),
            topic_id: Uuid::ZERO,
            partitions: partitions
                .iter()
                .map(|(index, offset)| (*index, Some(offset.clone())))
                .collect(),
            error: ErrorCode::NONE,
        })
        .collect()
}

fn ask(image: &Image, name: Str, topic_id: Uuid, partitions: Vec<i32>, version: i16) -> Asked {
    if version < TOPIC_IDS_FROM {
        return Asked {
            name,
            topic_id: Uuid::ZERO,
            partitions,
            error: ErrorCode::NONE,
        };
    }
    match image.topic_by_id(&topic_id) {
        Some(topic) => Asked {
            name: topic.name.clone(),
            topic_id,
            partitions,
            error: ErrorCode::NONE,
        },
        None => Asked {
            name: Str::EMPTY,
            topic_id,
            partitions,
            error: ErrorCode::UNKNOWN_TOPIC_ID,
        },
    }
}

/// A topic in the shape of v8 and later; `None` = it has no id any more and cannot be named by one.
fn batch_topic(image: &Image, topic: Answered, version: i16) -> Option<OffsetFetchResponseTopics> {
    let by_id = version >= TOPIC_IDS_FROM;
    let topic_id = match (by_id, topic.topic_id.is_zero()) {
        (true, true) if topic.error.is_none() => image.topic(&topic.name)?.id,
        (true, _) => topic.topic_id,
        (false, _) => Uuid::ZERO,
    };
    let partition = |(index, offset): (i32, Option<CommittedOffset>)| {
        let (committed_offset, committed_leader_epoch, metadata) = shown(offset);
        OffsetFetchResponsePartitions {
            partition_index: index,
            committed_offset,
            committed_leader_epoch,
            metadata: Some(metadata),
            error_code: topic.error.0,
            ..Default::default()
        }
    };
    Some(OffsetFetchResponseTopics {
        name: if by_id { Str::EMPTY } else { topic.name },
        topic_id,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    })
}

fn single_topic(topic: Answered) -> OffsetFetchResponseTopic {
    let partition = |(index, offset): (i32, Option<CommittedOffset>)| {
        let (committed_offset, committed_leader_epoch, metadata) = shown(offset);
        OffsetFetchResponsePartition {
            partition_index: index,
            committed_offset,
            committed_leader_epoch,
            metadata: Some(metadata),
            error_code: topic.error.0,
            ..Default::default()
        }
    };
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

fn refused_topic(topic: Asked, error: ErrorCode) -> OffsetFetchResponseTopic {
    let partition = |index: i32| OffsetFetchResponsePartition {
        partition_index: index,
        committed_offset: -1,
        metadata: Some(Str::EMPTY),
        error_code: error.0,
        ..Default::default()
    };
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

/// Offset, leader epoch and metadata; −1, −1 and nothing where none is committed.
fn shown(offset: Option<CommittedOffset>) -> (i64, i32, Str) {
    offset.map_or((-1, -1, Str::EMPTY), |offset| {
        (offset.offset, offset.leader_epoch, offset.metadata)
    })
}
