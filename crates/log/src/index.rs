//! Offset and time index of one segment, in Kafka's formats: big-endian
//! `(relative offset i32, position i32)` and `(timestamp i64, relative offset i32)`.
//!
//! New entries sit in memory until [`EntryFile::spill`]; older ones are in the file and are read
//! with pread. Readers take a lock that is never held over I/O of the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::error::LogError;
use crate::file::FileHandle;
use crate::state::LogDirState;

/// Entries held in memory before they are written out (8 KiB of log per KiB of index at most is at
/// stake in a crash, and recovery rebuilds it).
const PENDING_MAX: usize = 512;

/// An append-only file of fixed-size entries.
#[derive(Debug)]
struct EntryFile<const N: usize> {
    file: Arc<FileHandle>,
    inner: RwLock<Entries<N>>,
    /// Entries stay in memory: the name belongs to another file still.
    held: AtomicBool,
}

#[derive(Debug)]
struct Entries<const N: usize> {
    in_file: usize,
    pending: Vec<[u8; N]>,
    last: Option<[u8; N]>,
}

impl<const N: usize> EntryFile<N> {
    fn empty(file: Arc<FileHandle>) -> Self {
        EntryFile {
            file,
            inner: RwLock::new(Entries {
                in_file: 0,
                pending: Vec::new(),
                last: None,
            }),
            held: AtomicBool::new(false),
        }
    }
    /// Takes over what is on disk; `Ok(None)` when the file cannot be trusted (odd length).
    fn load(file: Arc<FileHandle>) -> Result<Option<Self>, LogError> {
        let len = file.len_on_disk()?.unwrap_or(0);
        if len % N as u64 != 0 {
            return Ok(None);
        }
        let index = EntryFile::<N>::empty(file);
        index.inner.write().in_file = (len / N as u64) as usize;
        Ok(Some(index))
    }
    fn len(&self) -> usize {
        let i = self.inner.read();
        i.in_file + i.pending.len()
    }
    fn get(&self, at: usize) -> Result<Option<[u8; N]>, LogError> {
        {
            let i = self.inner.read();
            if at >= i.in_file {
                return Ok(i.pending.get(at - i.in_file).copied());
            }
        }
        let mut buf = [0u8; N];
        let n = self.file.read_at(&mut buf, (at * N) as u64)?;
        Ok((n == N).then_some(buf))
    }
    fn last(&self) -> Result<Option<[u8; N]>, LogError> {
        if let Some(last) = self.inner.read().last {
            return Ok(Some(last));
        }
        let len = self.len();
        let last = if len == 0 { None } else { self.get(len - 1)? };
        self.inner.write().last = last;
        Ok(last)
    }
    fn push(&self, entry: [u8; N]) {
        let mut i = self.inner.write();
        i.pending.push(entry);
        i.last = Some(entry);
    }
    /// Writes the pending entries to the file (not synced). Only the writer calls it.
    fn spill(&self) -> Result<(), LogError> {
        let (bytes, count, at) = {
            let i = self.inner.read();
            (i.pending.concat(), i.pending.len(), i.in_file)
        };
        if count > 0 {
            self.file.write_at(&bytes, (at * N) as u64)?;
            let mut i = self.inner.write();
            i.in_file += count;
            i.pending.drain(..count);
        }
        Ok(())
    }
    fn spill_if_many(&self) -> Result<(), LogError> {
        if self.held.load(Ordering::Relaxed) || self.inner.read().pending.len() < PENDING_MAX {
            return Ok(());
        }
        match self.spill() {
            // The batches are in the log already: the entries wait in memory until there is room.
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    fn truncate(&self, entries: usize) -> Result<(), LogError> {
        let cut_file = {
            let mut i = self.inner.write();
            i.last = None;
            let in_file = i.in_file;
            i.pending.truncate(entries.saturating_sub(in_file));
            i.in_file = in_file.min(entries);
            in_file > entries
        };
        if cut_file {
            self.file.set_len((entries * N) as u64)?;
        }
        Ok(())
    }
    /// Forgets everything, in memory and on disk (before a rebuild).
    fn reset(&self) -> Result<(), LogError> {
        *self.inner.write() = Entries {
            in_file: 0,
            pending: Vec::new(),
            last: None,
        };
        if self.file.len_on_disk()?.unwrap_or(0) > 0 {
            self.file.set_len(0)
        } else {
            Ok(())
        }
    }
    /// Number of entries for which `before` holds; they must stand in front.
    fn partition_point(&self, before: impl Fn(&[u8; N]) -> bool) -> Result<usize, LogError> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            match self.get(mid)? {
                Some(e) if before(&e) => low = mid + 1,
                _ => high = mid,
            }
        }
        Ok(low)
    }
    fn sync(&self) -> Result<(), LogError> {
        self.file.sync_if_dirty()
    }
    /// A file as Kafka expects it beside every segment, also when it has no entry.
    fn ensure_on_disk(&self) -> Result<(), LogError> {
        self.spill()?;
        self.file.create()
    }
}

fn word32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The offset index: (last offset of a batch, position of that batch).
#[derive(Debug)]
pub(crate) struct OffsetIndex {
    base: i64,
    entries: EntryFile<8>,
}

impl OffsetIndex {
    pub(crate) fn new(path: std::path::PathBuf, base: i64, state: &Arc<LogDirState>) -> Self {
        OffsetIndex {
            base,
            entries: EntryFile::empty(FileHandle::new(path, state)),
        }
    }
    /// `Ok(false)`: not usable as it is, must be rebuilt.
    pub(crate) fn load(&mut self, log_size: u64) -> Result<bool, LogError> {
        let Some(entries) = EntryFile::load(Arc::clone(&self.entries.file))? else {
            return Ok(false);
        };
        self.entries = entries;
        Ok(match self.last()? {
            Some((offset, position)) => offset >= self.base && position < log_size && position > 0,
            None => true,
        })
    }
    fn decode(&self, e: &[u8; 8]) -> (i64, u64) {
        (self.base + i64::from(word32(e, 0)), u64::from(word32(e, 4)))
    }
    /// Whether new entries stay in memory until it is sealed.
    pub(crate) fn hold(&self, held: bool) {
        self.entries.held.store(held, Ordering::Relaxed);
    }
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
    pub(crate) fn is_on_disk(&self) -> Result<bool, LogError> {
        Ok(self.entries.file.len_on_disk()?.is_some())
    }
    pub(crate) fn last(&self) -> Result<Option<(i64, u64)>, LogError> {
        Ok(self.entries.last()?.map(|e| self.decode(&e)))
    }
    /// Adds an entry; the segment has checked that both values fit.
    pub(crate) fn push(&self, last_offset: i64, position: u64) -> Result<(), LogError> {
        let mut e = [0u8; 8];
        e[..4].copy_from_slice(&((last_offset - self.base) as u32).to_be_bytes());
        e[4..].copy_from_slice(&(position as u32).to_be_bytes());
        self.entries.push(e);
        self.entries.spill_if_many()
    }
    /// The last entry at or below `offset`: last offset of a batch, and its position. A forward
    /// walk from there finds `offset`, if the entry is right: compare it with the batch. `None`:
    /// walk from the start.
    pub(crate) fn lookup(&self, offset: i64) -> Result<Option<(i64, u64)>, LogError> {
        let n = self
            .entries
            .partition_point(|e| self.decode(e).0 <= offset)?;
        match n.checked_sub(1) {
            None => Ok(None),
            Some(at) => Ok(self.entries.get(at)?.map(|e| self.decode(&e))),
        }
    }
    /// Number of the first entry at or behind `position`.
    pub(crate) fn first_behind(&self, position: u64) -> Result<usize, LogError> {
        self.entries
            .partition_point(|e| self.decode(e).1 < position)
    }
    /// Entry number `at`.
    pub(crate) fn entry(&self, at: usize) -> Result<Option<(i64, u64)>, LogError> {
        Ok(self.entries.get(at)?.map(|e| self.decode(&e)))
    }
    /// Drops entries of batches at or behind `position`.
    pub(crate) fn truncate_to_position(&self, position: u64) -> Result<(), LogError> {
        let n = self
            .entries
            .partition_point(|e| self.decode(e).1 < position)?;
        self.entries.truncate(n)
    }
    pub(crate) fn reset(&self) -> Result<(), LogError> {
        self.entries.reset()
    }
    pub(crate) fn ensure_on_disk(&self) -> Result<(), LogError> {
        self.entries.ensure_on_disk()
    }
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.entries.sync()
    }
    pub(crate) fn file(&self) -> &Arc<FileHandle> {
        &self.entries.file
    }
}

/// The time index: (largest timestamp so far, last offset of the batch that has it), rising in
/// both.
#[derive(Debug)]
pub(crate) struct TimeIndex {
    base: i64,
    entries: EntryFile<12>,
}

impl TimeIndex {
    pub(crate) fn new(path: std::path::PathBuf, base: i64, state: &Arc<LogDirState>) -> Self {
        TimeIndex {
            base,
            entries: EntryFile::empty(FileHandle::new(path, state)),
        }
    }
    /// `Ok(false)`: not usable as it is, must be rebuilt.
    pub(crate) fn load(&mut self) -> Result<bool, LogError> {
        let Some(entries) = EntryFile::load(Arc::clone(&self.entries.file))? else {
            return Ok(false);
        };
        self.entries = entries;
        Ok(match self.last()? {
            Some((timestamp, offset)) => timestamp >= 0 && offset >= self.base,
            None => true,
        })
    }
    fn decode(&self, e: &[u8; 12]) -> (i64, i64) {
        let timestamp = i64::from_be_bytes([e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]]);
        (timestamp, self.base + i64::from(word32(e, 8)))
    }
    /// Whether new entries stay in memory until it is sealed.
    pub(crate) fn hold(&self, held: bool) {
        self.entries.held.store(held, Ordering::Relaxed);
    }
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
    pub(crate) fn last(&self) -> Result<Option<(i64, i64)>, LogError> {
        Ok(self.entries.last()?.map(|e| self.decode(&e)))
    }
    /// Adds an entry when it rises above the last one.
    pub(crate) fn push_if_above(&self, timestamp: i64, offset: i64) -> Result<(), LogError> {
        if timestamp < 0
            || self
                .last()?
                .is_some_and(|(t, o)| timestamp <= t || offset < o)
        {
            return Ok(());
        }
        let mut e = [0u8; 12];
        e[..8].copy_from_slice(&timestamp.to_be_bytes());
        e[8..].copy_from_slice(&((offset - self.base) as u32).to_be_bytes());
        self.entries.push(e);
        self.entries.spill_if_many()
    }
    /// The last entry below `timestamp`: no record in front of its batch has a timestamp ≥
    /// `timestamp`, if the entry is right: compare it with the batch. `None`: look from the start.
    pub(crate) fn lookup(&self, timestamp: i64) -> Result<Option<(i64, i64)>, LogError> {
        let n = self
            .entries
            .partition_point(|e| self.decode(e).0 < timestamp)?;
        match n.checked_sub(1) {
            None => Ok(None),
            Some(at) => Ok(self.entries.get(at)?.map(|e| self.decode(&e))),
        }
    }
    /// Drops entries of offsets ≥ `offset`.
    pub(crate) fn truncate_to_offset(&self, offset: i64) -> Result<(), LogError> {
        let n = self
            .entries
            .partition_point(|e| self.decode(e).1 < offset)?;
        self.entries.truncate(n)
    }
    pub(crate) fn reset(&self) -> Result<(), LogError> {
        self.entries.reset()
    }
    pub(crate) fn ensure_on_disk(&self) -> Result<(), LogError> {
        self.entries.ensure_on_disk()
    }
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.entries.sync()
    }
    pub(crate) fn file(&self) -> &Arc<FileHandle> {
        &self.entries.file
    }
}
