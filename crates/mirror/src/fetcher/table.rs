//! The partitions of one session and how the conductor hands them over. Does not fetch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_wire::fetch_stream::FetchPartitionStart;
use tarn_wire::{Str, Uuid};
use tokio::sync::Notify;

use super::slot::Slot;

/// The partitions of one session; replaced as a whole.
#[derive(Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Arc<Slot>>,
    by_id: HashMap<(Uuid, i32), usize>,
    by_name: HashMap<(Str, i32), usize>,
    /// Every partition's topic id at the source is known.
    pub(super) all_have_ids: bool,
}

impl Table {
    pub(super) fn new(slots: Vec<Arc<Slot>>) -> Arc<Table> {
        let mut table = Table {
            all_have_ids: true,
            ..Table::default()
        };
        for (index, slot) in slots.iter().enumerate() {
            let name = slot.name();
            table
                .by_name
                .insert((name.topic.clone(), name.partition), index);
            match slot.assignment.source_topic_id {
                Some(id) => {
                    table.by_id.insert((id, name.partition), index);
                }
                None => table.all_have_ids = false,
            }
        }
        table.slots = slots;
        Arc::new(table)
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

    /// Whether it holds a slot that `other` has not.
    pub(super) fn adds_to(&self, other: &Table) -> bool {
        let known: HashSet<*const Slot> = other.slots.iter().map(Arc::as_ptr).collect();
        self.slots
            .iter()
            .any(|slot| !known.contains(&Arc::as_ptr(slot)))
    }

    /// Whether it holds exactly these slots.
    pub(super) fn is(&self, slots: &[Arc<Slot>]) -> bool {
        self.slots.len() == slots.len()
            && self.slots.iter().zip(slots).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// What the conductor and the task of a session share.
#[derive(Default)]
pub(super) struct SessionShared {
    table: Mutex<Arc<Table>>,
    changed: Notify,
    /// Grows whenever something may have changed that the session cannot see.
    nudges: AtomicU64,
}

impl SessionShared {
    pub(super) fn table(&self) -> Arc<Table> {
        self.table.lock().clone()
    }

    pub(super) fn replace(&self, table: Arc<Table>) {
        *self.table.lock() = table;
        self.nudge();
    }

    /// Has the session look at all its partitions again.
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
