//! What all partitions of this broker have in common: identity, durability, and the news about
//! broken directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_log::{LogError, PartitionLog, Syncer};
use tokio::sync::{Notify, oneshot};

use crate::durability::Durability;

/// Bytes over all partitions after which recovery points are written before their time. A start
/// after a crash reads no more than this (and what arrives while it is written), a fraction of a
/// second.
const CHECKPOINT_BYTES: u64 = 512 << 20;

/// Shared by the manager and its partitions.
pub(crate) struct Shared {
    pub(crate) node_id: i32,
    pub(crate) durability: Durability,
    /// Bytes appended since a checkpoint was asked for by their number.
    uncheckpointed_bytes: AtomicU64,
    /// So much was appended that the checkpoint should not wait for its time.
    pub(crate) checkpoint: Notify,
    /// A log directory went offline; the manager looks which.
    pub(crate) offline: Notify,
    /// A log start moved on somebody's order.
    pub(crate) log_start: Notify,
}

impl Shared {
    pub(crate) fn new(node_id: i32, durability: Durability) -> Arc<Self> {
        Arc::new(Shared {
            node_id,
            durability,
            uncheckpointed_bytes: AtomicU64::new(0),
            checkpoint: Notify::new(),
            offline: Notify::new(),
            log_start: Notify::new(),
        })
    }

    /// Asks for the sync at once; the future only waits for it.
    pub(crate) fn sync_upto(
        &self,
        syncer: &Syncer,
        log: &Arc<PartitionLog>,
        offset: i64,
    ) -> impl Future<Output = Result<(), LogError>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        syncer.sync_upto(
            log,
            offset,
            Box::new(move |outcome| {
                // A waiter that gave up needs no answer.
                let _ = sender.send(outcome);
            }),
        );
        let log = log.clone();
        async move {
            match receiver.await {
                Ok(outcome) => outcome.map(|_| ()),
                Err(_) => Err(LogError::Closed {
                    topic_partition: format!("{}-{}", log.topic(), log.partition()),
                }),
            }
        }
    }

    /// The bytes are synced by the syncer's own policy.
    pub(crate) fn note_append(&self, syncer: &Syncer, log: &Arc<PartitionLog>) {
        if self.durability == Durability::Disk {
            syncer.note_append(log);
        }
    }

    /// Counts appended bytes, so that a crash leaves only a bounded tail to be checked.
    pub(crate) fn note_bytes(&self, bytes: u64) {
        let before = self
            .uncheckpointed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= CHECKPOINT_BYTES {
            self.uncheckpointed_bytes.store(0, Ordering::Relaxed);
            self.checkpoint.notify_one();
        }
    }

    /// A log start moved by order: unlike what retention does by itself, nobody moves it again
    /// after a crash.
    pub(crate) fn note_log_start(&self, log: &PartitionLog) {
        log.dir_state().note_activity();
        self.log_start.notify_one();
    }

    /// A log found its directory offline; the manager finds out which and says so once.
    pub(crate) fn note_offline(&self) {
        self.offline.notify_one();
    }
}
