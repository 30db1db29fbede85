//! Waiting fetches: how an append finds the requests that wait for it, without scanning anything
//! and without allocating.
//!
//! A waiting fetch owns one [`Waiter`]. It is entered into the [`WatchList`] of every partition it
//! reads, together with the position of that partition in its own request. An append walks only the
//! watch list of its own partition; the waiter learns *which* of its partitions moved and looks at
//! those again, so that a fetch over a thousand partitions costs an append one push of a number.
//!
//! No lost wake-ups: a waiter registers first and looks at the partitions afterwards; whoever moves
//! a partition first changes it and signals afterwards. Both go through the lock of the watch list.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One waiting request and the numbers of its partitions that moved since it last looked.
#[derive(Debug)]
pub(crate) struct Waiter {
    moved: Mutex<Moved>,
    notify: Notify,
}

#[derive(Debug)]
struct Moved {
    /// Partition numbers in the order they moved, each at most once.
    indexes: Vec<u32>,
    /// One bit per partition number: already in `indexes`.
    marked: Vec<u64>,
}

impl Waiter {
    /// A waiter over `partitions` partitions, numbered from 0.
    pub(crate) fn new(partitions: usize) -> Arc<Self> {
        Arc::new(Waiter {
            moved: Mutex::new(Moved {
                indexes: Vec::with_capacity(partitions),
                marked: vec![0; partitions.div_ceil(64)],
            }),
            notify: Notify::new(),
        })
    }

    /// Says that partition `index` of this request moved. Never allocates.
    fn mark(&self, index: u32) {
        {
            let mut moved = self.moved.lock();
            let (word, bit) = ((index / 64) as usize, 1u64 << (index % 64));
            match moved.marked.get_mut(word) {
                Some(word) if *word & bit == 0 => *word |= bit,
                _ => return,
            }
            moved.indexes.push(index);
        }
        self.notify.notify_one();
    }

    /// Waits until at least one partition moved, then moves their numbers into `into` (cleared
    /// first).
    pub(crate) async fn moved(&self, into: &mut Vec<u32>) {
        loop {
            if self.take(into) {
                return;
            }
            self.notify.notified().await;
        }
    }

    fn take(&self, into: &mut Vec<u32>) -> bool {
        into.clear();
        let mut moved = self.moved.lock();
        into.append(&mut moved.indexes);
        for &index in into.iter() {
            moved.marked[(index / 64) as usize] &= !(1u64 << (index % 64));
        }
        !into.is_empty()
    }
}

/// The waiters of one partition.
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    slots: Vec<Option<(Arc<Waiter>, u32)>>,
    free: Vec<u32>,
}

impl WatchList {
    /// Enters `waiter`, which knows this partition as number `index`. The returned key is for
    /// [`WatchList::remove`].
    pub(crate) fn register(&self, waiter: &Arc<Waiter>, index: u32) -> u32 {
        let mut entries = self.entries.lock();
        let entry = Some((waiter.clone(), index));
        match entries.free.pop() {
            Some(key) => {
                entries.slots[key as usize] = entry;
                key
            }
            None => {
                entries.slots.push(entry);
                (entries.slots.len() - 1) as u32
            }
        }
    }

    /// Takes an entry out again. The memory of a burst of waiters is given back when the last one
    /// has left.
    pub(crate) fn remove(&self, key: u32) {
        let mut entries = self.entries.lock();
        entries.slots[key as usize] = None;
        entries.free.push(key);
        if entries.free.len() == entries.slots.len() {
            if entries.slots.capacity() > 64 {
                *entries = Entries::default();
            } else {
                entries.slots.clear();
                entries.free.clear();
            }
        }
    }

    /// Wakes every waiter of this partition: it appended, its high watermark or log start moved,
    /// its leadership changed, or it is gone.
    pub(crate) fn signal(&self) {
        let entries = self.entries.lock();
        for (waiter, index) in entries.slots.iter().flatten() {
            waiter.mark(*index);
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        let entries = self.entries.lock();
        entries.free.len() == entries.slots.len()
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        let entries = self.entries.lock();
        entries.slots.len() - entries.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_signal_names_the_partition_that_moved_once() {
        let (a, b) = (WatchList::default(), WatchList::default());
        let waiter = Waiter::new(2);
        a.register(&waiter, 0);
        b.register(&waiter, 1);
        b.signal();
        b.signal();
        let mut moved = Vec::new();
        waiter.moved(&mut moved).await;
        assert_eq!(moved, [1]);
        a.signal();
        b.signal();
        waiter.moved(&mut moved).await;
        assert_eq!(moved, [0, 1]);
        assert!(
            tokio::time::timeout(Duration::from_millis(5), waiter.moved(&mut moved))
                .await
                .is_err()
        );
    }

    #[test]
    fn a_removed_waiter_is_not_signalled_and_its_slot_is_used_again() {
        let list = WatchList::default();
        let (one, two) = (Waiter::new(1), Waiter::new(1));
        let key = list.register(&one, 0);
        list.register(&two, 0);
        list.remove(key);
        list.signal();
        let mut moved = Vec::new();
        assert!(!one.take(&mut moved));
        assert!(two.take(&mut moved));
        assert_eq!(list.register(&one, 0), key);
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn marking_does_not_grow_the_waiter_beyond_its_partitions() {
        let list = WatchList::default();
        let waiter = Waiter::new(1);
        let capacity = waiter.moved.lock().indexes.capacity();
        list.register(&waiter, 0);
        list.register(&waiter, 70);
        for _ in 0..1000 {
            list.signal();
        }
        assert_eq!(waiter.moved.lock().indexes.capacity(), capacity);
    }
}
