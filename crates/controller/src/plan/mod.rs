//! Decisions as pure functions: an image and a wish in, metadata records or a refusal out.
//!
//! Owns the rules of Kafka's admin requests. No clock, no disk, no randomness but what [`Ctx`]
//! hands in, so that other rooms can put several plans into one decision (a mirror topic and its
//! membership, for instance) and tests need nothing.

mod brokers;
mod configs;
mod directories;
mod epochs;
mod features;
mod leaders;
mod partitions;
mod producer_ids;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_metadata::config::ConfigDef;
use tarn_metadata::{ConfigResource, Delta, Image, Record, ResourceType};
use tarn_wire::{Str, Uuid};

use crate::ApiError;

pub use brokers::{
    Heartbeat, Registration, plan_heartbeat, plan_registration, plan_unregistration,
};
pub use configs::{plan_alter, plan_replace, topic_config_refusal};
pub use directories::{
    InDirectory, held_by, is_directory, plan_directories, plan_online_directories,
};
pub use epochs::{Bump, BumpOutcome, LEADER_EPOCH_MAX, plan_epoch_bumps};
pub use features::{METADATA_VERSION_LEVEL, SupportedFeature, plan_feature, supported_features};
pub use leaders::{ElectionType, fence_broker, plan_election, unfence_broker};
pub use partitions::{plan_partitions, read_only_refusal};
pub use producer_ids::{PRODUCER_ID_BLOCK, plan_producer_ids};
pub use topics::{NewTopic, plan_deletion, plan_topic};

/// One change of one configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOp {
    /// The key.
    pub key: Str,
    /// What to do with it.
    pub change: ConfigChange,
}

/// What to do with a configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Set this value.
    Set(Str),
    /// Go back to the default.
    Delete,
    /// Add these elements to a list.
    Append(Str),
    /// Take these elements out of a list.
    Subtract(Str),
}

/// Checks, and may rewrite, the changes of one resource before they become records; set by the room
/// that owns the resource type.
pub type AlterHook = Arc<
    dyn Fn(&Image, &ConfigResource, &[ConfigOp]) -> Result<Vec<ConfigOp>, ApiError> + Send + Sync,
>;

/// What decisions are made by: defaults, tables and hooks.
#[derive(Clone)]
pub struct Rules {
    /// num.partitions: for topics created with −1.
    pub num_partitions: i32,
    /// default.replication.factor: for topics created with −1.
    pub default_replication_factor: i16,
    /// request.partitions.max: new partitions that one CreateTopics or CreatePartitions request may
    /// ask for, all its topics together. A mirror makes its topics without a request, so it may
    /// take over larger ones.
    pub request_partitions_max: i32,
    /// The broker's key table; keys that are not in it, or not dynamic, are refused for brokers.
    pub broker_configs: &'static [ConfigDef],
    /// Broker keys set in the configuration file: they are the defaults of topic keys.
    pub broker_values: Arc<BTreeMap<String, String>>,
    /// Hooks by resource type; a type without table and without hook is refused.
    pub alter_hooks: Vec<(ResourceType, AlterHook)>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            num_partitions: 1,
            default_replication_factor: 1,
            request_partitions_max: 10_000,
            broker_configs: &[],
            broker_values: Arc::default(),
            alter_hooks: Vec::new(),
        }
    }
}

/// What a decision may know beside the image.
pub struct Ctx {
    /// Now, epoch milliseconds.
    pub now_ms: i64,
    /// Offset at which the decision's first record will stand.
    pub next_offset: i64,
    /// The rules.
    pub rules: Arc<Rules>,
    ids: Box<dyn FnMut() -> Uuid + Send>,
}

impl Ctx {
    /// A context; `ids` hands out fresh ids.
    pub fn new(
        now_ms: i64,
        next_offset: i64,
        rules: Arc<Rules>,
        ids: impl FnMut() -> Uuid + Send + 'static,
    ) -> Self {
        Self {
            now_ms,
            next_offset,
            rules,
            ids: Box::new(ids),
        }
    }

    /// A fresh id.
    pub fn new_id(&mut self) -> Uuid {
        (self.ids)()
    }
}

/// An image that grows with the records of one decision, so that its later parts see its earlier
/// ones.
#[derive(Clone, Debug)]
pub struct Draft {
    image: Image,
    records: Vec<Record>,
}

impl Draft {
    /// A draft over an image.
    pub fn new(image: &Image) -> Self {
        Self {
            image: image.clone(),
            records: Vec::new(),
        }
    }

    /// The image with the records so far.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Adds records; on an error none of them is kept.
    pub fn add(&mut self, records: Vec<Record>) -> Result<(), ApiError> {
        let mut delta = Delta::default();
        let (offset, epoch) = (self.image.offset(), self.image.epoch().max(1));
        if let Err(error) = self
            .image
            .apply_in_place(&records, offset, epoch, &mut delta)
        {
            return Err(error.into());
        }
        self.records.extend(records);
        Ok(())
    }

    /// The records.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}
