//! What follows from the source's answers about the members of a mirror. Pure.

use std::collections::BTreeMap;

use tarn_metadata::{DesiredState, Image, Membership};
use tarn_wire::{Str, Uuid};

use crate::config::DeletionPolicy;
use crate::seam::{SourceTopic, TopicAnswer};

/// Text of a partition whose topic is gone at the source; tools of the late generation look for it.
pub const DELETED_TEXT: &str = "The source topic is deleted.";

/// Looks in a row that must say "absent" before a topic counts as deleted. The data plane has
/// double-checked each of them. Time must have passed between them too:
/// `mirror.source.topic.deletion.after.ms`.
pub const ABSENCES_MIN: u32 = 2;

/// An absence that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// When it was first seen, epoch ms.
    pub first_ms: i64,
    /// Looks in a row that saw it.
    pub seen: u32,
}

/// When an absence becomes a deletion, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionRule {
    /// `mirror.source.topic.deletion.policy`.
    pub policy: DeletionPolicy,
    /// `mirror.source.topic.deletion.after.ms`.
    pub after_ms: i64,
    /// Now, epoch ms.
    pub now_ms: i64,
}

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
    /// Absences that last, of the topics that were asked for.
    pub absences: BTreeMap<Str, Absence>,
}

/// Looks at the answers (one per name). `absences` comes from the last plan of this mirror.
pub fn plan(
    image: &Image,
    mirror: &str,
    answers: &[(Str, TopicAnswer)],
    rule: DeletionRule,
    absences: &BTreeMap<Str, Absence>,
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
                let before = absences.get(name).copied();
                let absence = Absence {
                    first_ms: before.map_or(rule.now_ms, |a| a.first_ms),
                    seen: before.map_or(1, |a| a.seen.saturating_add(1)),
                };
                plan.absences.insert(name.clone(), absence);
                let lasts = rule.now_ms.saturating_sub(absence.first_ms) >= rule.after_ms;
                if absence.seen >= ABSENCES_MIN && lasts {
                    match rule.policy {
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

#[cfg(test)]
mod tests {
    use tarn_wire::messages::{PartitionRecord, TopicRecord};

    use super::*;
    use crate::commands::{AddTopic, AddTopics, NewTopic, Planner, SourceFacts, add_topics};
    use crate::dialect::MirrorError;

    struct OnePartition;

    impl Planner for OnePartition {
        fn create_topic(
            &mut self,
            _: &Image,
            topic: NewTopic<'_>,
        ) -> Result<Vec<tarn_metadata::Record>, MirrorError> {
            let partition = PartitionRecord {
                topic_id: topic.id,
                partition_id: 0,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                ..Default::default()
            };
            let name = topic.name.clone();
            let topic = TopicRecord {
                name,
                topic_id: topic.id,
                ..Default::default()
            };
            Ok(vec![
                tarn_metadata::Record::Topic(topic),
                tarn_metadata::Record::Partition(partition),
            ])
        }

        fn grow(
            &mut self,
            _: &Image,
            _: &str,
            _: i32,
        ) -> Result<Vec<tarn_metadata::Record>, MirrorError> {
            Ok(Vec::new())
        }
    }

    /// Two looks within half a second are no deletion; with the policy `stop` they would be a
    /// failover.
    #[test]
    fn an_absence_needs_time_as_well_as_two_looks() {
        let key = tarn_wire::messages::ConfigRecord {
            resource_type: 64,
            resource_name: Str::from("m"),
            name: Str::from("bootstrap.servers"),
            value: Some(Str::from("a:1")),
            ..Default::default()
        };
        let image = Image::default();
        let image = image.apply(&[tarn_metadata::Record::Config(key)], 1, 1);
        let image = image.unwrap().0;
        let topic = AddTopic {
            name: Str::from("t"),
            fresh_id: Uuid([7; 16]),
            source: Some(SourceFacts {
                partitions: 1,
                ..Default::default()
            }),
            ..Default::default()
        };
        let add = AddTopics {
            mirror: Str::from("m"),
            topics: vec![topic],
            ..Default::default()
        };
        let added = add_topics(&image, &mut OnePartition, &add).unwrap();
        assert_eq!(added.topics[0].error, None);
        let image = image.apply(&added.records, 2, 1).unwrap().0;
        let answers = [(Str::from("t"), TopicAnswer::Absent)];
        let look = |now_ms, absences: &BTreeMap<Str, Absence>| {
            let rule = DeletionRule {
                policy: DeletionPolicy::Stop,
                after_ms: 30_000,
                now_ms,
            };
            plan(&image, "m", &answers, rule, absences)
        };
        let first = look(1_000, &BTreeMap::new());
        let second = look(1_500, &first.absences);
        assert!(first.stop.is_empty() && second.stop.is_empty());
        let late = look(31_000, &second.absences);
        assert_eq!(late.stop, [Str::from("t")]);
        let first_but_late = look(99_000, &BTreeMap::new());
        assert!(first_but_late.stop.is_empty(), "one look is not enough");
    }
}
