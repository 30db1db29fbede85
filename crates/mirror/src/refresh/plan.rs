//! What follows from the source's answers about the members of a mirror. Pure.

use std::collections::BTreeMap;

use tarn_metadata::{DesiredState, Image, Membership};
use tarn_wire::{Str, Uuid};

use crate::config::DeletionPolicy;
use crate::seam::{SourceTopic, TopicAnswer};

/// Text of a partition whose topic is gone at the source; tools of the late generation look for it.
pub const DELETED_TEXT: &str = "The source topic is deleted.";

/// Refreshes in a row that must say "absent" before it counts as deleted. The data plane has double-checked each of them.
pub const ABSENCES_MIN: u32 = 2;

/// A raise is asked for when the source's epoch comes closer to ours than this.
pub const EPOCH_MARGIN: i32 = 3;

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefreshPlan {
    /// Topics to grow: name, local id, partitions at the source.
    pub grow: Vec<(Str, Uuid, i32)>,
    /// Topics whose source id has become known.
    pub adopt: Vec<(Str, Uuid)>,
    /// Topics that can only be FAILED, with the text.
    pub fail: Vec<(Uuid, String)>,
    /// Deleted topics to fail over (`mirror.source.topic.deletion.policy=stop`).
    pub stop: Vec<Str>,
    /// Wanted topics that are there now.
    pub fulfil: Vec<SourceTopic>,
    /// Wanted topics that are not, with the reason.
    pub missing: Vec<(Str, String)>,
    /// Epochs to exceed: topic id, partition, epoch at the source.
    pub epochs: Vec<(Uuid, i32, i32)>,
    /// Topics whose answer could not be used this time.
    pub unknown: Vec<(Str, String)>,
    /// Members that are the same topic on both sides, for config synchronisation.
    pub healthy: Vec<Str>,
    /// Absences in a row from now on.
    pub absences: BTreeMap<Str, u32>,
}

/// Looks at the answers (one per name). `absences` comes from the last plan of this mirror.
pub fn plan(
    image: &Image,
    mirror: &str,
    answers: &[(Str, TopicAnswer)],
    policy: DeletionPolicy,
    absences: &BTreeMap<Str, u32>,
) -> RefreshPlan {
    let mut plan = RefreshPlan::default();
    for (name, answer) in answers {
        // The wish may have changed while the source was being asked.
        let member = image
            .membership(name)
            .filter(|m| m.mirror == *mirror && m.desired == DesiredState::Mirroring);
        let Some(member) = member else { continue };
        match answer {
            TopicAnswer::Unknown(reason) => plan.unknown.push((name.clone(), reason.clone())),
            TopicAnswer::Absent if member.is_wanted() => {
                plan.missing
                    .push((name.clone(), "the source has no such topic".into()));
            }
            TopicAnswer::Absent => {
                let seen = absences.get(name).copied().unwrap_or(0).saturating_add(1);
                plan.absences.insert(name.clone(), seen);
                if seen >= ABSENCES_MIN {
                    match policy {
                        DeletionPolicy::Fail => {
                            plan.fail.push((member.topic_id, DELETED_TEXT.into()))
                        }
                        DeletionPolicy::Stop => plan.stop.push(name.clone()),
                    }
                }
            }
            TopicAnswer::Present(topic) if member.is_wanted() => plan.fulfil.push(topic.clone()),
            TopicAnswer::Present(topic) => present(image, member, topic, &mut plan),
        }
    }
    plan
}

fn present(image: &Image, member: &Membership, topic: &SourceTopic, plan: &mut RefreshPlan) {
    let Some(local) = image.topic_by_id(&member.topic_id) else {
        return;
    };
    if let Some(id) = topic.id.filter(|id| !id.is_zero()) {
        if member.source_topic_id.is_zero() {
            plan.adopt.push((member.topic.clone(), id));
        } else if member.source_topic_id != id {
            plan.fail.push((
                member.topic_id,
                format!(
                    "The source topic was re-created: its id is {id} now and was {} when it was added; remove '{}' from the mirror, delete it here and add it again",
                    member.source_topic_id, member.topic
                ),
            ));
            return;
        }
    }
    let there = topic.partitions.len() as i32;
    if there > local.partition_count() {
        plan.grow.push((member.topic.clone(), local.id, there));
    }
    for partition in &topic.partitions {
        let (Some(source), Some(here)) =
            (partition.leader_epoch, local.partition(partition.partition))
        else {
            continue;
        };
        if source > here.leader_epoch - EPOCH_MARGIN {
            plan.epochs.push((local.id, partition.partition, source));
        }
    }
    plan.healthy.push(member.topic.clone());
}
