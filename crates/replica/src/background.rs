//! Work nobody asks for: retention, checkpoints, the end of a log directory, clean shutdown. One
//! task each for all partitions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tarn_log::{LogDir, LogError, RetentionRule, flush_all};
use tokio::time::MissedTickBehavior;
use tracing::{debug, error, info, warn};

use crate::error::ReplicaError;
use crate::guard::MirrorGuard;
use crate::manager::{ReplicaManager, now_ms};
use crate::partition::Partition;
use crate::topic_config;

/// How long log starts that move are gathered before the checkpoint is written.
const LOG_START_GATHER_MS: u64 = 100;

/// How often logs are tried again that could not be opened for want of descriptors.
const REOPEN_MS: u64 = 5_000;

/// A log directory as DescribeLogDirs shows it.
#[derive(Clone, Debug)]
pub struct LogDirDescription {
    /// Its path.
    pub path: String,
    /// Why it is offline, when it is.
    pub offline: Option<Arc<str>>,
    /// Its partitions: topic, index, bytes on disk, offset lag (0: the log is the current one).
    pub partitions: Vec<(tarn_wire::Str, i32, u64)>,
}

impl ReplicaManager {
    pub(crate) fn start_background(self: &Arc<Self>) {
        self.tasks.spawn(
            self.clone()
                .every(self.config.retention_check_ms, ReplicaManager::retention_of),
        );
        self.tasks.spawn(
            self.clone()
                .every(self.config.checkpoint_ms, ReplicaManager::checkpoint_of),
        );
        self.tasks.spawn(self.clone().reopen());
        self.tasks.spawn(self.clone().keep_cleaning());
        self.start_scrubs();
        self.tasks.spawn(self.clone().checkpoint_by_bytes());
        self.tasks.spawn(self.clone().keep_log_starts());
        let manager = self.clone();
        self.tasks.spawn(async move {
            let mut known = Vec::new();
            while manager
                .cancel
                .run_until_cancelled(manager.shared.offline.notified())
                .await
                .is_some()
            {
                manager.look_for_offline_dirs(&mut known);
            }
        });
    }

    /// Moves the recovery points on whenever much was appended.
    async fn checkpoint_by_bytes(self: Arc<Self>) {
        while self
            .cancel
            .run_until_cancelled(self.shared.checkpoint.notified())
            .await
            .is_some()
        {
            self.for_each_dir(ReplicaManager::checkpoint_of);
        }
    }

    /// Opens what could not be opened for want of descriptors.
    async fn reopen(self: Arc<Self>) {
        let pause = || tokio::time::sleep(Duration::from_millis(REOPEN_MS));
        while self.cancel.run_until_cancelled(pause()).await.is_some() {
            self.open_what_was_short().await;
        }
    }

    /// Runs `work` for every log directory, on a thread each; not for one that is still at it.
    fn for_each_dir(self: &Arc<Self>, work: fn(&ReplicaManager, &LogDir)) {
        for (index, dir) in self.dirs.iter().enumerate() {
            if self.busy[index].swap(true, Ordering::AcqRel) {
                dir.state().note_activity();
                continue;
            }
            let (manager, dir) = (self.clone(), dir.clone());
            self.tasks.spawn_blocking(move || {
                work(&manager, &dir);
                manager.busy[index].store(false, Ordering::Release);
            });
        }
    }

    /// Writes the checkpoints soon after a log start moved by order, once for all that move
    /// together.
    async fn keep_log_starts(self: Arc<Self>) {
        while self
            .cancel
            .run_until_cancelled(self.shared.log_start.notified())
            .await
            .is_some()
        {
            tokio::time::sleep(Duration::from_millis(LOG_START_GATHER_MS)).await;
            self.for_each_dir(ReplicaManager::write_checkpoints_of);
        }
    }

    async fn every(self: Arc<Self>, interval_ms: u64, work: fn(&ReplicaManager, &LogDir)) {
        let mut ticks = tokio::time::interval(Duration::from_millis(interval_ms.max(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while self
            .cancel
            .run_until_cancelled(ticks.tick())
            .await
            .is_some()
        {
            self.for_each_dir(work);
        }
    }

    /// Drops old segments and idle producers. Blocks on disk; runs by itself every
    /// `log.retention.check.interval.ms`.
    pub fn retention(&self) {
        self.dirs.iter().for_each(|dir| self.retention_of(dir));
    }

    pub(crate) fn in_dir(&self, dir: &LogDir) -> Vec<Arc<Partition>> {
        let mut all = self.hosted.online();
        all.retain(|p| Arc::ptr_eq(p.log().dir_state(), dir.state()));
        all
    }

    fn retention_of(&self, dir: &LogDir) {
        let now = now_ms();
        for partition in self.in_dir(dir) {
            if self.cancel.is_cancelled() {
                return;
            }
            let log = partition.log();
            log.expire_producers(now);
            match log.retention_by(self.retention_rule(&partition), now) {
                Ok(outcome) if outcome.segments > 0 => {
                    debug!(
                        ?partition,
                        segments = outcome.segments,
                        bytes = outcome.bytes,
                        "retention"
                    );
                    log.dir_state().note_activity();
                    partition.watchers().signal();
                }
                Ok(_) => {}
                Err(LogError::Closed { .. }) => {}
                Err(error) => {
                    warn!(?partition, error = %partition.failed(error), "retention failed")
                }
            }
        }
    }

    /// A mirror keeps what its source keeps: nothing local deletes from it until it is failed over,
    /// unless the operator wants that.
    fn retention_rule(&self, partition: &Partition) -> RetentionRule {
        let membership = match (partition.guard(), partition.membership()) {
            (MirrorGuard::Writable, _) | (_, None) => return RetentionRule::Configured,
            (_, Some(membership)) => membership,
        };
        let is_local = topic_config::has_local_retention(
            &self.image(),
            &membership,
            self.config.node_id,
            &self.config.broker_values,
        );
        if is_local {
            RetentionRule::Configured
        } else {
            RetentionRule::LogStart
        }
    }

    /// Moves the recovery points on and writes the checkpoints, if anything was written since the
    /// last time. Blocks on disk; runs by itself every `log.flush.offset.checkpoint.interval.ms`.
    pub fn checkpoint(&self) {
        self.dirs.iter().for_each(|dir| self.checkpoint_of(dir));
    }

    fn checkpoint_of(&self, dir: &LogDir) {
        if !dir.state().take_activity() {
            return;
        }
        if self.cancel.is_cancelled() {
            return;
        }
        let dirty = |p: &Arc<Partition>| p.log().unflushed_bytes() > 0;
        let dirty: Vec<Arc<Partition>> = self.in_dir(dir).into_iter().filter(dirty).collect();
        let logs: Vec<_> = dirty.iter().map(|p| p.log().clone()).collect();
        for (partition, outcome) in dirty.iter().zip(flush_all(&logs)) {
            if let Err(error) = outcome
                && !matches!(error, LogError::Closed { .. })
            {
                warn!(?partition, error = %partition.failed(error), "flush failed");
            }
        }
        self.write_checkpoints_of(dir);
    }

    fn write_checkpoints_of(&self, dir: &LogDir) {
        if dir.state().offline_reason().is_some() {
            return;
        }
        if let Err(error) = dir.write_checkpoints() {
            error!(dir = %dir.path().display(), %error, "checkpoints could not be written");
            self.shared.offline.notify_one();
        }
    }

    /// Says which directories went offline since `known` (one bit of news each), and wakes who
    /// waits for their partitions.
    fn look_for_offline_dirs(&self, known: &mut Vec<bool>) {
        known.resize(self.dirs.len(), false);
        for (dir, known) in self.dirs.iter().zip(known.iter_mut()) {
            let Some(reason) = dir.state().offline_reason() else {
                continue;
            };
            if std::mem::replace(known, true) {
                continue;
            }
            error!(dir = %dir.path().display(), %reason, "the log directory is offline, its partitions cannot be used");
            for partition in self.hosted.online() {
                if partition.log().dir().starts_with(dir.path()) {
                    partition.watchers().signal();
                }
            }
        }
        self.online_dirs.send_replace(self.dirs.online_ids());
        if known.iter().all(|&offline| offline) {
            error!("every log directory is offline");
            self.halted.cancel();
        }
    }

    /// The log directories with their partitions.
    pub fn describe_log_dirs(&self) -> Vec<LogDirDescription> {
        let online = self.hosted.online();
        self.dirs
            .iter()
            .map(|dir| LogDirDescription {
                path: dir.path().display().to_string(),
                offline: dir.state().offline_reason(),
                partitions: online
                    .iter()
                    .filter(|partition| partition.log().dir().parent() == Some(dir.path()))
                    .map(|partition| {
                        (
                            partition.topic().clone(),
                            partition.index(),
                            partition.log().size_bytes(),
                        )
                    })
                    .collect(),
            })
            .collect()
    }

    /// Ends the background work and leaves the logs as they are, as a crash would: the next start
    /// checks them. For a broker that must not touch its disks any more.
    pub async fn halt(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends the background work, closes every log, writes the checkpoints and, where all of that
    /// worked, the clean-shutdown marker with `broker_epoch`. Waiting fetches end with an error.
    pub async fn shutdown(&self, broker_epoch: i64) -> Result<(), ReplicaError> {
        self.halt().await;
        for partition in self.hosted.online() {
            partition.remove(false);
        }
        let mut jobs = tokio::task::JoinSet::new();
        for dir in self.dirs.iter() {
            let dir = dir.clone();
            jobs.spawn_blocking(move || {
                dir.close_clean(broker_epoch).map_err(|error| (dir, error))
            });
        }
        let mut first_error = None;
        while let Some(done) = jobs.join_next().await {
            match done {
                Ok(Ok(())) => {}
                Ok(Err((dir, error))) => {
                    error!(dir = %dir.path().display(), %error, "the log directory was not closed cleanly");
                    first_error.get_or_insert(ReplicaError::Log(error));
                }
                Err(error) => {
                    error!(%error, "closing a log directory stopped");
                }
            }
        }
        info!("log directories closed");
        first_error.map_or(Ok(()), Err)
    }
}
