//! [`Runtime`]: which partitions of the internal topic are served here, and the way in for
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tarn_metadata::Image;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::error::CoordinatorError;
use crate::event_loop::{Event, EventLoop, Phase, Submitted};
use crate::hash::partition_for_key;
use crate::shard::{CoordinatorRecord, Outcome, Shard};
use crate::store::Store;
use crate::topic::{InternalTopic, TopicCreator};

/// Epoch milliseconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system clock.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
    })
}

/// Settings of one coordinator kind.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The internal topic, as it is to be created when it is missing.
    pub topic: InternalTopic,
    /// Requests that may wait per partition.
    pub queue_len_max: usize,
    /// Bytes read at a time while loading.
    pub load_chunk_bytes: usize,
    /// How long a caller waits for its durable answer.
    pub write_timeout_ms: u64,
}

impl RuntimeConfig {
    /// The usual limits for `topic`.
    pub fn new(topic: InternalTopic) -> Self {
        RuntimeConfig {
            topic,
            queue_len_max: 10_000,
            load_chunk_bytes: 5 << 20,
            write_timeout_ms: 5_000,
        }
    }
}

/// The coordinators of one kind on this broker.
pub struct Runtime<S: Shard> {
    config: Arc<RuntimeConfig>,
    store: Arc<dyn Store>,
    factory: Arc<dyn Fn(i32) -> S + Send + Sync>,
    clock: Clock,
    creator: TopicCreator,
    /// Held while the topic is being created, so that a burst of requests creates it once.
    creating: tokio::sync::Mutex<()>,
    partitions: RwLock<Partitions<S>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

struct Partitions<S> {
    /// Number of partitions of the topic in the image; 0 = it does not exist.
    count: i32,
    led: BTreeMap<i32, Served<S>>,
}

struct Served<S> {
    leader_epoch: i32,
    phase: Arc<Phase>,
    queue: mpsc::Sender<Box<dyn Event<S>>>,
    cancel: CancellationToken,
}

impl<S: Shard> Runtime<S> {
    /// A runtime that serves nothing yet. `factory` makes an empty shard for a partition.
    pub fn new(
        config: RuntimeConfig,
        store: Arc<dyn Store>,
        creator: TopicCreator,
        clock: Clock,
        factory: impl Fn(i32) -> S + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Runtime {
            config: Arc::new(config),
            store,
            factory: Arc::new(factory),
            clock,
            creator,
            creating: tokio::sync::Mutex::new(()),
            partitions: RwLock::new(Partitions {
                count: 0,
                led: BTreeMap::new(),
            }),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
        })
    }

    /// Name of the internal topic.
    pub fn topic(&self) -> &str {
        &self.config.topic.name
    }

    /// Number of partitions of the internal topic in the image last reconciled; 0 when it does not
    /// exist.
    pub fn partition_count(&self) -> i32 {
        self.partitions.read().count
    }

    /// The partition of `key`; `None` while the topic does not exist.
    pub fn partition_for(&self, key: &str) -> Option<i32> {
        let count = self.partition_count();
        (count > 0).then(|| partition_for_key(key, count))
    }

    /// Partitions served here, loading ones included.
    pub fn led(&self) -> Vec<i32> {
        self.partitions.read().led.keys().copied().collect()
    }

    /// Whether this broker serves `partition` and has loaded it.
    pub fn is_active(&self, partition: i32) -> bool {
        self.partitions
            .read()
            .led
            .get(&partition)
            .is_some_and(|served| served.phase.is_active())
    }

    /// Brings the served partitions in line with the image. Call it after the replica room has
    /// applied the same image.
    pub fn apply(self: &Arc<Self>, image: &Image, node_id: i32) {
        let leaders: Vec<Option<i32>> = image.topic(self.topic()).map_or_else(Vec::new, |topic| {
            topic
                .partitions
                .iter()
                .map(|partition| (partition.leader == node_id).then_some(partition.leader_epoch))
                .collect()
        });
        self.reconcile(&leaders);
    }

    /// Brings the served partitions in line with the metadata: `leaders[p]` is the leader epoch
    /// when this broker leads partition `p`, `None` when it does not. Idempotent. A partition that
    /// stays keeps its shard, also when only its leader epoch was bumped.
    pub fn reconcile(self: &Arc<Self>, leaders: &[Option<i32>]) {
        let mut partitions = self.partitions.write();
        partitions.count = leaders.len() as i32;
        partitions.led.retain(|&partition, served| {
            let stays = leaders.get(partition as usize).is_some_and(Option::is_some);
            if !stays {
                info!(topic = %self.config.topic.name, partition, "resigning as coordinator");
                served.cancel.cancel();
            }
            stays
        });
        if self.cancel.is_cancelled() {
            return;
        }
        for (partition, leader_epoch) in leaders.iter().enumerate() {
            let (partition, Some(leader_epoch)) = (partition as i32, *leader_epoch) else {
                continue;
            };
            match partitions.led.get_mut(&partition) {
                Some(served) => served.leader_epoch = served.leader_epoch.max(leader_epoch),
                None => {
                    let served = self.start(partition, leader_epoch);
                    partitions.led.insert(partition, served);
                }
            }
        }
    }

    fn start(&self, partition: i32, leader_epoch: i32) -> Served<S> {
        let (queue, receiver) = mpsc::channel(self.config.queue_len_max);
        let phase = Arc::new(Phase::default());
        let cancel = self.cancel.child_token();
        let event_loop = EventLoop {
            partition,
            config: self.config.clone(),
            store: self.store.clone(),
            factory: self.factory.clone(),
            clock: self.clock.clone(),
            phase: phase.clone(),
            queue: receiver,
            cancel: cancel.clone(),
        };
        self.tasks.spawn(event_loop.run());
        Served {
            leader_epoch,
            phase,
            queue,
            cancel,
        }
    }

    /// Makes sure the internal topic exists; creates it with the broker's identity otherwise.
    /// Returns its number of partitions as far as this runtime has been told by
    /// [`Runtime::reconcile`], which may still be 0 right after the creation.
    pub async fn ensure_topic(&self) -> Result<i32, CoordinatorError> {
        let count = self.partition_count();
        if count > 0 {
            return Ok(count);
        }
        let _creating = self.creating.lock().await;
        if self.partition_count() == 0 {
            (self.creator)(self.config.topic.clone())
                .await
                .map_err(|reason| CoordinatorError::Unavailable {
                    topic: self.config.topic.name.to_string(),
                    reason,
                })?;
        }
        Ok(self.partition_count())
    }

    /// Decides on the shard of `partition`, appends the records, replays them, and answers when
    /// they are durable. The decision runs on the partition's own task with the time in epoch ms;
    /// it must not block.
    pub async fn write<R, E, F>(&self, partition: i32, decide: F) -> Result<R, E>
    where
        F: FnOnce(&mut S, i64) -> Result<(Vec<CoordinatorRecord>, R), E> + Send + 'static,
        R: Send + 'static,
        E: From<CoordinatorError> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let request = Request {
            decide: Some(decide),
            reply: None,
            sender,
        };
        self.enqueue(partition, Box::new(request))?;
        match tokio::time::timeout(
            Duration::from_millis(self.config.write_timeout_ms),
            receiver,
        )
        .await
        {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(self.not_coordinator(partition).into()),
            Err(_) => Err(CoordinatorError::Timeout {
                topic: self.topic().to_owned(),
                partition,
            }
            .into()),
        }
    }

    /// Looks at the shard of `partition`. The answer is held back until everything it may show is
    /// durable.
    pub async fn read<R, F>(&self, partition: i32, look: F) -> Result<R, CoordinatorError>
    where
        F: FnOnce(&S, i64) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.write(partition, move |shard, now_ms| {
            Ok((Vec::new(), look(shard, now_ms)))
        })
        .await
    }

    /// A decision that answers other requests than its own (or later): appends its records, and
    /// runs [`Outcome::after`] once they are durable, whether or not the caller still waits.
    /// Everything the decision holds is dropped when the shard is lost.
    pub fn submit<F>(&self, partition: i32, decide: F) -> Result<(), CoordinatorError>
    where
        F: FnOnce(&mut S, i64) -> Outcome + Send + 'static,
    {
        self.enqueue(partition, Submitted::new(decide))
    }

    fn enqueue(&self, partition: i32, event: Box<dyn Event<S>>) -> Result<(), CoordinatorError> {
        let queue = {
            let partitions = self.partitions.read();
            let served = partitions
                .led
                .get(&partition)
                .ok_or_else(|| self.not_coordinator(partition))?;
            if !served.phase.is_active() {
                return Err(CoordinatorError::Loading {
                    topic: self.topic().to_owned(),
                    partition,
                });
            }
            served.queue.clone()
        };
        queue.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CoordinatorError::Overloaded {
                topic: self.topic().to_owned(),
                partition,
            },
            mpsc::error::TrySendError::Closed(_) => self.not_coordinator(partition),
        })
    }

    fn not_coordinator(&self, partition: i32) -> CoordinatorError {
        CoordinatorError::NotCoordinator {
            topic: self.topic().to_owned(),
            partition,
        }
    }

    /// Ends every event loop and waits for them. Waiting requests are answered "not coordinator".
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.partitions.write().led.clear();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A write on its way through the loop.
struct Request<F, R, E> {
    decide: Option<F>,
    reply: Option<Result<R, E>>,
    sender: oneshot::Sender<Result<R, E>>,
}

impl<S, F, R, E> Event<S> for Request<F, R, E>
where
    F: FnOnce(&mut S, i64) -> Result<(Vec<CoordinatorRecord>, R), E> + Send,
    R: Send,
    E: From<CoordinatorError> + Send,
{
    fn decide(&mut self, shard: &mut S, now_ms: i64) -> Vec<CoordinatorRecord> {
        match self.decide.take().map(|decide| decide(shard, now_ms)) {
            Some(Ok((records, reply))) => {
                self.reply = Some(Ok(reply));
                records
            }
            Some(Err(error)) => {
                self.reply = Some(Err(error));
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn complete(mut self: Box<Self>, outcome: Result<(), CoordinatorError>) {
        let reply = match outcome {
            Ok(()) => self.reply.take(),
            Err(error) => Some(Err(error.into())),
        };
        // A caller that has gone away needs no answer.
        if let Some(reply) = reply {
            let _ = self.sender.send(reply);
        }
    }
}
