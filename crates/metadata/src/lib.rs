//! What the cluster knows about itself: metadata records, the image they build, the differences
//! between images, and configuration keys.
//!
//! Owns the meaning of every record of `__cluster_metadata`, its framing, the immutable [`Image`]
//! with its [`Delta`]s, and the tables of configuration keys. Does not do I/O, does not decide
//! (that is the controller) and does not react (that is every other room).
//!
//! Invariants:
//! * Metadata is a log: whatever an [`Image`] holds can be said in [`Record`]s, and an image built
//!   from `image.to_records()` plus the records that follow equals the one built by replaying
//!   everything (clearing included).
//! * Applying never half-applies: a record that does not fit leaves the image as it was and is an
//!   error.
//! * Images are immutable and cheap to clone; readers never wait.

pub mod config;
mod delta;
mod error;
mod image;
mod names;
mod record;
mod replay;

pub use config::InvalidConfig;
pub use delta::{Change, Delta, TopicChange};
pub use error::MetadataError;
pub use image::{
    BrokerEndpoint, BrokerFeature, BrokerImage, ConfigResource, Configs, DesiredState, Image,
    METADATA_VERSION, MIRROR_VERSION, Membership, NO_LEADER, PartitionImage, ProducerIds, QuotaKey,
    ResourceType, TopicImage, Topics,
};
pub use names::{
    TopicIdPartition, TopicNameProblem, TopicPartition, check_topic_name, collision_key,
    names_collide,
};
pub use record::{RECORD_FRAME_VERSION, Record};
pub use replay::Replay;
