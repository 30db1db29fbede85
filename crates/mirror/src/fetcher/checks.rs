//! Comparing the content of partitions with the source's leader before anything is copied: at a
//! resume or start, at each new source epoch, and after each time without a leader. Many partitions
//! of one broker at once, in a task beside the fetchers, which leave them out meanwhile.
//!
//! Finds, and does not judge: what differs is reported as a divergence, and the preparation that
//! follows decides by epochs and content.

use std::sync::Arc;

use tarn_client::Handle;
use tarn_wire::messages::FetchRequest;
use tarn_wire::{Str, VersionRange};
use tokio::time::Instant;
use tracing::{debug, info};

use super::answers::{OnError, on_error};
use super::mirror::MirrorPlane;
use super::partition_state::{PartitionFetchState, SourceLeader, is_empty, last_epoch};
use crate::seam::SourceError;
use crate::source::{
    AskError, EpochQuestion, Finding, NoValue, SourceClient, Subject, compare_all, ends_of_epochs,
    list_bounds, now_ms,
};

/// Partitions compared at a time; bounds what is held in memory.
const CHUNK: usize = 500;
/// Versions of Fetch in which the source itself compares leader epochs.
const FETCH_TELLS: VersionRange = VersionRange::new(12, 18);

/// The turn of one partition. Dropped without a verdict (an error, a panic, the end of the task) it
/// is due again.
pub(super) struct Turn {
    partition: Arc<PartitionFetchState>,
    leader: SourceLeader,
    settled: bool,
}

impl Turn {
    /// `None` = not due, or not now.
    pub(super) fn begin(partition: &Arc<PartitionFetchState>, now: Instant) -> Option<Turn> {
        let leader = partition.begin_check(now)?;
        Some(Turn {
            partition: partition.clone(),
            leader,
            settled: false,
        })
    }

    /// The turn, unless there is nothing to compare: then it is over.
    pub(super) fn or_settle(self) -> Option<Turn> {
        if is_empty(&self.partition.local) {
            self.settle();
            return None;
        }
        Some(self)
    }

    pub(super) fn node(&self) -> i32 {
        self.leader.node
    }

    fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = "the comparison with the source panicked, which is a defect of this broker (its log says where)";
            self.partition.back_off(text, now_ms());
        }
        self.partition.end_check(!self.settled);
    }
}

/// Compares these partitions, all led by `node`.
pub(super) async fn run(
    mirror: Arc<MirrorPlane>,
    source: Arc<SourceClient>,
    node: i32,
    turns: Vec<Turn>,
) {
    let mut rest = turns;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(CHUNK));
        let partitions: Vec<Arc<PartitionFetchState>> =
            rest.iter().map(|t| t.partition.clone()).collect();
        let check = Check {
            mirror: &mirror,
            source: &source,
        };
        if let Err(e) = check.chunk(node, rest).await {
            if let AskError::WrongCluster { found } = &e {
                mirror.found_wrong_cluster(found);
            }
            let (text, now) = (e.to_string(), now_ms());
            debug!(mirror = %mirror.name(), node, "{text}");
            for partition in partitions.iter().chain(later.iter().map(|t| &t.partition)) {
                partition.back_off(&text, now);
            }
            break;
        }
        rest = later;
    }
    mirror.wake();
}

struct Check<'a> {
    mirror: &'a Arc<MirrorPlane>,
    source: &'a SourceClient,
}

impl Check<'_> {
    async fn chunk(&self, node: i32, turns: Vec<Turn>) -> Result<(), AskError> {
        let cluster = self.source.cluster()?;
        let handle = self.source.note_broker(cluster.broker(node).await)?;
        let turns = self.compare_epochs(&handle, turns).await?;
        let subject = |turn: &Turn| Subject {
            topic: turn.partition.name().topic.clone(),
            topic_id: turn.partition.assignment.source_topic_id,
            partition: turn.partition.name().partition,
            leader_epoch: turn.leader.epoch,
            local: turn.partition.local.clone(),
            agreed: turn.partition.local.log().log_end_offset(),
        };
        let subjects: Vec<Subject> = turns.iter().map(subject).collect();
        let findings = compare_all(self.source, &handle, &subjects).await?;
        let mut out_of_range = Vec::new();
        for (turn, finding) in turns.into_iter().zip(findings) {
            match finding {
                Finding::Same => turn.settle(),
                Finding::NothingInCommon => nothing_in_common(turn),
                Finding::OutOfRange => out_of_range.push(turn),
                Finding::NotYet(text) => turn.partition.back_off(&text, now_ms()),
                Finding::Refused(code) => {
                    self.no_value(&turn.partition, &NoValue::Refused(code), "a Fetch");
                }
                Finding::Different(d) => self.mirror.diverged(&turn.partition, d.to_string()),
            }
        }
        self.compare_bounds(&handle, out_of_range).await
    }

    /// Where Fetch does not tell that the source's log has lost a tail of ours,
    /// OffsetForLeaderEpoch does. Gives those that agree.
    async fn compare_epochs(
        &self,
        handle: &Handle,
        turns: Vec<Turn>,
    ) -> Result<Vec<Turn>, AskError> {
        let versions = handle.versions();
        if versions.common::<FetchRequest>(FETCH_TELLS).is_some() {
            return Ok(turns);
        }
        let question = |turn: &Turn| EpochQuestion {
            topic: turn.partition.name().topic.clone(),
            partition: turn.partition.name().partition,
            leader_epoch: turn.leader.epoch,
            epoch: last_epoch(&turn.partition.local),
        };
        let questions: Vec<EpochQuestion> = turns.iter().map(question).collect();
        let ends = match ends_of_epochs(self.source, handle, &questions).await {
            Ok(ends) => ends,
            // It cannot be asked: content alone decides.
            Err(AskError::Source(SourceError::Unsupported(_) | SourceError::Denied(_))) => {
                return Ok(turns);
            }
            Err(e) => return Err(e),
        };
        let mut agreed = Vec::with_capacity(turns.len());
        for ((turn, end), question) in turns.into_iter().zip(ends).zip(questions) {
            let local_end = turn.partition.local.log().log_end_offset();
            match end {
                _ if question.epoch < 0 => agreed.push(turn),
                Ok((epoch, end)) if epoch == question.epoch && end >= local_end => {
                    agreed.push(turn);
                }
                Ok((epoch, end)) => {
                    let text = format!(
                        "the source's log differs from ours: our leader epoch {} ends at offset {local_end}, there {} ends at {end}",
                        question.epoch, epoch
                    );
                    self.mirror.diverged(&turn.partition, text);
                }
                Err(e) => self.no_value(&turn.partition, &e, "OffsetForLeaderEpoch"),
            }
        }
        Ok(agreed)
    }

    /// The source's log does not hold our last offset: it dropped that, or it lost it.
    async fn compare_bounds(&self, handle: &Handle, turns: Vec<Turn>) -> Result<(), AskError> {
        if turns.is_empty() {
            return Ok(());
        }
        let names: Vec<(Str, i32)> = turns
            .iter()
            .map(|t| {
                (
                    t.partition.name().topic.clone(),
                    t.partition.name().partition,
                )
            })
            .collect();
        let starts = list_bounds(self.source, handle, &names, false).await?;
        let ends = list_bounds(self.source, handle, &names, true).await?;
        for ((turn, start), end) in turns.into_iter().zip(starts).zip(ends) {
            let partition = &turn.partition;
            let local_end = partition.local.log().log_end_offset();
            match (start, end) {
                (Err(e), _) | (_, Err(e)) => self.no_value(partition, &e, "ListOffsets"),
                (Ok(start), Ok(end)) if start <= end && start >= local_end => {
                    nothing_in_common(turn);
                }
                (Ok(_), Ok(end)) if end < local_end => {
                    let text = format!(
                        "the source's log ends at {end}, ours at {local_end}: records were lost there, or the topic is another one"
                    );
                    self.mirror.diverged(partition, text);
                }
                (Ok(start), Ok(end)) => {
                    let text = format!(
                        "the source says that its log holds the offsets {start} to {end}, and does not show the last of ours below {local_end}"
                    );
                    partition.back_off(&text, now_ms());
                }
            }
        }
        Ok(())
    }

    fn no_value(&self, partition: &Arc<PartitionFetchState>, why: &NoValue, what: &str) {
        no_value(self.mirror, partition, why, what);
    }
}

/// What follows when an answer holds no value for a partition. One that is left out waits, and
/// nothing is concluded from it.
pub(super) fn no_value(
    mirror: &MirrorPlane,
    partition: &Arc<PartitionFetchState>,
    why: &NoValue,
    what: &str,
) {
    let text = why.text(what, partition.name());
    let on = match why {
        NoValue::Refused(code) => on_error(*code),
        NoValue::LeftOut(_) => OnError::Wait,
    };
    match on {
        OnError::Fail(failure) => mirror.failed(partition, failure),
        OnError::FindLeader | OnError::LookAtTopic => {
            partition.with(|s| s.set_leader(None));
            partition.back_off(&text, now_ms());
            mirror.refresh_wanted(&partition.name().topic);
        }
        OnError::Wait | OnError::CompareBounds => partition.back_off(&text, now_ms()),
    }
}

/// The source has kept no batch that we have: the copy goes on where ours ends, and nothing proves
/// that it is the same history.
fn nothing_in_common(turn: Turn) {
    info!(partition = %turn.partition.name(), "the source has no batch of ours left: nothing could be compared");
    turn.settle();
}
