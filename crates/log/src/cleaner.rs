//! The log cleaner: what `cleanup.policy=compact` does to a log. A run reads the keys of what was
//! not cleaned yet into a map of bounded size, then writes every closed segment anew without the
//! records that a later one of the same key replaces. Offsets stay what they are.
//!
//! A new segment is written as `.log.cleaned`, synced, and called `.log.swap`; from then on it
//! stands for the segments it was made from, also when the broker dies in the middle:
//! [`finish_swaps`] goes on at the next start. So that it tells where those end, its last batch is
//! kept, without records when none of them stays. Here: what is pure, and that start. The run
//! itself is in `partition_log/clean.rs`.
//!
//! Guards F-13: internal topics do not grow without bound.

mod offset_map;
mod plan;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) use offset_map::OffsetMap;
pub(crate) use plan::{Bounds, ClosedSegment, Fate, Plan, groups, plan, stays};

use crate::error::LogError;
use crate::file::FileHandle;
use crate::names;
use crate::scan::{Scanner, Stop};
use crate::state::LogDirState;

/// Brings an interrupted run of the cleaner to an end, before the directory of a log is listed:
/// what was not finished goes, what was finished takes its place.
pub(crate) fn finish_swaps(dir: &Path, state: &Arc<LogDirState>) -> Result<(), LogError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| failed("cannot list", dir, e))?,
    };
    let (mut swaps, mut others) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry.map_err(|e| failed("cannot list", dir, e))?;
        let name = entry.file_name();
        match name.to_str().and_then(names::parse_segment_file) {
            Some((_, names::CLEANED)) => fs::remove_file(entry.path())
                .map_err(|e| failed("cannot remove", &entry.path(), e))?,
            Some((base, names::SWAP)) => swaps.push(base),
            Some((
                base,
                names::LOG
                | names::OFFSET_INDEX
                | names::TIME_INDEX
                | names::TXN_INDEX
                | names::TXN_INDEX_CRC,
            )) => others.push((base, entry.path())),
            _ => {}
        }
    }
    for base in swaps {
        let path = names::segment_file(dir, base, names::SWAP);
        let end = end_of(&path, state)?;
        tracing::info!(segment = %path.display(), end, "an interrupted cleaning is finished");
        for (_, path) in others.iter().filter(|(b, _)| (base..end).contains(b)) {
            // The segment of the same name is replaced at once, so that there is one at any time.
            if path != &names::segment_file(dir, base, names::LOG) {
                fs::remove_file(path).map_err(|e| failed("cannot remove", path, e))?;
            }
        }
        fs::rename(&path, names::segment_file(dir, base, names::LOG))
            .map_err(|e| failed("cannot rename", &path, e))?;
        state.sync_dir(dir)?;
    }
    Ok(())
}

fn failed(context: &'static str, path: &Path, e: io::Error) -> LogError {
    LogError::Io {
        context,
        path: path.to_path_buf(),
        source: Arc::new(e),
    }
}

/// Offset after the last batch of a finished segment.
fn end_of(path: &Path, state: &Arc<LogDirState>) -> Result<i64, LogError> {
    let file = FileHandle::new(path.to_path_buf(), state);
    let size = file.len_on_disk()?.unwrap_or(0);
    let mut scan = Scanner::new(&file, 0, size);
    let mut end = 0;
    loop {
        match scan.next(|_| true) {
            Ok(Some(found)) => end = found.header.next_offset(),
            Ok(None) => break,
            Err(Stop::Failed(e)) => return Err(e),
            Err(Stop::Bad { position, reason }) => {
                return Err(LogError::Damaged {
                    path: path.to_path_buf(),
                    position,
                    offset: end,
                    reason,
                });
            }
        }
    }
    file.close();
    Ok(end)
}
