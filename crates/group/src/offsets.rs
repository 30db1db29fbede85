//! Committed offsets of one group: what is there, and when it may be forgotten.

use std::collections::BTreeMap;

use tarn_wire::{Str, Uuid};

/// One committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommittedOffset {
    pub(crate) offset: i64,
    /// −1 = none.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: Str,
    pub(crate) commit_ms: i64,
    /// Set by clients up to OffsetCommit v4 only.
    pub(crate) expire_ms: Option<i64>,
    /// Id of the topic it was committed for; zero in records of older brokers.
    pub(crate) topic_id: Uuid,
}

/// The offsets of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupOffsets {
    topics: BTreeMap<Str, BTreeMap<i32, CommittedOffset>>,
}

impl GroupOffsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.topics.get(topic)?.get(&partition)
    }

    pub(crate) fn set(&mut self, topic: Str, partition: i32, offset: CommittedOffset) {
        self.topics
            .entry(topic)
            .or_default()
            .insert(partition, offset);
    }

    pub(crate) fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.topics.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    /// All of them, by topic and partition.
    pub(crate) fn topics(&self) -> &BTreeMap<Str, BTreeMap<i32, CommittedOffset>> {
        &self.topics
    }

    /// Every partition with an offset.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&Str, i32, &CommittedOffset)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(index, offset)| (topic, *index, offset))
        })
    }

    /// What has expired at `now_ms`. `since_ms` says from when the retention of an offset counts;
    /// `None` = it does not expire now.
    pub(crate) fn expired(
        &self,
        now_ms: i64,
        retention_ms: i64,
        since_ms: impl Fn(&Str, &CommittedOffset) -> Option<i64>,
    ) -> Vec<(Str, i32)> {
        self.partitions()
            .filter(|(topic, _, offset)| {
                since_ms(topic, offset).is_some_and(|since| match offset.expire_ms {
                    Some(at) => at <= now_ms,
                    None => since.saturating_add(retention_ms) <= now_ms,
                })
            })
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(commit_ms: i64, expire_ms: Option<i64>) -> CommittedOffset {
        CommittedOffset {
            offset: 1,
            leader_epoch: -1,
            metadata: Str::EMPTY,
            commit_ms,
            expire_ms,
            topic_id: Uuid::ZERO,
        }
    }

    #[test]
    fn an_offset_expires_by_its_own_time_or_by_the_retention() {
        let mut offsets = GroupOffsets::default();
        offsets.set(Str::from("a"), 0, offset(0, None));
        offsets.set(Str::from("a"), 1, offset(50, None));
        offsets.set(Str::from("b"), 0, offset(0, Some(500)));
        let expired = offsets.expired(100, 100, |_, offset| Some(offset.commit_ms));
        assert_eq!(expired, [(Str::from("a"), 0)]);
        assert!(offsets.expired(1000, 100, |_, _| None).is_empty());
        assert_eq!(
            offsets
                .expired(500, 100, |_, offset| Some(offset.commit_ms))
                .len(),
            3
        );
    }

    #[test]
    fn the_last_partition_takes_its_topic_along() {
        let mut offsets = GroupOffsets::default();
        offsets.set(Str::from("a"), 3, offset(0, None));
        offsets.remove("a", 4);
        assert!(!offsets.is_empty());
        offsets.remove("a", 3);
        assert!(offsets.is_empty());
    }
}
