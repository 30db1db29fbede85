//! Aborted transactions of one segment: Kafka's `.txnindex`, entries of 34 bytes (version 0). The file exists only when
//! there is an entry.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::LogError;
use crate::file::FileHandle;
use crate::state::LogDirState;
use crate::types::AbortedTxn;

const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// Index of the transactions whose ABORT marker stands in this segment.
#[derive(Debug)]
pub(crate) struct TxnIndex {
    file: Arc<FileHandle>,
    /// `None`: on disk, not read yet.
    entries: RwLock<Option<Arc<Vec<AbortedTxn>>>>,
}

impl TxnIndex {
    pub(crate) fn new(path: PathBuf, state: &Arc<LogDirState>) -> Self {
        TxnIndex {
            file: FileHandle::new(path, state),
            entries: RwLock::new(Some(Arc::default())),
        }
    }
    /// Takes over what is on disk.
    pub(crate) fn load(&self) -> Result<(), LogError> {
        if self.file.len_on_disk()?.unwrap_or(0) > 0 {
            *self.entries.write() = None;
        }
        Ok(())
    }
    pub(crate) fn entries(&self) -> Result<Arc<Vec<AbortedTxn>>, LogError> {
        if let Some(e) = self.entries.read().as_ref() {
            return Ok(Arc::clone(e));
        }
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
        let list = Arc::new(list);
        *self.entries.write() = Some(Arc::clone(&list));
        Ok(list)
    }
    /// Takes entries that are written with the next sync.
    pub(crate) fn hold(&self, entries: Vec<AbortedTxn>) {
        *self.entries.write() = Some(Arc::new(entries));
    }
    pub(crate) fn push(&self, txn: AbortedTxn) -> Result<(), LogError> {
        let mut list = Vec::clone(&*self.entries()?);
        list.push(txn);
        *self.entries.write() = Some(Arc::new(list));
        match self.write_out() {
            // The marker is in the log already: the entry waits in memory until there is room.
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    /// Writes what the file does not have yet.
    fn write_out(&self) -> Result<(), LogError> {
        let list = self.entries()?;
        let in_file = (self.file.len_on_disk()?.unwrap_or(0) / ENTRY_BYTES as u64) as usize;
        let missing: Vec<u8> = list.iter().skip(in_file).flat_map(encode).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            self.file.write_at(&missing, (in_file * ENTRY_BYTES) as u64)
        }
    }
    /// Drops transactions whose marker is at or above `offset`.
    pub(crate) fn truncate_to_offset(&self, offset: i64) -> Result<(), LogError> {
        let list = self.entries()?;
        let keep = list.partition_point(|t| t.last_offset < offset);
        if keep < list.len() {
            self.write_out()?;
            self.file.set_len((keep * ENTRY_BYTES) as u64)?;
            *self.entries.write() = Some(Arc::new(list[..keep].to_vec()));
        }
        Ok(())
    }
    pub(crate) fn reset(&self) -> Result<(), LogError> {
        *self.entries.write() = Some(Arc::default());
        self.file.remove()
    }
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.write_out()?;
        if self.file.len_on_disk()?.is_some() {
            self.file.sync()
        } else {
            Ok(())
        }
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
