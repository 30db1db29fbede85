//! The partition log: segments, indexes, leader epochs, producer state, recovery, retention, and
//! the log directory that holds them, in Kafka's own file formats.
//!
//! Three layers, each knowing only the one below: `Segment` (one `.log` and its indexes),
//! [`PartitionLog`] (an ordered list of segments, shared with readers as a snapshot; offsets,
//! epochs, producers, transactions, limits), [`LogDir`] (lock file, checkpoints, clean-shutdown
//! marker). [`Syncer`] is the group commit beside them.
//!
//! What it may touch: files under the log directory, nothing else. No network, no async runtime, no
//! clock (time comes in as `now_ms`, epoch milliseconds); only [`Syncer`], the watchdog of the
//! disks (`stall`) and the thread that closes files (`open_files`) are threads and have a monotonic
//! clock. Every call may block on disk.
//!
//! Invariants (docs/invariants.md):
//! * L-1 the log end offset only moves forward, except by truncation; it moves by whole, checked
//!   batches only.
//! * L-2 readers never wait for a writer: they take a snapshot of the segment list and of the log
//!   end.
//! * L-3 a file never holds bytes past the log end when the writer lock is free, except those of a
//!   live [`MirrorAppend`].
//! * L-4 a failed write (other than for want of space, descriptors or memory) or a failed fsync
//!   takes the whole directory offline, for good; so does a call that does not come back for the
//!   configured time.
//! * L-5 every offset below `recovery_point()` was fdatasync'ed.
//! * L-6 log start offset ≤ high watermark ≤ log end offset.
//! * L-7 the leader epochs of a log's batches never go back.

mod checkpoint;
mod cleaner;
mod config;
mod descriptors;
mod dir;
mod epochs;
mod error;
mod file;
mod index;
mod invariant;
mod meta_properties;
mod mirror;
mod names;
mod open_files;
mod partition_log;
mod partition_metadata;
pub mod private;
mod producers;
mod reserve;
mod roll;
mod scan;
mod segment;
mod stall;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod txn_index;
mod types;

pub use config::{LogConfig, OpenOptions, TimestampType};
pub use descriptors::{DescriptorShares, descriptor_limit, is_shortage, raise_descriptor_limit};
pub use dir::{LogDir, PartitionDir};
pub use error::LogError;
pub use invariant::{InvariantCheck, invariants_broken};
pub use meta_properties::MetaProperties;
pub use mirror::{MirrorAppend, MirrorAppendInfo, MirrorBounds};
pub use open_files::{open_files, set_open_files_max};
pub use partition_log::{
    CheckedBatch, Damage, PRODUCED_BYTES_MAX, PartitionLog, ScrubStep, flush_all,
};
pub use stall::{OFFLINE_AFTER, Pace, WaitPlace, WorkerGroup};
pub use state::LogDirState;
pub use sync::{SyncDone, SyncPolicy, Syncer};
pub use types::{
    AbortedTxn, ActiveProducer, AppendInfo, AppendOrigin, CleanOutcome, EpochEndOffset, EpochEntry,
    OpenTransaction, RetentionOutcome, RetentionRule, Slice, TimestampAndOffset,
};
