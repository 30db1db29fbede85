//! `synced-end`: how far the metadata log has been synced. Below that offset nothing is a torn
//! write.
//!
//! A batch that a whole one follows proves by that to have been synced; only the last one needs
//! this file. It is written after the sync of each commit, which costs no second sync: it is synced
//! when nothing was committed for a while, and at a clean end. So it may say less than is true,
//! after a power cut at the wrong moment, but never more. Two slots take turns, so that a torn
//! write of one leaves the other.
//!
//! A quorum of several, where a follower's log is cut by its leader, will have to lower it before
//! the cut.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tarn_records::crc32c;
use tracing::warn;

use crate::{ControllerError, atomic_file};

/// Name of the file.
pub(crate) const FILE: &str = "synced-end";
const MAGIC: &[u8; 8] = b"tarnend1";
/// Magic, number of the write, offset, checksum.
const SLOT_USED: usize = 28;
/// A slot is alone in its block of the disk.
const SLOT_BYTES: u64 = 4096;
const SLOTS: u64 = 2;

/// The open file.
#[derive(Debug)]
pub(crate) struct SyncedEnd {
    path: PathBuf,
    file: File,
    writes: u64,
    end: i64,
    unsynced: bool,
}

impl SyncedEnd {
    /// What the file in `dir` says; `None` without a usable one (a new log, or one of an older
    /// version).
    pub(crate) fn read(dir: &Path) -> Result<Option<i64>, ControllerError> {
        Ok(newest(dir)?.map(|(_, end)| end))
    }

    /// Opens the file for a log that is on disk up to `end`, creating it when needed.
    pub(crate) fn open(dir: &Path, end: i64) -> Result<SyncedEnd, ControllerError> {
        let path = dir.join(FILE);
        let found = newest(dir)?;
        let failed = |error| ControllerError::file("open", &path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let mut this = SyncedEnd {
            file,
            writes: found.map_or(0, |(writes, _)| writes),
            end: found.map_or(0, |(_, end)| end),
            unsynced: false,
            path,
        };
        if found.is_none() {
            // All blocks are taken now: a full disk must not keep it from being written later.
            let blank = vec![0; (SLOT_BYTES * SLOTS) as usize];
            let written = this.file.write_all_at(&blank, 0);
            let synced = written.and_then(|()| this.file.sync_all());
            match synced {
                Err(error) if is_full(&error) => {
                    warn!(path = %this.path.display(), %error, "the synced end of the metadata log cannot be kept")
                }
                synced => {
                    synced.map_err(|error| ControllerError::file("write", &this.path, error))?;
                    atomic_file::sync_parent(&this.path)?;
                }
            }
        }
        this.reached(end)?;
        Ok(this)
    }

    /// The log is synced up to `end`.
    pub(crate) fn reached(&mut self, end: i64) -> Result<(), ControllerError> {
        if end <= self.end {
            return Ok(());
        }
        let slot = encode(self.writes + 1, end);
        let at = (self.writes + 1) % SLOTS * SLOT_BYTES;
        match self.file.write_all_at(&slot, at) {
            Err(error) if is_full(&error) => return Ok(()),
            written => {
                written.map_err(|error| ControllerError::file("write", &self.path, error))?
            }
        }
        self.writes += 1;
        self.end = end;
        self.unsynced = true;
        Ok(())
    }

    /// Whether something was written that [`SyncedEnd::sync`] would bring to the disk.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    /// Makes it durable.
    pub(crate) fn sync(&mut self) -> Result<(), ControllerError> {
        if std::mem::take(&mut self.unsynced) {
            self.file
                .sync_data()
                .map_err(|error| ControllerError::file("sync", &self.path, error))?;
        }
        Ok(())
    }
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn encode(writes: u64, end: i64) -> [u8; SLOT_USED] {
    let mut slot = [0; SLOT_USED];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..16].copy_from_slice(&writes.to_be_bytes());
    slot[16..24].copy_from_slice(&end.to_be_bytes());
    let sum = crc32c(&slot[..24]);
    slot[24..].copy_from_slice(&sum.to_be_bytes());
    slot
}

/// Number of the newest write and its offset.
fn newest(dir: &Path) -> Result<Option<(u64, i64)>, ControllerError> {
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| ControllerError::file("open", &path, error))?,
    };
    let mut found = None;
    for slot in 0..SLOTS {
        let mut bytes = [0; SLOT_USED];
        match file.read_exact_at(&mut bytes, slot * SLOT_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => continue,
            read => read.map_err(|error| ControllerError::file("read", &path, error))?,
        }
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes);
        if let (Ok(writes), Ok(end)) = (number(8), number(16))
            && bytes == encode(writes, end as i64)
        {
            found = found.max(Some((writes, end as i64)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(SyncedEnd::read(dir.path()).unwrap(), None);
        let mut synced = SyncedEnd::open(dir.path(), 3).unwrap();
        for end in [4, 9, 7] {
            synced.reached(end).unwrap();
        }
        assert!(synced.is_unsynced());
        synced.sync().unwrap();
        assert!(!synced.is_unsynced());
        assert_eq!(SyncedEnd::read(dir.path()).unwrap(), Some(9));
        // The write of the newest slot was torn: the one before it counts.
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        let torn = (synced.writes % SLOTS * SLOT_BYTES) as usize;
        bytes[torn + 20] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(SyncedEnd::read(dir.path()).unwrap(), Some(4));
        assert_eq!(SyncedEnd::open(dir.path(), 6).unwrap().end, 6);
        assert_eq!(SyncedEnd::read(dir.path()).unwrap(), Some(6));
        std::fs::write(&path, "short").unwrap();
        assert_eq!(SyncedEnd::read(dir.path()).unwrap(), None);
    }
}
