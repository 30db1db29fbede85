//! Questions about log bounds, and everything a preparation asks of the leader of one source
//! partition.

use std::sync::Arc;

use tarn_client::{Handle, MetadataTopics};
use tarn_fetch::LogBounds;
use tarn_replica::Partition;
use tarn_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tarn_wire::{Message, Str, Uuid};

use super::{
    AskError, EpochQuestion, Finding, NoValue, SourceClient, SourceError, Subject, compare_all,
    ends_of_epochs, is_denial, source_topic,
};
use crate::claims::believed_bound;
use crate::prepare::chain::{ChainMatch, ChainStep, ChainWalk, EpochChain};

/// Replica id of a consumer.
const CONSUMER: i32 = -1;

fn bounds_request(partitions: &[(Str, i32)], end: bool) -> ListOffsetsRequest {
    tarn_fetch::bounds_request(CONSUMER, partitions, end)
}

/// The offset answered for one partition, unless it is not believed.
fn read_bounds(
    response: &ListOffsetsResponse,
    topic: &str,
    partition: i32,
) -> Result<i64, NoValue> {
    let offset = tarn_fetch::read_bounds(response, topic, partition);
    offset.map_err(NoValue::from).and_then(believed_bound)
}

/// One end of the logs of these partitions, all led by the broker behind `handle`; one answer each.
pub(crate) async fn list_bounds(
    client: &SourceClient,
    handle: &Handle,
    partitions: &[(Str, i32)],
    end: bool,
) -> Result<Vec<Result<i64, NoValue>>, AskError> {
    let request = bounds_request(partitions, end);
    let wanted = ListOffsetsRequest::VERSIONS;
    let response = client.note_broker(handle.call_within(&request, wanted).await)?;
    let read = |(topic, partition): &(Str, i32)| read_bounds(&response, topic, *partition);
    Ok(partitions.iter().map(read).collect())
}

/// The leader of one partition at the source, for one preparation.
pub(crate) struct LeaderOf<'a> {
    client: &'a SourceClient,
    handle: Handle,
    topic: Str,
    partition: i32,
    /// Leader epoch, −1 = the source does not tell.
    leader_epoch: i32,
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
        let of_partition = found.partitions.iter().find(|p| p.partition == partition);
        let leader_epoch = of_partition.and_then(|p| p.leader_epoch).unwrap_or(-1);
        let leader = of_partition.and_then(|p| p.leader).ok_or_else(|| {
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
            leader_epoch,
            topic_id: found.id,
        })
    }

    /// First offset and high watermark.
    pub(crate) async fn bounds(&self) -> Result<LogBounds, AskError> {
        Ok(LogBounds {
            start: self.bound(false).await?,
            end: self.bound(true).await?,
        })
    }

    async fn bound(&self, end: bool) -> Result<i64, AskError> {
        let request = bounds_request(&[(self.topic.clone(), self.partition)], end);
        let wanted = ListOffsetsRequest::VERSIONS;
        let response = self
            .client
            .note_broker(self.handle.call_within(&request, wanted).await)?;
        read_bounds(&response, &self.topic, self.partition)
            .map_err(|e| refusal("ListOffsets", e, &self.topic, self.partition))
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
        let question = EpochQuestion {
            topic: self.topic.clone(),
            partition: self.partition,
            leader_epoch: self.leader_epoch,
            epoch,
        };
        let answers = ends_of_epochs(self.client, &self.handle, &[question]).await?;
        let answer = answers
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(NoValue::left_out(0)));
        let refused = |e| refusal("OffsetForLeaderEpoch", e, &self.topic, self.partition);
        answer.map_err(refused)
    }

    /// Compares the newest batch below `agreed` that both logs have.
    pub(crate) async fn compare_content(
        &self,
        local: &Arc<Partition>,
        agreed: i64,
    ) -> Result<Finding, AskError> {
        let subject = Subject {
            topic: self.topic.clone(),
            topic_id: self.topic_id,
            partition: self.partition,
            leader_epoch: self.leader_epoch,
            local: local.clone(),
            agreed,
        };
        let findings = compare_all(self.client, &self.handle, &[subject]).await?;
        match findings.into_iter().next() {
            Some(Finding::Refused(code)) => {
                let refused = NoValue::Refused(code);
                Err(refusal("Fetch", refused, &self.topic, self.partition))
            }
            Some(finding) => Ok(finding),
            None => Ok(Finding::NothingInCommon),
        }
    }
}

fn other(text: impl Into<String>) -> AskError {
    AskError::Source(SourceError::Other(text.into()))
}

fn refusal(api: &str, why: NoValue, topic: &str, partition: i32) -> AskError {
    let text = why.text(api, format_args!("{topic}-{partition}"));
    AskError::Source(match why {
        NoValue::Refused(code) if is_denial(code) => SourceError::Denied(text),
        _ => SourceError::Other(text),
    })
}
