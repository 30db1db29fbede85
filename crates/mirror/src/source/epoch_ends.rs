//! Where leader epochs end at the source (OffsetForLeaderEpoch), for many partitions of one broker
//! at once.

use std::collections::HashMap;

use tarn_client::Handle;
use tarn_wire::messages::OffsetForLeaderEpochRequest;
use tarn_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use tarn_wire::{ErrorCode, Message, Str};

use super::{AskError, NoValue, SourceClient};

/// Partitions in one request.
const PARTITIONS_MAX: usize = 1_000;
/// Consumers have no replica id.
const CONSUMER: i32 = -1;

/// "For your largest epoch that is not above `epoch`: where does it end?"
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EpochQuestion {
    pub(crate) topic: Str,
    pub(crate) partition: i32,
    /// Leader epoch at the source, −1 = unknown.
    pub(crate) leader_epoch: i32,
    pub(crate) epoch: i32,
}

/// One answer a question: the epoch found (−1 = none) and where it ends (−1 = unknown).
pub(crate) async fn ends_of_epochs(
    client: &SourceClient,
    handle: &Handle,
    questions: &[EpochQuestion],
) -> Result<Vec<Result<(i32, i64), NoValue>>, AskError> {
    let mut answers = Vec::with_capacity(questions.len());
    for chunk in questions.chunks(PARTITIONS_MAX) {
        let request = request(chunk);
        // Version 0 does not say which epoch the end offset belongs to, version 1 cannot be fenced.
        let wanted = OffsetForLeaderEpochRequest::VERSIONS;
        let response = client.note_broker(handle.call_within(&request, wanted).await)?;
        let mut found = HashMap::new();
        for topic in &response.topics {
            for p in &topic.partitions {
                let end = match ErrorCode(p.error_code) {
                    ErrorCode::NONE => Ok((p.leader_epoch, p.end_offset)),
                    code => Err(NoValue::Refused(code)),
                };
                found.insert((topic.topic.clone(), p.partition), end);
            }
        }
        let answer = |q: &EpochQuestion| {
            found
                .remove(&(q.topic.clone(), q.partition))
                .unwrap_or_else(|| Err(NoValue::left_out(response.throttle_time_ms)))
        };
        answers.extend(chunk.iter().map(answer));
    }
    Ok(answers)
}

fn request(questions: &[EpochQuestion]) -> OffsetForLeaderEpochRequest {
    let mut topics: Vec<OffsetForLeaderTopic> = Vec::new();
    for question in questions {
        let partition = OffsetForLeaderPartition {
            partition: question.partition,
            current_leader_epoch: question.leader_epoch,
            leader_epoch: question.epoch,
            ..Default::default()
        };
        match topics.last_mut().filter(|t| t.topic == question.topic) {
            Some(last) => last.partitions.push(partition),
            None => topics.push(OffsetForLeaderTopic {
                topic: question.topic.clone(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    OffsetForLeaderEpochRequest {
        replica_id: CONSUMER,
        topics,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use tarn_wire::encode_body;

    use super::*;

    /// Whatever version is negotiated, the request can be written in it.
    #[test]
    fn the_question_can_be_encoded_in_every_version_that_may_be_negotiated() {
        let question = EpochQuestion {
            topic: Str::from("t"),
            partition: 0,
            leader_epoch: 4,
            epoch: 3,
        };
        let range = OffsetForLeaderEpochRequest::VERSIONS;
        for version in range.min..=range.max {
            encode_body(&request(std::slice::from_ref(&question)), version)
                .unwrap_or_else(|e| panic!("version {version}: {e}"));
        }
    }
}
