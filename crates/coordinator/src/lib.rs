//! One runtime for every coordinator: an event loop per internal-topic partition this broker leads.
//!
//! A coordinator keeps its state in memory and its truth in a compacted internal topic
//! (`__consumer_offsets`, `__mirror_state`). The [`Runtime`] owns everything they share: loading,
//! fencing, order, durability and timers. A room brings a [`Shard`]: the state of one partition
//! with the rule how a record changes it, and pure decisions that look at the shard and answer with
//! records.
//!
//! Invariants:
//! * Order is decide → append → replay into the shard → (synced and below the high watermark) →
//!   reply. A reply, of a read too, never shows state that could still be lost.
//! * A shard is served only when the whole partition was replayed. A log that cannot be read drops
//!   what was read and starts again; until then the answer is "loading", never "nothing there". One
//!   record that the shard cannot take is skipped, and the log names it.
//! * Losing one partition drops the shard of that partition and no other.
//! * The number of partitions comes from the topic in the metadata image, never from a local
//!   setting.
//! * Queues are bounded; every task belongs to the runtime and ends with it.

mod error;
mod event_loop;
mod hash;
mod runtime;
mod shard;
mod store;
mod topic;

#[cfg(test)]
mod tests;

pub use error::CoordinatorError;
pub use hash::{java_string_hash, partition_for_key};
pub use runtime::{Clock, Runtime, RuntimeConfig, system_clock};
pub use shard::{CoordinatorRecord, LoadedRecord, Outcome, ReplayError, Shard};
pub use store::{BoxFuture, Chunk, ReplicaStore, Store};
pub use topic::{InternalTopic, TopicCreator};
