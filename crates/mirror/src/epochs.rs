//! Raising leader epochs above the source's (docs/mirroring.md §4.4): requests of all partitions
//! are coalesced into one controller decision per [`COALESCE_MS`], and each caller waits until this
//! broker's own partition carries the epoch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_replica::ReplicaManager;
use tarn_wire::Uuid;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::commands::{Decision, LEADER_EPOCH_MAX, bump_epochs};
use crate::metadata::Metadata;

/// At most one controller request per broker in this time.
pub const COALESCE_MS: u64 = 100;

/// How far beyond the epoch asked for a raise goes, so that the next source elections need none.
pub const EPOCH_LEAD: i32 = 10;

/// How long a caller waits in all.
const WAIT_MS_MAX: u64 = 10_000;

/// The bumper of this broker.
pub struct EpochBumper {
    metadata: Arc<dyn Metadata>,
    replicas: Arc<ReplicaManager>,
    /// Highest "must exceed" wanted per partition; bounded by the partitions led here.
    wanted: Mutex<HashMap<(Uuid, i32), i32>>,
    wake: Notify,
}

impl EpochBumper {
    /// A bumper; [`EpochBumper::run`] must be spawned.
    pub fn new(metadata: Arc<dyn Metadata>, replicas: Arc<ReplicaManager>) -> Arc<EpochBumper> {
        Arc::new(EpochBumper {
            metadata,
            replicas,
            wanted: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// Asks that the partition's epoch exceed `min_epoch`, without waiting.
    pub fn request(&self, topic_id: Uuid, partition: i32, min_epoch: i32) {
        let mut wanted = self.wanted.lock();
        let entry = wanted.entry((topic_id, partition)).or_insert(min_epoch);
        *entry = min_epoch.max(*entry);
        drop(wanted);
        self.wake.notify_one();
    }

    /// Resolves with the epoch in force once this broker's partition carries at least `epoch`. Asks
    /// for [`EPOCH_LEAD`] more.
    pub async fn raise_to(
        &self,
        topic_id: Uuid,
        partition: i32,
        epoch: i32,
    ) -> Result<i32, String> {
        self.raise(topic_id, partition, epoch.saturating_sub(1), EPOCH_LEAD - 1)
            .await
    }

    /// Resolves with the epoch in force once this broker's partition carries an epoch above
    /// `min_epoch`.
    pub async fn raise_above(
        &self,
        topic_id: Uuid,
        partition: i32,
        min_epoch: i32,
    ) -> Result<i32, String> {
        self.raise(topic_id, partition, min_epoch, 0).await
    }

    async fn raise(
        &self,
        topic_id: Uuid,
        partition: i32,
        min_epoch: i32,
        lead: i32,
    ) -> Result<i32, String> {
        if min_epoch >= LEADER_EPOCH_MAX {
            return Err(format!(
                "leader epoch {min_epoch} is too high to be exceeded, at most {LEADER_EPOCH_MAX} is possible"
            ));
        }
        let deadline = tokio::time::Instant::now() + Duration::from_millis(WAIT_MS_MAX);
        let ask = min_epoch.saturating_add(lead).min(LEADER_EPOCH_MAX - 1);
        let mut asked = false;
        let mut progress = self.replicas.progress();
        loop {
            progress.borrow_and_update();
            let found = self
                .replicas
                .partition_by_id(&topic_id, partition)
                .map_err(|e| e.to_string())?;
            let current = found.leader_epoch();
            if current > min_epoch {
                return Ok(current);
            }
            if !asked {
                self.request(topic_id, partition, ask);
                asked = true;
            }
            // The epoch comes with a metadata image.
            let next_image = tokio::time::timeout_at(deadline, progress.changed());
            if !matches!(next_image.await, Ok(Ok(()))) {
                return Err(format!(
                    "the leader epoch did not rise above {min_epoch} in {WAIT_MS_MAX} ms"
                ));
            }
        }
    }

    /// Sends what was asked for, until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.wake.notified() => {}
            }
            let batch: Vec<(Uuid, i32, i32)> = self
                .wanted
                .lock()
                .drain()
                .map(|((topic, partition), min)| (topic, partition, min))
                .collect();
            if batch.is_empty() {
                continue;
            }
            debug!(partitions = batch.len(), "raising leader epochs");
            let wanted = batch.clone();
            let decide = move |image: &tarn_metadata::Image,
                               _: &mut dyn crate::commands::Planner| {
                Ok(Decision {
                    records: bump_epochs(image, &wanted),
                    topics: Vec::new(),
                })
            };
            if let Err(error) = self
                .metadata
                .decide("raise mirror epochs", Box::new(decide))
                .await
            {
                warn!(%error, "leader epochs could not be raised, trying again");
                for (topic, partition, min) in batch {
                    self.request(topic, partition, min);
                }
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(COALESCE_MS)) => {}
            }
        }
    }
}
