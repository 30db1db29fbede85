//! Everything that is neither append nor read: truncation, log start, retention, flush, close,
//! delete.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{LogEnd, PartitionLog, Writer};
use crate::error::LogError;
use crate::names;
use crate::segment::Segment;
use crate::state::LogDirState;
use crate::types::{RetentionOutcome, RetentionRule};

impl PartitionLog {
    /// Drops every batch that has an offset ≥ `offset` (a batch that contains it is dropped whole).
    /// The new log end (the answer) is the end of the last batch kept, so it can be below `offset`.
    /// Below the log start: as [`Self::truncate_fully_and_start_at`]. Epochs, producers and
    /// transactions are rolled back too.
    pub fn truncate_to(&self, offset: i64) -> Result<i64, LogError> {
        let offset = offset.max(0);
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        self.supersede_mirror(&mut w)?;
        if offset >= self.log_end_offset() {
            return Ok(self.log_end_offset());
        }
        if offset <= self.log_start_offset() {
            self.restart_at(&mut w, offset, 0)?;
            return Ok(offset);
        }
        let segments = self.segments.load_full();
        let mut at = super::read::floor(&segments, offset);
        let found = segments[at].locate(offset, segments[at].size())?;
        let cut_from = found.map_or(offset, |b| b.header.base_offset.min(offset));
        let mut position = found.map_or(segments[at].size(), |b| b.position);
        // An emptied segment goes too, or its base would stand as log end behind an offset gap.
        while position == 0 && at > 0 {
            at -= 1;
            position = segments[at].size();
        }
        let segment = &segments[at];
        if let Err(LogError::WrongIndex { .. }) = segment.aborted() {
            // It will be appended to, so it must be right; the rebuilding takes the lock itself.
            drop(w);
            self.repair_indexes()?;
            return self.truncate_to(offset);
        }
        let end = segment.end_before(cut_from, position)?;
        if end < self.log_start_offset() {
            // The only batches left would lie below the log start.
            let start = self.log_start_offset();
            self.restart_at(&mut w, start, 0)?;
            return Ok(start);
        }
        let _open = segment.open_all()?;
        self.forget_synced_above(&mut w, end)?;
        w.new_files = true;
        self.set_segments(segments[..=at].to_vec());
        // Readers must not follow the old end into bytes that go away.
        self.end.store(Arc::new(LogEnd {
            offset: end,
            segment_base: segment.base_offset,
            position,
        }));
        for later in segments[at + 1..].iter().rev() {
            later.remove()?;
        }
        segment.truncate_at(position, cut_from)?;
        w.mark_dirty(segment);
        self.publish_end(segment, position, end);
        self.high_watermark.fetch_min(end, Ordering::AcqRel);
        self.change_epochs(&mut w, |c| c.truncate_from_end(end))?;
        self.drop_snapshots(&mut w, |o| o > end);
        let kept = self.segments.load_full();
        let mut replayed = self.replay_producers(&mut w, &kept, end)?;
        replayed.high_watermark_moved(self.high_watermark());
        let mut producers = self.producers.lock();
        *producers = replayed;
        self.note_first_unstable(&producers);
        let (start, watermark) = (self.log_start_offset(), self.high_watermark());
        crate::invariant!(
            "L-6",
            (start..=end).contains(&watermark),
            "a log of the offsets {start} to {end} has the high watermark {watermark}"
        );
        Ok(end)
    }

    /// Drops everything; log start = log end = high watermark = `offset`.
    pub fn truncate_fully_and_start_at(&self, offset: i64) -> Result<(), LogError> {
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        self.supersede_mirror(&mut w)?;
        self.restart_at(&mut w, offset.max(0), 0)
    }

    pub(super) fn restart_at(
        &self,
        w: &mut Writer,
        offset: i64,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let segments = self.segments.load_full();
        // Not `offset`: nothing is there yet that bears it out.
        self.forget_synced_above(w, 0)?;
        self.begin_at(offset)?;
        self.set_segments(Vec::new());
        self.end.store(Arc::new(LogEnd {
            offset,
            segment_base: offset,
            position: 0,
        }));
        self.high_watermark.store(offset, Ordering::Release);
        // Newest first: a crash in between leaves a shorter log, not one with a hole.
        for s in segments.iter().rev() {
            s.remove()?;
        }
        w.dirty.clear();
        self.drop_snapshots(w, |_| true);
        {
            let mut producers = self.producers.lock();
            *producers = Default::default();
            self.note_first_unstable(&producers);
        }
        // A log without any file starts at 0 when it is opened again, so any other start needs one.
        if !segments.is_empty() || offset > 0 {
            self.make_first_segment(w, offset, now_ms)?;
        }
        self.change_epochs(w, |c| c.clear())
    }

    /// Before bytes above `offset` go away: no recovery point, in memory or on disk, may cover them
    /// any longer.
    pub(super) fn forget_synced_above(&self, w: &mut Writer, offset: i64) -> Result<(), LogError> {
        w.truncations += 1;
        self.cleaned_to.fetch_min(offset, Ordering::AcqRel);
        self.recovery_point.fetch_min(offset, Ordering::AcqRel);
        self.durable_end.fetch_min(offset, Ordering::AcqRel);
        self.state
            .lower_recovery_point(&self.topic, self.partition, offset)
    }

    /// Raises the log start offset (DeleteRecords, or a source's log start) up to the high
    /// watermark at most, and removes whole segments below. Gives the resulting log start offset. A
    /// lower value changes nothing.
    pub fn advance_log_start(&self, offset: i64) -> Result<i64, LogError> {
        let gone = {
            let mut w = self.lock_writer();
            self.check_writable(&w)?;
            let target = offset.min(self.high_watermark());
            if target <= self.log_start_offset() {
                return Ok(self.log_start_offset());
            }
            self.start_at_least(&mut w, target)?;
            self.detach_below_start(&mut w)
        };
        remove_all(&gone)?;
        Ok(self.log_start_offset())
    }
    fn start_at_least(&self, w: &mut Writer, offset: i64) -> Result<(), LogError> {
        if self.log_start.fetch_max(offset, Ordering::AcqRel) >= offset {
            return Ok(());
        }
        self.change_epochs(w, |c| c.truncate_from_start(offset))
    }
    /// Takes segments wholly below the log start out of the list; the active one always stays.
    fn detach_below_start(&self, w: &mut Writer) -> Vec<Arc<Segment>> {
        let segments = self.segments.load_full();
        let start = self.log_start_offset();
        let count = segments
            .windows(2)
            .take_while(|pair| pair[1].base_offset <= start)
            .count();
        self.detach(w, count)
    }
    fn detach(&self, w: &mut Writer, count: usize) -> Vec<Arc<Segment>> {
        let segments = self.segments.load_full();
        let (gone, kept) = segments.split_at(count);
        if !gone.is_empty() {
            self.set_segments(kept.to_vec());
            w.dirty.retain(|d| !gone.iter().any(|g| Arc::ptr_eq(g, d)));
            let first = kept.first().map_or(0, |s| s.base_offset);
            self.drop_snapshots(w, |o| o < first);
        }
        gone.to_vec()
    }

    /// Removes old segments by `retention.ms`, `retention.bytes` and log start; never above the
    /// high watermark.
    pub fn retention(&self, now_ms: i64) -> Result<RetentionOutcome, LogError> {
        self.retention_by(RetentionRule::Configured, now_ms)
    }

    /// As [`PartitionLog::retention`], by this rule.
    pub fn retention_by(
        &self,
        rule: RetentionRule,
        now_ms: i64,
    ) -> Result<RetentionOutcome, LogError> {
        let mut outcome = RetentionOutcome::default();
        let gone = {
            let mut w = self.lock_writer();
            self.check_writable(&w)?;
            let mut count = self.expired_segments(rule, now_ms, &mut outcome)?;
            let total = self.segment_count();
            if count == 0 {
                return Ok(outcome);
            }
            if count == total {
                // The active one is old too: an empty one takes its place, if there is anything in
                // it.
                if self.active().is_some_and(|a| a.size() == 0) {
                    count -= 1;
                } else {
                    self.supersede_mirror(&mut w)?;
                    self.roll(&mut w, self.log_end_offset(), now_ms)?;
                }
            }
            if let Some(s) = self.segments.load().get(count) {
                self.start_at_least(&mut w, s.base_offset)?;
            }
            self.detach(&mut w, count)
        };
        outcome.segments = gone.len();
        outcome.bytes = gone.iter().map(|s| s.size()).sum();
        remove_all(&gone)?;
        Ok(outcome)
    }

    /// Number of segments, from the oldest on, that may go.
    fn expired_segments(
        &self,
        rule: RetentionRule,
        now_ms: i64,
        outcome: &mut RetentionOutcome,
    ) -> Result<usize, LogError> {
        let config = self.config();
        let segments = self.segments.load_full();
        let delete = config.delete && rule == RetentionRule::Configured;
        let mut excess = match config.retention_bytes {
            limit if delete && limit >= 0 => self.size_bytes().saturating_sub(limit as u64),
            _ => 0,
        };
        let mut count = 0;
        for (at, s) in segments.iter().enumerate() {
            let end = segments
                .get(at + 1)
                .map_or(self.log_end_offset(), |n| n.base_offset);
            if end > self.high_watermark() {
                break;
            }
            let below_start = at + 1 < segments.len() && end <= self.log_start_offset();
            let by_size = s.size() > 0 && excess >= s.size();
            let by_time = delete && self.is_expired(s, config.retention_ms, now_ms, outcome)?;
            if !(below_start || by_size || by_time) {
                break;
            }
            excess = excess.saturating_sub(s.size());
            count += 1;
        }
        if let Some(timestamp) = outcome.blocked_by_future_timestamp {
            tracing::warn!(log = %self.dir.display(), timestamp, "a record dated in the future holds up time retention");
        }
        Ok(count)
    }
    fn is_expired(
        &self,
        s: &Segment,
        retention_ms: i64,
        now_ms: i64,
        outcome: &mut RetentionOutcome,
    ) -> Result<bool, LogError> {
        if retention_ms < 0 {
            return Ok(false);
        }
        let mut newest = s.largest_timestamp()?.0;
        if newest < 0 {
            newest = s.modified_ms()?.unwrap_or(now_ms);
        }
        if newest > now_ms {
            outcome.blocked_by_future_timestamp = Some(newest);
        }
        Ok(now_ms.saturating_sub(newest) > retention_ms)
    }

    /// Gives reserved blocks back when nothing was appended since the last call; gives whether some
    /// are left.
    pub(crate) fn give_back_if_idle(&self) -> bool {
        self.give_back_unless_busy(|active| active.give_back_if_idle())
    }
    /// Gives reserved blocks back, unless the log is being written to; gives whether some are left.
    pub(crate) fn give_back_now(&self) -> bool {
        self.give_back_unless_busy(|active| active.give_back().map(|()| false))
    }
    fn give_back_unless_busy(
        &self,
        give_back: impl FnOnce(&Segment) -> Result<bool, LogError>,
    ) -> bool {
        let Some(mut w) = self.writer.try_lock() else {
            return true;
        };
        let Some(active) = self
            .active()
            .filter(|a| !w.closed && w.written_to <= a.size())
        else {
            return !w.closed && w.written_to > 0;
        };
        w.mark_dirty(&active);
        give_back(&active).unwrap_or(true)
    }
    /// Rebuilds the indexes of segments in which an entry did not fit its batch, or the transaction
    /// index its checksum; gives how many. Blocks on disk.
    pub fn repair_indexes(&self) -> Result<usize, LogError> {
        let wrong = |s: &&Arc<Segment>| s.index_is_wrong();
        let mut repaired = self.rebuild_wrong_txn_indexes()?;
        if !self.segments.load().iter().any(|s| s.index_is_wrong()) {
            return Ok(repaired);
        }
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        let segments = self.segments.load_full();
        for s in segments.iter().filter(wrong) {
            self.rebuild_indexes(s)?;
            w.mark_dirty(s);
            repaired += 1;
        }
        Ok(repaired)
    }

    /// Flushes, writes the producer snapshot and closes; later writes answer `Closed`.
    pub fn close_clean(&self) -> Result<(), LogError> {
        {
            let mut w = self.lock_writer();
            if w.closed {
                return Ok(());
            }
            self.check_writable(&w)?;
            self.supersede_mirror(&mut w)?;
            w.closed = true;
            if let Some(active) = self.active() {
                active.seal()?;
                active.give_back()?;
                w.new_files |= active.txns.crc_is_unsynced();
                let end = self.log_end_offset();
                if !w.snapshots.contains(&end) {
                    self.write_snapshot(&mut w, end, true)?;
                }
            }
        }
        self.flush()?;
        // A clean start believes the epoch checkpoint, so without room for it this is none.
        if std::mem::take(&mut self.lock_writer().epochs_unsynced) {
            self.write_epochs(true)?;
        }
        self.segments
            .load()
            .iter()
            .try_for_each(|s| s.sync_indexes_and_release())
    }

    /// Closes without writing anything more (the directory is offline, or goes away).
    pub(crate) fn close_dirty(&self) {
        let mut w = self.lock_writer();
        w.closed = true;
        w.mirror_token = 0;
        self.metadata.lock().gone = true;
        self.segments.load().iter().for_each(|s| s.release_files());
    }

    /// Closes and removes: the directory is renamed to `<topic>-<partition>.<random>-delete` at
    /// once, then removed.
    pub fn delete(&self) -> Result<(), LogError> {
        // A flush under way works in the directory that is about to move.
        let _no_flush = self.flushing.lock();
        self.close_dirty();
        self.lock_writer().deleted = true;
        if !self.dir.exists() {
            return Ok(());
        }
        let Some(parent) = self.dir.parent() else {
            return Ok(());
        };
        remove_folder(&self.state, parent, &self.topic, self.partition)
    }
}

/// Renames a partition's folder out of the way and removes it. On a disk without room for a new
/// name it is removed where it is.
pub(crate) fn remove_folder(
    state: &LogDirState,
    parent: &Path,
    topic: &str,
    partition: i32,
) -> Result<(), LogError> {
    let folder = parent.join(names::partition_dir(topic, partition));
    let mut away = parent.join(names::deleted_dir(topic, partition));
    match fs::rename(&folder, &away) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::StorageFull => away = folder,
        renamed => renamed.map_err(|e| state.fatal("rename", &folder, &e))?,
    }
    state.sync_dir(parent)?;
    fs::remove_dir_all(&away).map_err(|e| state.fatal("remove", &away, &e))
}

/// Oldest first, so that a crash in between leaves a log without a hole.
fn remove_all(gone: &[Arc<Segment>]) -> Result<(), LogError> {
    gone.iter().try_for_each(|s| s.remove())
}
