//! The scrub: reads every log in the background, slowly, and compares checksums, so that rot is
//! found before a reader finds it. Also the rebuilding of indexes that were found wrong, and giving
//! back blocks that idle logs have reserved. One task for each log directory.
//!
//! What a damaged place means is not decided here: it is told, and kept for whoever asks.
//!
//! Guards F-7: rot is found before a reader finds it.

use std::sync::Arc;
use std::time::Duration;

use tarn_log::{Damage, LogDir, LogError, Pace, ScrubStep};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::manager::{ReplicaManager, now_ms};
use crate::partition::Partition;
use crate::topic_config;

const RATE: &str = "log.scrub.bytes.per.second";
const RATE_DEFAULT: i64 = 4 << 20;
const INTERVAL: &str = "log.scrub.interval.ms";
const INTERVAL_MS_DEFAULT: i64 = 7 * 86_400_000;
/// The first scrub begins this long after the start.
const FIRST_AFTER: Duration = Duration::from_secs(600);
/// Bytes read at once.
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Shortest pause between two steps.
const STEP_PAUSE: Duration = Duration::from_millis(10);
/// How often the task looks whether it is wanted at all, and whether an index is to be rebuilt.
const LOOK: Duration = Duration::from_secs(1);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(600);
/// How often blocks are given back that were reserved by logs which are idle since.
const GIVE_BACK: Duration = Duration::from_secs(60);
/// Damaged places kept for whoever asks.
const DAMAGED_MAX: usize = 1_000;

/// What the scrub of this broker did so far.
#[derive(Clone, Debug, Default)]
pub struct ScrubStatus {
    /// Directories read as a whole.
    pub passes: u64,
    /// Partitions read in the present passes, and how many there are in them.
    pub partitions: (usize, usize),
    /// Bytes read since the start.
    pub bytes: u64,
    /// What was found, the oldest first.
    pub damaged: Vec<ScrubDamage>,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubDamage {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// When it was found, epoch milliseconds.
    pub found_ms: i64,
    /// Where, and what is wrong.
    pub place: Damage,
}

impl ReplicaManager {
    pub(crate) fn start_scrubs(self: &Arc<Self>) {
        let dirs: Vec<Arc<LogDir>> = self.dirs.iter().cloned().collect();
        for dir in dirs {
            let manager = self.clone();
            self.tasks.spawn(async move {
                let work = async {
                    tokio::join!(manager.keep_house(&dir), manager.scrub_forever(&dir));
                };
                manager.cancel.run_until_cancelled(work).await;
            });
        }
    }

    /// What the scrub did and found.
    pub fn scrub_status(&self) -> ScrubStatus {
        self.scrubbed.lock().clone()
    }

    fn scrub_number(&self, key: &str, default: i64) -> u64 {
        let (node, broker) = (self.config.node_id, &self.config.broker_values);
        topic_config::broker_number(&self.image(), node, broker, key, default).max(0) as u64
    }
    fn scrub_interval(&self) -> Duration {
        Duration::from_millis(self.scrub_number(INTERVAL, INTERVAL_MS_DEFAULT))
    }

    /// Rebuilds indexes that a reader found wrong, and gives back the reservations of idle logs.
    async fn keep_house(self: &Arc<Self>, dir: &Arc<LogDir>) {
        let mut gave_back = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            if dir.state().pace() != Pace::Quick {
                continue;
            }
            if dir.state().take_repair() {
                let (manager, dir) = (self.clone(), dir.clone());
                let repaired = tokio::task::spawn_blocking(move || manager.repair(&dir));
                if let Err(error) = repaired.await {
                    error!(%error, "rebuilding indexes stopped");
                }
            }
            if gave_back.elapsed() >= GIVE_BACK {
                gave_back = Instant::now();
                let state = dir.state().clone();
                let _ = tokio::task::spawn_blocking(move || state.give_back_idle()).await;
            }
        }
    }

    fn repair(&self, dir: &LogDir) {
        for partition in self.in_dir(dir) {
            if let Err(error) = partition.log().repair_indexes()
                && !matches!(error, LogError::Closed { .. })
            {
                warn!(?partition, %error, "an index could not be rebuilt");
            }
        }
    }

    async fn scrub_forever(self: &Arc<Self>, dir: &Arc<LogDir>) {
        let begun = Instant::now();
        while begun.elapsed() < FIRST_AFTER.min(self.scrub_interval()) {
            tokio::time::sleep(LOOK).await;
        }
        loop {
            let begun = Instant::now();
            self.scrub_dir(dir).await;
            while begun.elapsed() < self.scrub_interval() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// One pass over a directory.
    async fn scrub_dir(self: &Arc<Self>, dir: &Arc<LogDir>) {
        let partitions = self.in_dir(dir);
        let path = dir.path().display().to_string();
        let (total, mut told) = (partitions.len(), Instant::now());
        self.scrubbed.lock().partitions.1 += total;
        debug!(dir = path, partitions = total, "scrub begins");
        let bytes_before = self.scrubbed.lock().bytes;
        for (done, partition) in partitions.into_iter().enumerate() {
            self.scrub_partition(dir, &partition).await;
            self.scrubbed.lock().partitions.0 += 1;
            if told.elapsed() >= TELL {
                told = Instant::now();
                let bytes = self.scrubbed.lock().bytes - bytes_before;
                info!(
                    dir = path,
                    partitions = done + 1,
                    of = total,
                    bytes,
                    "scrub goes on"
                );
            }
        }
        let mut status = self.scrubbed.lock();
        status.passes += 1;
        status.partitions.0 -= total;
        status.partitions.1 -= total;
        let bytes = status.bytes - bytes_before;
        let damaged = status.damaged.len();
        info!(
            dir = path,
            partitions = total,
            bytes,
            damaged,
            "scrub is through"
        );
    }

    async fn scrub_partition(self: &Arc<Self>, dir: &LogDir, partition: &Arc<Partition>) {
        let mut next = Some(partition.log().log_start_offset());
        while let Some(from) = next {
            let rate = self.scrub_number(RATE, RATE_DEFAULT);
            if rate == 0 || dir.state().pace() != Pace::Quick {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            if dir.state().offline_reason().is_some() {
                return;
            }
            let log = partition.log().clone();
            let step =
                tokio::task::spawn_blocking(move || log.scrub(from, STEP_BYTES_MAX.min(rate)));
            let step = match step.await {
                Ok(Ok(step)) => step,
                Ok(Err(error)) => return debug!(?partition, %error, "not scrubbed"),
                Err(error) => return error!(%error, "the scrub stopped"),
            };
            next = self.scrubbed_step(partition, step.clone());
            let pause = Duration::from_secs_f64(step.bytes as f64 / rate as f64);
            tokio::time::sleep(pause.max(STEP_PAUSE)).await;
        }
    }

    /// Counts a step, tells what was found; gives where the next one begins.
    fn scrubbed_step(&self, partition: &Partition, step: ScrubStep) -> Option<i64> {
        let mut status = self.scrubbed.lock();
        status.bytes += step.bytes;
        if let Some(place) = step.damage {
            error!(
                topic = %partition.topic(), partition = partition.index(), offset = place.offset, file = %place.file.display(),
                position = place.position, reason = place.reason,
                "the scrub found records that are not what was written: restore them from another copy"
            );
            let found = ScrubDamage {
                topic: partition.topic().to_string(),
                partition: partition.index(),
                found_ms: now_ms(),
                place,
            };
            let known = |d: &ScrubDamage| {
                d.place == found.place && (&d.topic, d.partition) == (&found.topic, found.partition)
            };
            if !status.damaged.iter().any(known) {
                if status.damaged.len() == DAMAGED_MAX {
                    status.damaged.remove(0);
                }
                status.damaged.push(found);
            }
        }
        step.next_offset
    }
}
