//! Group commit: one fdatasync serves every waiter of a log. Owns its threads and nothing else; knows no async runtime,
//! completion is a callback.

use std::sync::Arc;
use std::time::Duration;

use crate::{LogError, PartitionLog};

/// Called once, on a syncer thread, with the recovery point reached or the error that took the directory offline.
/// Must not block.
pub type SyncDone = Box<dyn FnOnce(Result<i64, LogError>) + Send + 'static>;

/// When appends nobody waits for (mirrored ones) are synced.
#[derive(Debug, Clone, Copy)]
pub struct SyncPolicy {
    /// Sync a log once this many bytes are unsynced.
    pub dirty_bytes_max: u64,
    /// Sync a log at the latest this long after its first unsynced append.
    pub dirty_age_max: Duration,
}

impl Default for SyncPolicy {
    fn default() -> Self {
        SyncPolicy { dirty_bytes_max: 16 << 20, dirty_age_max: Duration::from_secs(1) }
    }
}

/// The syncer threads. Dropping it finishes what is queued and joins them.
#[derive(Debug)]
pub struct Syncer {
    _private: (),
}

impl Syncer {
    /// Starts `threads` (1..=64) threads.
    pub fn start(threads: usize, policy: SyncPolicy) -> Arc<Syncer> {
        let _ = (threads, policy);
        panic!("not built yet")
    }
    /// Calls `done` when every offset below `offset` of `log` is on disk; at once (on this thread) when it already is.
    pub fn sync_upto(&self, log: &Arc<PartitionLog>, offset: i64, done: SyncDone) {
        let _ = (log, offset, done);
        panic!("not built yet")
    }
    /// [`Self::sync_upto`] for threads that may block.
    pub fn sync_upto_blocking(&self, log: &Arc<PartitionLog>, offset: i64) -> Result<i64, LogError> {
        let _ = (log, offset);
        panic!("not built yet")
    }
    /// Tells that `log` got bytes nobody waits for; it is synced by the policy.
    pub fn note_append(&self, log: &Arc<PartitionLog>) {
        let _ = log;
        panic!("not built yet")
    }
}
