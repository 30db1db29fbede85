//! Keys 100, 101: reading and writing states at their coordinator. Between our own brokers the
//! topic id travels as a tag and bytes are those of our own enum; foreign callers get their
//! dialect's.

use std::collections::HashSet;

use tarn_metadata::Image;
use tarn_wire::messages as m;
use tarn_wire::messages::{
    late_read_mirror_states_response as late_read, late_write_mirror_states_response as late_write,
    read_mirror_states_response as read, write_mirror_states_response as write,
};
use tarn_wire::{ApiKey, Str, Uuid};

use super::reply::{MirrorReply, Top};
use crate::dialect::{Dialect, MirrorError};
use crate::state::MirrorState;
use crate::store::StateStore;
use crate::store::table::{Entry, StateKey, Write};
use crate::transition::PartitionRecord;

/// The local id of a topic that a caller named: our own brokers say it.
fn topic_id(image: &Image, name: &Str, tagged: Uuid) -> Uuid {
    if tagged.is_zero() {
        image.topic(name).map_or(Uuid::ZERO, |t| t.id)
    } else {
        tagged
    }
}

fn byte(state: MirrorState, dialect: Dialect, own: bool) -> i8 {
    if own {
        state.byte()
    } else {
        state.byte_for(dialect)
    }
}

fn state(byte: i8, dialect: Dialect, own: bool) -> MirrorState {
    if own {
        MirrorState::from_byte(byte)
    } else {
        MirrorState::from_byte_for(dialect, byte)
    }
}

/// Answers 100.
pub(super) async fn read(
    store: &StateStore,
    image: &Image,
    request: m::ReadMirrorStatesRequest,
    dialect: Dialect,
) -> MirrorReply {
    let mirror = request.mirror_name.detach();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let own = !topic.topic_id.is_zero();
        let id = topic_id(image, &topic.name, topic.topic_id);
        let key = |p: i32| StateKey {
            mirror: mirror.clone(),
            topic_id: id,
            partition: p,
        };
        // Named again, a partition is read once: each comes with a text.
        let mut seen = HashSet::new();
        let indexes = topic.partitions.iter().map(|p| p.partition_index);
        let indexes: Vec<i32> = indexes.filter(|index| seen.insert(*index)).collect();
        let found = store.read(indexes.iter().map(|p| key(*p)).collect()).await;
        let partitions = indexes
            .into_iter()
            .zip(found)
            .map(|(index, found)| read_partition(index, found, dialect, own))
            .collect();
        topics.push(read::ReadMirrorTopicResult {
            name: topic.name.detach(),
            partitions,
            topic_id: topic.topic_id,
            ..Default::default()
        });
    }
    if dialect == Dialect::Early {
        return MirrorReply::new(
            ApiKey::READ_MIRROR_STATES,
            m::ReadMirrorStatesResponse {
                topics,
                error_message: None,
                ..Default::default()
            },
        );
    }
    MirrorReply::new(
        ApiKey::READ_MIRROR_STATES,
        m::LateReadMirrorStatesResponse {
            topics: topics.into_iter().map(late_topic).collect(),
            error_message: None,
            ..Default::default()
        },
    )
}

fn read_partition(
    index: i32,
    found: Result<Option<Entry>, MirrorError>,
    dialect: Dialect,
    own: bool,
) -> read::ReadMirrorPartitionResult {
    let mut result = read::ReadMirrorPartitionResult {
        partition_index: index,
        state: byte(MirrorState::Unknown, dialect, own),
        error_message: None,
        ..Default::default()
    };
    match found {
        Err(error) => {
            result.error_code = error.code(dialect);
            result.error_message = Some(Str::from(error.to_string()));
        }
        Ok(None) => {}
        Ok(Some(entry)) => {
            let record = entry.record;
            result.state = byte(record.state, dialect, own);
            result.previous_state = byte(record.previous, dialect, own);
            result.last_mirror_epoch = record.last_mirror_epoch.unwrap_or(-1);
            result.leader_epoch = entry.leader_epoch;
            result.state_epoch = entry.state_epoch;
            result.last_mirror_offset = record.last_mirror_offset.unwrap_or(-1);
            result.truncate_to = record.truncate_to.unwrap_or(-1);
            result.retry_attempt = record.retry_attempt;
            result.error_message = record.error.map(Str::from);
            result.changed_at_ms = record.changed_at_ms;
            result.change_offset = entry.change_offset;
        }
    }
    result
}

fn late_topic(topic: read::ReadMirrorTopicResult) -> late_read::ReadMirrorTopicResult {
    let partition = |p: read::ReadMirrorPartitionResult| late_read::ReadMirrorPartitionResult {
        partition_index: p.partition_index,
        last_mirror_epoch: p.last_mirror_epoch,
        state: p.state,
        error_code: p.error_code,
        previous_state: p.previous_state,
        retry_attempt: p.retry_attempt,
        error_message: p.error_message,
        ..Default::default()
    };
    late_read::ReadMirrorTopicResult {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    }
}

/// Answers 101: after the records are durable. Every fence has to be in the request, and none may
/// be ahead of what this node knows: a number from nowhere would fence every real leader.
pub(super) async fn write(
    store: &StateStore,
    image: &Image,
    request: m::WriteMirrorStatesRequest,
    dialect: Dialect,
    now_ms: i64,
) -> MirrorReply {
    let mirror = request.mirror_name.detach();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let id = topic_id(image, &topic.name, topic.topic_id);
        let mut results = Vec::with_capacity(topic.partitions.len());
        let mut writes = Vec::new();
        for p in &topic.partitions {
            let write = Write {
                key: StateKey {
                    mirror: mirror.clone(),
                    topic_id: id,
                    partition: p.partition_index,
                },
                change_offset: p.change_offset,
                leader_epoch: p.leader_epoch,
                expected_state_epoch: p.state_epoch,
                record: record(p, dialect, !topic.topic_id.is_zero(), now_ms),
            };
            let checked = check_known(image, &topic.name, &write);
            results.push(checked.map(|()| writes.push(write)));
        }
        let mut written = store.write(writes).await.into_iter();
        let partitions = topic.partitions.iter().zip(results).map(|(p, checked)| {
            let result = checked.and_then(|()| {
                written
                    .next()
                    .unwrap_or(Err(MirrorError::CoordinatorLoading))
            });
            answer(p.partition_index, result, dialect)
        });
        topics.push(write::WriteMirrorTopicResult {
            name: topic.name.detach(),
            partitions: partitions.collect(),
            topic_id: topic.topic_id,
            ..Default::default()
        });
    }
    write_reply(topics, dialect)
}

/// Whether a write is about a partition of this mirror, under an epoch and a wish that this node
/// knows.
fn check_known(image: &Image, name: &Str, write: &Write) -> Result<(), MirrorError> {
    let key = &write.key;
    let unknown = || MirrorError::UnknownTopic(name.to_string());
    let topic = image
        .topic_by_id(&key.topic_id)
        .filter(|t| t.name == *name)
        .ok_or_else(unknown)?;
    let partition = topic.partition(key.partition).ok_or_else(unknown)?;
    let member = image
        .membership(name)
        .filter(|member| member.mirror == key.mirror && member.topic_id == key.topic_id)
        .ok_or_else(|| {
            MirrorError::TopicNotInMirror(format!(
                "Topic '{name}' is not in mirror '{}'",
                key.mirror
            ))
        })?;
    let known = [
        (
            "leader epoch",
            i64::from(write.leader_epoch),
            i64::from(partition.leader_epoch),
        ),
        ("change offset", write.change_offset, member.change_offset),
    ];
    match known.into_iter().find(|(_, given, known)| given > known) {
        Some((what, given, known)) => Err(MirrorError::UnknownFence { what, given, known }),
        None => Ok(()),
    }
}

fn write_reply(topics: Vec<write::WriteMirrorTopicResult>, dialect: Dialect) -> MirrorReply {
    if dialect == Dialect::Early {
        return MirrorReply::new(
            ApiKey::WRITE_MIRROR_STATES,
            m::WriteMirrorStatesResponse {
                topics,
                error_message: None,
                ..Default::default()
            },
        );
    }
    let partition = |p: write::WriteMirrorPartitionResult| late_write::WriteMirrorPartitionResult {
        partition_index: p.partition_index,
        error_code: p.error_code,
        error_message: p.error_message,
        ..Default::default()
    };
    let topic = |t: write::WriteMirrorTopicResult| late_write::WriteMirrorTopicResult {
        name: t.name,
        partitions: t.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    };
    MirrorReply::new(
        ApiKey::WRITE_MIRROR_STATES,
        m::LateWriteMirrorStatesResponse {
            topics: topics.into_iter().map(topic).collect(),
            error_message: None,
            ..Default::default()
        },
    )
}

fn record(
    p: &m::write_mirror_states_request::WriteMirrorPartition,
    dialect: Dialect,
    own: bool,
    now_ms: i64,
) -> PartitionRecord {
    PartitionRecord {
        state: state(p.state, dialect, own),
        previous: state(p.previous_state, dialect, own),
        last_mirror_epoch: (p.last_mirror_epoch >= 0).then_some(p.last_mirror_epoch),
        last_mirror_offset: (p.last_mirror_offset >= 0).then_some(p.last_mirror_offset),
        truncate_to: (p.truncate_to >= 0).then_some(p.truncate_to),
        retry_attempt: p.retry_attempt,
        error: p.error_message.as_ref().map(|e| e.to_string()),
        changed_at_ms: now_ms,
    }
}

fn answer(
    index: i32,
    result: Result<Entry, MirrorError>,
    dialect: Dialect,
) -> write::WriteMirrorPartitionResult {
    let (code, message, state_epoch) = match &result {
        Ok(entry) => (0, None, entry.state_epoch),
        Err(error) => {
            let top = Top::of(Some(error), dialect);
            (top.code, top.message, -1)
        }
    };
    write::WriteMirrorPartitionResult {
        partition_index: index,
        error_code: code,
        error_message: message,
        state_epoch,
        ..Default::default()
    }
}
