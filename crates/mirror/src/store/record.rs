//! The records of `__mirror_state`: keys of the late form, our value version 1, and the late values
//! of version 0 (docs/mirror-protocol.md §7.2).
//!
//! We write type 2 only: our value holds the last mirror epoch too, so one record changes both.
//! Type 1 is read.

use bytes::Bytes;
use tarn_wire::messages::{
    LastMirrorEpochsKey, LastMirrorEpochsValue, MirrorPartitionStateKey, MirrorPartitionStateValue,
};
use tarn_wire::{Message, Reader, RecordMessage, Str, WireError, Writer};

use super::table::{Entry, StateKey};
use crate::dialect::Dialect;
use crate::state::MirrorState;
use crate::transition::PartitionRecord;

/// Version of keys.
const KEY_VERSION: i16 = 0;
/// Version of values we write; 0 is the late prototype's.
const VALUE_VERSION: i16 = 1;
/// "Nothing" in the numeric fields of a value.
const NONE: i64 = -1;

/// A record read back.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// State of a partition; `None` = tombstone.
    State(StateKey, Option<Box<Entry>>),
    /// Last mirror epoch kept apart (late form); `None` = tombstone.
    LastMirrorEpoch(StateKey, Option<i32>),
    /// A record type that a later version may have added.
    Unknown(i16),
}

/// Key bytes of a partition's state.
pub fn encode_key(key: &StateKey) -> Result<Bytes, WireError> {
    let message = MirrorPartitionStateKey {
        mirror_name: key.mirror.clone(),
        topic_id: key.topic_id,
        partition: key.partition,
        ..Default::default()
    };
    framed(MirrorPartitionStateKey::TYPE, KEY_VERSION, &message)
}

/// Key bytes of a last mirror epoch kept apart: only for tombstones.
pub fn encode_epoch_key(key: &StateKey) -> Result<Bytes, WireError> {
    let message = LastMirrorEpochsKey {
        mirror_name: key.mirror.clone(),
        topic_id: key.topic_id,
        partition: key.partition,
        ..Default::default()
    };
    framed(LastMirrorEpochsKey::TYPE, KEY_VERSION, &message)
}

/// Value bytes of a partition's state.
pub fn encode_value(entry: &Entry) -> Result<Bytes, WireError> {
    let record = &entry.record;
    let message = MirrorPartitionStateValue {
        state: record.state.byte(),
        previous_state: record.previous.byte(),
        retry_attempt: record.retry_attempt,
        error_message: record.error.as_deref().map(Str::from),
        leader_epoch: entry.leader_epoch,
        state_epoch: entry.state_epoch,
        last_mirror_epoch: record.last_mirror_epoch.unwrap_or(-1),
        last_mirror_offset: record.last_mirror_offset.unwrap_or(NONE),
        truncate_to: record.truncate_to.unwrap_or(NONE),
        changed_at_ms: record.changed_at_ms,
        change_offset: entry.change_offset,
        ..Default::default()
    };
    framed(VALUE_VERSION, VALUE_VERSION, &message)
}

/// The number in front (a key's type, a value's version), then the body in `version`.
fn framed<M: Message>(prefix: i16, version: i16, message: &M) -> Result<Bytes, WireError> {
    let mut w = Writer::new();
    w.i16(prefix);
    message.encode(&mut w, version)?;
    // Records are never part of these messages, so the frame always has bytes.
    w.finish().to_bytes().ok_or(WireError::UnexpectedNull)
}

/// Reads one record of the topic.
pub fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Stored, WireError> {
    let mut r = Reader::new(key.clone());
    let kind = r.i16()?;
    if kind == MirrorPartitionStateKey::TYPE {
        let k = MirrorPartitionStateKey::decode(&mut r, KEY_VERSION)?;
        let key = StateKey {
            mirror: k.mirror_name.detach(),
            topic_id: k.topic_id,
            partition: k.partition,
        };
        let entry = value.map(decode_value).transpose()?.map(Box::new);
        return Ok(Stored::State(key, entry));
    }
    if kind == LastMirrorEpochsKey::TYPE {
        let k = LastMirrorEpochsKey::decode(&mut r, KEY_VERSION)?;
        let key = StateKey {
            mirror: k.mirror_name.detach(),
            topic_id: k.topic_id,
            partition: k.partition,
        };
        let epoch = match value {
            None => None,
            Some(value) => {
                let mut r = Reader::new(value.clone());
                let version = r.i16()?;
                let v = LastMirrorEpochsValue::decode(&mut r, version)?;
                Some(v.last_mirror_epoch).filter(|e| *e >= 0)
            }
        };
        return Ok(Stored::LastMirrorEpoch(key, epoch));
    }
    Ok(Stored::Unknown(kind))
}

fn decode_value(value: &Bytes) -> Result<Entry, WireError> {
    let mut r = Reader::new(value.clone());
    let version = r.i16()?;
    let v = MirrorPartitionStateValue::decode(&mut r, version)?;
    // Version 0 was written by the late prototype with its own bytes.
    let state = |byte| {
        if version == 0 {
            MirrorState::from_byte_for(Dialect::Late, byte)
        } else {
            MirrorState::from_byte(byte)
        }
    };
    let offset = |value: i64| (value >= 0).then_some(value);
    Ok(Entry {
        record: PartitionRecord {
            state: state(v.state),
            previous: state(v.previous_state),
            last_mirror_epoch: (v.last_mirror_epoch >= 0).then_some(v.last_mirror_epoch),
            last_mirror_offset: offset(v.last_mirror_offset),
            truncate_to: offset(v.truncate_to),
            retry_attempt: v.retry_attempt,
            error: v.error_message.map(String::from),
            changed_at_ms: v.changed_at_ms,
        },
        change_offset: v.change_offset,
        leader_epoch: v.leader_epoch,
        state_epoch: v.state_epoch,
    })
}

#[cfg(test)]
mod tests {
    use tarn_wire::Uuid;

    use super::*;

    fn hex(text: &str) -> Bytes {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    fn key() -> StateKey {
        let id: [u8; 16] = std::array::from_fn(|i| i as u8);
        StateKey {
            mirror: Str::from("my-mirror"),
            topic_id: Uuid(id),
            partition: 0,
        }
    }

    const STATE_KEY: &str = "000200096d792d6d6972726f72000102030405060708090a0b0c0d0e0f00000000";
    const EPOCH_KEY: &str = "000100096d792d6d6972726f72000102030405060708090a0b0c0d0e0f00000000";

    #[test]
    fn keys_have_the_late_bytes() {
        assert_eq!(encode_key(&key()).unwrap(), hex(STATE_KEY));
        assert_eq!(encode_epoch_key(&key()).unwrap(), hex(EPOCH_KEY));
    }

    #[test]
    fn late_values_are_readable_and_sixteen_is_unknown() {
        let Stored::State(k, Some(entry)) =
            decode(&hex(STATE_KEY), Some(&hex("000002ff00000000"))).unwrap()
        else {
            panic!("a state record");
        };
        assert_eq!(
            (k, entry.record.state, entry.record.previous),
            (key(), MirrorState::Mirroring, MirrorState::Unknown)
        );
        let Stored::State(_, Some(entry)) =
            decode(&hex(STATE_KEY), Some(&hex("0000061000000000"))).unwrap()
        else {
            panic!("a state record");
        };
        assert_eq!(
            (entry.record.state, entry.record.previous),
            (MirrorState::Stopped, MirrorState::Unknown)
        );
        assert_eq!(
            decode(&hex(EPOCH_KEY), Some(&hex("00000000000500"))).unwrap(),
            Stored::LastMirrorEpoch(key(), Some(5))
        );
    }

    #[test]
    fn our_value_reads_back_whole() {
        let entry = Entry {
            record: PartitionRecord {
                state: MirrorState::UleRecovery,
                previous: MirrorState::Mirroring,
                last_mirror_epoch: Some(3),
                last_mirror_offset: Some(1 << 40),
                truncate_to: Some(0),
                retry_attempt: -1,
                error: Some("why".into()),
                changed_at_ms: 77,
            },
            change_offset: 12,
            leader_epoch: 9,
            state_epoch: 4,
        };
        let value = encode_value(&entry).unwrap();
        assert_eq!(
            decode(&hex(STATE_KEY), Some(&value)).unwrap(),
            Stored::State(key(), Some(Box::new(entry)))
        );
    }

    #[test]
    fn tombstones_and_unknown_types_are_told_apart() {
        assert_eq!(
            decode(&hex(STATE_KEY), None).unwrap(),
            Stored::State(key(), None)
        );
        assert_eq!(decode(&hex("0063"), None).unwrap(), Stored::Unknown(0x63));
        assert!(decode(&hex("00"), None).is_err());
    }
}
