//! How many files and sockets this process may have open, and who gets which share of them. A
//! shortage of descriptors or of kernel memory is an answer to the one who asked; this file says
//! how to recognise one.
//!
//! Guards F-4: a shortage is an answer.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept back for everything that is neither a segment nor a client: listeners, the metadata log,
/// checkpoints, connections to sources; one in this many descriptors …
const KEPT_BACK_SHARE: u64 = 8;
/// … within these bounds.
const KEPT_BACK_MIN: u64 = 64;
const KEPT_BACK_MAX: u64 = 2048;
/// Most files of logs kept open, however high the limit is: each holds about 2 KiB of kernel
/// memory.
const LOG_FILES_MAX: u64 = 65_536;
/// No budget of files is smaller than this: some appends open two or three.
const LOG_FILES_MIN: u64 = 16;

/// The shares of a descriptor limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorShares {
    /// Files of logs that may be open at a time.
    pub log_files: usize,
    /// Connections of clients.
    pub connections: usize,
    /// Everything else.
    pub kept_back: usize,
}

impl DescriptorShares {
    /// Divides `limit` descriptors. `log_files_max` is the configured most for files of logs,
    /// `None` for what the limit allows. What the logs may not use is left to connections.
    pub fn of(limit: u64, log_files_max: Option<u64>) -> DescriptorShares {
        let kept_back = (limit / KEPT_BACK_SHARE).clamp(KEPT_BACK_MIN, KEPT_BACK_MAX);
        let rest = limit.saturating_sub(kept_back);
        let log_files = (rest / 2)
            .min(log_files_max.unwrap_or(LOG_FILES_MAX))
            .max(LOG_FILES_MIN);
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        DescriptorShares {
            log_files: number(log_files),
            connections: number(rest.saturating_sub(log_files).max(1)),
            kept_back: number(kept_back),
        }
    }

    /// The shares of this process's present limit.
    pub fn of_process(log_files_max: Option<u64>) -> DescriptorShares {
        Self::of(descriptor_limit(), log_files_max)
    }
}

/// The present limit of open descriptors of this process.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open descriptors to the hard one; gives the limit in force. The soft
/// limit is low only for old programs that use `select`.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
    descriptor_limit()
}

/// Whether a call failed for want of descriptors or memory: it would have worked at another moment,
/// and says nothing about the disk.
pub fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
    )
}

/// What a call says that gets no descriptor because the budget is used up.
pub(crate) fn none_left() -> io::Error {
    Errno::MFILE.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_limit_and_what_the_logs_leave_is_for_connections() {
        for limit in [256, 1024, 4096, 20_000, 1 << 20, u64::MAX] {
            let s = DescriptorShares::of(limit, None);
            let sum = s.log_files as u64 + s.connections as u64 + s.kept_back as u64;
            assert!(sum <= limit, "{limit}: {s:?}");
            assert!(s.log_files >= 16 && s.connections >= 1, "{s:?}");
        }
        let small = DescriptorShares::of(1024, None);
        assert_eq!((small.log_files, small.connections), (448, 448));
        let told = DescriptorShares::of(1024, Some(100));
        assert_eq!((told.log_files, told.connections), (100, 796));
        assert_eq!(DescriptorShares::of(u64::MAX, None).log_files, 65_536);
    }

    #[test]
    fn a_shortage_is_told_from_a_broken_disk() {
        for shortage in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_shortage(&shortage.into()));
        }
        for other in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::ACCESS] {
            assert!(!is_shortage(&other.into()));
        }
        assert!(!is_shortage(&io::Error::other("no number")));
    }
}
