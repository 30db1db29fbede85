//! What changed between two images, so that rooms reconcile only that.
//!
//! Owns no values: a delta names what changed, the image after it holds the values. Only what a
//! deletion takes out of the image travels here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_wire::{Str, Uuid};

use crate::{ConfigResource, Image, ResourceType, TopicImage};

/// What happened to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// Some of its partitions changed or are new.
    Changed,
    /// It is gone.
    Deleted,
}

/// The change of one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicChange {
    /// Its name.
    pub name: Str,
    /// What happened.
    pub change: Change,
    /// Partitions that are new or changed; for a deleted topic, all it had.
    pub partitions: BTreeSet<i32>,
    /// The topic as it was, if it was deleted.
    pub before: Option<Arc<TopicImage>>,
}

/// What changed, as keys into the image after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Topics by id.
    pub topics: BTreeMap<Uuid, TopicChange>,
    /// Resources with a changed, new or removed value.
    pub configs: BTreeSet<ConfigResource>,
    /// Brokers registered, changed or unregistered.
    pub brokers: BTreeSet<i32>,
    /// Names of topics whose mirror membership changed, appeared or went.
    pub memberships: BTreeSet<Str>,
    /// Whether a feature level changed.
    pub features: bool,
    /// Whether the producer id counter moved.
    pub producer_ids: bool,
    /// Whether ACLs changed.
    pub acls: bool,
    /// Whether quotas changed.
    pub quotas: bool,
}

impl Delta {
    /// The delta from nothing to `image`: everything in it is new. What a new subscriber gets
    /// first.
    pub fn everything(image: &Image) -> Self {
        let created = |topic: &Arc<TopicImage>| {
            let partitions = (0..topic.partition_count()).collect();
            (
                topic.id,
                TopicChange {
                    name: topic.name.clone(),
                    change: Change::Created,
                    partitions,
                    before: None,
                },
            )
        };
        Self {
            topics: image.topics().iter().map(created).collect(),
            configs: image.config_resources().cloned().collect(),
            brokers: image.brokers().keys().copied().collect(),
            memberships: image.memberships().keys().cloned().collect(),
            features: !image.features().is_empty(),
            producer_ids: image.producer_ids().next > 0,
            acls: !image.acls().is_empty(),
            quotas: !image.quotas().is_empty(),
        }
    }

    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Names of mirrors whose definition changed.
    pub fn mirrors(&self) -> impl Iterator<Item = &Str> {
        self.configs
            .iter()
            .filter(|resource| resource.kind == ResourceType::MIRROR)
            .map(|resource| &resource.name)
    }

    /// Appends a later delta to this one, so that a slow reader takes both in one step.
    pub fn merge(&mut self, later: Delta) {
        for (id, change) in later.topics {
            match self.topics.get_mut(&id) {
                None => {
                    self.topics.insert(id, change);
                }
                Some(earlier) => match (earlier.change, change.change) {
                    (Change::Created, Change::Deleted) => {
                        self.topics.remove(&id);
                    }
                    (_, Change::Deleted) => *earlier = change,
                    _ => earlier.partitions.extend(change.partitions),
                },
            }
        }
        self.configs.extend(later.configs);
        self.brokers.extend(later.brokers);
        self.memberships.extend(later.memberships);
        self.features |= later.features;
        self.producer_ids |= later.producer_ids;
        self.acls |= later.acls;
        self.quotas |= later.quotas;
    }

    pub(crate) fn topic(&mut self, id: Uuid, name: &Str, change: Change) -> &mut TopicChange {
        self.topics.entry(id).or_insert_with(|| TopicChange {
            name: name.clone(),
            change,
            partitions: BTreeSet::new(),
            before: None,
        })
    }
}
