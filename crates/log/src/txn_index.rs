//! Aborted transactions of one segment: Kafka's `.txnindex`, entries of 34 bytes (version 0). The
//! file exists only when there is an entry. Its entries have no checksum, so that of the whole file
//! stands beside it in `.txnindex.crc`, with the size of the `.log` that it was made from: whatever
//! does not fit it is rebuilt from the batches.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use tarn_records::crc32c;

use crate::error::LogError;
use crate::file::FileHandle;
use crate::names;
use crate::state::LogDirState;
use crate::types::AbortedTxn;

const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// Entries that may wait in memory: what a crash takes is rebuilt from the batches.
const PENDING_MAX: usize = 256;
/// No index is larger, and its checksum is a line.
const FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// Which files of an index a directory listing showed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TxnFiles {
    pub(crate) index: bool,
    pub(crate) crc: bool,
}

/// Index of the transactions whose ABORT marker stands in this segment.
#[derive(Debug)]
pub(crate) struct TxnIndex {
    file: Arc<FileHandle>,
    entries: RwLock<Entries>,
    /// The file of the checksum has bytes that no sync has covered.
    crc_unsynced: AtomicBool,
    /// What is on disk was found wrong.
    wrong: AtomicBool,
}

#[derive(Debug)]
struct Entries {
    /// `None`: on disk, not read yet.
    list: Option<Arc<Vec<AbortedTxn>>>,
    /// Of the list; the others are not written yet.
    in_file: usize,
    /// The checksum on disk is that of the list, for a `.log` of this size.
    sealed_at: Option<u64>,
}

impl Entries {
    fn in_memory(list: Vec<AbortedTxn>) -> Entries {
        Entries {
            list: Some(Arc::new(list)),
            in_file: 0,
            sealed_at: None,
        }
    }
}

impl TxnIndex {
    pub(crate) fn new(path: PathBuf, state: &Arc<LogDirState>) -> Self {
        TxnIndex {
            file: FileHandle::new(path, state),
            entries: RwLock::new(Entries::in_memory(Vec::new())),
            crc_unsynced: AtomicBool::new(false),
            wrong: AtomicBool::new(false),
        }
    }
    /// Takes over what is on disk. Without any file the index is empty, but only where the
    /// `indexed` segment was finished: the offset index is written last, and removed first.
    pub(crate) fn load(&self, files: TxnFiles, indexed: bool) -> Result<(), LogError> {
        let blank = !files.crc && (!files.index || self.file.len_on_disk()?.unwrap_or(0) == 0);
        if !(blank && indexed) {
            self.entries.write().list = None;
        }
        Ok(())
    }
    /// The entries. Error [`LogError::WrongIndex`]: what is on disk is not what was written,
    /// [`Self::replace`] is needed first.
    pub(crate) fn entries(&self, log_bytes: u64) -> Result<Arc<Vec<AbortedTxn>>, LogError> {
        if let Some(list) = self.in_memory() {
            return Ok(list);
        }
        let Some(list) = self.read(log_bytes)? else {
            return Err(self.distrust());
        };
        let list = Arc::new(list);
        let mut entries = self.entries.write();
        if let Some(list) = &entries.list {
            return Ok(Arc::clone(list));
        }
        entries.in_file = list.len();
        entries.sealed_at = Some(log_bytes);
        entries.list = Some(Arc::clone(&list));
        Ok(list)
    }
    /// The entries, when they were read already.
    pub(crate) fn in_memory(&self) -> Option<Arc<Vec<AbortedTxn>>> {
        self.entries.read().list.as_ref().map(Arc::clone)
    }
    /// What is on disk, if it is what the checksum says.
    fn read(&self, log_bytes: u64) -> Result<Option<Vec<AbortedTxn>>, LogError> {
        let (Some(bytes), Some(crc)) = (content(&self.file)?, content(&self.crc_file())?) else {
            return Ok(None);
        };
        if crc != checksum(&bytes, log_bytes) || bytes.len() % ENTRY_BYTES != 0 {
            return Ok(None);
        }
        Ok(bytes.chunks_exact(ENTRY_BYTES).map(decode).collect())
    }
    fn distrust(&self) -> LogError {
        self.wrong.store(true, Ordering::Release);
        self.file.state().want_repair();
        LogError::WrongIndex {
            path: self.file.path().to_path_buf(),
        }
    }
    /// Whether what is on disk was found wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.wrong.load(Ordering::Acquire)
    }
    /// Compares what is on disk with its checksum, and with what readers are told.
    pub(crate) fn compare(&self, log_bytes: u64) -> Result<(), LogError> {
        let known = self.in_memory();
        let sealed = || self.entries.read().sealed_at == Some(log_bytes);
        if known.as_ref().is_some_and(|l| l.is_empty() || !sealed()) {
            return Ok(());
        }
        let found = self.read(log_bytes)?;
        let right = found.is_some() && known.as_ref().is_none_or(|l| found.as_ref() == Some(l));
        // Unless it was being changed meanwhile.
        if !right && (known.is_none() || sealed()) {
            self.distrust();
        }
        Ok(())
    }
    /// Takes entries that are written with the next sync.
    pub(crate) fn hold(&self, entries: Vec<AbortedTxn>) {
        *self.entries.write() = Entries::in_memory(entries);
    }
    /// Whether there may be any entry.
    pub(crate) fn has_any(&self) -> bool {
        self.entries
            .read()
            .list
            .as_ref()
            .is_none_or(|l| !l.is_empty())
    }
    /// Adds an entry. What was on disk before was read when the log was opened.
    pub(crate) fn push(&self, txn: AbortedTxn) -> Result<(), LogError> {
        let pending = {
            let mut entries = self.entries.write();
            let Some(list) = &mut entries.list else {
                drop(entries);
                return Err(self.distrust());
            };
            // Copied only while a reader looks at it.
            let list = Arc::make_mut(list);
            list.push(txn);
            let len = list.len();
            entries.sealed_at = None;
            len - entries.in_file
        };
        if pending < PENDING_MAX {
            return Ok(());
        }
        match self.write_out() {
            // The marker is in the log already: the entries wait in memory until there is room.
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    /// Writes what the file does not have yet. Only the writer of the log calls it, or who seals or
    /// syncs it.
    pub(crate) fn write_out(&self) -> Result<(), LogError> {
        let (missing, in_file, len) = {
            let entries = self.entries.read();
            let list = entries.list.as_deref().map_or(&[][..], Vec::as_slice);
            let missing = list.get(entries.in_file..).unwrap_or_default();
            (encode_all(missing), entries.in_file, list.len())
        };
        if missing.is_empty() {
            return Ok(());
        }
        self.file
            .write_at(&missing, (in_file * ENTRY_BYTES) as u64)?;
        // Two writers of the same entries write the same bytes.
        self.entries.write().in_file = len;
        Ok(())
    }
    /// Writes everything out, and the checksum: the segment is complete, its `.log` has this size.
    pub(crate) fn seal(&self, log_bytes: u64) -> Result<(), LogError> {
        self.write_out()?;
        let content = {
            let entries = self.entries.read();
            match &entries.list {
                Some(list) if !list.is_empty() && entries.sealed_at != Some(log_bytes) => {
                    checksum(&encode_all(list), log_bytes)
                }
                _ => return Ok(()),
            }
        };
        let path = self.crc_path();
        self.file.state().replace_file(&path, &content, false)?;
        self.crc_unsynced.store(true, Ordering::Release);
        self.entries.write().sealed_at = Some(log_bytes);
        Ok(())
    }
    /// Whether a checksum was written that no sync has covered.
    pub(crate) fn crc_is_unsynced(&self) -> bool {
        self.crc_unsynced.load(Ordering::Acquire)
    }
    /// Puts `list` in the place of what is on disk. The old checksum goes last, so that a crash on
    /// the way leaves an index that is seen to be wrong.
    pub(crate) fn replace(&self, list: Vec<AbortedTxn>, log_bytes: u64) -> Result<(), LogError> {
        let len = (list.len() * ENTRY_BYTES) as u64;
        *self.entries.write() = Entries::in_memory(list);
        self.wrong.store(false, Ordering::Release);
        if len == 0 {
            self.file.remove()?;
            return self.remove_crc();
        }
        let written = self.write_out().and_then(|()| {
            if self.file.len_on_disk()?.is_some_and(|l| l > len) {
                self.file.set_len(len)?;
            }
            self.seal(log_bytes)
        });
        match written {
            // Readers have the entries, and the next start does this again.
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    /// Drops transactions whose marker is at or above `offset`. What was on disk was read before.
    pub(crate) fn truncate_to_offset(&self, offset: i64) -> Result<(), LogError> {
        let Some(list) = self.in_memory() else {
            return Err(self.distrust());
        };
        let keep = list.partition_point(|t| t.last_offset < offset);
        if keep == list.len() {
            return Ok(());
        }
        self.entries.write().sealed_at = None;
        self.remove_crc()?;
        let mut entries = self.entries.write();
        if entries.in_file > keep {
            self.file.set_len((keep * ENTRY_BYTES) as u64)?;
            entries.in_file = keep;
        }
        entries.list = Some(Arc::new(list[..keep].to_vec()));
        Ok(())
    }
    pub(crate) fn reset(&self) -> Result<(), LogError> {
        let had_any = self.has_any();
        self.hold(Vec::new());
        self.file.remove()?;
        if had_any { self.remove_crc() } else { Ok(()) }
    }
    /// Removes its files, that of the checksum last: without it, a missing index would be an empty
    /// one.
    pub(crate) fn remove(&self) -> Result<(), LogError> {
        self.file.remove()?;
        if self.has_any() {
            self.remove_crc()?;
        }
        Ok(())
    }
    fn remove_crc(&self) -> Result<(), LogError> {
        self.crc_unsynced.store(false, Ordering::Release);
        self.crc_file().remove()
    }
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.write_out()?;
        self.file.sync_if_dirty()?;
        if self.crc_unsynced.swap(false, Ordering::AcqRel) {
            self.file.state().sync_file(&self.crc_path())?;
        }
        Ok(())
    }
    /// Instead of [`Self::sync`], when a sync of the whole file system follows.
    pub(crate) fn synced_with_others(&self) {
        self.file.synced_with_others();
        self.crc_unsynced.store(false, Ordering::Release);
    }
    pub(crate) fn file(&self) -> &Arc<FileHandle> {
        &self.file
    }
    fn crc_path(&self) -> PathBuf {
        self.file.path().with_extension(names::TXN_INDEX_CRC)
    }
    fn crc_file(&self) -> Arc<FileHandle> {
        FileHandle::new(self.crc_path(), self.file.state())
    }
}

/// The whole file; `None` when it is not there or cannot be read, which only a shortage is told
/// apart from.
fn content(file: &Arc<FileHandle>) -> Result<Option<Vec<u8>>, LogError> {
    let unless_short = |e: LogError| if e.is_shortage() { Err(e) } else { Ok(None) };
    let len = match file.len_on_disk() {
        Ok(Some(len)) if len <= FILE_BYTES_MAX => len,
        Ok(_) => return Ok(None),
        Err(e) => return unless_short(e),
    };
    let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
    match file.read_at(&mut bytes, 0) {
        Ok(n) => {
            bytes.truncate(n);
            Ok(Some(bytes))
        }
        Err(e) => unless_short(e),
    }
}

/// Content of the file beside an index of these bytes.
fn checksum(index: &[u8], log_bytes: u64) -> Vec<u8> {
    let (entries, crc) = (index.len() / ENTRY_BYTES, crc32c(index));
    format!("{VERSION}\n{entries} {log_bytes} {crc:08x}\n").into_bytes()
}

fn encode_all(list: &[AbortedTxn]) -> Vec<u8> {
    list.iter().flat_map(encode).collect()
}

fn encode(t: &AbortedTxn) -> [u8; ENTRY_BYTES] {
    let mut e = [0u8; ENTRY_BYTES];
    e[..2].copy_from_slice(&VERSION.to_be_bytes());
    for (i, v) in [
        t.producer_id,
        t.first_offset,
        t.last_offset,
        t.last_stable_offset,
    ]
    .iter()
    .enumerate()
    {
        e[2 + 8 * i..10 + 8 * i].copy_from_slice(&v.to_be_bytes());
    }
    e
}

fn decode(e: &[u8]) -> Option<AbortedTxn> {
    if i16::from_be_bytes([e[0], e[1]]) != VERSION {
        return None;
    }
    let word = |i: usize| {
        let mut w = [0u8; 8];
        w.copy_from_slice(&e[2 + 8 * i..10 + 8 * i]);
        i64::from_be_bytes(w)
    };
    Some(AbortedTxn {
        producer_id: word(0),
        first_offset: word(1),
        last_offset: word(2),
        last_stable_offset: word(3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry is added to the list, not to a copy of it, and not written by itself.
    #[test]
    fn adding_an_entry_costs_the_same_however_many_there_are() {
        let root = tempfile::tempdir().unwrap();
        let state = LogDirState::detached(root.path());
        let index = TxnIndex::new(root.path().join("0.txnindex"), &state);
        let (mut places, mut last, mut writes, mut len) = (0, std::ptr::null(), 0, 0);
        for n in 0..20_000 {
            let txn = AbortedTxn {
                producer_id: n,
                first_offset: 2 * n,
                last_offset: 2 * n + 1,
                last_stable_offset: 2 * n + 2,
            };
            index.push(txn).unwrap();
            let list = index.in_memory().unwrap();
            places += usize::from(list.as_ptr() != last);
            last = list.as_ptr();
            let on_disk = index.file.len_on_disk().unwrap().unwrap_or(0);
            writes += usize::from(on_disk != len);
            len = on_disk;
        }
        assert!(places < 40, "the list moved {places} times");
        assert!(writes <= 20_000 / PENDING_MAX, "{writes} writes");
        index.seal(77).unwrap();
        index.sync().unwrap();
        let again = TxnIndex::new(root.path().join("0.txnindex"), &state);
        let files = TxnFiles {
            index: true,
            crc: true,
        };
        again.load(files, true).unwrap();
        assert!(again.entries(78).is_err(), "of another log");
        assert_eq!(again.entries(77).unwrap().len(), 20_000);
    }
}
