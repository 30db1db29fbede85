//! What describe and list show (docs/mirroring.md §2, docs/mirror-protocol.md §4.4, §4.5). Never
//! asks the source: last known values with their age.
//!
//! A broker shows the partitions it leads; callers merge the answers of all brokers.

use std::collections::BTreeMap;

use tarn_metadata::{DesiredState, Image, Membership, TopicImage};
use tarn_wire::{Str, Uuid};

use crate::commands::carried_configs;
use crate::config::{BOOTSTRAP_SERVERS, MirrorConfig, TOPICS_INCLUDE};
use crate::lifecycle::{LifeCycle, Shown, Tools};
use crate::refresh::problems::ProblemKind;
use crate::refresh::{MirrorStatus, Refresher};
use crate::seam::{FetchProgress, MirrorPartition, Reachability};
use crate::state::MirrorState;
use crate::store::table::StateKey;

/// One partition as it is shown; −1 = not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedPartition {
    /// Partition number.
    pub partition: i32,
    /// Source high watermark of the last answer; −1 in STOPPED.
    pub source_offset: i64,
    /// Local high watermark.
    pub destination_offset: i64,
    /// max(0, source − destination).
    pub lag: i64,
    /// Actual state.
    pub state: MirrorState,
    /// Last mirror epoch of the last stop.
    pub last_mirror_epoch: i32,
    /// Lag in time, ms.
    pub lag_ms: i64,
    /// Node id of the leader here.
    pub leader: i32,
    /// What is wished.
    pub desired: DesiredState,
    /// Failures in a row; −1 = not retried by itself.
    pub retry_attempt: i16,
    /// Why it is FAILED, or what holds it up.
    pub error: Option<String>,
    /// Since when, epoch ms; −1 = not known or nothing is wrong.
    pub error_since_ms: i64,
    /// Offsets that were gone at the source before they could be copied, since this broker fetches
    /// the partition.
    pub skipped_offsets: i64,
    /// Offsets cut here because the source's log is another one, since this broker fetches the
    /// partition.
    pub truncated_offsets: i64,
    /// Age of the last good answer of the source, ms.
    pub last_fetch_age_ms: i64,
    /// Everything below is on disk here.
    pub durable_offset: i64,
}

/// Something about a mirror or one of its topics that an operator should know, beyond the state of
/// partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `refresh`, `topic`, `configs`, `join`: something does not work. `carried`: a fact.
    pub kind: &'static str,
    /// The topic, or the step of the refresh.
    pub item: Str,
    /// What.
    pub text: String,
    /// Since when, epoch ms; −1 = not known.
    pub since_ms: i64,
}

/// Most notices in one answer.
const NOTICES_MAX: usize = 1_000;

/// The notices of a mirror.
pub fn notices(tools: &Tools, refresher: &Refresher, mirror: &Str) -> Vec<Notice> {
    let status = refresher.status(mirror);
    let image = tools.metadata.image();
    // Where nothing is to be copied nobody waits for the source.
    let is_needed = || {
        let mut members = image.members_of(mirror);
        let config = MirrorConfig::of(&image, mirror, &tools.settings);
        members.any(|(_, m)| m.desired == DesiredState::Mirroring)
            || config
                .get(TOPICS_INCLUDE)
                .is_some_and(|list| !list.is_empty())
    };
    let source = status
        .error
        .iter()
        .filter(|_| is_needed())
        .map(|trouble| Notice {
            kind: ProblemKind::Refresh.name(),
            item: Str::from("source"),
            text: trouble.text.clone(),
            since_ms: trouble.since_ms,
        });
    let problems = status.problems.iter().map(|((kind, item), p)| Notice {
        kind: kind.name(),
        item: item.clone(),
        text: p.text.clone(),
        since_ms: p.since_ms,
    });
    let carried = image.members_of(mirror).filter_map(|(topic, _)| {
        let carried = carried_configs(&image, mirror, topic);
        let pairs: Vec<String> = carried.iter().map(|(k, v)| format!("{k}={v}")).collect();
        (!pairs.is_empty()).then(|| Notice {
            kind: "carried",
            item: topic.clone(),
            text: pairs.join(" "),
            since_ms: -1,
        })
    });
    source
        .chain(problems)
        .chain(carried)
        .take(NOTICES_MAX)
        .collect()
}

/// A topic as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedTopic {
    /// Name.
    pub name: Str,
    /// Partitions led here, ascending.
    pub partitions: Vec<DescribedPartition>,
}

/// A mirror in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMirror {
    /// Name.
    pub name: Str,
    /// `bootstrap.servers`.
    pub bootstrap: Str,
    /// Source cluster id, "" until known.
    pub cluster_id: Str,
    /// Topics that are not stopped, paused ones included.
    pub topics: Vec<Str>,
}

/// All mirrors, from the image alone.
pub fn list(image: &Image, tools: &Tools) -> Vec<ListedMirror> {
    image
        .mirrors()
        .map(|(name, _)| {
            let config = MirrorConfig::of(image, name, &tools.settings);
            let active = image
                .members_of(name)
                .filter(|(_, m)| m.desired != DesiredState::Stopped);
            ListedMirror {
                name: name.clone(),
                bootstrap: Str::from(config.get(BOOTSTRAP_SERVERS).unwrap_or_default()),
                cluster_id: config.source_cluster_id().unwrap_or(Str::EMPTY),
                topics: active.map(|(topic, _)| topic.clone()).collect(),
            }
        })
        .collect()
}

/// What one describe looks at.
struct View<'a> {
    tools: &'a Tools,
    status: MirrorStatus,
    reachability: Reachability,
    shown: BTreeMap<(Uuid, i32), Shown>,
    now_ms: i64,
}

/// The topics of a mirror with their partitions led here.
pub async fn topics(
    tools: &Tools,
    life: &LifeCycle,
    refresher: &Refresher,
    mirror: &Str,
) -> Vec<DescribedTopic> {
    let image = tools.metadata.image();
    let shown = life
        .shown(mirror)
        .into_iter()
        .map(|s| ((s.partition.topic_id, s.partition.partition), s));
    let view = View {
        tools,
        status: refresher.status(mirror),
        reachability: refresher
            .source(mirror)
            .map_or(Reachability::Untried, |s| s.reachability()),
        shown: shown.collect(),
        now_ms: (tools.clock)(),
    };
    let mut topics = Vec::new();
    for (name, member) in image.members_of(mirror) {
        let partitions = match image.topic_by_id(&member.topic_id) {
            Some(topic) if member.stopped => view.stopped(member, topic).await,
            Some(topic) => view.active(member, topic),
            None => view.wanted(name, member),
        };
        topics.push(DescribedTopic {
            name: name.clone(),
            partitions,
        });
    }
    topics
}

impl View<'_> {
    fn blank(&self, partition: i32, desired: DesiredState, leader: i32) -> DescribedPartition {
        DescribedPartition {
            partition,
            source_offset: -1,
            destination_offset: -1,
            lag: -1,
            state: MirrorState::Unknown,
            last_mirror_epoch: -1,
            lag_ms: -1,
            leader,
            desired,
            retry_attempt: 0,
            error: None,
            error_since_ms: -1,
            skipped_offsets: 0,
            truncated_offsets: 0,
            last_fetch_age_ms: -1,
            durable_offset: -1,
        }
    }

    fn led<'t>(&self, topic: &'t TopicImage) -> impl Iterator<Item = i32> + use<'t> {
        let me = self.tools.settings.broker_id;
        let led = move |(index, p): (usize, &'t std::sync::Arc<tarn_metadata::PartitionImage>)| {
            (p.leader == me).then_some(index as i32)
        };
        topic.partitions.iter().enumerate().filter_map(led)
    }

    /// Failed over, and marked so in the metadata.
    async fn stopped(&self, member: &Membership, topic: &TopicImage) -> Vec<DescribedPartition> {
        let led: Vec<i32> = self.led(topic).collect();
        let key = |p: &i32| StateKey {
            mirror: member.mirror.clone(),
            topic_id: topic.id,
            partition: *p,
        };
        let stored = self.tools.store.read(led.iter().map(key).collect()).await;
        let me = self.tools.settings.broker_id;
        led.iter()
            .zip(stored)
            .map(|(p, stored)| {
                let mut shown = self.blank(*p, member.desired, me);
                shown.state = MirrorState::Stopped;
                shown.last_mirror_epoch = stored
                    .ok()
                    .flatten()
                    .and_then(|e| e.record.last_mirror_epoch)
                    .unwrap_or(-1);
                self.local(&mut shown, topic.id, *p);
                shown
            })
            .collect()
    }

    fn active(&self, member: &Membership, topic: &TopicImage) -> Vec<DescribedPartition> {
        let me = self.tools.settings.broker_id;
        self.led(topic)
            .map(|p| {
                let mut shown = self.blank(p, member.desired, me);
                let cell = self.shown.get(&(topic.id, p));
                if let Some(record) = cell.and_then(|c| c.record.as_ref()) {
                    shown.state = record.state;
                    shown.last_mirror_epoch = record.last_mirror_epoch.unwrap_or(-1);
                    shown.retry_attempt = record.retry_attempt;
                    if record.state == MirrorState::Failed {
                        shown.error = record.error.clone();
                        shown.error_since_ms = record.changed_at_ms;
                    }
                }
                self.local(&mut shown, topic.id, p);
                let partition = MirrorPartition {
                    mirror: member.mirror.clone(),
                    topic: topic.name.clone(),
                    topic_id: topic.id,
                    partition: p,
                };
                let progress = self.tools.data.progress(&partition).unwrap_or_default();
                self.source(&mut shown, &progress);
                let hindrance = match shown.error {
                    Some(_) => None,
                    None if member.desired == DesiredState::Mirroring => {
                        self.hindrance(&topic.name, cell, &progress)
                    }
                    None => cell.and_then(|c| c.delay.clone()),
                };
                if let Some((text, since_ms)) = hindrance {
                    (shown.error, shown.error_since_ms) = (Some(text), since_ms);
                }
                let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
                shown.skipped_offsets = count(progress.skipped_offsets);
                shown.truncated_offsets = count(progress.truncated_offsets);
                shown
            })
            .collect()
    }

    /// Local offsets; also whether a batch waits for the epoch.
    fn local(&self, shown: &mut DescribedPartition, topic_id: Uuid, partition: i32) {
        let Ok(found) = self.tools.replicas.partition_by_id(&topic_id, partition) else {
            return;
        };
        shown.durable_offset = found.log().durable_end();
        let behind = found
            .log()
            .latest_epoch()
            .is_some_and(|latest| latest > found.leader_epoch());
        if shown.state == MirrorState::Mirroring && behind {
            shown.state = MirrorState::EpochFencing;
        }
        shown.destination_offset = found.high_watermark();
    }

    /// What the source said last. Nothing is shown for STOPPED, and neither offset nor lag before
    /// the first answer.
    fn source(&self, shown: &mut DescribedPartition, progress: &FetchProgress) {
        if shown.state == MirrorState::Stopped {
            return;
        }
        if let Some(source) = progress.source_high_watermark {
            shown.source_offset = source;
            shown.lag = (source - shown.destination_offset).max(0);
            shown.lag_ms = progress.lag_ms.unwrap_or(-1);
        }
        let since = match (&self.reachability, progress.last_fetch_ms) {
            (_, Some(last)) => Some(last),
            (Reachability::Unreachable { since_ms, .. }, None) => Some(*since_ms),
            _ => None,
        };
        shown.last_fetch_age_ms = since.map_or(-1, |ms| (self.now_ms - ms).max(0));
    }

    /// Why a partition that is not FAILED does not go on as wished, and since when.
    fn hindrance(
        &self,
        topic: &Str,
        cell: Option<&Shown>,
        progress: &FetchProgress,
    ) -> Option<(String, i64)> {
        if let Reachability::Unreachable { reason, since_ms } = &self.reachability {
            return Some((format!("source unreachable: {reason}"), *since_ms));
        }
        if let Some(delay) = cell.and_then(|c| c.delay.clone()) {
            return Some(delay);
        }
        let fetching = progress.error.as_ref();
        let fetching = fetching.map(|e| (e.to_string(), progress.error_since_ms.unwrap_or(-1)));
        let refresh = || {
            let problem = self.status.problems.get(ProblemKind::Topic, topic)?;
            Some((problem.text.clone(), problem.since_ms))
        };
        fetching.or_else(refresh)
    }

    /// A member that does not exist here yet.
    fn wanted(&self, topic: &Str, member: &Membership) -> Vec<DescribedPartition> {
        let status = self.status.wanted.get(topic).cloned().unwrap_or_default();
        let refused = status.partitions.is_some() && status.error.is_some();
        let error = status.error.or_else(|| match &self.reachability {
            Reachability::Unreachable { reason, .. } => {
                Some(format!("source unreachable: {reason}"))
            }
            _ => None,
        });
        (0..status.partitions.unwrap_or(1).max(1))
            .map(|p| DescribedPartition {
                state: if refused {
                    MirrorState::Failed
                } else {
                    MirrorState::Unknown
                },
                error: error.clone(),
                ..self.blank(p, member.desired, -1)
            })
            .collect()
    }
}
