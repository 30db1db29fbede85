//! One segment: a `.log` file and its three indexes. Knows batches and positions, nothing of
//! epochs, producers or limits.
//!
//! The published size is what readers may see; the writer (serialised above) may have more bytes
//! behind it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_records::{BatchHeader, NO_TIMESTAMP};

use crate::error::LogError;
use crate::file::FileHandle;
use crate::index::{OffsetIndex, TimeIndex};
use crate::names;
use crate::reserve::Reserve;
use crate::scan::{Found, Scanner, Stop};
use crate::state::LogDirState;
use crate::txn_index::{TxnFiles, TxnIndex};
use crate::types::AbortedTxn;

/// Positions are 32-bit in the index; a file may not pass this.
pub(crate) const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// More allocated bytes than this behind the end of a file were reserved; less is the file system's
/// rounding.
const LEFTOVER_BYTES_MIN: u64 = 4 << 20;

/// One segment of a log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base_offset: i64,
    pub(crate) log: Arc<FileHandle>,
    pub(crate) offsets: OffsetIndex,
    pub(crate) times: TimeIndex,
    pub(crate) txns: TxnIndex,
    size: AtomicU64,
    tail: Mutex<Tail>,
    reserve: Mutex<Reserve>,
    /// An index entry did not fit its batch.
    wrong: AtomicBool,
    /// Blocks were reserved since somebody looked.
    reserved: AtomicBool,
}

/// What the writer knows beyond the indexes.
#[derive(Debug, Clone, Copy)]
struct Tail {
    bytes_since_index_entry: u64,
    /// Largest timestamp and the last offset of its batch; `None` until loaded.
    largest: Option<(i64, i64)>,
    /// Timestamp that decides when the segment is old enough to roll; `None` until loaded.
    first_timestamp: Option<i64>,
    created_ms: i64,
}

impl Segment {
    fn new(dir: &Path, base_offset: i64, state: &Arc<LogDirState>, now_ms: i64) -> Segment {
        let file = |extension| names::segment_file(dir, base_offset, extension);
        Segment {
            base_offset,
            log: FileHandle::new(file(names::LOG), state),
            offsets: OffsetIndex::new(file(names::OFFSET_INDEX), base_offset, state),
            times: TimeIndex::new(file(names::TIME_INDEX), base_offset, state),
            txns: TxnIndex::new(file(names::TXN_INDEX), state),
            size: AtomicU64::new(0),
            tail: Mutex::new(Tail {
                bytes_since_index_entry: 0,
                largest: Some((NO_TIMESTAMP, base_offset)),
                first_timestamp: None,
                created_ms: now_ms,
            }),
            reserve: Mutex::default(),
            wrong: AtomicBool::new(false),
            reserved: AtomicBool::new(false),
        }
    }
    /// A new, empty one; makes the `.log` file.
    pub(crate) fn create(
        dir: &Path,
        base_offset: i64,
        state: &Arc<LogDirState>,
        now_ms: i64,
    ) -> Result<Arc<Segment>, LogError> {
        let s = Segment::new(dir, base_offset, state, now_ms);
        s.log.create()?;
        Ok(Arc::new(s))
    }
    /// One that takes the place of others at `base_offset`: its file is `file`, which does not have
    /// its name yet. Its indexes stay in memory until [`Self::named`].
    pub(crate) fn unnamed(
        dir: &Path,
        base_offset: i64,
        state: &Arc<LogDirState>,
        now_ms: i64,
    ) -> Segment {
        let s = Segment::new(dir, base_offset, state, now_ms);
        s.offsets.hold(true);
        s.times.hold(true);
        s
    }
    /// The file has its name, and those of the indexes are free: writes them out and syncs them.
    pub(crate) fn named(&self) -> Result<(), LogError> {
        self.log.close();
        self.offsets.hold(false);
        self.times.hold(false);
        // Before there is an offset index, a missing transaction index is not taken for an empty
        // one.
        self.txns.seal(self.size())?;
        self.txns.sync()?;
        if let Some(dir) = self.log.path().parent().filter(|_| self.txns.has_any()) {
            self.log.state().sync_dir(dir)?;
        }
        self.seal()?;
        self.offsets.sync()?;
        self.times.sync()
    }
    /// Its names are about to be another segment's. Readers that have its files open keep them; the
    /// answer keeps their blocks for so long.
    pub(crate) fn retire(&self) -> Vec<Arc<std::fs::File>> {
        let files = self.files();
        files.iter().filter_map(|file| file.retire()).collect()
    }
    /// One that is on disk. Gives whether its indexes by offset and time can be trusted.
    pub(crate) fn load(
        dir: &Path,
        base_offset: i64,
        state: &Arc<LogDirState>,
        now_ms: i64,
        index_interval_bytes: u64,
        txn_files: TxnFiles,
    ) -> Result<(Arc<Segment>, bool), LogError> {
        let mut s = Segment::new(dir, base_offset, state, now_ms);
        let size = s.log.len_on_disk()?.unwrap_or(0);
        s.size.store(size, Ordering::Release);
        s.tail.lock().largest = None;
        let indexed = s.offsets.is_on_disk()?;
        let there = indexed || size <= index_interval_bytes;
        let good = s.offsets.load(size)? & s.times.load()?;
        s.txns.load(txn_files, indexed)?;
        Ok((Arc::new(s), there && good))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }
    /// Lets readers see the file up to `size`.
    pub(crate) fn publish(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }
    /// Whether a relative offset of this segment can hold `last_offset`.
    pub(crate) fn can_hold(&self, last_offset: i64) -> bool {
        last_offset
            .checked_sub(self.base_offset)
            .is_some_and(|d| (0..=i64::from(i32::MAX)).contains(&d))
    }
    /// Whether one more entry would take an index above `bytes_max`.
    pub(crate) fn index_is_full(&self, bytes_max: u32) -> bool {
        let max = bytes_max as usize;
        (self.offsets.len() + 1) * 8 > max || (self.times.len() + 1) * 12 > max
    }
    /// Milliseconds between the segment's first record (or its creation, when records carry no
    /// time) and this append.
    pub(crate) fn age_at_append_ms(&self, timestamp: i64, now_ms: i64) -> Result<i64, LogError> {
        if self.size() == 0 {
            return Ok(0);
        }
        let (first, created) = {
            let t = self.tail.lock();
            (t.first_timestamp, t.created_ms)
        };
        let first = match first {
            Some(f) => f,
            None => {
                let f = self
                    .first_batch()?
                    .map_or(NO_TIMESTAMP, |b| b.header.max_timestamp);
                self.tail.lock().first_timestamp = Some(f);
                f
            }
        };
        Ok(if first >= 0 && timestamp >= 0 {
            timestamp.saturating_sub(first)
        } else {
            now_ms.saturating_sub(created)
        })
    }
    fn first_batch(&self) -> Result<Option<Found>, LogError> {
        let mut scan = Scanner::new(&self.log, 0, self.size());
        scan.next(|_| false)
            .map_err(|s| self.damaged(s, self.base_offset))
    }

    /// Takes a batch written at `position` into the indexes (before it is published).
    pub(crate) fn note_batch(
        &self,
        h: &BatchHeader,
        position: u64,
        interval_bytes: u32,
    ) -> Result<(), LogError> {
        let (index_due, largest) = {
            let mut t = self.tail.lock();
            if position == 0 {
                t.first_timestamp = Some(h.max_timestamp);
            }
            let largest = match t.largest {
                Some(l) if l.0 >= h.max_timestamp => l,
                _ => (h.max_timestamp, h.last_offset()),
            };
            t.largest = Some(largest);
            let due = t.bytes_since_index_entry > u64::from(interval_bytes);
            if due {
                t.bytes_since_index_entry = 0;
            }
            t.bytes_since_index_entry += h.size() as u64;
            (due, largest)
        };
        if index_due && position <= SEGMENT_BYTES_MAX {
            self.offsets.push(h.last_offset(), position)?;
            self.times.push_if_above(largest.0, largest.1)?;
        }
        Ok(())
    }

    /// The first batch whose last offset is ≥ `offset`, looking no further than byte `limit`.
    pub(crate) fn locate(&self, offset: i64, limit: u64) -> Result<Option<Found>, LogError> {
        let (mut scan, mut found) = self.walk_towards(offset, limit)?;
        while let Some(b) = found
            && b.header.last_offset() < offset
        {
            let near = b.header.next_offset();
            found = scan.next(|_| false).map_err(|s| self.damaged(s, near))?;
        }
        Ok(found)
    }
    /// A walk that begins at or before the batch of `offset`, and its first batch. It begins where
    /// the index says only when the batch there is the one that the entry names.
    fn walk_towards(&self, offset: i64, limit: u64) -> Result<(Scanner, Option<Found>), LogError> {
        if let Some((last_offset, position)) = self.trusted(self.offsets.lookup(offset)?)
            && position < limit
        {
            let mut scan = Scanner::new(&self.log, position, limit);
            match scan.next(|_| false) {
                Ok(Some(b)) if b.header.last_offset() == last_offset => return Ok((scan, Some(b))),
                Err(Stop::Failed(e)) => return Err(e),
                _ => self.distrust("offset index", last_offset, position),
            }
        }
        let mut scan = Scanner::new(&self.log, 0, limit);
        let first = scan
            .next(|_| false)
            .map_err(|s| self.damaged(s, self.base_offset))?;
        Ok((scan, first))
    }
    fn trusted<T>(&self, entry: Option<T>) -> Option<T> {
        entry.filter(|_| !self.index_is_wrong())
    }
    /// Whether an entry of an index did not fit its batch. The indexes are not used then, until
    /// they are rebuilt.
    pub(crate) fn index_is_wrong(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }
    fn distrust(&self, which: &'static str, offset: i64, position: u64) {
        if !self.wrong.swap(true, Ordering::AcqRel) {
            tracing::error!(
                segment = %self.log.path().display(), which, offset, position,
                "an index entry does not name the batch that is there: the index is rebuilt, reads go without it until then"
            );
            self.log.state().want_repair();
        }
    }
    /// Whether an entry of the time index is what the batch says that it names.
    fn is_time_of_batch(&self, (timestamp, offset): (i64, i64)) -> Result<bool, LogError> {
        let found = self.locate(offset, self.size())?;
        let right = found.is_some_and(|b| {
            b.header.last_offset() == offset && b.header.max_timestamp == timestamp
        });
        if !right {
            self.distrust("time index", offset, 0);
        }
        Ok(right)
    }
    /// An offset before which no record of the segment has a timestamp ≥ `timestamp`.
    pub(crate) fn offset_before_time(&self, timestamp: i64) -> Result<i64, LogError> {
        match self.trusted(self.times.lookup(timestamp)?) {
            Some(entry) if self.is_time_of_batch(entry)? => Ok(entry.1),
            _ => Ok(self.base_offset),
        }
    }
    /// Compares the index entries that name batches of `from .. to` with what a walk found there,
    /// in order: last offset and position of each batch.
    pub(crate) fn compare_index(&self, from: u64, batches: &[(i64, u64)]) -> Result<(), LogError> {
        let mut at = self.offsets.first_behind(from)?;
        let Some(&(_, last_position)) = batches.last() else {
            return Ok(());
        };
        while let Some((offset, position)) = self.trusted(self.offsets.entry(at)?)
            && position <= last_position
        {
            let named = batches.binary_search_by_key(&position, |b| b.1);
            if named.is_ok_and(|n| batches[n].0 == offset) {
                at += 1;
            } else {
                self.distrust("offset index", offset, position);
            }
        }
        Ok(())
    }
    /// The indexes are as the batches say again.
    pub(crate) fn index_is_right(&self) {
        self.wrong.store(false, Ordering::Release);
    }

    /// Largest timestamp and the last offset of the batch that has it; −1 when there is none.
    pub(crate) fn largest_timestamp(&self) -> Result<(i64, i64), LogError> {
        if let Some(l) = self.tail.lock().largest {
            return Ok(l);
        }
        // A sealed segment's time index ends with its largest timestamp. Retention goes by it, so
        // it is not simply believed.
        let l = match self.trusted(self.times.last()?) {
            Some(last) if self.is_time_of_batch(last)? => last,
            Some(_) => self.largest_by_walk()?,
            None if self.index_is_wrong() => self.largest_by_walk()?,
            None => (NO_TIMESTAMP, self.base_offset),
        };
        self.tail.lock().largest = Some(l);
        Ok(l)
    }
    fn largest_by_walk(&self) -> Result<(i64, i64), LogError> {
        let mut largest = (NO_TIMESTAMP, self.base_offset);
        let mut scan = Scanner::new(&self.log, 0, self.size());
        while let Some(b) = scan
            .next(|_| false)
            .map_err(|s| self.damaged(s, largest.1))?
        {
            if b.header.max_timestamp > largest.0 {
                largest = (b.header.max_timestamp, b.header.last_offset());
            }
        }
        Ok(largest)
    }

    /// Re-derives what lies behind the last index entry by walking it. Gives the offset after the
    /// last batch.
    pub(crate) fn restore_tail(&self) -> Result<i64, LogError> {
        let size = self.size();
        let last = self.trusted(self.offsets.last()?);
        let last = last.filter(|&(offset, position)| {
            position < size && {
                let found = Scanner::new(&self.log, position, size).next(|_| false);
                let right = matches!(found, Ok(Some(b)) if b.header.last_offset() == offset);
                if !right {
                    self.distrust("offset index", offset, position);
                }
                right
            }
        });
        let time = match last.and(self.trusted(self.times.last()?)) {
            Some(entry) => self.is_time_of_batch(entry)?.then_some(entry),
            None => None,
        };
        // Without an index that can be believed, everything is walked.
        let from = match (last, self.index_is_wrong()) {
            (Some((_, position)), false) => position,
            _ => 0,
        };
        let mut largest = time.unwrap_or((NO_TIMESTAMP, self.base_offset));
        let mut next_offset = self.base_offset;
        let mut scan = Scanner::new(&self.log, from, size);
        while let Some(b) = scan
            .next(|_| false)
            .map_err(|s| self.damaged(s, next_offset))?
        {
            next_offset = b.header.next_offset();
            if b.header.max_timestamp > largest.0 {
                largest = (b.header.max_timestamp, b.header.last_offset());
            }
        }
        let mut t = self.tail.lock();
        t.bytes_since_index_entry = size - from;
        t.largest = Some(largest);
        t.first_timestamp = None;
        Ok(next_offset)
    }

    /// Empties the indexes before a rebuild by [`Self::note_batch`].
    pub(crate) fn reset_indexes(&self) -> Result<(), LogError> {
        self.offsets.reset()?;
        self.times.reset()?;
        let mut t = self.tail.lock();
        t.bytes_since_index_entry = 0;
        t.largest = Some((NO_TIMESTAMP, self.base_offset));
        t.first_timestamp = None;
        Ok(())
    }

    /// Offset after the last batch, found from the last index entry on; `None` when the headers
    /// there cannot be read.
    pub(crate) fn end_by_headers(&self) -> Option<i64> {
        let from = self.offsets.last().ok()?.map_or(0, |(_, at)| at);
        let mut scan = Scanner::new(&self.log, from, self.size());
        let mut end = self.base_offset;
        while let Some(b) = scan.next(|_| false).ok()? {
            end = b.header.next_offset();
        }
        Some(end)
    }
    /// Offset after the last batch in front of byte `position`; all of those batches end below
    /// `offset`.
    pub(crate) fn end_before(&self, offset: i64, position: u64) -> Result<i64, LogError> {
        let mut end = self.base_offset;
        let (mut scan, mut found) = self.walk_towards(offset.saturating_sub(1), position)?;
        while let Some(b) = found {
            end = b.header.next_offset();
            found = scan.next(|_| false).map_err(|s| self.damaged(s, end))?;
        }
        Ok(end)
    }
    /// Cuts the segment at `position`, which is the start of the batch at or after `offset`.
    pub(crate) fn truncate_at(&self, position: u64, offset: i64) -> Result<(), LogError> {
        self.publish(position.min(self.size()));
        self.offsets.truncate_to_position(position)?;
        self.times.truncate_to_offset(offset)?;
        self.txns.truncate_to_offset(offset)?;
        self.cut_file(position)?;
        self.restore_tail().map(|_| ())
    }
    /// Removes bytes behind the published size.
    pub(crate) fn cut_unpublished(&self) -> Result<(), LogError> {
        self.cut_file(self.size())
    }
    fn cut_file(&self, len: u64) -> Result<(), LogError> {
        self.reserve.lock().cut_at(len);
        self.log.set_len(len)
    }
    /// Writes bytes of batches; a segment that grew large has blocks reserved ahead of them.
    pub(crate) fn write(&self, bytes: &[u8], position: u64) -> Result<(), LogError> {
        let end = position + bytes.len() as u64;
        let ahead = self.reserve.lock().ahead_of(end);
        if let Some(range) = ahead {
            match self.log.reserve(range) {
                Ok(()) => self.reserved.store(true, Ordering::Relaxed),
                // Only speed is lost; whether the bytes fit is for the write to tell.
                Err(e) => {
                    tracing::debug!(segment = %self.log.path().display(), error = %e, "no blocks reserved ahead");
                    self.reserve.lock().failed();
                }
            }
        }
        self.log.write_at(bytes, position)
    }
    /// Gives reserved blocks behind the end back: nothing will be appended soon.
    pub(crate) fn give_back(&self) -> Result<(), LogError> {
        let size = self.size();
        if self.reserve.lock().is_ahead_of(size) {
            self.cut_file(size)?;
        }
        Ok(())
    }
    /// Whether blocks were reserved since the last call.
    pub(crate) fn take_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) && self.reserved.swap(false, Ordering::Relaxed)
    }
    /// Gives reserved blocks back when nothing was appended since the last call; gives whether some
    /// are still there.
    pub(crate) fn give_back_if_idle(&self) -> Result<bool, LogError> {
        let size = self.size();
        if !self.reserve.lock().is_idle_at(size) {
            return Ok(self.reserve.lock().is_ahead_of(size));
        }
        self.give_back()?;
        Ok(false)
    }
    /// Gives back what a broker that crashed had reserved.
    pub(crate) fn give_back_leftover(&self) -> Result<(), LogError> {
        let size = self.size();
        match self.log.bytes_allocated()? {
            Some(allocated) if allocated > size + LEFTOVER_BYTES_MIN => self.cut_file(size),
            _ => Ok(()),
        }
    }

    /// Transactions whose ABORT marker stands here. Error [`LogError::WrongIndex`]: they have to be
    /// read from the batches first.
    pub(crate) fn aborted(&self) -> Result<Arc<Vec<AbortedTxn>>, LogError> {
        self.txns.entries(self.size())
    }

    /// Writes out the indexes for good: no more appends will come (roll, close).
    pub(crate) fn seal(&self) -> Result<(), LogError> {
        let (timestamp, offset) = self.largest_timestamp()?;
        self.times.push_if_above(timestamp, offset)?;
        self.txns.seal(self.size())?;
        self.offsets.ensure_on_disk()?;
        self.times.ensure_on_disk()
    }
    /// Syncs the data, and for sealed segments the indexes, which recovery will not rebuild any
    /// more.
    pub(crate) fn sync(&self, sealed: bool) -> Result<(), LogError> {
        self.log.sync_if_dirty()?;
        if sealed {
            self.offsets.sync()?;
            self.times.sync()?;
            self.txns.sync()?;
        }
        Ok(())
    }
    /// Instead of [`Self::sync`], when a sync of the whole file system follows.
    pub(crate) fn synced_with_others(&self, sealed: bool) {
        self.log.synced_with_others();
        if sealed {
            self.offsets.file().synced_with_others();
            self.times.file().synced_with_others();
            self.txns.synced_with_others();
        }
    }
    /// Last step of a clean close.
    pub(crate) fn sync_indexes_and_release(&self) -> Result<(), LogError> {
        self.offsets.file().sync_if_dirty()?;
        self.times.file().sync_if_dirty()?;
        self.txns.sync()?;
        self.release_files();
        Ok(())
    }
    /// When the file was last written, epoch milliseconds (stands in for records without time).
    pub(crate) fn modified_ms(&self) -> Result<Option<i64>, LogError> {
        let modified = std::fs::metadata(self.log.path()).and_then(|m| m.modified());
        let modified = modified.map_err(|e| self.log.read_failed(e))?;
        Ok(modified
            .duration_since(std::time::UNIX_EPOCH)
            .ok()
            .and_then(|d| i64::try_from(d.as_millis()).ok()))
    }
    /// Opens everything that a cut changes, so that no shortage comes between its steps; hold the
    /// answer until it is done.
    pub(crate) fn open_all(&self) -> Result<Vec<Arc<std::fs::File>>, LogError> {
        let mut open = Vec::new();
        for file in self.files() {
            if file.len_on_disk()?.is_some() {
                open.push(file.get_to_change()?);
            }
        }
        Ok(open)
    }
    fn files(&self) -> [&Arc<FileHandle>; 4] {
        [
            &self.log,
            self.offsets.file(),
            self.times.file(),
            self.txns.file(),
        ]
    }
    /// Closes the descriptors; they come back when needed.
    pub(crate) fn release_files(&self) {
        self.files().iter().for_each(|f| f.close());
    }
    /// Removes all its files, the log last: an index without its log is then no leftover but proof
    /// that the log is missing. The offset index first: where there is none, a missing transaction
    /// index is not taken for an empty one.
    pub(crate) fn remove(&self) -> Result<(), LogError> {
        self.offsets.file().remove()?;
        self.times.file().remove()?;
        self.txns.remove()?;
        self.log.remove()
    }
    pub(crate) fn damaged(&self, stop: Stop, near_offset: i64) -> LogError {
        match stop {
            Stop::Failed(e) => e,
            Stop::Bad { position, reason } => LogError::Damaged {
                path: self.log.path().to_path_buf(),
                position,
                offset: near_offset,
                reason,
            },
        }
    }
}
