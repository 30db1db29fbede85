//! The partitions of one fetcher and how the fetcher manager hands them over. Does not fetch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_wire::fetch_stream::FetchPartitionStart;
use tarn_wire::{Str, Uuid};
use tokio::sync::Notify;

use super::partition_state::PartitionFetchState;

/// The partitions of one fetcher; replaced as a whole.
#[derive(Default)]
pub(super) struct Assignment {
    pub(super) partitions: Vec<Arc<PartitionFetchState>>,
    by_id: HashMap<(Uuid, i32), usize>,
    by_name: HashMap<(Str, i32), usize>,
    /// Every partition's topic id at the source is known.
    pub(super) all_have_ids: bool,
}

impl Assignment {
    pub(super) fn new(partitions: Vec<Arc<PartitionFetchState>>) -> Arc<Assignment> {
        let mut assignment = Assignment {
            all_have_ids: true,
            ..Assignment::default()
        };
        for (index, partition) in partitions.iter().enumerate() {
            let name = partition.name();
            assignment
                .by_name
                .insert((name.topic.clone(), name.partition), index);
            match partition.assignment.source_topic_id {
                Some(id) => {
                    assignment.by_id.insert((id, name.partition), index);
                }
                None => assignment.all_have_ids = false,
            }
        }
        assignment.partitions = partitions;
        Arc::new(assignment)
    }

    /// The index of the partition that an answer speaks of.
    pub(super) fn find(&self, start: &FetchPartitionStart) -> Option<usize> {
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
    pub(super) fn adds_to(&self, other: &Assignment) -> bool {
        let known: HashSet<*const PartitionFetchState> =
            other.partitions.iter().map(Arc::as_ptr).collect();
        self.partitions
            .iter()
            .any(|partition| !known.contains(&Arc::as_ptr(partition)))
    }

    /// Whether it holds exactly these partitions.
    pub(super) fn is(&self, partitions: &[Arc<PartitionFetchState>]) -> bool {
        self.partitions.len() == partitions.len()
            && self
                .partitions
                .iter()
                .zip(partitions)
                .all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// What the fetcher manager and the task of a fetcher share.
#[derive(Default)]
pub(super) struct SharedAssignment {
    assignment: Mutex<Arc<Assignment>>,
    changed: Notify,
    /// Grows whenever something may have changed that the fetcher cannot see.
    nudges: AtomicU64,
}

impl SharedAssignment {
    pub(super) fn assignment(&self) -> Arc<Assignment> {
        self.assignment.lock().clone()
    }

    pub(super) fn replace(&self, assignment: Arc<Assignment>) {
        *self.assignment.lock() = assignment;
        self.nudge();
    }

    /// Has the fetcher scan all its partitions.
    pub(super) fn nudge(&self) {
        self.nudges.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    pub(super) fn nudges(&self) -> u64 {
        self.nudges.load(Ordering::Acquire)
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
