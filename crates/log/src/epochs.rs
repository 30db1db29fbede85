//! The leader epoch cache (KIP-101, KIP-279): which epoch starts at which offset. Pure; the log
//! persists it.

use crate::types::{EpochEndOffset, EpochEntry};

/// Rising list of (epoch, start offset).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EpochCache {
    entries: Vec<EpochEntry>,
}

impl EpochCache {
    pub(crate) fn new(entries: Vec<EpochEntry>) -> Self {
        EpochCache { entries }
    }
    pub(crate) fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }
    pub(crate) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|e| e.epoch)
    }
    /// Notes that `epoch` starts at `offset`; an epoch not above the latest changes nothing.
    /// Entries that start at or above `offset` had no record and go. Gives whether anything
    /// changed.
    pub(crate) fn assign(&mut self, epoch: i32, offset: i64) -> bool {
        if epoch < 0 || self.latest().is_some_and(|l| l >= epoch) {
            return false;
        }
        self.entries.retain(|e| e.start_offset < offset);
        self.entries.push(EpochEntry {
            epoch,
            start_offset: offset,
        });
        true
    }
    /// Drops entries that start at or above `offset`.
    pub(crate) fn truncate_from_end(&mut self, offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|e| e.start_offset < offset);
        self.entries.len() != before
    }
    /// Forgets what is below `offset`; the epoch in force there then starts at it.
    pub(crate) fn truncate_from_start(&mut self, offset: i64) -> bool {
        let below = self.entries.partition_point(|e| e.start_offset <= offset);
        let Some(in_force) = below.checked_sub(1) else {
            return false;
        };
        let changed = in_force > 0 || self.entries[in_force].start_offset != offset;
        self.entries.drain(..in_force);
        self.entries[0].start_offset = offset;
        changed
    }
    pub(crate) fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }
    pub(crate) fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let n = self.entries.partition_point(|e| e.start_offset <= offset);
        Some(self.entries[n.checked_sub(1)?].epoch)
    }
    /// Largest known epoch ≤ `epoch` and its end; below the first known epoch: that epoch asked
    /// for, ending where the first known one starts. `None` above the latest.
    pub(crate) fn end_offset_for(&self, epoch: i32, log_end: i64) -> Option<EpochEndOffset> {
        if epoch < 0 {
            return None;
        }
        if self.latest()? == epoch {
            return Some(EpochEndOffset {
                epoch,
                end_offset: log_end,
            });
        }
        let n = self.entries.partition_point(|e| e.epoch <= epoch);
        let end_offset = self.entries.get(n)?.start_offset;
        let known = n.checked_sub(1).map_or(epoch, |i| self.entries[i].epoch);
        Some(EpochEndOffset {
            epoch: known,
            end_offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(list: &[(i32, i64)]) -> EpochCache {
        EpochCache::new(
            list.iter()
                .map(|&(epoch, start_offset)| EpochEntry {
                    epoch,
                    start_offset,
                })
                .collect(),
        )
    }

    #[test]
    fn end_offsets_answer_as_kafka_does() {
        let c = cache(&[(2, 10), (4, 20), (7, 20)]);
        let end = |e| c.end_offset_for(e, 50).map(|x| (x.epoch, x.end_offset));
        assert_eq!(end(7), Some((7, 50)));
        assert_eq!(end(8), None);
        assert_eq!(end(5), Some((4, 20)));
        assert_eq!(end(3), Some((2, 20)));
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(end(-1), None);
        assert_eq!(cache(&[]).end_offset_for(1, 5), None);
    }

    #[test]
    fn assignment_only_rises_and_replaces_empty_epochs() {
        let mut c = cache(&[]);
        assert!(c.assign(1, 0));
        assert!(!c.assign(1, 5));
        assert!(!c.assign(0, 5));
        assert!(!c.assign(-1, 5));
        assert!(c.assign(3, 5));
        assert!(c.assign(4, 5));
        assert_eq!(c, cache(&[(1, 0), (4, 5)]));
    }

    #[test]
    fn truncation_keeps_the_epoch_in_force() {
        let mut c = cache(&[(1, 0), (4, 5), (6, 9)]);
        assert!(c.truncate_from_end(9));
        assert!(!c.truncate_from_end(6));
        assert_eq!(c, cache(&[(1, 0), (4, 5)]));
        assert!(c.truncate_from_start(7));
        assert_eq!(c, cache(&[(4, 7)]));
        assert!(!c.truncate_from_start(7));
        assert_eq!(
            (c.epoch_for_offset(6), c.epoch_for_offset(7)),
            (None, Some(4))
        );
    }
}
