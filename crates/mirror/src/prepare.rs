//! Data plane: making the local log a prefix of the source log (PREPARING, ULE_RECOVERY).
//!
//! The shell around two pure parts: [`chain`] compares leader epochs with the source, [`decide`]
//! says how much must go. What numbers say is not believed before the content below the agreed
//! offset was compared ([`crate::content`]). Nothing is cut before the caller has persisted the
//! intent, and a cut that was persisted is carried out first, without asking anybody.

pub mod chain;
pub mod decide;

use std::sync::Arc;

use tarn_replica::{Partition, ReplicaManager};
use tarn_wire::{Str, Uuid};
use tracing::{info, warn};

use crate::lookup::{self, LookupOutcome};
use crate::seam::{
    FailureKind, FetchFailure, PersistIntent, PrepareOutcome, PrepareReason, PrepareRequest,
    SourceError,
};
use crate::source::{AskError, Finding, LeaderOf, SourceClient};
use chain::{ChainMatch, EpochChain};
use decide::{Decision, Evidence, LocalFacts, Lookup, Occasion, decide, shared_at_most};

/// Bytes read at once when looking whether only markers follow.
const SCAN_BYTES: u64 = 256 * 1024;

/// Why a preparation ends before a decision.
enum Stop {
    Retry(String),
    Undecided(String),
    Fail(FailureKind, String),
}

impl From<AskError> for Stop {
    fn from(e: AskError) -> Self {
        match e {
            AskError::WrongCluster { .. } => Stop::Fail(FailureKind::Permanent, e.to_string()),
            AskError::Source(SourceError::Denied(text)) => Stop::Fail(FailureKind::Limited, text),
            AskError::Source(e) => Stop::Retry(e.to_string()),
        }
    }
}

impl From<Stop> for PrepareOutcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Retry(reason) => PrepareOutcome::Retry { reason },
            Stop::Undecided(reason) => PrepareOutcome::Undecided { reason },
            Stop::Fail(kind, text) => PrepareOutcome::Fail(FetchFailure { kind, text }),
        }
    }
}

/// Prepares one partition. `count_cut` is told how many offsets went.
pub(crate) async fn run(
    source: &SourceClient,
    replicas: &ReplicaManager,
    request: &PrepareRequest,
    intent: &PersistIntent,
    count_cut: &(dyn Fn(i64) + Sync),
) -> PrepareOutcome {
    let name = &request.assignment.partition;
    let local = match replicas.partition_by_id(&name.topic_id, name.partition) {
        Ok(local) => local,
        Err(e) => {
            return PrepareOutcome::Retry {
                reason: e.to_string(),
            };
        }
    };
    let preparation = Preparation {
        source,
        request,
        local,
        count_cut,
    };
    match preparation.run(intent).await {
        Ok(truncated_to) => PrepareOutcome::Ready { truncated_to },
        Err(stop) => stop.into(),
    }
}

struct Preparation<'a> {
    source: &'a SourceClient,
    request: &'a PrepareRequest,
    local: Arc<Partition>,
    count_cut: &'a (dyn Fn(i64) + Sync),
}

impl Preparation<'_> {
    async fn run(&self, intent: &PersistIntent) -> Result<Option<i64>, Stop> {
        if let Some(offset) = self.request.pending_truncation {
            return self
                .cut(offset, "a cut decided before a restart is carried out")
                .await;
        }
        if self.local.log().log_start_offset() >= self.local.log().log_end_offset() {
            return Ok(None);
        }
        let leader = self.leader().await?;
        let lookup = self.look_up(leader.topic_id).await?;
        let facts = self.local_facts();
        let evidence = self.evidence(&leader, &facts, &lookup).await?;
        let (offset, reason) = match decide(&facts, &lookup, &evidence) {
            Decision::NoTruncation => {
                self.same_content(&leader, facts.chain.end()).await?;
                return Ok(None);
            }
            Decision::TruncateTo { offset, reason } => {
                self.same_content(&leader, offset).await?;
                (offset, reason)
            }
            Decision::DiscardAll { reason } => (0, reason),
            Decision::Refuse(text) => return Err(Stop::Fail(FailureKind::Permanent, text)),
            Decision::RetryLater(reason) => return Err(Stop::Retry(reason)),
        };
        intent(offset)
            .await
            .map_err(|e| Stop::Retry(format!("the intent to cut could not be stored: {e}")))?;
        self.cut(offset, &reason).await
    }

    /// Both logs should agree below `agreed`. Fails where the content says that they are of two
    /// histories.
    async fn same_content(&self, leader: &LeaderOf<'_>, agreed: i64) -> Result<(), Stop> {
        let name = &self.request.assignment.partition;
        match leader.compare_content(&self.local, agreed).await? {
            Finding::Same => Ok(()),
            Finding::Different(difference) => Err(Stop::Fail(
                FailureKind::Permanent,
                format!("{}-{}: {difference}", name.topic, name.partition),
            )),
            Finding::NotYet(text) => Err(Stop::Retry(text)),
            Finding::Refused(code) => Err(Stop::Retry(format!(
                "the source refused to show a batch: {}",
                code.name()
            ))),
            Finding::NothingInCommon => self.nothing_in_common(agreed),
            Finding::OutOfRange => {
                let start = leader.bounds().await?.start;
                if start >= agreed {
                    return self.nothing_in_common(agreed);
                }
                Err(Stop::Retry(format!(
                    "the source's log changes while it is compared: it does not hold the offsets below {agreed}"
                )))
            }
        }
    }

    /// The source kept no batch of ours. Topic ids say that it is the same topic; without them
    /// nothing may be cut.
    fn nothing_in_common(&self, agreed: i64) -> Result<(), Stop> {
        let name = &self.request.assignment.partition;
        info!(partition = %name, agreed, "the source has no batch of ours left: nothing could be compared");
        let end = self.local.log().log_end_offset();
        let is_cut = agreed < end && !self.request.allow_full_truncation;
        if is_cut && self.request.assignment.source_topic_id.is_none() {
            return Err(Stop::Fail(
                FailureKind::Permanent,
                format!(
                    "{}-{}: offsets {agreed} to {} would be cut, but the source has neither a batch of ours left nor topic ids:                      that it is the same topic cannot be proven; remove it, delete it here, and add it again",
                    name.topic,
                    name.partition,
                    end - 1
                ),
            ));
        }
        Ok(())
    }

    /// The source's leader, which must still hold the same topic.
    async fn leader(&self) -> Result<LeaderOf<'_>, Stop> {
        let name = &self.request.assignment.partition;
        let leader = LeaderOf::find(self.source, &name.topic, name.partition).await?;
        match (self.request.assignment.source_topic_id, leader.topic_id) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(Stop::Fail(
                FailureKind::Permanent,
                format!(
                    "topic {} was created anew at the source: mirrored was id {ours}, now it has {theirs}; \
                         remove it, delete it here, and add it again",
                    name.topic
                ),
            )),
            _ => Ok(leader),
        }
    }

    /// What the source remembers. Where it cannot say, the preparation ends, so that it holds up no
    /// other while it waits.
    async fn look_up(&self, source_topic_id: Option<Uuid>) -> Result<Lookup, Stop> {
        if self.request.reason == PrepareReason::Divergence {
            return Ok(Lookup::NoRecord);
        }
        let name = &self.request.assignment.partition;
        let own: &Str = &self.request.own_cluster_id;
        let id = source_topic_id.unwrap_or(Uuid::ZERO);
        let asked = (id, name.topic.clone(), name.partition);
        match lookup::last_mirror_epoch(self.source, own, asked).await {
            LookupOutcome::Loop(text) => Err(Stop::Fail(
                FailureKind::Limited,
                format!("mirror loop: {text}"),
            )),
            LookupOutcome::Found(Lookup::Unknown(why)) if self.source.reach().is_unreachable() => {
                Err(Stop::Retry(why))
            }
            LookupOutcome::Found(Lookup::Unknown(why)) => Err(Stop::Undecided(why)),
            LookupOutcome::Found(found) => Ok(found),
        }
    }

    fn local_facts(&self) -> LocalFacts {
        let log = self.local.log();
        let epochs: Vec<(i32, i64)> = log
            .epochs()
            .iter()
            .map(|e| (e.epoch, e.start_offset))
            .collect();
        LocalFacts {
            occasion: match self.request.reason {
                PrepareReason::Start => Occasion::Start,
                PrepareReason::Divergence => Occasion::Divergence,
            },
            log_start: log.log_start_offset(),
            chain: EpochChain::new(&epochs, log.log_end_offset()),
            written_by_this_mirror: self.request.origin.written_by_this_mirror
                || self.request.reason == PrepareReason::Divergence,
            last_mirror_offset: self.request.origin.last_mirror_offset,
            consent: self.request.allow_full_truncation,
        }
    }

    async fn evidence(
        &self,
        leader: &LeaderOf<'_>,
        facts: &LocalFacts,
        lookup: &Lookup,
    ) -> Result<Evidence, Stop> {
        let bound = shared_at_most(facts, lookup).unwrap_or(facts.log_start);
        let matched = leader.compare(facts.chain.cut_at(bound)).await?;
        let source_end = leader.bounds().await?.end;
        let end = facts.chain.end();
        let only_markers_behind = if bound < end {
            self.only_markers_from(bound).await?
        } else {
            true
        };
        let unproven = *lookup == Lookup::NoRecord && !facts.written_by_this_mirror;
        let tail_is_same = match matched {
            ChainMatch::UpTo(offset) if unproven && offset >= end => {
                Some(self.tail_is_same(leader, end).await?)
            }
            _ => None,
        };
        Ok(Evidence {
            matched,
            source_end: Some(source_end),
            only_markers_behind,
            tail_is_same,
            is_same_topic: self.request.assignment.source_topic_id.is_some(),
        })
    }

    /// Whether our log holds nothing but control records from `offset` on.
    async fn only_markers_from(&self, offset: i64) -> Result<bool, Stop> {
        let local = self.local.clone();
        on_disk(move || {
            let log = local.log();
            let end = log.log_end_offset();
            let mut at = offset;
            while at < end {
                let slice = log
                    .read(at, SCAN_BYTES, end, true)
                    .map_err(|e| e.to_string())?;
                let Some(slice) = slice else { break };
                let bytes = slice.read().map_err(|e| e.to_string())?;
                let mut next = at;
                for batch in tarn_records::batches(&bytes) {
                    let Ok(batch) = batch else { break };
                    if batch.header.last_offset() >= offset && !batch.header.is_control() {
                        return Ok(false);
                    }
                    next = batch.header.next_offset();
                }
                if next <= at {
                    return Ok(false);
                }
                at = next;
            }
            Ok(true)
        })
        .await
    }

    /// Whether the last batch of our log is the source's batch at that offset.
    async fn tail_is_same(&self, leader: &LeaderOf<'_>, end: i64) -> Result<bool, Stop> {
        let finding = leader.compare_content(&self.local, end).await?;
        Ok(finding == Finding::Same)
    }

    /// Cuts the log; gives its new end, or nothing when there was nothing to cut.
    async fn cut(&self, offset: i64, reason: &str) -> Result<Option<i64>, Stop> {
        let (local, name) = (self.local.clone(), &self.request.assignment.partition);
        let (start, before) = (local.log().log_start_offset(), local.log().log_end_offset());
        if offset >= before {
            return Ok(None);
        }
        let after = on_disk(move || {
            if offset <= start {
                local
                    .mirror_truncate_fully_and_start_at(offset)
                    .map_err(|e| e.to_string())?;
                return Ok(offset);
            }
            local.mirror_truncate_to(offset).map_err(|e| e.to_string())
        })
        .await?;
        (self.count_cut)(before - after.max(start));
        let markers = before - after;
        if self.request.reason == PrepareReason::Divergence || markers > 1 {
            warn!(partition = %name, from = after, to = before, "offsets cut: {reason}");
        } else {
            info!(partition = %name, from = after, to = before, "offsets cut: {reason}");
        }
        Ok(Some(after))
    }
}

/// Runs file work on the pool for it.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Stop> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(Stop::Fail(FailureKind::Limited, e)),
        Err(e) => Err(Stop::Retry(e.to_string())),
    }
}
