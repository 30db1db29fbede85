//! Keeps the fetchers of one user: starts one for each connection that has partitions, hands
//! changes on, ends those without partitions, and tells which ended. What follows an end, and which
//! partitions there are, is for its user to say, again and again: a missed event costs one pass and
//! never a partition.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tarn_client::Backoff;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::assignment::{Assignment, SharedAssignment};
use crate::fetcher::{Fetcher, FetcherEnd};
use crate::{FetchPolicy, FetchedPartition, FetcherKey};

/// Longest pause before a broker is tried again.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A time to wait for after failures; longer each time.
#[derive(Debug)]
pub struct Pause {
    backoff: Backoff,
    until: Instant,
}

impl Pause {
    /// None yet; the first will be so long.
    pub fn new(first: Duration) -> Pause {
        Pause {
            backoff: Backoff::new(first, RETRY_MAX),
            until: Instant::now(),
        }
    }

    /// Waits longer than after the last failure.
    pub fn failed(&mut self) {
        self.until = Instant::now() + self.backoff.next_wait();
    }

    /// Waits no more.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.until = Instant::now();
    }

    /// When it is over.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.backoff.failures()
    }
}

/// How a fetcher ended.
#[derive(Debug)]
pub enum Outcome<E> {
    /// By itself.
    Ended(FetcherEnd<E>),
    /// By a panic, which is a defect of ours.
    Panicked,
}

/// A fetcher that ended.
pub struct Ended<P: FetchPolicy> {
    /// Which.
    pub key: FetcherKey,
    /// Its partitions.
    pub partitions: Vec<Arc<P::Partition>>,
    /// How.
    pub outcome: Outcome<P::Error>,
}

/// See the module. All fetchers end when it is dropped.
pub struct FetcherManager<P: FetchPolicy> {
    fetchers: HashMap<FetcherKey, Arc<SharedAssignment<P::Partition>>>,
    running: JoinSet<FetcherEnd<P::Error>>,
    /// Which task is which fetcher.
    tasks: HashMap<Id, FetcherKey>,
    /// Brokers that are left alone for a while.
    pauses: HashMap<i32, Pause>,
}

impl<P: FetchPolicy> Default for FetcherManager<P> {
    fn default() -> Self {
        FetcherManager {
            fetchers: HashMap::new(),
            running: JoinSet::new(),
            tasks: HashMap::new(),
            pauses: HashMap::new(),
        }
    }
}

impl<P: FetchPolicy> FetcherManager<P> {
    /// Has exactly these partitions fetched. The same again only makes sure of it. Gives the time
    /// at which a broker may be tried again.
    pub fn assign(
        &mut self,
        policy: &Arc<P>,
        groups: BTreeMap<FetcherKey, Vec<Arc<P::Partition>>>,
    ) -> Option<Instant> {
        for (key, shared) in &self.fetchers {
            if !groups.contains_key(key) && !shared.assignment().partitions.is_empty() {
                shared.replace(Arc::default());
            }
        }
        let mut next: Option<Instant> = None;
        for (key, mut group) in groups {
            group.sort_by_key(|p| p.key());
            match self.fetchers.get(&key) {
                Some(shared) if shared.assignment().is(&group) => shared.nudge(),
                Some(shared) => shared.replace(Assignment::new(group)),
                None => {
                    let pause = self.pauses.get(&key.broker).map(Pause::until);
                    match pause.filter(|&until| until > Instant::now()) {
                        Some(until) => next = Some(next.map_or(until, |n| n.min(until))),
                        None => self.start(policy, key, group),
                    }
                }
            }
        }
        next
    }

    fn start(&mut self, policy: &Arc<P>, key: FetcherKey, group: Vec<Arc<P::Partition>>) {
        let shared = Arc::new(SharedAssignment::default());
        shared.replace(Assignment::new(group));
        let fetcher = Fetcher::new(policy.clone(), shared.clone(), key);
        self.fetchers.insert(key, shared);
        let task = self.running.spawn(fetcher.run());
        self.tasks.insert(task.id(), key);
    }

    /// Waits for the end of a fetcher; never comes back while none runs. Cancelling it loses
    /// nothing.
    pub async fn ended(&mut self) -> Ended<P> {
        loop {
            let Some(joined) = self.running.join_next_with_id().await else {
                std::future::pending::<()>().await;
                continue;
            };
            if let Some(ended) = self.task_ended(joined) {
                return ended;
            }
        }
    }

    /// `None` = it was stopped.
    fn task_ended(
        &mut self,
        joined: Result<(Id, FetcherEnd<P::Error>), JoinError>,
    ) -> Option<Ended<P>> {
        let (id, outcome) = match joined {
            Ok((id, end)) => (id, Outcome::Ended(end)),
            Err(e) if e.is_panic() => (e.id(), Outcome::Panicked),
            Err(e) => {
                self.tasks.remove(&e.id());
                return None;
            }
        };
        let key = self.tasks.remove(&id)?;
        let shared = self.fetchers.remove(&key)?;
        if let Outcome::Ended(FetcherEnd { answered: true, .. }) = outcome {
            self.pauses.remove(&key.broker);
        }
        Some(Ended {
            key,
            partitions: shared.assignment().partitions.clone(),
            outcome,
        })
    }

    /// Starts no fetcher for this broker for a while; longer each time until one was answered.
    pub fn pause(&mut self, broker: i32, first: Duration) {
        let new = || Pause::new(first);
        self.pauses.entry(broker).or_insert_with(new).failed();
    }

    /// Ends all fetchers. The tasks are gone after [`FetcherManager::shutdown`].
    pub fn stop(&mut self) {
        for (_, shared) in self.fetchers.drain() {
            shared.replace(Arc::default());
        }
        self.running.abort_all();
        self.tasks.clear();
    }

    /// Ends all fetchers, waits for their tasks, and forgets all pauses.
    pub async fn shutdown(&mut self) {
        self.stop();
        self.running.shutdown().await;
        self.pauses.clear();
    }
}
