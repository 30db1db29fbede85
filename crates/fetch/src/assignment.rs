//! The partitions of one fetcher and how the fetcher manager hands them over. Does not fetch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_wire::fetch_stream::FetchPartitionStart;
use tarn_wire::{Str, Uuid};
use tokio::sync::Notify;

use crate::FetchedPartition;

/// The partitions of one fetcher; replaced as a whole.
pub(crate) struct Assignment<P> {
    pub(crate) partitions: Vec<Arc<P>>,
    by_id: HashMap<(Uuid, i32), usize>,
    by_name: HashMap<(Str, i32), usize>,
    /// Every partition's topic id at the source is known.
    pub(crate) all_have_ids: bool,
}

// By hand: a derived one would want `P: Default`.
impl<P> Default for Assignment<P> {
    fn default() -> Self {
        Assignment {
            partitions: Vec::new(),
            by_id: HashMap::new(),
            by_name: HashMap::new(),
            all_have_ids: false,
        }
    }
}

impl<P: FetchedPartition> Assignment<P> {
    pub(crate) fn new(partitions: Vec<Arc<P>>) -> Arc<Assignment<P>> {
        let mut assignment = Assignment {
            all_have_ids: true,
            ..Assignment::default()
        };
        for (index, partition) in partitions.iter().enumerate() {
            let number = partition.partition();
            assignment
                .by_name
                .insert((partition.topic().clone(), number), index);
            match partition.topic_id() {
                Some(id) => {
                    assignment.by_id.insert((id, number), index);
                }
                None => assignment.all_have_ids = false,
            }
        }
        assignment.partitions = partitions;
        Arc::new(assignment)
    }

    /// The index of the partition that an answer speaks of.
    pub(crate) fn find(&self, start: &FetchPartitionStart) -> Option<usize> {
        if start.topic_id.is_zero() {
            self.by_name
                .get(&(start.topic.clone(), start.partition_index))
                .copied()
        } else {
            self.by_id
                .get(&(start.topic_id, start.partition_index))
                .copied()
        }
    }

    /// Whether it holds a partition that `other` has not.
    pub(crate) fn adds_to(&self, other: &Assignment<P>) -> bool {
        let known: HashSet<*const P> = other.partitions.iter().map(Arc::as_ptr).collect();
        self.partitions
            .iter()
            .any(|partition| !known.contains(&Arc::as_ptr(partition)))
    }

    /// Whether it holds exactly these partitions.
    pub(crate) fn is(&self, partitions: &[Arc<P>]) -> bool {
        self.partitions.len() == partitions.len()
            && self
                .partitions
                .iter()
                .zip(partitions)
                .all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// What the fetcher manager and the task of a fetcher share.
pub(crate) struct SharedAssignment<P> {
    assignment: Mutex<Arc<Assignment<P>>>,
    changed: Notify,
    /// Grows whenever something may have changed that the fetcher cannot see.
    nudges: AtomicU64,
}

impl<P> Default for SharedAssignment<P> {
    fn default() -> Self {
        SharedAssignment {
            assignment: Mutex::default(),
            changed: Notify::new(),
            nudges: AtomicU64::new(0),
        }
    }
}

impl<P> SharedAssignment<P> {
    pub(crate) fn assignment(&self) -> Arc<Assignment<P>> {
        self.assignment.lock().clone()
    }

    pub(crate) fn replace(&self, assignment: Arc<Assignment<P>>) {
        *self.assignment.lock() = assignment;
        self.nudge();
    }

    /// Has the fetcher scan all its partitions.
    pub(crate) fn nudge(&self) {
        self.nudges.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    pub(crate) fn nudges(&self) -> u64 {
        self.nudges.load(Ordering::Acquire)
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
