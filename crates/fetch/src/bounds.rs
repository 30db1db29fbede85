//! ListOffsets for the bounds of logs. Pure.

use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tarn_wire::{ErrorCode, Str};

/// ListOffsets timestamp of the log end.
const LATEST: i64 = -1;
/// ListOffsets timestamp of the log start.
const EARLIEST: i64 = -2;

/// Bounds of a leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// First offset.
    pub start: i64,
    /// For a consumer the high watermark, for a replica the log end.
    pub end: i64,
}

/// Why there is no offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOffset {
    /// The leader's error for the partition.
    Refused(ErrorCode),
    /// The response leaves the partition out, which says nothing about the topic: perhaps a quota
    /// holds it back for so many ms.
    LeftOut {
        /// 0 = no quota.
        throttle_ms: i32,
    },
}

/// ListOffsets of these partitions for one end of their logs; version 1 and later. `replica_id` −1
/// = a consumer.
pub fn bounds_request(replica_id: i32, partitions: &[(Str, i32)], end: bool) -> ListOffsetsRequest {
    let topic = |(name, index): &(Str, i32)| ListOffsetsTopic {
        name: name.clone(),
        partitions: vec![ListOffsetsPartition {
            partition_index: *index,
            current_leader_epoch: -1,
            timestamp: if end { LATEST } else { EARLIEST },
            ..Default::default()
        }],
        ..Default::default()
    };
    ListOffsetsRequest {
        replica_id,
        topics: partitions.iter().map(topic).collect(),
        ..Default::default()
    }
}

/// The offset answered for one partition.
///
/// # Errors
/// Why there is none; OFFSET_NOT_AVAILABLE when the leader knows no offset.
pub fn read_bounds(
    response: &ListOffsetsResponse,
    topic: &str,
    partition: i32,
) -> Result<i64, NoOffset> {
    let of_topic = response
        .topics
        .iter()
        .filter(|t| t.name == *topic)
        .flat_map(|t| &t.partitions);
    let found = of_topic
        .into_iter()
        .find(|p| p.partition_index == partition)
        .ok_or(NoOffset::LeftOut {
            throttle_ms: response.throttle_time_ms,
        })?;
    match ErrorCode(found.error_code) {
        ErrorCode::NONE if found.offset >= 0 => Ok(found.offset),
        ErrorCode::NONE => Err(NoOffset::Refused(ErrorCode::OFFSET_NOT_AVAILABLE)),
        code => Err(NoOffset::Refused(code)),
    }
}
