//! What recovery cuts off although whole batches stand behind the damage is copied aside first, for
//! a human to look at.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use tarn_records::BatchView;

use crate::error::LogError;
use crate::names;
use crate::private;
use crate::segment::Segment;
use crate::state::LogDirState;

/// How far behind the damage a whole batch is looked for.
const SEARCH_BYTES_MAX: u64 = 16 << 20;
const DAMAGED: &str = "log.damaged";
const MAGIC: u8 = 2;

/// Whether a whole batch with a right CRC and an offset at or above `next` stands behind
/// `position`. Only decides whether bytes are worth keeping: recovery never goes on there.
pub(super) fn good_batch_behind(s: &Segment, position: u64, next: i64) -> Result<bool, LogError> {
    let len = (s.size() - position).min(SEARCH_BYTES_MAX) as usize;
    let mut bytes = vec![0u8; len];
    let n = s.log.read_at(&mut bytes, position)?;
    bytes.truncate(n);
    let at_magic = tarn_records::MAGIC_OFFSET;
    let candidates =
        (1..bytes.len().saturating_sub(at_magic)).filter(|i| bytes[i + at_magic] == MAGIC);
    Ok(candidates.map(|i| BatchView::first(&bytes[i..])).any(|b| {
        b.is_ok_and(|b| {
            b.header.base_offset >= next
                && s.can_hold(b.header.last_offset())
                && b.check_crc().is_ok()
        })
    }))
}

/// Copies the bytes behind `position` and the later segments to `<base>.log.damaged` files, synced.
pub(super) fn set_aside(
    state: &LogDirState,
    dir: &Path,
    s: &Segment,
    position: u64,
    later: &[Arc<Segment>],
) -> Result<(), LogError> {
    let all = std::iter::once((s, position)).chain(later.iter().map(|l| (l.as_ref(), 0)));
    for (segment, from) in all {
        let target = names::segment_file(dir, segment.base_offset, DAMAGED);
        copy_from(segment.log.path(), from, &target)
            .map_err(|e| state.write_failed("set aside", &target, &e))?;
    }
    state.sync_dir(dir)
}

fn copy_from(source: &Path, from: u64, target: &Path) -> io::Result<()> {
    let mut source = File::open(source)?;
    source.seek(SeekFrom::Start(from))?;
    let mut out = private::create_file(target)?;
    let copied = io::copy(&mut source.by_ref(), &mut out).and_then(|_| out.sync_all());
    if copied.is_err() {
        fs::remove_file(target)?;
    }
    copied
}
