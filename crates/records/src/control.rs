//! Control records: transaction markers (0, 1), KRaft's (2–6) and the mirror's PID reset (7,
//! docs/mirror-protocol.md §7.1).

use bytes::Bytes;

use crate::varint::{Cursor, put_u64};
use crate::{BatchBuilder, Record, RecordsError};

const KEY_VERSION: i16 = 0;
const END_TXN_VALUE_VERSION: i16 = 0;
const PID_RESET_VERSION: i16 = 0;

/// Type field of a control record's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlType {
    /// 0: the transaction was aborted.
    Abort,
    /// 1: the transaction was committed.
    Commit,
    /// 2: a new Raft leader.
    LeaderChange,
    /// 3: start of a metadata snapshot.
    SnapshotHeader,
    /// 4: end of a metadata snapshot.
    SnapshotFooter,
    /// 5: version of the Raft protocol.
    KRaftVersion,
    /// 6: the voter set.
    KRaftVoters,
    /// 7: forget all producers of the partition (a mirror became writable).
    MirrorPidReset,
    /// Anything else: skip it.
    Unknown(i16),
}

impl ControlType {
    /// From the number in the key.
    pub fn from_id(id: i16) -> ControlType {
        match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KRaftVersion,
            6 => ControlType::KRaftVoters,
            7 => ControlType::MirrorPidReset,
            n => ControlType::Unknown(n),
        }
    }
    /// The number in the key.
    pub fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KRaftVersion => 5,
            ControlType::KRaftVoters => 6,
            ControlType::MirrorPidReset => 7,
            ControlType::Unknown(n) => n,
        }
    }
}

/// A control record's key and raw value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRecord {
    /// What it says.
    pub kind: ControlType,
    /// Value bytes (may be absent in foreign types).
    pub value: Option<Bytes>,
}

/// A transaction marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTxnMarker {
    /// Committed, else aborted.
    pub committed: bool,
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
}

impl ControlRecord {
    /// The marker, when this is one; error when its value is malformed.
    pub fn end_txn_marker(&self) -> Result<Option<EndTxnMarker>, RecordsError> {
        let committed = match self.kind {
            ControlType::Abort => false,
            ControlType::Commit => true,
            _ => return Ok(None),
        };
        let value = self
            .value
            .as_deref()
            .ok_or(RecordsError::InvalidControl("marker has no value"))?;
        // Higher versions only add fields behind these.
        let epoch = value
            .get(2..6)
            .ok_or(RecordsError::InvalidControl("marker value is cut off"))?;
        Ok(Some(EndTxnMarker {
            committed,
            coordinator_epoch: i32::from_be_bytes([epoch[0], epoch[1], epoch[2], epoch[3]]),
        }))
    }
}

/// Reads a record of a control batch.
pub fn parse_control_record(record: &Record) -> Result<ControlRecord, RecordsError> {
    let key = record
        .key
        .as_deref()
        .ok_or(RecordsError::InvalidControl("no key"))?;
    let (Some(version), Some(kind)) = (key.get(0..2), key.get(2..4)) else {
        return Err(RecordsError::InvalidControl("key is cut off"));
    };
    if i16::from_be_bytes([version[0], version[1]]) < 0 {
        return Err(RecordsError::InvalidControl("negative key version"));
    }
    let kind = ControlType::from_id(i16::from_be_bytes([kind[0], kind[1]]));
    Ok(ControlRecord {
        kind,
        value: record.value.clone(),
    })
}

/// Key of a control record of this type.
pub fn control_key(kind: ControlType) -> [u8; 4] {
    let (v, t) = (KEY_VERSION.to_be_bytes(), kind.id().to_be_bytes());
    [v[0], v[1], t[0], t[1]]
}

/// A control batch of one record without producer, CREATE_TIME, uncompressed. `value` is the
/// already encoded message.
pub fn control_batch(
    kind: ControlType,
    value: &[u8],
    base_offset: i64,
    leader_epoch: i32,
    timestamp: i64,
) -> Result<Vec<u8>, RecordsError> {
    let mut b = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(leader_epoch)
        .control();
    b.add(timestamp, Some(&control_key(kind)), Some(value), &[]);
    b.build()
}

/// COMMIT or ABORT marker of a producer; offset 0 and epoch −1 until a leader append stamps them.
pub fn end_transaction_marker(
    marker: EndTxnMarker,
    producer_id: i64,
    producer_epoch: i16,
    timestamp: i64,
) -> Result<Vec<u8>, RecordsError> {
    let kind = if marker.committed {
        ControlType::Commit
    } else {
        ControlType::Abort
    };
    let mut value = END_TXN_VALUE_VERSION.to_be_bytes().to_vec();
    value.extend_from_slice(&marker.coordinator_epoch.to_be_bytes());
    let mut b = BatchBuilder::new()
        .producer(producer_id, producer_epoch, crate::NO_SEQUENCE)
        .transactional()
        .control();
    b.add(timestamp, Some(&control_key(kind)), Some(&value), &[]);
    b.build()
}

/// The PID reset batch (98 bytes for a 22-character cluster id); `""` when the source's id is
/// unknown.
pub fn mirror_pid_reset(source_cluster_id: &str, timestamp: i64) -> Result<Vec<u8>, RecordsError> {
    control_batch(
        ControlType::MirrorPidReset,
        &mirror_pid_reset_value(source_cluster_id),
        0,
        crate::NO_LEADER_EPOCH,
        timestamp,
    )
}

/// Value of the PID reset record: `MirrorPidResetRecord` v0, flexible.
pub fn mirror_pid_reset_value(source_cluster_id: &str) -> Vec<u8> {
    let mut v = PID_RESET_VERSION.to_be_bytes().to_vec();
    put_u64(&mut v, source_cluster_id.len() as u64 + 1);
    v.extend_from_slice(source_cluster_id.as_bytes());
    v.push(0);
    v
}

/// Source cluster id of a PID reset value.
pub fn parse_mirror_pid_reset(value: &[u8]) -> Result<String, RecordsError> {
    let bad = RecordsError::InvalidControl("pid reset value is malformed");
    let mut c = Cursor::new(value, 0);
    let read = |c: &mut Cursor<'_>| {
        c.take(2)?;
        let size = c.u32()?.checked_sub(1)?;
        let id = c.take(size as usize)?;
        String::from_utf8(id.to_vec()).ok()
    };
    read(&mut c).ok_or(bad)
}

/// LeaderChange batch; `value` is an encoded `LeaderChangeMessage`.
pub fn leader_change(
    value: &[u8],
    base_offset: i64,
    leader_epoch: i32,
    timestamp: i64,
) -> Result<Vec<u8>, RecordsError> {
    control_batch(
        ControlType::LeaderChange,
        value,
        base_offset,
        leader_epoch,
        timestamp,
    )
}
