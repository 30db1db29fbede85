//! Tells a torn write from damage at the end of the metadata log, before recovery cuts anything.
//!
//! Every batch of this log is synced before the next one is written. So a broken batch with a whole
//! one behind it was once on disk and has been acknowledged: cutting there would lose metadata, and
//! the start is refused. So it is where the log ends below its synced end (`synced_end.rs`). Only a
//! broken batch above that, with nothing behind it, is a write that a crash tore.

use std::fs;
use std::path::{Path, PathBuf};

use tarn_records::{BatchView, HEADER_BYTES};

use crate::ControllerError;

/// Offset of the magic byte in a batch.
const MAGIC_AT: usize = 16;

/// Fails if the newest segment of the log in `dir` holds a whole batch behind a broken one, or ends
/// below `synced_end`. A directory without segments passes if nothing was synced.
pub(crate) fn refuse_damage(dir: &Path, synced_end: i64) -> Result<(), ControllerError> {
    let Some((base_offset, path)) = newest_segment(dir)? else {
        if synced_end == 0 {
            return Ok(());
        }
        let reason = format!(
            "the metadata log is missing, although everything below offset {synced_end} was on disk: restore its segments from a copy"
        );
        let path = dir.to_owned();
        return Err(ControllerError::BadFile { path, reason });
    };
    let bytes = fs::read(&path).map_err(|error| ControllerError::file("read", &path, error))?;
    let (broken_at, next_offset) = whole_prefix(&bytes, base_offset);
    if next_offset < synced_end {
        let reason = format!(
            "damaged at byte {broken_at} (after offset {}), although everything below offset {synced_end} was on disk, so this is no torn write and \
             nothing is cut: restore the file from a copy, or, to give up what follows, remove the file {} beside it",
            next_offset - 1,
            crate::synced_end::FILE
        );
        return Err(ControllerError::BadFile { path, reason });
    }
    let Some(whole_at) = whole_batch_after(&bytes, broken_at, next_offset) else {
        return Ok(());
    };
    let reason = format!(
        "damaged at byte {broken_at} (after offset {}), with whole batches from byte {whole_at} on, so this is no torn write and nothing is cut: \
         restore the file from a copy, or cut it at byte {broken_at} to give up what follows",
        next_offset - 1
    );
    Err(ControllerError::BadFile { path, reason })
}

fn newest_segment(dir: &Path) -> Result<Option<(i64, PathBuf)>, ControllerError> {
    let entries = fs::read_dir(dir).map_err(|error| ControllerError::file("list", dir, error))?;
    let mut newest = None;
    for entry in entries {
        let path = entry
            .map_err(|error| ControllerError::file("list", dir, error))?
            .path();
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse::<i64>().ok());
        if let Some(base_offset) =
            stem.filter(|_| path.extension().is_some_and(|extension| extension == "log"))
        {
            newest = newest.max(Some((base_offset, path)));
        }
    }
    Ok(newest)
}

/// Length of the good batches at the start, and the offset after them. Offsets follow each other
/// without gaps and epochs never fall; both stand outside the checksum, so they are checked here.
fn whole_prefix(bytes: &[u8], base_offset: i64) -> (usize, i64) {
    let (mut at, mut next_offset, mut epoch) = (0, base_offset, 0);
    while let Some(view) = good_batch(&bytes[at..]) {
        if view.header.base_offset != next_offset || view.header.leader_epoch < epoch {
            break;
        }
        at += view.header.size();
        next_offset = view.header.next_offset();
        epoch = view.header.leader_epoch;
    }
    (at, next_offset)
}

fn whole_batch_after(bytes: &[u8], broken_at: usize, next_offset: i64) -> Option<usize> {
    let last_start = bytes.len().checked_sub(HEADER_BYTES)?;
    (broken_at + 1..=last_start).find(|at| {
        let rest = &bytes[*at..];
        // The cheap look first: almost every position ends here.
        rest[MAGIC_AT] == 2
            && good_batch(rest).is_some_and(|view| view.header.base_offset >= next_offset)
    })
}

fn good_batch(bytes: &[u8]) -> Option<BatchView<'_>> {
    BatchView::first(bytes)
        .ok()
        .filter(|view| view.check_crc().is_ok())
}
