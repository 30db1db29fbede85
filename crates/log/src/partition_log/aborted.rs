//! Aborted transactions: what a reader of committed records is told of them, and the rebuilding of
//! a transaction index that is not what was written. Walking a segment takes long, so a reader is
//! told that it is needed, and decides on which thread.

use std::sync::Arc;

use super::read::floor;
use super::recover::read_control;
use super::{PartitionLog, Writer};
use crate::error::LogError;
use crate::scan::Scanner;
use crate::segment::Segment;
use crate::types::{AbortedTxn, Slice};

impl PartitionLog {
    /// Aborted transactions that touch `from .. to`, by `.txnindex`, in log order. Rebuilds what is
    /// wrong, so it may block for long.
    pub fn aborted_transactions(&self, from: i64, to: i64) -> Result<Vec<AbortedTxn>, LogError> {
        self.with_right_indexes(|| self.find_aborted(from, to))
    }
    fn find_aborted(&self, from: i64, to: i64) -> Result<Vec<AbortedTxn>, LogError> {
        self.with_snapshot(|segments, _| {
            let mut out = Vec::new();
            for s in &segments[floor(segments, from).min(segments.len())..] {
                let entries = s.aborted()?;
                // They stand in the order of their markers.
                let decided_before = entries.partition_point(|t| t.last_offset < from);
                for t in &entries[decided_before..] {
                    if t.first_offset < to {
                        out.push(*t);
                    }
                    // Every transaction that starts below this was decided by now.
                    if t.last_stable_offset >= to {
                        return Ok(out);
                    }
                }
            }
            Ok(out)
        })
    }

    /// As [`Self::aborted_transactions`] for what a reader from `from` gets with `slice`, never at
    /// or past `upper_offset`: up to the first indexed batch behind the slice. Rebuilds nothing:
    /// error [`LogError::WrongIndex`] where that is needed first.
    pub fn aborted_in(
        &self,
        from: i64,
        slice: &Slice,
        upper_offset: i64,
    ) -> Result<Vec<AbortedTxn>, LogError> {
        let end = self.with_snapshot(|segments, end| {
            let at = floor(segments, slice.first_batch_base_offset);
            if !segments.iter().skip(at).any(|s| s.txns.has_any()) {
                return Ok(from);
            }
            let Some(s) = segments.get(at) else {
                return Ok(end.offset);
            };
            let behind = s.offsets.first_behind(slice.position + slice.len)?;
            let next = segments.get(at + 1).map_or(end.offset, |n| n.base_offset);
            let indexed = s.offsets.entry(behind)?.filter(|_| !s.index_is_wrong());
            Ok(indexed.map_or(next, |(last_offset, _)| last_offset.saturating_add(1)))
        })?;
        if end <= from {
            return Ok(Vec::new());
        }
        self.find_aborted(from, end.min(upper_offset))
    }

    /// Runs `look_up`; where it finds a wrong transaction index, rebuilds that and runs it again.
    /// Blocks on disk.
    pub fn with_right_indexes<T>(
        &self,
        mut look_up: impl FnMut() -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        // Each time it comes further than before, and a segment may be replaced meanwhile.
        for _ in 0..=self.segment_count() + 1 {
            match look_up() {
                Err(LogError::WrongIndex { .. }) => _ = self.repair_indexes()?,
                done => return done,
            }
        }
        look_up()
    }

    /// Rebuilds the transaction indexes that were found wrong; gives how many.
    pub(super) fn rebuild_wrong_txn_indexes(&self) -> Result<usize, LogError> {
        if !self.segments.load().iter().any(|s| s.txns.is_wrong()) {
            return Ok(0);
        }
        let _one_at_a_time = self.rebuilding.lock();
        let (segments, mut rebuilt) = (self.segments.load_full(), 0);
        for s in segments.iter().filter(|s| s.txns.is_wrong()) {
            rebuilt += usize::from(self.rebuild_txn_index(s)?);
        }
        Ok(rebuilt)
    }
    /// Appends go on while the segment is walked. False when it is not what it was any more.
    fn rebuild_txn_index(&self, s: &Arc<Segment>) -> Result<bool, LogError> {
        let (snapshots, truncations) = {
            let w = self.lock_writer();
            self.check_writable(&w)?;
            (w.snapshots.clone(), w.truncations)
        };
        let is_there = |segments: &[Arc<Segment>]| segments.iter().any(|x| Arc::ptr_eq(x, s));
        let found = self.with_snapshot(|segments, _| match s.txns.in_memory() {
            None if is_there(segments) => self.read_aborted(&snapshots, segments, s).map(Some),
            _ => Ok(None),
        })?;
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        if w.truncations != truncations || !is_there(&self.segments.load()) {
            return Ok(false);
        }
        let known = s.txns.in_memory().map(|list| list.to_vec());
        let Some(list) = known.or(found) else {
            return Ok(false);
        };
        self.put_in_place(&mut w, s, list)?;
        Ok(true)
    }
    fn put_in_place(
        &self,
        w: &mut Writer,
        s: &Arc<Segment>,
        list: Vec<AbortedTxn>,
    ) -> Result<(), LogError> {
        let file = s.txns.file();
        if !list.is_empty() || file.len_on_disk()?.is_some() {
            tracing::warn!(
                index = %file.path().display(), entries = list.len(),
                "transaction index is missing or wrong, it is rebuilt from the batches"
            );
        }
        s.txns.replace(list, s.size())?;
        w.mark_dirty(s);
        w.new_files = true;
        Ok(())
    }
    /// While the log is opened: rebuilds the transaction index of `s` if it is wrong, and brings it
    /// to the disk.
    pub(super) fn settle_txn_index(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        s: &Arc<Segment>,
    ) -> Result<(), LogError> {
        match s.aborted() {
            Err(LogError::WrongIndex { .. }) => {}
            done => return done.map(|_| ()),
        }
        let list = self.read_aborted(&w.snapshots, segments, s)?;
        let any = !list.is_empty();
        self.put_in_place(w, s, list)?;
        if any {
            s.txns.sync()?;
            self.state.sync_dir(&self.dir)?;
        }
        Ok(())
    }
    /// The entries that the index of `s` must have, by its batches and the producers in front of
    /// them.
    fn read_aborted(
        &self,
        snapshots: &std::collections::BTreeSet<i64>,
        segments: &[Arc<Segment>],
        s: &Segment,
    ) -> Result<Vec<AbortedTxn>, LogError> {
        let (mut producers, _) = self.replay_from_snapshots(snapshots, segments, s.base_offset)?;
        let (mut list, mut near) = (Vec::new(), s.base_offset);
        let mut scan = Scanner::new(&s.log, 0, s.size());
        while let Some(b) = scan.next(|_| false).map_err(|e| s.damaged(e, near))? {
            near = b.header.next_offset();
            if b.header.has_producer_id() || b.header.is_control() {
                list.extend(producers.apply(&b.header, read_control(s, &b)?.as_ref()));
            }
        }
        Ok(list)
    }
}
