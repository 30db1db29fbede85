//! What can go wrong with metadata records.

use tarn_wire::{Uuid, WireError};

/// Errors of this crate. A broker that meets one in its own metadata log cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The record's bytes are not what its type and version say.
    #[error("metadata record of type {record_type} version {version} does not decode: {source}")]
    Decode {
        /// Type number.
        record_type: u32,
        /// Version number.
        version: u32,
        /// What the codec found.
        source: WireError,
    },
    /// A record type that this version does not know. Going on without it would lose state.
    #[error(
        "metadata record type {record_type} version {version} is not known to this version of tarn: the log was written by a newer or another broker"
    )]
    UnknownRecord {
        /// Type number.
        record_type: u32,
        /// Version number.
        version: u32,
    },
    /// The frame before the record is broken.
    #[error("metadata record frame is broken: {0}")]
    Frame(String),
    /// The record cannot be encoded.
    #[error("metadata record {name} does not encode: {source}")]
    Encode {
        /// Record name.
        name: &'static str,
        /// What the codec found.
        source: WireError,
    },
    /// A record names a topic that does not exist.
    #[error("{record} names topic id {topic_id}, which does not exist")]
    UnknownTopic {
        /// Record name.
        record: &'static str,
        /// The id.
        topic_id: Uuid,
    },
    /// A record names a partition that does not exist.
    #[error("{record} names partition {partition} of topic id {topic_id}, which does not exist")]
    UnknownPartition {
        /// Record name.
        record: &'static str,
        /// The topic.
        topic_id: Uuid,
        /// The partition.
        partition: i32,
    },
    /// A record names a broker that is not registered, or in another incarnation.
    #[error("{record} names broker {broker} with epoch {epoch}, which is not registered")]
    UnknownBroker {
        /// Record name.
        record: &'static str,
        /// The broker.
        broker: i32,
        /// The epoch.
        epoch: i64,
    },
    /// The record contradicts the image.
    #[error("{record} contradicts what is known: {reason}")]
    Contradiction {
        /// Record name.
        record: &'static str,
        /// What does not fit.
        reason: String,
    },
}
