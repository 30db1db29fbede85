//! Questions to the leader of one source partition: log bounds, ends of epochs, one batch.

use bytes::Bytes;
use tarn_client::{Handle, MetadataTopics};
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use tarn_wire::messages::{
    FetchRequest, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
};
use tarn_wire::{ErrorCode, Message, Str, Uuid, VersionRange};

use super::{AskError, SourceClient, SourceError, is_denial, source_topic};
use crate::prepare::chain::{ChainMatch, ChainStep, ChainWalk, EpochChain};

/// ListOffsets timestamp of the log end.
const LATEST: i64 = -1;
/// ListOffsets timestamp of the log start.
const EARLIEST: i64 = -2;
/// Consumers have no replica id.
const CONSUMER: i32 = -1;

/// Log bounds of a partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedBounds {
    /// First offset.
    pub(crate) start: i64,
    /// High watermark.
    pub(crate) end: i64,
}

/// ListOffsets of these partitions for one end of their logs; version 1 and later.
pub(crate) fn bounds_request(partitions: &[(Str, i32)], end: bool) -> ListOffsetsRequest {
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
        replica_id: CONSUMER,
        topics: partitions.iter().map(topic).collect(),
        ..Default::default()
    }
}

/// The offset answered for one partition.
pub(crate) fn read_bounds(
    response: &ListOffsetsResponse,
    topic: &str,
    partition: i32,
) -> Result<i64, ErrorCode> {
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let of_topic = response
        .topics
        .iter()
        .filter(|t| t.name == *topic)
        .flat_map(|t| &t.partitions);
    let found = of_topic
        .into_iter()
        .find(|p| p.partition_index == partition)
        .ok_or(unknown)?;
    match ErrorCode(found.error_code) {
        ErrorCode::NONE if found.offset >= 0 => Ok(found.offset),
        ErrorCode::NONE => Err(ErrorCode::OFFSET_NOT_AVAILABLE),
        code => Err(code),
    }
}

/// The leader of one partition at the source, for one preparation.
pub(crate) struct LeaderOf<'a> {
    client: &'a SourceClient,
    handle: Handle,
    topic: Str,
    partition: i32,
    /// Topic id at the source, `None` = it has none.
    pub(crate) topic_id: Option<Uuid>,
}

impl<'a> LeaderOf<'a> {
    /// Finds and connects the leader.
    pub(crate) async fn find(
        client: &'a SourceClient,
        topic: &Str,
        partition: i32,
    ) -> Result<LeaderOf<'a>, AskError> {
        let response = client
            .metadata(&MetadataTopics::Names(vec![topic.clone()]))
            .await?;
        let found = response
            .topics
            .iter()
            .find(|t| t.name.as_ref() == Some(topic));
        let found =
            found.ok_or_else(|| other(format!("the source did not answer for topic {topic}")))?;
        let found = source_topic(found).map_err(other)?;
        let leader = found
            .partitions
            .iter()
            .find(|p| p.partition == partition)
            .and_then(|p| p.leader);
        let leader = leader.ok_or_else(|| {
            other(format!(
                "partition {partition} of {topic} has no leader at the source"
            ))
        })?;
        let handle = client.note_broker(client.cluster()?.broker(leader).await)?;
        Ok(LeaderOf {
            client,
            handle,
            topic: topic.clone(),
            partition,
            topic_id: found.id,
        })
    }

    /// First offset and high watermark.
    pub(crate) async fn bounds(&self) -> Result<ListedBounds, AskError> {
        Ok(ListedBounds {
            start: self.bound(false).await?,
            end: self.bound(true).await?,
        })
    }

    async fn bound(&self, end: bool) -> Result<i64, AskError> {
        let request = bounds_request(&[(self.topic.clone(), self.partition)], end);
        let wanted = VersionRange::new(1, ListOffsetsRequest::VERSIONS.max);
        let response = self
            .client
            .note_broker(self.handle.call_within(&request, wanted).await)?;
        read_bounds(&response, &self.topic, self.partition)
            .map_err(|code| refusal("ListOffsets", code, &self.topic, self.partition))
    }

    /// Walks down our epochs until the chains meet.
    pub(crate) async fn compare(&self, chain: EpochChain) -> Result<ChainMatch, AskError> {
        let mut walk = ChainWalk::new(chain);
        let mut step = walk.begin();
        loop {
            let epoch = match step {
                ChainStep::Done(found) => return Ok(found),
                ChainStep::Ask(epoch) => epoch,
            };
            match self.end_of_epoch(epoch).await {
                Ok((epoch, end)) => step = walk.answered(epoch, end).map_err(other)?,
                Err(AskError::Source(SourceError::Unsupported(_) | SourceError::Denied(_))) => {
                    return Ok(ChainMatch::NotAskable);
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn end_of_epoch(&self, epoch: i32) -> Result<(i32, i64), AskError> {
        let asked = OffsetForLeaderPartition {
            partition: self.partition,
            current_leader_epoch: -1,
            leader_epoch: epoch,
            ..Default::default()
        };
        let topic = OffsetForLeaderTopic {
            topic: self.topic.clone(),
            partitions: vec![asked],
            ..Default::default()
        };
        let request = OffsetForLeaderEpochRequest {
            replica_id: CONSUMER,
            topics: vec![topic],
            ..Default::default()
        };
        // Version 0 does not say which epoch the end offset belongs to.
        let wanted = VersionRange::new(1, OffsetForLeaderEpochRequest::VERSIONS.max);
        let response = self
            .client
            .note_broker(self.handle.call_within(&request, wanted).await)?;
        let of_topic = response
            .topics
            .iter()
            .filter(|t| t.topic == self.topic)
            .flat_map(|t| &t.partitions);
        let found = of_topic.into_iter().find(|p| p.partition == self.partition);
        let found = found
            .ok_or_else(|| other("the source did not answer OffsetForLeaderEpoch".to_string()))?;
        match ErrorCode(found.error_code) {
            ErrorCode::NONE => Ok((found.leader_epoch, found.end_offset)),
            code => Err(refusal(
                "OffsetForLeaderEpoch",
                code,
                &self.topic,
                self.partition,
            )),
        }
    }

    /// The batch that holds this offset, with whatever follows it.
    pub(crate) async fn batch_at(&self, offset: i64) -> Result<Bytes, AskError> {
        let by_id = self.topic_id.is_some_and(|_| {
            let wanted = VersionRange::new(13, 18);
            self.handle
                .versions()
                .common::<FetchRequest>(wanted)
                .is_some()
        });
        let wanted = if by_id {
            VersionRange::new(13, 18)
        } else {
            VersionRange::new(4, 12)
        };
        let asked = FetchPartition {
            partition: self.partition,
            current_leader_epoch: -1,
            fetch_offset: offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            partition_max_bytes: 1,
            ..Default::default()
        };
        let mut topic = FetchTopic {
            partitions: vec![asked],
            ..Default::default()
        };
        match self.topic_id {
            Some(id) if by_id => topic.topic_id = id,
            _ => topic.topic = self.topic.clone(),
        }
        let request = FetchRequest {
            replica_id: CONSUMER,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1,
            session_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = self
            .client
            .note_broker(self.handle.call_within(&request, wanted).await)?;
        let found = response.responses.iter().flat_map(|t| &t.partitions).next();
        let found = found.ok_or_else(|| other("the source did not answer Fetch".to_string()))?;
        match ErrorCode(found.error_code) {
            ErrorCode::NONE => Ok(found
                .records
                .as_ref()
                .and_then(|r| r.as_bytes())
                .cloned()
                .unwrap_or_default()),
            code => Err(refusal("Fetch", code, &self.topic, self.partition)),
        }
    }
}

fn other(text: impl Into<String>) -> AskError {
    AskError::Source(SourceError::Other(text.into()))
}

fn refusal(api: &str, code: ErrorCode, topic: &str, partition: i32) -> AskError {
    let text = format!(
        "the source refused {api} of {topic}-{partition}: {}",
        code.name()
    );
    AskError::Source(if is_denial(code) {
        SourceError::Denied(text)
    } else {
        SourceError::Other(text)
    })
}
