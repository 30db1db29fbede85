//! The store of actual states: a fenced, compare-and-set table per partition of `__mirror_state`
//! (docs/mirroring.md §1.3).
//!
//! [`StateStore`] is the way in: it finds the coordinator partition of a key from the topic's real
//! partition count, and sends one batch per coordinator partition. Loading answers "loading", a
//! partition led elsewhere "not coordinator", and never "nothing there".

pub mod record;
pub mod shard;
pub mod table;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use tarn_coordinator::{CoordinatorError, InternalTopic, Runtime};
use tarn_wire::{Str, Uuid};

use self::shard::MirrorShard;
use self::table::{Entry, StateKey, Write};
use crate::dialect::MirrorError;
use crate::metadata::Metadata;
use crate::placement::{STATE_TOPIC, coordinator_partition, name_coordinator_partition};

/// The internal topic as it has to be created.
pub fn state_topic(partitions: i32, replication_factor: i16) -> InternalTopic {
    let config = |k: &str, v: &str| (Str::from(k), Str::from(v));
    InternalTopic {
        name: Str::from(STATE_TOPIC),
        partitions,
        replication_factor,
        configs: vec![
            config("cleanup.policy", "compact"),
            config("compression.type", "producer"),
            config("retention.ms", "-1"),
        ],
    }
}

impl From<CoordinatorError> for MirrorError {
    fn from(error: CoordinatorError) -> MirrorError {
        match error {
            CoordinatorError::Loading { .. } => MirrorError::CoordinatorLoading,
            CoordinatorError::NotCoordinator { .. } => MirrorError::NotCoordinator,
            other => MirrorError::Other {
                code: other.code(),
                text: other.to_string(),
            },
        }
    }
}

/// Reads and writes states.
#[derive(Clone)]
pub struct StateStore {
    runtime: Arc<Runtime<MirrorShard>>,
}

/// Answers by position of the question.
type Answers<T> = Vec<Result<T, MirrorError>>;

impl StateStore {
    /// Over the runtime of `__mirror_state`.
    pub fn new(runtime: Arc<Runtime<MirrorShard>>) -> StateStore {
        StateStore { runtime }
    }

    /// The runtime below.
    pub fn runtime(&self) -> &Arc<Runtime<MirrorShard>> {
        &self.runtime
    }

    /// Creates the internal topic if it is missing, with the broker's own identity.
    pub async fn ensure_topic(&self) -> Result<(), MirrorError> {
        self.runtime
            .ensure_topic()
            .await
            .map(|_| ())
            .map_err(MirrorError::from)
    }

    /// The coordinator partition of a key.
    pub fn partition_of(&self, key: &StateKey) -> Result<i32, MirrorError> {
        match self.runtime.partition_count() {
            0 => Err(MirrorError::CoordinatorLoading),
            count => Ok(coordinator_partition(
                &key.mirror,
                key.topic_id,
                key.partition,
                count,
            )),
        }
    }

    /// Whether this broker does the work of a mirror that only one broker may do.
    pub fn is_name_coordinator(&self, mirror: &str) -> bool {
        let count = self.runtime.partition_count();
        count > 0
            && self
                .runtime
                .is_active(name_coordinator_partition(mirror, count))
    }

    /// What is stored under each key; `Ok(None)` = the coordinator knows that nothing is.
    pub async fn read(&self, keys: Vec<StateKey>) -> Answers<Option<Entry>> {
        let (groups, mut answers) = self.by_partition(keys, |k| k);
        for (partition, group) in groups {
            let (places, keys): (Vec<usize>, Vec<StateKey>) = group.into_iter().unzip();
            let look = move |shard: &MirrorShard, _| {
                keys.iter()
                    .map(|k| shard.table().get(k).cloned())
                    .collect::<Vec<_>>()
            };
            match self.runtime.read(partition, look).await {
                Ok(found) => places
                    .iter()
                    .zip(found)
                    .for_each(|(place, entry)| answers[*place] = Some(Ok(entry))),
                Err(error) => places
                    .iter()
                    .for_each(|place| answers[*place] = Some(Err(error.clone().into()))),
            }
        }
        settled(answers)
    }

    /// Writes, one batch per coordinator partition; each write has its own result.
    pub async fn write(&self, writes: Vec<Write>) -> Answers<Entry> {
        let (groups, mut answers) = self.by_partition(writes, |w| &w.key);
        let jobs = groups.into_iter().map(|(partition, group)| {
            let (places, writes): (Vec<usize>, Vec<Write>) = group.into_iter().unzip();
            let decide =
                move |shard: &mut MirrorShard, _| Ok::<_, MirrorError>(shard.write(&writes));
            async move { (places, self.runtime.write(partition, decide).await) }
        });
        // All coordinator partitions at once: each waits for its own disk, not for the others'.
        for (places, outcome) in join_all(jobs).await {
            match outcome {
                Ok(results) => places
                    .iter()
                    .zip(results)
                    .for_each(|(place, result)| answers[*place] = Some(result)),
                Err(error) => places
                    .iter()
                    .for_each(|place| answers[*place] = Some(Err(error.clone()))),
            }
        }
        settled(answers)
    }

    /// Writes tombstones for keys whose mirror, topic or partition is gone, on every coordinator
    /// partition served here. Run again and again: a failed one is found again.
    ///
    /// The image is taken inside the decision, so that a state written meanwhile for a topic that
    /// was just added is never taken for a dead one.
    pub async fn sweep(&self, metadata: &Arc<dyn Metadata>) {
        for partition in self.runtime.led() {
            if !self.runtime.is_active(partition) {
                continue;
            }
            let metadata = metadata.clone();
            let decide = move |shard: &mut MirrorShard, _| {
                let image = metadata.image();
                let live = |mirror: &str, topic_id: Uuid, partition: i32| {
                    image.topic_by_id(&topic_id).is_some_and(|topic| {
                        topic.partition(partition).is_some()
                            && image
                                .membership(&topic.name)
                                .is_some_and(|m| m.mirror == *mirror && m.topic_id == topic_id)
                    })
                };
                Ok::<_, MirrorError>((shard.tombstones(live), ()))
            };
            if let Err(error) = self.runtime.write(partition, decide).await {
                tracing::debug!(partition, %error, "tombstones of mirror states are written at the next pass");
            }
        }
    }

    /// Items by coordinator partition, each with its place; places whose partition is not known
    /// have their answer already.
    fn by_partition<T, A>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> &StateKey,
    ) -> (Groups<T>, Places<A>) {
        let mut groups: Groups<T> = BTreeMap::new();
        let mut answers = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            match self.partition_of(key(&item)) {
                Ok(partition) => {
                    groups.entry(partition).or_default().push((place, item));
                    answers.push(None);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        (groups, answers)
    }
}

type Groups<T> = BTreeMap<i32, Vec<(usize, T)>>;
type Places<A> = Vec<Option<Result<A, MirrorError>>>;

/// Every place has an answer by now; one that has not (a shorter reply than asked) is retried by
/// the caller.
fn settled<A>(places: Places<A>) -> Answers<A> {
    places
        .into_iter()
        .map(|p| p.unwrap_or(Err(MirrorError::CoordinatorLoading)))
        .collect()
}

/// Runs futures side by side on this task. At most one per coordinator partition, so at most as
/// many as the topic has.
async fn join_all<F: Future>(jobs: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut jobs: Vec<_> = jobs.into_iter().map(|job| (Box::pin(job), None)).collect();
    std::future::poll_fn(|cx| {
        let mut ready = true;
        for (job, output) in &mut jobs {
            if output.is_none() {
                match job.as_mut().poll(cx) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => ready = false,
                }
            }
        }
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    jobs.into_iter().filter_map(|(_, output)| output).collect()
}
