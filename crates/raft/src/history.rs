//! Which epoch wrote which offsets of the log: the part of the log that elections and divergence
//! checks need.
//!
//! Owns the (epoch, start offset) list and the log's ends. The bytes are the shell's.

/// Where a log ends: the offset after its last record, and the epoch of that record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEnd {
    /// Epoch of the last record; 0 for an empty log. Compared first: a newer epoch wins over a
    /// longer log.
    pub epoch: i32,
    /// Offset after the last record.
    pub offset: i64,
}

/// Epoch starts of a log, ascending in both epoch and offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    starts: Vec<(i32, i64)>,
    start_offset: i64,
    end_offset: i64,
}

impl EpochHistory {
    /// A history from what the log knows: its first and end offset and the epoch starts in between,
    /// in any order.
    pub fn new(start_offset: i64, end_offset: i64, mut starts: Vec<(i32, i64)>) -> Self {
        starts.sort_unstable();
        starts.dedup_by_key(|(epoch, _)| *epoch);
        Self {
            starts,
            start_offset,
            end_offset: end_offset.max(start_offset),
        }
    }

    /// The end of the log.
    pub fn end(&self) -> LogEnd {
        LogEnd {
            epoch: self.starts.last().map_or(0, |(epoch, _)| *epoch),
            offset: self.end_offset,
        }
    }

    /// First offset still in the log (what is below lives in a snapshot).
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// Records that the log now ends at `offset`, everything new having been written in `epoch`.
    pub fn extend(&mut self, epoch: i32, offset: i64) {
        if offset <= self.end_offset {
            return;
        }
        if self.starts.last().is_none_or(|(last, _)| *last < epoch) {
            self.starts.push((epoch, self.end_offset));
        }
        self.end_offset = offset;
    }

    /// Forgets everything from `offset` on.
    pub fn truncate(&mut self, offset: i64) {
        self.end_offset = self.end_offset.min(offset).max(self.start_offset);
        self.starts.retain(|(_, start)| *start < offset);
    }

    /// The log was replaced by, or its prefix deleted below, a snapshot that ends at `end`.
    pub fn start_at(&mut self, end: LogEnd) {
        self.start_offset = end.offset;
        if end.offset >= self.end_offset {
            self.end_offset = end.offset;
            self.starts = vec![(end.epoch, end.offset)];
            return;
        }
        let covering = self
            .starts
            .iter()
            .rposition(|(_, start)| *start <= end.offset)
            .unwrap_or(0);
        self.starts.drain(..covering);
        if let Some(first) = self.starts.first_mut() {
            first.1 = first.1.max(end.offset);
        }
    }

    /// For a reader whose last record is of `epoch`: the newest epoch here that is not above it,
    /// and the offset where that epoch ends.
    pub fn end_of_epoch(&self, epoch: i32) -> LogEnd {
        let after = self
            .starts
            .partition_point(|(start_epoch, _)| *start_epoch <= epoch);
        let offset = self
            .starts
            .get(after)
            .map_or(self.end_offset, |(_, start)| *start);
        match after.checked_sub(1) {
            Some(index) => LogEnd {
                epoch: self.starts[index].0,
                offset,
            },
            None => LogEnd {
                epoch: 0,
                offset: self.start_offset,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> EpochHistory {
        EpochHistory::new(0, 30, vec![(1, 0), (3, 10), (4, 20)])
    }

    #[test]
    fn an_epoch_ends_where_the_next_known_one_starts() {
        assert_eq!(
            history().end_of_epoch(1),
            LogEnd {
                epoch: 1,
                offset: 10
            }
        );
        assert_eq!(
            history().end_of_epoch(2),
            LogEnd {
                epoch: 1,
                offset: 10
            }
        );
        assert_eq!(
            history().end_of_epoch(4),
            LogEnd {
                epoch: 4,
                offset: 30
            }
        );
        assert_eq!(
            history().end_of_epoch(9),
            LogEnd {
                epoch: 4,
                offset: 30
            }
        );
        assert_eq!(
            history().end_of_epoch(0),
            LogEnd {
                epoch: 0,
                offset: 0
            }
        );
    }

    #[test]
    fn truncation_forgets_epochs_that_start_above_the_cut() {
        let mut cut = history();
        cut.truncate(10);
        assert_eq!(
            cut.end(),
            LogEnd {
                epoch: 1,
                offset: 10
            }
        );
    }

    #[test]
    fn a_snapshot_keeps_the_epoch_that_covers_its_end() {
        let mut cut = history();
        cut.start_at(LogEnd {
            epoch: 3,
            offset: 15,
        });
        assert_eq!(cut, EpochHistory::new(15, 30, vec![(3, 15), (4, 20)]));
        cut.start_at(LogEnd {
            epoch: 6,
            offset: 40,
        });
        assert_eq!(cut, EpochHistory::new(40, 40, vec![(6, 40)]));
    }
}
