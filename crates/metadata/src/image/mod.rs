//! The image: everything the cluster knows about itself at one offset of the metadata log.
//!
//! Owns the data and its look-ups. How records change it is in `apply.rs`, how it becomes records
//! again in `snapshot.rs`, the parts are in `topic.rs`, `cluster.rs` and `membership.rs`.

mod apply;
mod cluster;
mod membership;
mod snapshot;
mod topic;

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_wire::messages::{AccessControlEntryRecord, RegisterControllerRecord};
use tarn_wire::{Str, Uuid};

pub use cluster::{BrokerEndpoint, BrokerFeature, BrokerImage, ProducerIds};
pub use membership::{DesiredState, Membership};
pub use topic::{NO_LEADER, PartitionImage, TopicImage, Topics};

/// Name of Kafka's metadata feature.
pub const METADATA_VERSION: &str = "metadata.version";
/// Name of the mirror feature.
pub const MIRROR_VERSION: &str = "mirror.version";

/// The kind of thing a configuration belongs to; the numbers are those of the wire and of
/// ConfigRecord.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceType(pub i8);

impl ResourceType {
    /// A topic.
    pub const TOPIC: Self = Self(2);
    /// A broker, or with an empty name all brokers.
    pub const BROKER: Self = Self(4);
    /// Log levels of a broker.
    pub const BROKER_LOGGER: Self = Self(8);
    /// A client metrics subscription.
    pub const CLIENT_METRICS: Self = Self(16);
    /// A group.
    pub const GROUP: Self = Self(32);
    /// A mirror definition.
    pub const MIRROR: Self = Self(64);
}

/// What a configuration belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigResource {
    /// Kind.
    pub kind: ResourceType,
    /// Name; empty for the cluster-wide broker default.
    pub name: Str,
}

impl ConfigResource {
    /// A resource.
    pub fn new(kind: ResourceType, name: impl Into<Str>) -> Self {
        Self {
            kind,
            name: name.into(),
        }
    }

    /// A topic.
    pub fn topic(name: impl Into<Str>) -> Self {
        Self::new(ResourceType::TOPIC, name)
    }

    /// A mirror.
    pub fn mirror(name: impl Into<Str>) -> Self {
        Self::new(ResourceType::MIRROR, name)
    }
}

/// Keys and values of one resource, sorted by key.
pub type Configs = BTreeMap<Str, Str>;

/// One quota: of which entity, which key. Entity parts as (type, name), a missing name meaning the
/// default.
pub type QuotaKey = (Vec<(Str, Option<Str>)>, Str);

/// Everything the cluster knows about itself at one offset. Cloning copies pointers only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// Offset of the last record in here; meaningful once `epoch` > 0.
    offset: i64,
    /// Quorum epoch of that record; 0 for the empty image.
    epoch: i32,
    topics: Arc<Topics>,
    configs: Arc<BTreeMap<ConfigResource, Arc<Configs>>>,
    brokers: Arc<BTreeMap<i32, Arc<BrokerImage>>>,
    controllers: Arc<BTreeMap<i32, RegisterControllerRecord>>,
    features: Arc<BTreeMap<Str, i16>>,
    memberships: Arc<BTreeMap<Str, Arc<Membership>>>,
    producer_ids: ProducerIds,
    acls: Arc<BTreeMap<Uuid, AccessControlEntryRecord>>,
    quotas: Arc<BTreeMap<QuotaKey, f64>>,
}

impl Image {
    /// Offset of the last record applied; −1 for the empty image.
    pub fn offset(&self) -> i64 {
        if self.epoch == 0 { -1 } else { self.offset }
    }

    /// Quorum epoch of the last record applied; 0 for the empty image.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// All topics.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.by_name(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: &Uuid) -> Option<&Arc<TopicImage>> {
        self.topics.by_id(id)
    }

    /// A partition by topic name.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&Arc<PartitionImage>> {
        self.topic(topic)?.partition(partition)
    }

    /// A partition by topic id.
    pub fn partition_by_id(&self, id: &Uuid, partition: i32) -> Option<&Arc<PartitionImage>> {
        self.topic_by_id(id)?.partition(partition)
    }

    /// The set values of a resource; `None` if it has none.
    pub fn configs(&self, resource: &ConfigResource) -> Option<&Arc<Configs>> {
        self.configs.get(resource)
    }

    /// One set value of a resource.
    pub fn config(&self, resource: &ConfigResource, key: &str) -> Option<&Str> {
        self.configs.get(resource)?.get(key)
    }

    /// The set values of a topic.
    pub fn topic_configs(&self, topic: &str) -> Option<&Arc<Configs>> {
        self.configs.get(&ConfigResource::topic(topic))
    }

    /// Every resource of one kind that has values, sorted by name.
    pub fn configured(&self, kind: ResourceType) -> impl Iterator<Item = (&Str, &Arc<Configs>)> {
        let from = ConfigResource {
            kind,
            name: Str::EMPTY,
        };
        self.configs
            .range(from..)
            .take_while(move |(resource, _)| resource.kind == kind)
            .map(|(resource, configs)| (&resource.name, configs))
    }

    /// The definition of a mirror; a mirror exists exactly if it has at least one key.
    pub fn mirror(&self, name: &str) -> Option<&Arc<Configs>> {
        self.configs.get(&ConfigResource::mirror(name))
    }

    /// All mirrors with their definitions, sorted by name.
    pub fn mirrors(&self) -> impl Iterator<Item = (&Str, &Arc<Configs>)> {
        self.configured(ResourceType::MIRROR)
    }

    /// The mirror membership of a topic, whether it exists yet or is only wanted.
    pub fn membership(&self, topic: &str) -> Option<&Arc<Membership>> {
        self.memberships.get(topic)
    }

    /// All memberships by topic name.
    pub fn memberships(&self) -> &BTreeMap<Str, Arc<Membership>> {
        &self.memberships
    }

    /// The memberships of one mirror, by topic name.
    pub fn members_of<'a>(
        &'a self,
        mirror: &'a str,
    ) -> impl Iterator<Item = (&'a Str, &'a Arc<Membership>)> {
        self.memberships
            .iter()
            .filter(move |(_, membership)| membership.mirror == *mirror)
    }

    /// A broker.
    pub fn broker(&self, id: i32) -> Option<&Arc<BrokerImage>> {
        self.brokers.get(&id)
    }

    /// All registered brokers by id.
    pub fn brokers(&self) -> &BTreeMap<i32, Arc<BrokerImage>> {
        &self.brokers
    }

    /// Ids of the brokers that may lead partitions, ascending.
    pub fn active_brokers(&self) -> impl Iterator<Item = i32> {
        self.brokers
            .values()
            .filter(|broker| broker.is_active())
            .map(|broker| broker.id)
    }

    /// Registered controllers by id.
    pub fn controllers(&self) -> &BTreeMap<i32, RegisterControllerRecord> {
        &self.controllers
    }

    /// Finalized level of a feature; 0 if it was never set.
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// All finalized features with a level above 0.
    pub fn features(&self) -> &BTreeMap<Str, i16> {
        &self.features
    }

    /// The producer id counter.
    pub fn producer_ids(&self) -> ProducerIds {
        self.producer_ids
    }

    /// ACLs by id.
    pub fn acls(&self) -> &BTreeMap<Uuid, AccessControlEntryRecord> {
        &self.acls
    }

    /// Client quotas.
    pub fn quotas(&self) -> &BTreeMap<QuotaKey, f64> {
        &self.quotas
    }
}
