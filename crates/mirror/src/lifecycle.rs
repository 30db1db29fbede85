//! The life cycle of every mirror partition led here: one keeper compares wish and fact again and
//! again and runs what is due.
//!
//! * No task per idle partition: a partition costs a cell in a map; tasks exist only for jobs that
//!   run (reads, writes, preparations, stops).
//! * State reads and writes of one pass go out together, one batch per coordinator partition.
//! * Nothing depends on having seen an event: every pass starts from the image and the cells.
//! * No lock is held over an await.

mod cell;
mod jobs;
mod keeper;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_coordinator::Clock;
use tarn_metadata::{DesiredState, Image};
use tarn_replica::ReplicaManager;
use tarn_wire::{Str, Uuid};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::cell::{Cell, Now};
use crate::config::BrokerSettings;
use crate::epochs::EpochBumper;
use crate::metadata::Metadata;
use crate::seam::{BoxFuture, DataPlane, FailureKind, FetchEvents, FetchFailure, MirrorPartition};
use crate::store::StateStore;
use crate::survive::survive;
use crate::transition::{Event, PartitionRecord};

/// Preparations of one mirror at a time: a dead source holds only its own.
const PREPARATIONS_MAX: usize = 32;

/// Stop sequences and ends of fetching at a time. They need no network.
const STOPS_MAX: usize = 128;

/// Everything the life cycle works with.
#[derive(Clone)]
pub struct Tools {
    /// What this broker is.
    pub settings: Arc<BrokerSettings>,
    /// Image and decisions.
    pub metadata: Arc<dyn Metadata>,
    /// Partitions of this broker.
    pub replicas: Arc<ReplicaManager>,
    /// Actual states.
    pub store: StateStore,
    /// Fetching and preparing.
    pub data: Arc<dyn DataPlane>,
    /// Leader epochs.
    pub bumper: Arc<EpochBumper>,
    /// Epoch ms.
    pub clock: Clock,
}

/// A partition as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Which.
    pub partition: MirrorPartition,
    /// What is wished.
    pub desired: DesiredState,
    /// The record in force; `None` = not read from the coordinator yet.
    pub record: Option<PartitionRecord>,
    /// Why it does not go on although it is not FAILED, and since when (epoch ms).
    pub delay: Option<(String, i64)>,
}

type Cells = BTreeMap<(Uuid, i32), Cell>;

/// See the module.
pub struct LifeCycle {
    tools: Tools,
    cells: Mutex<Cells>,
    wake: Notify,
    generations: AtomicU64,
    /// Keys of mirrors or topics that are gone may be in the store.
    sweep: AtomicBool,
    preparations: Mutex<HashMap<Str, Arc<Semaphore>>>,
    stops: Arc<Semaphore>,
    /// One permit: topics are marked as stopped by one task at a time.
    marking: Arc<Semaphore>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    /// Mirrors whose refresh the data plane asked for; taken by the refresher.
    refresh: Mutex<Option<RefreshHook>>,
}

/// Called with a mirror's and a topic's name when fresh source metadata of the topic would help.
pub type RefreshHook = Arc<dyn Fn(&Str, &Str) + Send + Sync>;

impl LifeCycle {
    /// A life cycle without partitions; [`LifeCycle::start`] begins its work.
    pub fn new(tools: Tools) -> Arc<LifeCycle> {
        Arc::new(LifeCycle {
            tools,
            cells: Mutex::default(),
            wake: Notify::new(),
            generations: AtomicU64::new(1),
            sweep: AtomicBool::new(false),
            preparations: Mutex::default(),
            stops: Arc::new(Semaphore::new(STOPS_MAX)),
            marking: Arc::new(Semaphore::new(1)),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            refresh: Mutex::new(None),
        })
    }

    /// Starts the keeper and the bumper.
    pub fn start(self: &Arc<Self>) {
        let life = self.clone();
        let keeper = survive(
            "the keeper of mirror states",
            self.cancel.clone(),
            move || life.clone().keep(),
        );
        self.tasks.spawn_on(keeper, &self.tools.data.threads());
        let (bumper, cancel) = (self.tools.bumper.clone(), self.cancel.clone());
        let bumper = survive("the raising of leader epochs", cancel.clone(), move || {
            bumper.clone().run(cancel.clone())
        });
        self.tasks.spawn(bumper);
    }

    /// Whom to tell that a refresh is wanted.
    pub fn set_refresh_hook(&self, hook: RefreshHook) {
        *self.refresh.lock() = Some(hook);
    }

    /// Ends every task; states stay as they are stored.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn at(&self) -> Now {
        Now {
            ms: (self.tools.clock)(),
            policy: self.tools.settings.retry,
            random: random_unit(),
        }
    }

    fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }

    /// Brings the cells in line with the image: which partitions are led here, and what is wished
    /// of them.
    pub fn apply(self: &Arc<Self>, image: &Image) {
        let at = self.at();
        let me = self.tools.settings.broker_id;
        let mut gone = Vec::new();
        {
            let mut cells = self.cells.lock();
            let mut led = BTreeMap::new();
            for (name, member) in image
                .memberships()
                .iter()
                .filter(|(_, m)| !m.stopped && !m.is_wanted())
            {
                let Some(topic) = image.topic_by_id(&member.topic_id) else {
                    continue;
                };
                for (index, partition) in topic.partitions.iter().enumerate() {
                    if partition.leader == me {
                        led.insert(
                            (topic.id, index as i32),
                            (name.clone(), member.clone(), partition.leader_epoch),
                        );
                    }
                }
            }
            cells.retain(|key, cell| {
                let stays = led
                    .get(key)
                    .is_some_and(|(_, m, _)| m.mirror == cell.partition.mirror);
                if !stays {
                    cell.abandon();
                    gone.push(cell.partition.clone());
                }
                stays
            });
            for ((topic_id, index), (topic, member, leader_epoch)) in led {
                let source_id = Some(member.source_topic_id).filter(|id| !id.is_zero());
                let cell = cells.entry((topic_id, index)).or_insert_with(|| {
                    let partition = MirrorPartition {
                        mirror: member.mirror.clone(),
                        topic,
                        topic_id,
                        partition: index,
                    };
                    Cell::new(
                        partition,
                        leader_epoch,
                        member.desired,
                        member.change_offset,
                        source_id,
                    )
                });
                cell.learn(leader_epoch, source_id);
                cell.wish(member.desired, member.change_offset, at);
            }
        }
        if !gone.is_empty() {
            self.tasks.spawn(self.clone().let_go(gone));
        }
        self.wake.notify_one();
    }

    /// A mirror or a topic is gone: its states are cleared at the next pass, not only at the next
    /// regular sweep.
    pub fn sweep_soon(&self) {
        self.sweep.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Partitions that are no longer ours (leadership, deletion, end of the mirror).
    async fn let_go(self: Arc<Self>, gone: Vec<MirrorPartition>) {
        // All of them end now, whichever disk keeps one of them.
        let data = &self.tools.data;
        let ended: Vec<_> = gone.iter().map(|p| data.remove_partition(p)).collect();
        for (partition, ended) in gone.iter().zip(ended) {
            ended.await;
            // It may have come back meanwhile, then the new cell adds it again.
            if !self
                .cells
                .lock()
                .contains_key(&(partition.topic_id, partition.partition))
            {
                self.tools.data.forget_partition(partition);
            }
        }
        self.wake.notify_one();
    }

    /// Makes every active partition of a topic FAILED (deleted or re-created at the source).
    pub fn fail_topic(&self, topic_id: Uuid, kind: FailureKind, text: &str) {
        let at = self.at();
        let mut cells = self.cells.lock();
        for (_, cell) in cells.range_mut((topic_id, i32::MIN)..=(topic_id, i32::MAX)) {
            cell.fail(
                FetchFailure {
                    kind,
                    text: text.to_owned(),
                },
                at,
            );
        }
        drop(cells);
        self.wake.notify_one();
    }

    /// Makes every active partition of a mirror FAILED (another cluster answers).
    pub fn fail_mirror(&self, mirror: &str, text: &str) {
        let at = self.at();
        for cell in self
            .cells
            .lock()
            .values_mut()
            .filter(|c| c.partition.mirror == *mirror)
        {
            cell.fail(
                FetchFailure {
                    kind: FailureKind::Permanent,
                    text: text.to_owned(),
                },
                at,
            );
        }
        self.wake.notify_one();
    }

    /// The source of a mirror answers: what waits for that waits no longer.
    pub fn source_answers(&self, mirror: &str) {
        let mut ends_a_wait = false;
        for cell in self.cells.lock().values_mut() {
            if cell.partition.mirror == *mirror {
                ends_a_wait |= cell.source_answers();
            }
        }
        if ends_a_wait {
            self.wake.notify_one();
        }
    }

    /// The partitions of a mirror led here.
    pub fn shown(&self, mirror: &str) -> Vec<Shown> {
        let cells = self.cells.lock();
        let of_mirror = cells.values().filter(|c| c.partition.mirror == *mirror);
        of_mirror
            .map(|c| Shown {
                partition: c.partition.clone(),
                desired: c.desired,
                record: c.facts.as_ref().map(|_| c.shown().clone()),
                delay: c.delay.clone(),
            })
            .collect()
    }

    fn with_cell(&self, partition: &MirrorPartition, act: impl FnOnce(&mut Cell, Now)) {
        let at = self.at();
        if let Some(cell) = self
            .cells
            .lock()
            .get_mut(&(partition.topic_id, partition.partition))
            && cell.partition.mirror == partition.mirror
        {
            act(cell, at);
        }
        self.wake.notify_one();
    }
}

impl FetchEvents for LifeCycle {
    fn raise_epoch(
        &self,
        partition: &MirrorPartition,
        min_epoch: i32,
    ) -> BoxFuture<'static, Result<i32, String>> {
        let bumper = self.tools.bumper.clone();
        let (topic_id, index) = (partition.topic_id, partition.partition);
        // Asked for at once, so that a caller who ignores the future (proactive) gets it too.
        bumper.request(
            topic_id,
            index,
            min_epoch
                .saturating_sub(1)
                .saturating_add(crate::epochs::EPOCH_LEAD - 1),
        );
        Box::pin(async move { bumper.raise_to(topic_id, index, min_epoch).await })
    }

    fn diverged(&self, partition: &MirrorPartition, text: String) {
        tracing::warn!(%partition, %text, "the source's log diverged from ours, finding the common prefix");
        self.with_cell(partition, |cell, at| cell.on(Event::Diverged, at));
    }

    fn failed(&self, partition: &MirrorPartition, failure: FetchFailure) {
        tracing::warn!(%partition, kind = ?failure.kind, reason = %failure.text, "mirroring of a partition failed");
        self.with_cell(partition, |cell, at| cell.fail(failure, at));
    }

    fn refresh_wanted(&self, mirror: &Str, topic: &Str) {
        let hook = self.refresh.lock().clone();
        if let Some(hook) = hook {
            hook(mirror, topic);
        }
    }

    fn wrong_cluster(&self, mirror: &Str, found: &str) {
        let image = self.tools.metadata.image();
        let stored = crate::config::MirrorConfig::of(&image, mirror, &self.tools.settings)
            .source_cluster_id();
        let text = crate::refresh::wrong_cluster_text(stored.as_deref().unwrap_or_default(), found);
        self.fail_mirror(mirror, &text);
    }
}

/// A number in [0, 1) for jitter.
fn random_unit() -> f64 {
    let bytes = Uuid::random().0;
    f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        / (f64::from(u32::MAX) + 1.0)
}
