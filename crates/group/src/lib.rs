//! The group coordinator: classic consumer groups and committed offsets, kept in
//! `__consumer_offsets` in Kafka's record formats.
//!
//! State machines on the coordinator runtime: [`classic`](self) groups are pure, the shard binds
//! them to waiting requests and to records, [`GroupCoordinator`] translates requests and responses
//! of the wire. It may use the coordinator runtime and the replica room's image; it knows no
//! sockets and no other coordinator.
//!
//! Invariants:
//! * A reply goes out only when what it tells is durable.
//! * An offset is forgotten by a tombstone (delete, expiry, deleted topic) and by nothing else.
//! * While a partition loads, the answer is "loading", in the shape of the request's version; never
//!   "no offsets".
//! * Offsets of mirror topics may be committed: the read-only rule is about records.

mod api;
mod classic;
mod config;
mod coordinator;
mod offsets;
mod records;
mod shard;

pub use config::{GroupConfig, ID_BYTES_MAX};
pub use coordinator::{AnswerRoom, GroupCoordinator, RequestContext};

/// The topic groups live in.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";
