//! Partitions on this broker: leadership, who may append, what readers see, how long they wait, and
//! when an append counts as done.
//!
//! It may touch the log room and the metadata image. It does not know the controller (the server
//! hands images over), requests of the wire (the server translates), mirrors (it only keeps the
//! guard they set) nor groups.
//!
//! Invariants (docs/invariants.md):
//! * M-2 no local append while a mirror topic is not stopped; a partition of a mirror topic is
//!   read-only from its creation.
//! * L-7 the leader epochs of a log's batches never go back: a local append waits for an epoch
//!   above the mirrored ones.
//! * M-8 a mirrored batch with an epoch above the published one is not visible before the image
//!   shows that epoch.
//! * The high watermark moves back only with a cut of the log. Every append, local or mirrored,
//!   wakes waiting fetches at once.
//! * F-8 with durability `disk`, and with `mirror.visible.after=durable`, readers see nothing that
//!   is not on disk.
//! * A partition costs no task, no timer and no descriptor while it is idle. One broken log
//!   directory leaves the others alone.

mod background;
mod cleaning;
mod directories;
mod disk;
mod durability;
mod error;
mod fetch;
mod guard;
mod hosted;
mod manager;
mod mirror_append;
mod offsets;
mod partition;
mod produced;
mod purgatory;
mod scrub;
mod shared;
mod topic_config;
mod visibility;

pub use background::LogDirDescription;
pub use cleaning::CleanerConfig;
pub use directories::{Located, directory_id, locate, missing_directories};
pub use disk::SpareWorkers;
pub use durability::Durability;
pub use error::ReplicaError;
pub use fetch::{FetchData, FetchParams, FetchRead, Isolation, fetch};
pub use guard::{AppendSource, MirrorGuard};
pub use manager::{Progress, ReplicaConfig, ReplicaManager};
pub use mirror_append::PartitionMirrorAppend;
pub use offsets::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP, EpochEnd,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, ListedOffset, MAX_TIMESTAMP, must_look_up,
};
pub use partition::{Assignment, Partition};
pub use scrub::{ScrubDamage, ScrubStatus};
pub use topic_config::{BrokerValues, TopicConfig};

/// Topics that are the broker's own: clients cannot produce to them, and their appends always wait
/// for the disk.
pub const INTERNAL_TOPICS: [&str; 5] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__mirror_state",
    "__cluster_metadata",
];

/// Whether `topic` is one of [`INTERNAL_TOPICS`].
pub fn is_internal_topic(topic: &str) -> bool {
    INTERNAL_TOPICS.contains(&topic)
}
