//! [`ReplicaManager`]: brings the partitions of this broker in line with the metadata image.
//!
//! Opening, recovering and deleting logs happens on blocking threads, several partitions at a time;
//! a partition whose log cannot be opened is offline by itself. Nothing is deleted because it is
//! *missing* from an image: only a topic deletion in a delta deletes. What lies on disk without
//! being in the image at start is set aside under another name.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tarn_log::{LogDir, LogError, OFFLINE_AFTER, Pace, PartitionLog, SyncPolicy, Syncer};
use tarn_metadata::{Change, Delta, Image, Membership, PartitionImage, ResourceType};
use tarn_wire::{Str, Uuid};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::cleaning::CleanerConfig;
use crate::directories::Directories;
use crate::durability::Durability;
use crate::error::ReplicaError;
use crate::hosted::{Hosted, HostedPartitions};
use crate::partition::{Assignment, Partition};
use crate::scrub::ScrubStatus;
use crate::shared::Shared;
use crate::topic_config::{self, BrokerValues, TopicConfig};

/// Logs opened, recovered or deleted at the same time.
const BLOCKING_JOBS_MAX: usize = 8;

/// How often who waits for such work looks whether the disks still answer.
const JOB_LOOK: Duration = Duration::from_millis(500);

/// Syncs under way at the same time. They wait for the disk, not for a core, and syncs of several
/// files share one commit of a journal.
const SYNC_THREADS: usize = 8;

/// Settings of the room.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This broker.
    pub node_id: i32,
    /// `log.dirs`.
    pub log_dirs: Vec<PathBuf>,
    /// Log directories that should be there and are not.
    pub missing_dirs: Vec<Uuid>,
    /// `log.ack.durability`.
    pub durability: Durability,
    /// Threads that sync.
    pub sync_threads: usize,
    /// Bounds within which appends nobody waits for reach the disk.
    pub sync_policy: SyncPolicy,
    /// The broker's own values, as set in its file; they are the defaults of topic keys by synonym.
    pub broker_values: BrokerValues,
    /// `log.retention.check.interval.ms`.
    pub retention_check_ms: u64,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub checkpoint_ms: u64,
    /// `log.dir.stall.timeout.ms`: a call to the file system that takes longer takes its directory
    /// offline.
    pub stall_offline_after: Duration,
    /// `log.cleaner.*`.
    pub cleaner: CleanerConfig,
}

impl ReplicaConfig {
    /// Kafka's intervals, durability `disk`.
    pub fn new(node_id: i32, log_dirs: Vec<PathBuf>) -> Self {
        ReplicaConfig {
            node_id,
            log_dirs,
            missing_dirs: Vec::new(),
            durability: Durability::Disk,
            sync_threads: SYNC_THREADS,
            sync_policy: SyncPolicy::default(),
            broker_values: BrokerValues::new(),
            retention_check_ms: 300_000,
            checkpoint_ms: 60_000,
            stall_offline_after: OFFLINE_AFTER,
            cleaner: CleanerConfig::default(),
        }
    }
}

/// The partitions of this broker.
pub struct ReplicaManager {
    pub(crate) config: ReplicaConfig,
    pub(crate) dirs: Directories,
    /// Ids of the directories that work.
    pub(crate) online_dirs: watch::Sender<Vec<Uuid>>,
    pub(crate) hosted: HostedPartitions,
    pub(crate) shared: Arc<Shared>,
    /// One for each of `dirs`.
    syncers: Vec<Arc<Syncer>>,
    /// Background work is under way, for each of `dirs`.
    pub(crate) busy: Vec<AtomicBool>,
    /// What the scrub did.
    pub(crate) scrubbed: parking_lot::Mutex<ScrubStatus>,
    /// Logs that could not be opened for want of descriptors or memory.
    short: parking_lot::Mutex<Vec<OpenJob>>,
    pub(crate) image: ArcSwap<Image>,
    /// How far the partitions have followed the metadata.
    progress: watch::Sender<Progress>,
    /// One image is applied at a time, in order.
    applying: tokio::sync::Mutex<()>,
    pub(crate) tasks: TaskTracker,
    pub(crate) cancel: CancellationToken,
    pub(crate) halted: CancellationToken,
}

/// How far the partitions have followed the metadata, as offsets of the metadata log; −1 = not at
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Leadership, guards and configurations of this image are in force.
    pub in_force: i64,
    /// The logs that this image adds and removes are opened and deleted, too.
    pub complete: i64,
}

/// A log to open.
#[derive(Clone)]
struct OpenJob {
    topic: Str,
    topic_id: Uuid,
    index: i32,
    directory: Uuid,
    assignment: Assignment,
    /// Membership in a mirror, and whether readers see only what is on disk while it lasts.
    membership: (Option<Arc<Membership>>, bool),
    config: TopicConfig,
}

/// A log to open, and what became of it.
type Opened = (OpenJob, Result<Arc<PartitionLog>, LogError>);

impl ReplicaManager {
    /// Opens the log directories and every partition `image` assigns to this broker, and starts the
    /// background work. A directory that cannot be opened is left out unless it is the only one.
    pub async fn start(
        config: ReplicaConfig,
        image: Arc<Image>,
    ) -> Result<Arc<Self>, ReplicaError> {
        let dirs = open_dirs(config.log_dirs.clone()).await?;
        Self::start_with_dirs(config, dirs, image).await
    }

    /// As [`ReplicaManager::start`], with directories that are open (and locked) already;
    /// `log_dirs` of the settings is not looked at.
    pub async fn start_with_dirs(
        config: ReplicaConfig,
        dirs: Vec<Arc<LogDir>>,
        image: Arc<Image>,
    ) -> Result<Arc<Self>, ReplicaError> {
        if dirs.is_empty() {
            return Err(ReplicaError::Policy(
                "log.dirs names no usable directory".to_owned(),
            ));
        }
        let shared = Shared::new(config.node_id, config.durability);
        for dir in &dirs {
            dir.state().set_offline_after(config.stall_offline_after);
            let shared = shared.clone();
            dir.state().on_offline(move || shared.note_offline());
        }
        for dir in &dirs {
            dir.begin_recovery_points()?;
        }
        let dirs = Directories::new(dirs, config.missing_dirs.clone());
        let manager = Arc::new(ReplicaManager {
            shared,
            // Each directory has its own, so that one disk that does not answer holds up nobody
            // else's syncs.
            syncers: dirs
                .iter()
                .map(|_| Syncer::start(config.sync_threads, config.sync_policy))
                .collect(),
            busy: dirs.iter().map(|_| AtomicBool::new(false)).collect(),
            scrubbed: parking_lot::Mutex::default(),
            short: parking_lot::Mutex::default(),
            config,
            online_dirs: watch::Sender::new(dirs.online_ids()),
            dirs,
            hosted: HostedPartitions::default(),
            image: ArcSwap::new(Arc::new(Image::default())),
            progress: watch::Sender::new(Progress {
                in_force: -1,
                complete: -1,
            }),
            applying: tokio::sync::Mutex::new(()),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            halted: CancellationToken::new(),
        });
        manager.clone().set_strays_aside(image.clone()).await;
        manager
            .apply(image.clone(), &Delta::everything(&image))
            .await;
        manager.start_background();
        Ok(manager)
    }

    /// The image last applied.
    pub fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    /// How far the partitions have followed the metadata; changes twice with each image.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The value a topic without a value of its own has here: broker values by synonym, then the
    /// default. `None` = no such topic key.
    pub fn inherited_topic_config(&self, key: &str) -> Option<tarn_metadata::config::ConfigValue> {
        let broker = &self.config.broker_values;
        topic_config::inherited(&self.image(), self.config.node_id, broker, key)
    }

    /// This broker's node id.
    pub fn node_id(&self) -> i32 {
        self.config.node_id
    }

    /// A partition by topic name.
    pub fn partition(&self, topic: &str, partition: i32) -> Result<Arc<Partition>, ReplicaError> {
        match self.hosted.by_name(topic, partition) {
            Some(Hosted::Online(found)) => Ok(found),
            Some(Hosted::Offline(reason)) => Err(offline(&Str::from(topic), partition, &reason)),
            None if self.image.load().partition(topic, partition).is_some() => {
                Err(ReplicaError::NotLeader {
                    topic: Str::from(topic),
                    partition,
                })
            }
            None => Err(ReplicaError::UnknownPartition {
                topic: topic.to_owned(),
                partition,
            }),
        }
    }

    /// A partition by topic id.
    pub fn partition_by_id(
        &self,
        id: &Uuid,
        partition: i32,
    ) -> Result<Arc<Partition>, ReplicaError> {
        match self.hosted.by_id(id, partition) {
            Some(Hosted::Online(found)) => Ok(found),
            hosted => {
                let image = self.image.load();
                let topic = image
                    .topic_by_id(id)
                    .ok_or(ReplicaError::UnknownTopicId(*id))?;
                match hosted {
                    Some(Hosted::Offline(reason)) => Err(offline(&topic.name, partition, &reason)),
                    _ if topic.partition(partition).is_some() => Err(ReplicaError::NotLeader {
                        topic: topic.name.clone(),
                        partition,
                    }),
                    _ => Err(ReplicaError::UnknownPartition {
                        topic: topic.name.to_string(),
                        partition,
                    }),
                }
            }
        }
    }

    /// Every open partition, in no order.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.hosted.online()
    }

    /// Partitions assigned to this broker whose log could not be opened, with the reason.
    pub fn offline_partitions(&self) -> Vec<(Str, i32, Arc<str>)> {
        self.hosted.offline()
    }

    /// Ids of the log directories that work; changes when one goes offline.
    pub fn online_dirs(&self) -> watch::Receiver<Vec<Uuid>> {
        self.online_dirs.subscribe()
    }

    /// Cancelled when every log directory is offline: a broker without a disk has to stop.
    pub fn halted(&self) -> CancellationToken {
        self.halted.clone()
    }

    /// Brings the partitions in line with `image`; `delta` says what to look at. Call it for each
    /// image in order. Guards and leader epochs are in force when it starts to open logs; it
    /// returns when the opened and deleted logs are done.
    pub async fn apply(&self, image: Arc<Image>, delta: &Delta) {
        let _one_at_a_time = self.applying.lock().await;
        self.image.store(image.clone());
        let mut deleted = Vec::new();
        let mut to_open = Vec::new();
        for (id, change) in &delta.topics {
            if change.change == Change::Deleted {
                let gone = self.hosted.remove_topic(id);
                deleted.extend(gone.into_iter().map(|one| (*id, one)));
            } else {
                self.update_topic(&image, id, &mut to_open);
            }
        }
        for topic in &delta.memberships {
            if let Some(topic) = image.topic(topic) {
                self.update_topic(&image, &topic.id, &mut Vec::new());
            }
        }
        self.apply_configs(&image, delta);
        self.apply_mirror_configs(&image, delta);
        self.progress
            .send_modify(|progress| progress.in_force = image.offset());
        self.delete(deleted).await;
        self.open(to_open).await;
        self.progress
            .send_modify(|progress| progress.complete = image.offset());
    }

    /// Updates what is open of a topic, and collects what is not.
    fn update_topic(&self, image: &Image, id: &Uuid, to_open: &mut Vec<OpenJob>) {
        let Some(topic) = image.topic_by_id(id) else {
            return;
        };
        let membership = image
            .membership(&topic.name)
            .filter(|m| m.is_wanted() || m.topic_id == topic.id);
        let mirror_durable = membership.is_some_and(|m| self.is_visible_after_durable(image, m));
        let mut config = None;
        for (index, partition) in topic.partitions.iter().enumerate() {
            let index = index as i32;
            let node_id = self.config.node_id;
            let Some(at) = partition.replicas.iter().position(|id| *id == node_id) else {
                continue;
            };
            let assignment = assignment(partition);
            match self.hosted.by_id(id, index) {
                Some(Hosted::Online(open)) => {
                    open.update(assignment, (membership.cloned(), mirror_durable));
                }
                Some(Hosted::Offline(_)) => {}
                None => to_open.push(OpenJob {
                    topic: topic.name.clone(),
                    topic_id: topic.id,
                    index,
                    directory: partition.directories.get(at).copied().unwrap_or(Uuid::ZERO),
                    assignment,
                    membership: (membership.cloned(), mirror_durable),
                    config: config
                        .get_or_insert_with(|| {
                            TopicConfig::resolve(
                                image,
                                &topic.name,
                                self.config.node_id,
                                &self.config.broker_values,
                            )
                        })
                        .clone(),
                }),
            }
        }
    }

    fn is_visible_after_durable(&self, image: &Image, membership: &Membership) -> bool {
        let (node, broker) = (self.config.node_id, &self.config.broker_values);
        topic_config::is_visible_after_durable(image, membership, node, broker)
    }

    /// Has the partitions of mirrors look at their visibility again whose keys changed.
    fn apply_mirror_configs(&self, image: &Image, delta: &Delta) {
        let changed = |kind| delta.configs.iter().any(|resource| resource.kind == kind);
        if !changed(ResourceType::MIRROR) && !changed(ResourceType::BROKER) {
            return;
        }
        for topic in image.topics().iter() {
            if image.membership(&topic.name).is_some() {
                self.update_topic(image, &topic.id, &mut Vec::new());
            }
        }
    }

    fn apply_configs(&self, image: &Image, delta: &Delta) {
        let broker_changed = delta
            .configs
            .iter()
            .any(|resource| resource.kind == ResourceType::BROKER);
        if broker_changed {
            for topic in image.topics().iter() {
                self.update_config(image, &topic.name, &topic.id);
            }
            return;
        }
        for resource in delta
            .configs
            .iter()
            .filter(|resource| resource.kind == ResourceType::TOPIC)
        {
            if let Some(topic) = image.topic(&resource.name) {
                self.update_config(image, &topic.name, &topic.id);
            }
        }
    }

    fn update_config(&self, image: &Image, topic: &str, id: &Uuid) {
        let open = self.hosted.topic(id);
        if open.is_empty() {
            return;
        }
        let config = TopicConfig::resolve(
            image,
            topic,
            self.config.node_id,
            &self.config.broker_values,
        );
        for (_, hosted) in open {
            if let Hosted::Online(partition) = hosted {
                partition.set_min_in_sync(config.min_in_sync_replicas);
                if *partition.log().config() != config.log {
                    partition.log().update_config(config.log.clone());
                }
            }
        }
    }

    async fn delete(&self, deleted: Vec<(Uuid, (Str, i32, Hosted))>) {
        let mut jobs = tokio::task::JoinSet::new();
        let any = !deleted.is_empty();
        for (id, (topic, index, hosted)) in deleted {
            // One that could not be opened is deleted all the same: it may be why the topic goes.
            if let Hosted::Online(partition) = hosted {
                partition.remove(true);
            }
            let dirs = self.dirs.clone();
            if jobs.len() >= BLOCKING_JOBS_MAX {
                let _ = tokio::time::timeout(JOB_LOOK, jobs.join_next()).await;
            }
            jobs.spawn_blocking(move || {
                for dir in dirs.holders(&topic, index, &id.to_string()) {
                    match dir.delete_log(&topic, index) {
                        Ok(()) => info!(%topic, partition = index, "deleted the log"),
                        Err(error) => {
                            error!(%topic, partition = index, %error, "deleting the log failed")
                        }
                    }
                }
            });
        }
        self.outwait(jobs).await;
        if any {
            // Their checkpoint lines go with the next write, which need not wait for its time.
            self.dirs.iter().for_each(|dir| dir.state().note_activity());
            self.shared.log_start.notify_one();
        }
    }

    /// Waits for jobs to end, except for those on a disk that does not answer: they end when it
    /// does, or with the process.
    async fn outwait(&self, mut jobs: tokio::task::JoinSet<()>) {
        loop {
            match tokio::time::timeout(JOB_LOOK, jobs.join_next()).await {
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(_) if self.dirs.iter().any(|d| d.state().pace() == Pace::Stalled) => {
                    warn!(
                        jobs = jobs.len(),
                        "logs are not deleted yet, their disk does not answer"
                    );
                    return jobs.detach_all();
                }
                Err(_) => {}
            }
        }
    }

    async fn open(&self, to_open: Vec<OpenJob>) {
        if to_open.is_empty() {
            return;
        }
        let per_job = to_open.len().div_ceil(BLOCKING_JOBS_MAX).clamp(1, 64);
        let mut jobs = tokio::task::JoinSet::new();
        let mut rest = to_open.into_iter();
        loop {
            let batch: Vec<OpenJob> = rest.by_ref().take(per_job).collect();
            if batch.is_empty() {
                break;
            }
            if jobs.len() >= BLOCKING_JOBS_MAX {
                self.host(jobs.join_next().await);
            }
            let (dirs, stop) = (self.dirs.clone(), self.cancel.clone());
            jobs.spawn_blocking(move || {
                let open = |job: OpenJob| {
                    (!stop.is_cancelled()).then(|| {
                        let log = open_log(&dirs, &job);
                        (job, log)
                    })
                };
                batch.into_iter().filter_map(open).collect::<Vec<_>>()
            });
        }
        while let Some(done) = jobs.join_next().await {
            self.host(Some(done));
        }
    }

    /// Tries once more to open what could not be opened for want of something, if it is still
    /// wanted.
    pub(crate) async fn open_what_was_short(&self) {
        let jobs = std::mem::take(&mut *self.short.lock());
        if jobs.is_empty() {
            return;
        }
        let _one_at_a_time = self.applying.lock().await;
        let image = self.image.load_full();
        let mut wanted = Vec::new();
        for job in jobs {
            let there = image
                .topic_by_id(&job.topic_id)
                .and_then(|topic| topic.partitions.get(job.index as usize));
            if let Some(partition) = there
                && matches!(
                    self.hosted.by_id(&job.topic_id, job.index),
                    Some(Hosted::Offline(_))
                )
            {
                wanted.push(OpenJob {
                    assignment: assignment(partition),
                    ..job
                });
            }
        }
        self.open(wanted).await;
    }

    fn syncer_of(&self, log: &PartitionLog) -> Arc<Syncer> {
        let of_dir = |dir: &Arc<LogDir>| Arc::ptr_eq(dir.state(), log.dir_state());
        let at = self.dirs.iter().position(of_dir).unwrap_or(0);
        self.syncers[at].clone()
    }

    fn host(&self, done: Option<Result<Vec<Opened>, tokio::task::JoinError>>) {
        let opened = match done {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => return error!(%error, "opening logs stopped"),
            None => return,
        };
        for (job, log) in opened {
            let hosted = match log {
                Ok(log) => Hosted::Online(Partition::new(
                    (job.topic.clone(), job.topic_id, job.index),
                    (log.clone(), self.syncer_of(&log)),
                    job.assignment,
                    job.membership,
                    job.config.min_in_sync_replicas,
                    self.shared.clone(),
                )),
                Err(error) => {
                    error!(topic = %job.topic, partition = job.index, %error, "the log cannot be opened, the partition is offline");
                    let reason = Arc::from(error.to_string());
                    if error.is_shortage() {
                        self.short.lock().push(job.clone());
                    }
                    Hosted::Offline(reason)
                }
            };
            self.hosted
                .insert(&job.topic, job.topic_id, job.index, hosted);
        }
    }

    /// Renames directories of partitions the image does not know, or knows under another id, so
    /// that nothing is lost and nothing is in the way.
    async fn set_strays_aside(self: Arc<Self>, image: Arc<Image>) {
        let work = move || {
            for dir in self.dirs.iter() {
                let found = match dir.scan() {
                    Ok(found) => found,
                    Err(error) => {
                        warn!(dir = %dir.path().display(), %error, "the log directory cannot be listed");
                        continue;
                    }
                };
                for stray in found.iter().filter(|found| is_stray(&image, found)) {
                    match dir.set_aside(stray) {
                        Ok(to) => {
                            warn!(from = %stray.path.display(), to = %to.display(), "a partition that is not in the metadata was set aside")
                        }
                        Err(error) => {
                            warn!(path = %stray.path.display(), %error, "a partition that is not in the metadata could not be set aside")
                        }
                    }
                }
                if let Err(error) =
                    dir.forget_lines(|topic, partition| image.partition(topic, partition).is_some())
                {
                    warn!(dir = %dir.path().display(), %error, "checkpoint lines of partitions that are not in the metadata stay for now");
                }
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(work).await {
            error!(%error, "looking for unknown partitions stopped");
        }
    }
}

async fn open_dirs(paths: Vec<PathBuf>) -> Result<Vec<Arc<LogDir>>, ReplicaError> {
    let opened = tokio::task::spawn_blocking(move || {
        let (mut dirs, mut last_error) = (Vec::new(), None);
        for path in &paths {
            match LogDir::open(path) {
                Ok(dir) => dirs.push(dir),
                Err(error) => {
                    error!(dir = %path.display(), %error, "the log directory cannot be used");
                    last_error = Some(error);
                }
            }
        }
        match (dirs.is_empty(), last_error) {
            (true, Some(error)) => Err(ReplicaError::Log(error)),
            (true, None) => Err(ReplicaError::Policy(
                "log.dirs names no directory".to_owned(),
            )),
            (false, _) => Ok(dirs),
        }
    });
    match opened.await {
        Ok(result) => result,
        Err(error) => Err(ReplicaError::Policy(format!(
            "opening the log directories stopped: {error}"
        ))),
    }
}

fn assignment(partition: &PartitionImage) -> Assignment {
    Assignment {
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        replicas: partition.replicas.clone(),
        isr: partition.isr.clone(),
    }
}

fn offline(topic: &Str, partition: i32, reason: &str) -> ReplicaError {
    ReplicaError::Offline {
        topic: topic.clone(),
        partition,
        reason: reason.to_owned(),
    }
}

fn is_stray(image: &Image, found: &tarn_log::PartitionDir) -> bool {
    // The metadata log lives beside the partitions when both share a directory.
    if found.topic == "__cluster_metadata" {
        return false;
    }
    let Some(topic) = image.topic(&found.topic) else {
        return true;
    };
    let same_id = found
        .topic_id
        .as_ref()
        .is_none_or(|id| *id == topic.id.to_string());
    !same_id || topic.partition(found.partition).is_none()
}

fn open_log(dirs: &Directories, job: &OpenJob) -> Result<Arc<PartitionLog>, LogError> {
    let id = job.topic_id.to_string();
    dirs.of(&job.topic, job.index, &id, job.directory)?
        .open_log(
            &job.topic,
            job.index,
            Some(&id),
            job.config.log.clone(),
            now_ms(),
        )
}

/// Epoch milliseconds, for the shells of this room.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
