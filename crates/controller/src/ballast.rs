//! Space kept back for the metadata log: on a full disk a topic can still be deleted, a setting
//! changed, and the broker started.
//!
//! Owns one file of allocated blocks beside the log, which shrinks when room is needed and grows
//! again when there is some. What may use it is for the event loop to say.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing::{debug, warn};

const FILE: &str = "reserved-space";
/// Its size: a start writes about 100 bytes a partition, a deletion less.
const BYTES: u64 = 4 << 20;
/// Given up at a time: others may take what is freed, so not all at once.
const STEP_BYTES: u64 = 256 << 10;

/// The space kept back.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl Ballast {
    /// Takes over what a former run kept; nothing is reserved yet.
    pub(crate) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path);
        if let Err(error) = &file {
            warn!(path = %path.display(), %error, "no space can be kept back for the metadata log");
        }
        let file = file.ok();
        let len = file.as_ref().and_then(|f| f.metadata().ok());
        let bytes = len.map_or(0, |m| m.len());
        Ballast { path, file, bytes }
    }

    /// Gives a part up; false when nothing is left.
    pub(crate) fn release(&mut self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes > 0) else {
            return false;
        };
        let left = self.bytes.saturating_sub(STEP_BYTES);
        if let Err(error) = file.set_len(left) {
            warn!(path = %self.path.display(), %error, "the space kept back cannot be used");
            return false;
        }
        warn!(
            left,
            "the disk is full: the metadata log uses the space kept back for it"
        );
        self.bytes = left;
        true
    }

    /// Whether some of it is missing.
    pub(crate) fn is_short(&self) -> bool {
        self.file.is_some() && self.bytes < BYTES
    }

    /// Reserves what is missing, if there is room.
    pub(crate) fn refill(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes < BYTES) else {
            return;
        };
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(file, flags, 0, BYTES) {
            Ok(()) => self.bytes = BYTES,
            Err(error) => {
                debug!(path = %self.path.display(), %error, "no space is kept back for the metadata log");
                // Part of it may have been made.
                if file.set_len(self.bytes).is_err() {
                    self.file = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_step_by_step_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut ballast = Ballast::open(dir.path());
        assert!(!ballast.release() && ballast.is_short());
        ballast.refill();
        assert!(!ballast.is_short());
        let mut steps = 0;
        while ballast.release() {
            steps += 1;
        }
        assert_eq!(steps, BYTES / STEP_BYTES);
        ballast.refill();
        assert!(!Ballast::open(dir.path()).is_short());
    }
}
