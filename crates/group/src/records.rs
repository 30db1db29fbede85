//! Records of `__consumer_offsets`, in Kafka's formats: offset commits (types 0 and 1) and classic
//! groups (type 2).
//!
//! Record types of the newer protocols are skipped, damaged records are errors. Nothing that is
//! read keeps the buffer it came from.

use bytes::{Buf, Bytes};
use tarn_coordinator::{CoordinatorRecord, ReplayError};
use tarn_wire::messages::group_metadata_value::MemberMetadata;
use tarn_wire::messages::{
    GroupMetadataKey, GroupMetadataValue, LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue,
};
use tarn_wire::{Message, Reader, RecordMessage, Str, WireError, Writer};

use crate::classic::{Persisted, PersistedMember};
use crate::offsets::CommittedOffset;

/// Versions that are written; those a Kafka 4.3 writes.
const OFFSET_VALUE_VERSION: i16 = 4;
/// Written when the client asked for an expiry of its own.
const OFFSET_VALUE_VERSION_EXPIRING: i16 = 1;
const GROUP_VALUE_VERSION: i16 = 3;

/// A record, understood.
#[derive(Clone, Debug)]
pub(crate) enum GroupRecord {
    /// An offset, or its tombstone.
    Offset {
        group: Str,
        topic: Str,
        partition: i32,
        value: Option<CommittedOffset>,
    },
    /// A classic group, or its tombstone.
    Group {
        group: Str,
        value: Option<Persisted>,
    },
    /// A record of a protocol this room does not serve.
    Other(i16),
}

/// Reads a record.
pub(crate) fn parse(key: &Bytes, value: Option<&Bytes>) -> Result<GroupRecord, ReplayError> {
    let (kind, key) = split(key)?;
    match kind {
        LegacyOffsetCommitKey::TYPE | OffsetCommitKey::TYPE => {
            let key = OffsetCommitKey::decode(&mut Reader::new(key), 0).map_err(damaged)?;
            let value = value.map(parse_offset).transpose()?;
            Ok(GroupRecord::Offset {
                group: key.group.detach(),
                topic: key.topic.detach(),
                partition: key.partition,
                value,
            })
        }
        GroupMetadataKey::TYPE => {
            let key = GroupMetadataKey::decode(&mut Reader::new(key), 0).map_err(damaged)?;
            Ok(GroupRecord::Group {
                group: key.group.detach(),
                value: value.map(parse_group).transpose()?,
            })
        }
        other => Ok(GroupRecord::Other(other)),
    }
}

fn parse_offset(value: &Bytes) -> Result<CommittedOffset, ReplayError> {
    let (version, body) = split(value)?;
    let value = OffsetCommitValue::decode(&mut Reader::new(body), version).map_err(damaged)?;
    Ok(CommittedOffset {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.detach(),
        commit_ms: value.commit_timestamp,
        expire_ms: (value.expire_timestamp >= 0).then_some(value.expire_timestamp),
        topic_id: value.topic_id,
    })
}

fn parse_group(value: &Bytes) -> Result<Persisted, ReplayError> {
    let (version, body) = split(value)?;
    let value = GroupMetadataValue::decode(&mut Reader::new(body), version).map_err(damaged)?;
    let member = |member: &MemberMetadata| PersistedMember {
        member_id: member.member_id.detach(),
        instance_id: member.group_instance_id.as_ref().map(Str::detach),
        client_id: member.client_id.detach(),
        client_host: member.client_host.detach(),
        // Version 0 has no rebalance timeout: the session timeout stands for both.
        rebalance_timeout_ms: if member.rebalance_timeout < 0 {
            member.session_timeout
        } else {
            member.rebalance_timeout
        },
        session_timeout_ms: member.session_timeout,
        subscription: Bytes::copy_from_slice(&member.subscription),
        assignment: Bytes::copy_from_slice(&member.assignment),
    };
    Ok(Persisted {
        protocol_type: (!value.protocol_type.is_empty()).then(|| value.protocol_type.detach()),
        generation: value.generation,
        protocol: value.protocol.as_ref().map(Str::detach),
        leader: value.leader.as_ref().map(Str::detach),
        state_since_ms: value.current_state_timestamp,
        members: value.members.iter().map(member).collect(),
    })
}

fn split(bytes: &Bytes) -> Result<(i16, Bytes), ReplayError> {
    let mut rest = bytes.clone();
    if rest.len() < 2 {
        return Err(ReplayError("record without a version".to_owned()));
    }
    let version = rest.get_i16();
    Ok((version, rest))
}

fn damaged(error: WireError) -> ReplayError {
    ReplayError(error.to_string())
}

/// The record of a commit, or its tombstone. Errors: a text that the format has no room for.
pub(crate) fn offset(
    group: &Str,
    topic: &Str,
    partition: i32,
    value: Option<&CommittedOffset>,
) -> Result<CoordinatorRecord, WireError> {
    let key = OffsetCommitKey {
        group: group.clone(),
        topic: topic.clone(),
        partition,
        ..Default::default()
    };
    let value = value.map(|offset| {
        let version = if offset.expire_ms.is_some() {
            OFFSET_VALUE_VERSION_EXPIRING
        } else {
            OFFSET_VALUE_VERSION
        };
        let value = OffsetCommitValue {
            offset: offset.offset,
            // Version 1 has no room for the epoch.
            leader_epoch: if offset.expire_ms.is_some() {
                -1
            } else {
                offset.leader_epoch
            },
            metadata: offset.metadata.clone(),
            commit_timestamp: offset.commit_ms,
            expire_timestamp: offset.expire_ms.unwrap_or(-1),
            topic_id: offset.topic_id,
            ..Default::default()
        };
        join(version, &value, version)
    });
    Ok(CoordinatorRecord {
        key: join(OffsetCommitKey::TYPE, &key, 0)?,
        value: value.transpose()?,
    })
}

/// The record of a classic group, or its tombstone. Errors: a text that the format has no room for.
pub(crate) fn group(
    group: &Str,
    value: Option<&Persisted>,
) -> Result<CoordinatorRecord, WireError> {
    let key = GroupMetadataKey {
        group: group.clone(),
        ..Default::default()
    };
    let value = value.map(|persisted| {
        let member = |member: &PersistedMember| MemberMetadata {
            member_id: member.member_id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.subscription.clone(),
            assignment: member.assignment.clone(),
            ..Default::default()
        };
        let value = GroupMetadataValue {
            protocol_type: persisted.protocol_type.clone().unwrap_or_default(),
            generation: persisted.generation,
            protocol: persisted.protocol.clone(),
            leader: persisted.leader.clone(),
            current_state_timestamp: persisted.state_since_ms,
            members: persisted.members.iter().map(member).collect(),
            ..Default::default()
        };
        join(GROUP_VALUE_VERSION, &value, GROUP_VALUE_VERSION)
    });
    Ok(CoordinatorRecord {
        key: join(GroupMetadataKey::TYPE, &key, 0)?,
        value: value.transpose()?,
    })
}

/// Prefix and body. Errors: a text that the format has no room for (32 KiB); it must not reach the
/// log, where it would be missed by the next load.
fn join<M: Message>(prefix: i16, message: &M, version: i16) -> Result<Bytes, WireError> {
    let mut writer = Writer::new();
    writer.i16(prefix);
    message.encode(&mut writer, version)?;
    // Records are never part of these messages, so the frame always has bytes.
    writer.finish().to_bytes().ok_or(WireError::UnexpectedNull)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_record_comes_back_as_it_was() {
        let committed = CommittedOffset {
            offset: 42,
            leader_epoch: 7,
            metadata: Str::from("xyz"),
            commit_ms: 99,
            expire_ms: None,
            topic_id: tarn_wire::Uuid([7; 16]),
        };
        let record = offset(&Str::from("g"), &Str::from("t"), 3, Some(&committed)).expect("fits");
        assert_eq!(&record.key[..2], [0, 1]);
        // Version 4 carries the topic id, as Kafka 4.3 writes it.
        assert_eq!(&record.value.as_ref().expect("a value")[..2], [0, 4]);
        match parse(&record.key, record.value.as_ref()) {
            Ok(GroupRecord::Offset {
                group,
                topic,
                partition,
                value,
            }) => {
                assert_eq!(
                    (&*group, &*topic, partition, value),
                    ("g", "t", 3, Some(committed))
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_offset_with_its_own_expiry_is_written_in_the_version_that_has_one() {
        let committed = CommittedOffset {
            offset: 42,
            leader_epoch: 7,
            metadata: Str::EMPTY,
            commit_ms: 99,
            expire_ms: Some(1000),
            topic_id: tarn_wire::Uuid([7; 16]),
        };
        let record = offset(&Str::from("g"), &Str::from("t"), 3, Some(&committed)).expect("fits");
        assert_eq!(&record.value.as_ref().expect("a value")[..2], [0, 1]);
        match parse(&record.key, record.value.as_ref()) {
            Ok(GroupRecord::Offset {
                value: Some(value), ..
            }) => assert_eq!((value.expire_ms, value.leader_epoch), (Some(1000), -1)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unknown_kinds_are_skipped_and_damage_is_an_error() {
        assert!(matches!(
            parse(&Bytes::from_static(&[0, 15, 1, 2]), None),
            Ok(GroupRecord::Other(15))
        ));
        assert!(parse(&Bytes::from_static(&[0]), None).is_err());
        assert!(parse(&Bytes::from_static(&[0, 1, 0, 9, 1]), None).is_err());
        let record = offset(&Str::from("g"), &Str::from("t"), 3, None).expect("fits");
        assert!(parse(&record.key, Some(&Bytes::from_static(&[0, 3, 1]))).is_err());
    }
    /// A text that the format has no room for is an error, never an empty record.
    #[test]
    fn what_cannot_be_encoded_is_no_record() {
        let long = Str::from("x".repeat(40_000));
        let persisted = Persisted {
            members: vec![PersistedMember {
                client_id: long.clone(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert!(group(&Str::from("g"), Some(&persisted)).is_err());
        assert!(group(&long, None).is_err());
        assert!(offset(&long, &Str::from("t"), 0, None).is_err());
    }
}
