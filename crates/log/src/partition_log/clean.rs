//! One run of the cleaner over one log: plan, map of keys, new segments, swap. Reads and writes
//! without any lock; the writer lock is taken to put a new segment in the place of old ones.
//! Nothing at or above the high watermark, the last stable offset or the recovery point is touched,
//! nor the active segment. Not here: when to clean, and which log (`tarn_replica`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_records::{BatchHeader, BatchView, RecordsError};

use super::PartitionLog;
use crate::cleaner::{Bounds, ClosedSegment, Fate, OffsetMap, Plan, groups, plan, stays};
use crate::error::LogError;
use crate::names;
use crate::scan::{Found, Scanner};
use crate::segment::Segment;
use crate::types::CleanOutcome;

/// A batch that is larger than this, or whose records are, stays as it is: a run works in bounded
/// memory.
const BATCH_BYTES_MAX: usize = 64 << 20;
const OUTPUT_BUFFER_BYTES: usize = 1 << 20;

/// What stays the same during a run.
struct Run<'a> {
    map: OffsetMap,
    /// Keys were noted up to this offset.
    seen_to: i64,
    aborted: AbortedRanges,
    /// Last offset of each producer's newest batch.
    producers: HashMap<i64, i64>,
    now_ms: i64,
    delete_retention_ms: i64,
    moved: &'a mut dyn FnMut(u64) -> bool,
}

/// Aborted transactions by producer: first offset and offset of the marker.
#[derive(Default)]
struct AbortedRanges(HashMap<i64, Vec<(i64, i64)>>);

impl AbortedRanges {
    fn covers(&self, h: &BatchHeader) -> bool {
        h.is_transactional()
            && self.0.get(&h.producer_id).is_some_and(|ranges| {
                // By marker, and they do not overlap: the first that ends behind the batch is the
                // only one that can hold it.
                let at = ranges.partition_point(|(_, marker)| *marker < h.base_offset);
                ranges
                    .get(at)
                    .is_some_and(|(first, _)| *first <= h.base_offset)
            })
    }
}

/// What becomes of a batch.
enum Verdict {
    Stays,
    Replaced(Vec<u8>),
    Goes,
}

impl PartitionLog {
    /// Share of what can be cleaned that was not cleaned before, in millionths of its bytes; `None`
    /// when there is nothing new.
    pub fn dirty_ppm(&self, now_ms: i64) -> Result<Option<u32>, LogError> {
        let plan = self.cleaning_plan(now_ms)?;
        Ok(plan.map(|(_, _, plan)| plan.dirty_ppm()))
    }

    /// Cleans the log: of all records with one key the newest stays, a tombstone for
    /// `delete.retention.ms` after the run that first saw it. Records of aborted transactions go;
    /// control batches stay. The map of keys takes at most `map_bytes`; what does not fit is left
    /// for the next run. `moved` is told the bytes read and written, and may sleep; `false` ends
    /// the run early. Blocks on disk, for long.
    pub fn clean(
        &self,
        map_bytes: usize,
        now_ms: i64,
        moved: &mut dyn FnMut(u64) -> bool,
    ) -> Result<CleanOutcome, LogError> {
        let mut outcome = CleanOutcome::default();
        let Some((segments, closed, plan)) = self.cleaning_plan(now_ms)? else {
            return Ok(outcome);
        };
        let mut run = Run {
            map: self.empty_map(map_bytes, &closed[plan.dirty..plan.until]),
            seen_to: self.first_dirty(),
            aborted: self.aborted_ranges(&closed[..plan.until])?,
            producers: self.producers.lock().last_offsets(),
            now_ms,
            delete_retention_ms: self.config.load().delete_retention_ms,
            moved,
        };
        if !note_keys(&segments[plan.dirty..plan.until], &mut run)? {
            return Ok(outcome);
        }
        let bytes_max = u64::from(self.config.load().segment_bytes);
        for group in groups(&closed[..plan.until], bytes_max) {
            let old = &segments[group];
            let Some(new) = self.rewrite(old, &mut run)? else {
                return Ok(outcome);
            };
            if !self.swap(old, &new)? {
                return Ok(outcome);
            }
            outcome.segments_before += old.len();
            outcome.segments_after += 1;
            outcome.bytes_before += old.iter().map(|s| s.size()).sum::<u64>();
            outcome.bytes_after += new.size();
        }
        self.cleaned_to.store(run.seen_to, Ordering::Release);
        Ok(outcome)
    }

    fn first_dirty(&self) -> i64 {
        let (start, end) = (self.log_start_offset(), self.log_end_offset());
        let cleaned_to = self.cleaned_to.load(Ordering::Acquire);
        match (start..=end).contains(&cleaned_to) {
            true => cleaned_to,
            false => start,
        }
    }

    #[expect(clippy::type_complexity, reason = "three parts of one look, used once")]
    fn cleaning_plan(
        &self,
        now_ms: i64,
    ) -> Result<Option<(Vec<Arc<Segment>>, Vec<ClosedSegment>, Plan)>, LogError> {
        let segments = self.segments.load_full();
        let mut closed = Vec::new();
        for pair in segments.windows(2) {
            closed.push(ClosedSegment {
                base: pair[0].base_offset,
                end: pair[1].base_offset,
                bytes: pair[0].size(),
                largest_timestamp: pair[0].largest_timestamp()?.0,
            });
        }
        let bounds = Bounds {
            first_dirty: self.first_dirty(),
            stable: self.last_stable_offset().min(self.recovery_point()),
            newest_timestamp: match self.config.load().min_compaction_lag_ms {
                0 => i64::MAX,
                lag => now_ms.saturating_sub(lag),
            },
        };
        let plan = plan(&closed, &bounds);
        Ok(plan.map(|plan| (segments.to_vec(), closed, plan)))
    }

    fn empty_map(&self, map_bytes: usize, dirty: &[ClosedSegment]) -> OffsetMap {
        let offsets: i64 = dirty.iter().map(|s| s.end - s.base).sum();
        OffsetMap::new(map_bytes, offsets.max(0) as u64)
    }

    fn aborted_ranges(&self, closed: &[ClosedSegment]) -> Result<AbortedRanges, LogError> {
        let mut ranges = AbortedRanges::default();
        if let (Some(first), Some(last)) = (closed.first(), closed.last()) {
            for t in self.aborted_transactions(first.base, last.end)? {
                let of_producer = ranges.0.entry(t.producer_id).or_default();
                of_producer.push((t.first_offset, t.last_offset));
            }
        }
        ranges
            .0
            .values_mut()
            .for_each(|r| r.sort_unstable_by_key(|t| t.1));
        Ok(ranges)
    }

    /// Writes what stays of `old` into one new segment, synced but without a name of its own;
    /// `None` when the run was ended.
    fn rewrite(
        &self,
        old: &[Arc<Segment>],
        run: &mut Run<'_>,
    ) -> Result<Option<Arc<Segment>>, LogError> {
        let base = old[0].base_offset;
        let path = names::segment_file(&self.dir, base, names::CLEANED);
        let done = self.write_cleaned(&path, old, run);
        if !matches!(done, Ok(Some(_))) {
            // Nothing refers to it; a start would remove it too.
            let _ = fs::remove_file(&path);
        }
        done
    }

    fn write_cleaned(
        &self,
        path: &Path,
        old: &[Arc<Segment>],
        run: &mut Run<'_>,
    ) -> Result<Option<Arc<Segment>>, LogError> {
        let failed = |e: io::Error| self.clean_failed("write", path, &e);
        let new = Segment::unnamed(&self.dir, old[0].base_offset, &self.state, run.now_ms);
        let mut options = crate::private::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path).map_err(failed)?;
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, &file);
        let (mut position, mut aborted) = (0, Vec::new());
        let interval = self.config.load().index_interval_bytes;
        for (at, s) in old.iter().enumerate() {
            aborted.extend_from_slice(&self.with_right_indexes(|| s.aborted())?);
            let mut walk = Walk::new(s);
            let is_last = at + 1 == old.len();
            while let Some((header, batch, over)) = walk.next()? {
                let verdict = match batch {
                    Some(view) => verdict(&view, run, is_last && over)?,
                    None => Verdict::Stays,
                };
                let written = match verdict {
                    Verdict::Goes => 0,
                    Verdict::Stays => {
                        new.note_batch(&header, position, interval)?;
                        walk.copy(&mut out).map_err(failed)?;
                        header.size()
                    }
                    Verdict::Replaced(bytes) => {
                        new.note_batch(&BatchHeader::parse(&bytes)?, position, interval)?;
                        out.write_all(&bytes).map_err(failed)?;
                        bytes.len()
                    }
                };
                position += written as u64;
                if !(run.moved)((header.size() + written) as u64) {
                    return Ok(None);
                }
            }
        }
        out.flush().map_err(failed)?;
        drop(out);
        file.sync_data()
            .map_err(|e| self.state.broken("fdatasync", path, &e))?;
        new.publish(position);
        new.txns.hold(aborted);
        new.log
            .hold_open(file)
            .map_err(|e| self.clean_failed("open", path, &e))?;
        Ok(Some(Arc::new(new)))
    }

    /// Puts `new` in the place of `old`; false when the log changed there meanwhile.
    fn swap(&self, old: &[Arc<Segment>], new: &Arc<Segment>) -> Result<bool, LogError> {
        // Neither a flush nor a deletion works in the directory meanwhile.
        let _no_flush = self.flushing.lock();
        self.check_writable(&self.lock_writer())?;
        // Cleaned segments leave offsets out, also when the topic is not compacted any more one
        // day.
        self.allow_gaps(true)?;
        let name = |extension| names::segment_file(&self.dir, new.base_offset, extension);
        let (cleaned, swap) = (name(names::CLEANED), name(names::SWAP));
        self.crash_point(0)?;
        fs::rename(&cleaned, &swap).map_err(|e| self.clean_failed("rename", &cleaned, &e))?;
        // From here on a start finishes what is begun.
        self.state.sync_dir(&self.dir)?;
        self.crash_point(1)?;
        let Some(kept_open) = self.install(old, new, &swap)? else {
            fs::remove_file(&swap).map_err(|e| self.clean_failed("remove", &swap, &e))?;
            return Ok(false);
        };
        // Their blocks are freed here, with nothing locked that an append needs.
        drop(kept_open);
        self.crash_point(5)?;
        new.named()?;
        self.state.sync_dir(&self.dir)?;
        let still_there = |s: &Arc<Segment>| Arc::ptr_eq(s, new);
        if !self.segments.load().iter().any(still_there) {
            // Retention came in between, and knew nothing of the indexes.
            new.remove()?;
        }
        Ok(true)
    }

    /// The part under the writer lock. Gives the files that the old segments had open; `None` when
    /// they are not the log's any more.
    fn install(
        &self,
        old: &[Arc<Segment>],
        new: &Arc<Segment>,
        swap: &Path,
    ) -> Result<Option<Vec<Arc<File>>>, LogError> {
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        let list = self.segments.load_full();
        let same = |window: &[Arc<Segment>]| window.iter().zip(old).all(|(a, b)| Arc::ptr_eq(a, b));
        let at = list.windows(old.len()).position(same);
        // A live mirror append means that the source decides about this log.
        let Some(at) = at.filter(|_| w.mirror_token == 0) else {
            return Ok(None);
        };
        let mut changed = list.to_vec();
        changed.splice(at..at + old.len(), [Arc::clone(new)]);
        // Readers see the new segment, whose file is open, before the names change hands.
        self.set_segments(changed);
        w.dirty.retain(|d| !old.iter().any(|o| Arc::ptr_eq(o, d)));
        let mut kept_open: Vec<Arc<File>> = old.iter().flat_map(|s| s.retire()).collect();
        self.crash_point(2)?;
        for s in old {
            let log = names::segment_file(&self.dir, s.base_offset, names::LOG);
            // The offset index first: where there is none, a missing transaction index is not taken
            // for an empty one.
            for extension in [
                names::OFFSET_INDEX,
                names::TIME_INDEX,
                names::TXN_INDEX,
                names::TXN_INDEX_CRC,
            ] {
                let path = names::segment_file(&self.dir, s.base_offset, extension);
                remove_if_there(&path).map_err(|e| self.state.fatal("remove", &path, &e))?;
            }
            kept_open.extend(File::open(&log).ok().map(Arc::new));
            if s.base_offset != new.base_offset {
                remove_if_there(&log).map_err(|e| self.state.fatal("remove", &log, &e))?;
            }
            self.crash_point(3)?;
        }
        let log = names::segment_file(&self.dir, new.base_offset, names::LOG);
        fs::rename(swap, &log).map_err(|e| self.state.fatal("rename", swap, &e))?;
        self.crash_point(4)?;
        let gone = |offset| old[1..].iter().any(|s| s.base_offset == offset);
        self.drop_snapshots(&mut w, gone);
        Ok(Some(kept_open))
    }

    /// A failure before anything of the log was touched: a log that was closed or deleted meanwhile
    /// is no reason to blame the disk.
    fn clean_failed(&self, what: &'static str, path: &Path, e: &io::Error) -> LogError {
        match self.check_writable(&self.lock_writer()) {
            Err(closed) => closed,
            Ok(()) => self.state.write_failed(what, path, e),
        }
    }

    #[cfg(not(test))]
    fn crash_point(&self, _step: usize) -> Result<(), LogError> {
        Ok(())
    }
    /// Ends the swap as a crash would.
    #[cfg(test)]
    fn crash_point(&self, step: usize) -> Result<(), LogError> {
        match *self.state.faults.swap_ends_at.lock() {
            Some(at) if at == step => Err(LogError::Superseded),
            _ => Ok(()),
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Notes the newest offset of every key; false when the run was ended.
fn note_keys(dirty: &[Arc<Segment>], run: &mut Run<'_>) -> Result<bool, LogError> {
    let from = run.seen_to;
    for s in dirty {
        let mut walk = Walk::new(s);
        while let Some((header, batch, _)) = walk.next()? {
            if header.last_offset() < from {
                continue;
            }
            let skipped = header.is_control() || run.aborted.covers(&header);
            if let Some(view) = batch
                && !skipped
                && let Some(opened) = opened(&view)?
            {
                let mut fits = true;
                opened.for_each(|r| {
                    fits &= r.key.is_none_or(|key| run.map.put(key, r.offset));
                })?;
                if !fits {
                    // What is noted of it does no harm: from here on everything stays.
                    return Ok(run.seen_to > from);
                }
            }
            run.seen_to = header.next_offset();
            if !(run.moved)(header.size() as u64) {
                return Ok(false);
            }
        }
    }
    Ok(run.seen_to > from)
}

/// The records of a batch; `None` when they are too many to be held.
fn opened<'a>(view: &BatchView<'a>) -> Result<Option<tarn_records::OpenedBatch<'a>>, LogError> {
    match view.opened(BATCH_BYTES_MAX) {
        Ok(opened) => Ok(Some(opened)),
        Err(RecordsError::TooLarge { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn verdict(view: &BatchView<'_>, run: &Run<'_>, must_stay: bool) -> Result<Verdict, LogError> {
    let h = &view.header;
    if h.is_control() || h.base_offset >= run.seen_to {
        return Ok(Verdict::Stays);
    }
    let is_newest_of_producer =
        h.has_producer_id() && run.producers.get(&h.producer_id) == Some(&h.last_offset());
    let holds_something = must_stay || is_newest_of_producer;
    let nothing_left = || match (holds_something, h.record_count) {
        (true, 0) => Ok(Verdict::Stays),
        (true, _) => Ok(Verdict::Replaced(view.emptied()?)),
        (false, _) => Ok(Verdict::Goes),
    };
    if h.record_count == 0 || run.aborted.covers(h) {
        return nothing_left();
    }
    let Some(opened) = opened(view)? else {
        return Ok(Verdict::Stays);
    };
    let horizon_passed = h.has_delete_horizon() && h.base_timestamp <= run.now_ms;
    let keep = |r: tarn_records::KeyedRecord<'_>| {
        let fate = Fate {
            newest: r.key.and_then(|key| run.map.get(key)),
            unseen: r.offset >= run.seen_to,
            horizon_passed,
        };
        stays(r.offset, r.key.is_some(), r.has_value, fate)
    };
    let (mut kept, mut tombstones) = (0, 0);
    opened.for_each(|r| {
        if keep(r) {
            kept += 1;
            tombstones += i32::from(!r.has_value);
        }
    })?;
    let unmarked = tombstones > 0 && !h.has_delete_horizon();
    let horizon = unmarked.then(|| run.now_ms.saturating_add(run.delete_retention_ms));
    if kept == h.record_count && horizon.is_none() {
        return Ok(Verdict::Stays);
    }
    match opened.filtered(horizon, keep)? {
        Some(bytes) => Ok(Verdict::Replaced(bytes)),
        None => nothing_left(),
    }
}

/// A batch: its header, itself unless it is too large to be looked into, and whether it is the last
/// one.
type Batch<'b> = (BatchHeader, Option<BatchView<'b>>, bool);

/// The batches of a segment with their bytes, CRCs checked.
struct Walk<'a> {
    segment: &'a Segment,
    scan: Scanner,
    bytes: Vec<u8>,
    /// The batch just given.
    found: Option<Found>,
    near: i64,
}

impl<'a> Walk<'a> {
    fn new(segment: &'a Segment) -> Self {
        Walk {
            segment,
            scan: Scanner::new(&segment.log, 0, segment.size()),
            bytes: Vec::new(),
            found: None,
            near: segment.base_offset,
        }
    }

    /// The next batch. Damage is an error that names segment, position and offset.
    fn next(&mut self) -> Result<Option<Batch<'_>>, LogError> {
        let found = self.scan.next(|_| true);
        let found = found.map_err(|stop| self.segment.damaged(stop, self.near))?;
        let Some(found) = found else {
            return Ok(None);
        };
        self.found = Some(found);
        self.near = found.header.next_offset();
        let over = self.scan.position() >= self.segment.size();
        let size = found.header.size();
        if size > BATCH_BYTES_MAX {
            return Ok(Some((found.header, None, over)));
        }
        self.bytes.resize(size, 0);
        self.segment.log.read_at(&mut self.bytes, found.position)?;
        Ok(Some((
            found.header,
            Some(BatchView::first(&self.bytes)?),
            over,
        )))
    }

    /// Writes the batch just given as it is.
    fn copy(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(found) = &self.found else {
            return Ok(());
        };
        let size = found.header.size();
        if size <= BATCH_BYTES_MAX {
            return out.write_all(&self.bytes);
        }
        let mut piece = vec![0; OUTPUT_BUFFER_BYTES];
        let (mut at, end) = (found.position, found.position + size as u64);
        while at < end {
            let n = (end - at).min(piece.len() as u64) as usize;
            let read = self.segment.log.read_at(&mut piece[..n], at);
            read.map_err(io::Error::other)?;
            out.write_all(&piece[..n])?;
            at += n as u64;
        }
        Ok(())
    }
}
