//! Topics and partitions in the image.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tarn_wire::{Str, Uuid};

/// "No leader" in records and on the wire.
pub const NO_LEADER: i32 = -1;

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionImage {
    /// Brokers that hold it, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Log directory of each replica, in the order of `replicas`; empty if not known.
    pub directories: Vec<Uuid>,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// Replicas that a reassignment takes away.
    pub removing: Vec<i32>,
    /// Replicas that a reassignment adds.
    pub adding: Vec<i32>,
    /// The leader, or [`NO_LEADER`].
    pub leader: i32,
    /// Rises with every election and every bump; never falls.
    pub leader_epoch: i32,
    /// Rises with every change.
    pub partition_epoch: i32,
    /// 0 recovered, 1 recovering from an unclean election.
    pub leader_recovery_state: i8,
    /// Eligible leader replicas (KIP-966); empty unless that feature is on.
    pub eligible_leader_replicas: Vec<i32>,
    /// Last known eligible leader replicas (KIP-966).
    pub last_known_elr: Vec<i32>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Name.
    pub name: Str,
    /// Id, never zero.
    pub id: Uuid,
    /// Partitions 0…n−1.
    pub partitions: Vec<Arc<PartitionImage>>,
}

impl TopicImage {
    /// A partition by number.
    pub fn partition(&self, partition: i32) -> Option<&Arc<PartitionImage>> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }

    /// Number of partitions.
    pub fn partition_count(&self) -> i32 {
        self.partitions.len() as i32
    }
}

/// All topics, by name and by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topics {
    by_name: BTreeMap<Str, Arc<TopicImage>>,
    names: HashMap<Uuid, Str>,
}

impl Topics {
    /// A topic by name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name)
    }

    /// A topic by id.
    pub fn by_id(&self, id: &Uuid) -> Option<&Arc<TopicImage>> {
        self.by_name.get(self.names.get(id)?)
    }

    /// All topics, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values()
    }

    /// Topics whose name comes after `name`, sorted; for paged answers.
    pub fn after<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        use std::ops::Bound;
        self.by_name
            .range::<str, _>((Bound::Excluded(name), Bound::Unbounded))
            .map(|(_, topic)| topic)
    }

    /// Topics whose name is `name` or comes after it, sorted.
    pub fn from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> + use<'a> {
        use std::ops::Bound;
        self.by_name
            .range::<str, _>((Bound::Included(name), Bound::Unbounded))
            .map(|(_, topic)| topic)
    }

    /// Number of topics.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn insert(&mut self, topic: TopicImage) {
        self.names.insert(topic.id, topic.name.clone());
        self.by_name.insert(topic.name.clone(), Arc::new(topic));
    }

    pub(super) fn remove(&mut self, id: &Uuid) -> Option<Arc<TopicImage>> {
        self.by_name.remove(&self.names.remove(id)?)
    }

    pub(super) fn by_id_mut(&mut self, id: &Uuid) -> Option<&mut TopicImage> {
        self.by_name.get_mut(self.names.get(id)?).map(Arc::make_mut)
    }
}
