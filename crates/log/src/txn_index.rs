//! Aborted transactions of one segment: Kafka's `.txnindex`, entries of 34 bytes (version 0). The
//! file exists only when there is an entry.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::LogError;
use crate::file::FileHandle;
use crate::state::LogDirState;
use crate::types::AbortedTxn;

const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// Entries that may wait in memory: what a crash takes is rebuilt from the batches.
const PENDING_MAX: usize = 256;

/// Index of the transactions whose ABORT marker stands in this segment.
#[derive(Debug)]
pub(crate) struct TxnIndex {
    file: Arc<FileHandle>,
    entries: RwLock<Entries>,
}

#[derive(Debug)]
struct Entries {
    /// `None`: on disk, not read yet.
    list: Option<Arc<Vec<AbortedTxn>>>,
    /// Of the list; the others are not written yet.
    in_file: usize,
}

impl TxnIndex {
    pub(crate) fn new(path: PathBuf, state: &Arc<LogDirState>) -> Self {
        TxnIndex {
            file: FileHandle::new(path, state),
            entries: RwLock::new(Entries {
                list: Some(Arc::default()),
                in_file: 0,
            }),
        }
    }
    /// Takes over what is on disk.
    pub(crate) fn load(&self) -> Result<(), LogError> {
        if self.file.len_on_disk()?.unwrap_or(0) > 0 {
            self.entries.write().list = None;
        }
        Ok(())
    }
    pub(crate) fn entries(&self) -> Result<Arc<Vec<AbortedTxn>>, LogError> {
        if let Some(list) = self.entries.read().list.as_ref() {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(self.read()?);
        let mut entries = self.entries.write();
        if let Some(list) = &entries.list {
            return Ok(Arc::clone(list));
        }
        entries.in_file = list.len();
        entries.list = Some(Arc::clone(&list));
        Ok(list)
    }
    fn read(&self) -> Result<Vec<AbortedTxn>, LogError> {
        let len = self.file.len_on_disk()?.unwrap_or(0);
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        let n = self.file.read_at(&mut bytes, 0)?;
        let bad = |reason: &str| LogError::BadFile {
            path: self.file.path().to_path_buf(),
            reason: reason.to_owned(),
        };
        if n % ENTRY_BYTES != 0 {
            return Err(bad("length is not a whole number of entries"));
        }
        let mut list = Vec::new();
        for e in bytes[..n].chunks_exact(ENTRY_BYTES) {
            list.push(decode(e).ok_or_else(|| bad("unknown entry version"))?);
        }
        Ok(list)
    }
    /// Takes entries that are written with the next sync.
    pub(crate) fn hold(&self, entries: Vec<AbortedTxn>) {
        *self.entries.write() = Entries {
            list: Some(Arc::new(entries)),
            in_file: 0,
        };
    }
    /// Whether there may be any entry.
    pub(crate) fn has_any(&self) -> bool {
        self.entries
            .read()
            .list
            .as_ref()
            .is_none_or(|l| !l.is_empty())
    }
    pub(crate) fn push(&self, txn: AbortedTxn) -> Result<(), LogError> {
        self.entries()?;
        let pending = {
            let mut entries = self.entries.write();
            let in_file = entries.in_file;
            // Copied only while a reader looks at it.
            let list = Arc::make_mut(entries.list.get_or_insert_default());
            list.push(txn);
            list.len() - in_file
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
            let bytes: Vec<u8> = missing.iter().flat_map(encode).collect();
            (bytes, entries.in_file, list.len())
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
    /// Drops transactions whose marker is at or above `offset`.
    pub(crate) fn truncate_to_offset(&self, offset: i64) -> Result<(), LogError> {
        let list = self.entries()?;
        let keep = list.partition_point(|t| t.last_offset < offset);
        if keep < list.len() {
            let mut entries = self.entries.write();
            if entries.in_file > keep {
                self.file.set_len((keep * ENTRY_BYTES) as u64)?;
                entries.in_file = keep;
            }
            entries.list = Some(Arc::new(list[..keep].to_vec()));
        }
        Ok(())
    }
    pub(crate) fn reset(&self) -> Result<(), LogError> {
        *self.entries.write() = Entries {
            list: Some(Arc::default()),
            in_file: 0,
        };
        self.file.remove()
    }
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.write_out()?;
        self.file.sync_if_dirty()
    }
    pub(crate) fn file(&self) -> &Arc<FileHandle> {
        &self.file
    }
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
            let list = index.entries().unwrap();
            places += usize::from(list.as_ptr() != last);
            last = list.as_ptr();
            let on_disk = index.file.len_on_disk().unwrap().unwrap_or(0);
            writes += usize::from(on_disk != len);
            len = on_disk;
        }
        assert!(places < 40, "the list moved {places} times");
        assert!(writes <= 20_000 / PENDING_MAX, "{writes} writes");
        index.sync().unwrap();
        let again = TxnIndex::new(root.path().join("0.txnindex"), &state);
        again.load().unwrap();
        assert_eq!(again.entries().unwrap().len(), 20_000);
    }
}
