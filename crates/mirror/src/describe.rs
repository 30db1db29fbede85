//! What describe and list show (mirroring.md §4, mirror-rpcs.md §4.5, §4.6). Never asks the source: last known values with their age.
//!
//! A broker shows the partitions it leads; callers merge the answers of all brokers.

use std::collections::BTreeMap;

use tarn_metadata::{DesiredState, Image, Membership, TopicImage};
use tarn_wire::{Str, Uuid};

use crate::config::{BOOTSTRAP_SERVERS, MirrorConfig};
use crate::lifecycle::{LifeCycle, Shown, Tools};
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
    /// Age of the last good answer of the source, ms.
    pub last_fetch_age_ms: i64,
    /// Everything below is on disk here.
    pub durable_offset: i64,
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
                if shown.error.is_none() && member.desired == DesiredState::Mirroring {
                    shown.error = self.hindrance(&topic.name, cell, &progress);
                } else if shown.error.is_none() {
                    shown.error = cell
                        .and_then(|c| c.delay.as_ref())
                        .map(|(text, _)| text.clone());
                }
                shown
            })
            .collect()
    }

    /// Local offsets; also whether a batch waits for the epoch.
    fn local(&self, shown: &mut DescribedPartition, topic_id: Uuid, partition: i32) {
        let Ok(found) = self.tools.replicas.partition_by_id(&topic_id, partition) else {
            return;
        };
        shown.durable_offset = found.log().recovery_point();
        let behind = found
            .log()
            .latest_epoch()
            .is_some_and(|latest| latest > found.leader_epoch());
        if shown.state == MirrorState::Mirroring && behind {
            shown.state = MirrorState::EpochFencing;
        }
        shown.destination_offset = found.high_watermark();
    }

    /// What the source said last. Nothing is shown for STOPPED, and neither offset nor lag before the first answer.
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

    /// Why a partition that is not FAILED does not go on as wished.
    fn hindrance(
        &self,
        topic: &Str,
        cell: Option<&Shown>,
        progress: &FetchProgress,
    ) -> Option<String> {
        if let Reachability::Unreachable { reason, .. } = &self.reachability {
            return Some(format!("source unreachable: {reason}"));
        }
        if let Some((text, _)) = cell.and_then(|c| c.delay.as_ref()) {
            return Some(text.clone());
        }
        progress
            .error
            .as_ref()
            .map(|e| e.to_string())
            .or_else(|| self.status.topic_errors.get(topic).cloned())
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
