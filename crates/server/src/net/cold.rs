//! Ranges of files that are not in the page cache: found out without waiting, loaded on blocking
//! threads, so that a reader of old data never holds up the connections of an async worker; small
//! ones are copied out when they are there. Not here: sending.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use tarn_wire::FileRange;
use tokio::sync::Semaphore;

/// Ranges of one device loaded at the same time; more readers of cold data wait for each other, as
/// they would at the disk.
const LOADS_MAX: usize = 16;
/// How far behind a cold range the disk is asked to read on.
const READ_ON_BYTES: u64 = 4 << 20;

/// Loads under way, by device: a disk that does not answer holds up the readers of no other.
static LOADS: Mutex<BTreeMap<u64, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

fn loads_of(file: &File) -> io::Result<Arc<Semaphore>> {
    let device = file.metadata()?.dev();
    let mut all = LOADS.lock();
    Ok(all
        .entry(device)
        .or_insert_with(|| Arc::new(Semaphore::new(LOADS_MAX)))
        .clone())
}

/// Returns once the range is in memory as far as can be told from its first and last byte. Costs
/// two short calls when it is.
pub(super) async fn warm(file: &Arc<File>, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() || (is_warm(file, range.start) && is_warm(file, range.end - 1)) {
        return Ok(());
    }
    let loads = loads_of(file)?;
    let _place = loads.acquire().await.map_err(io::Error::other)?;
    let file = file.clone();
    let load = tokio::task::spawn_blocking(move || load(&file, range));
    load.await.map_err(io::Error::other)?
}

/// The bytes of a range of at most `bytes_max` when all of them are in memory; one call.
pub(super) fn copy_if_warm(range: &FileRange, bytes_max: u64) -> Option<Bytes> {
    let len = usize::try_from(range.len)
        .ok()
        .filter(|_| range.len <= bytes_max)?;
    let mut bytes = vec![0; len];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let file = &*range.file;
    let read = rustix::io::preadv2(file, &mut into, range.offset, ReadWriteFlags::NOWAIT);
    (read == Ok(len)).then(|| Bytes::from(bytes))
}

/// Whether a byte can be read without waiting for a disk. A file system that cannot say counts as
/// warm.
fn is_warm(file: &File, at: u64) -> bool {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(file, &mut into, at, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
}

fn load(file: &File, range: Range<u64>) -> io::Result<()> {
    let ahead = NonZeroU64::new(range.end - range.start + READ_ON_BYTES);
    rustix::fs::fadvise(file, range.start, ahead, Advice::WillNeed)?;
    // The disk reads in order: when the last byte is here, so is the rest.
    let mut byte = [0];
    match file.read_at(&mut byte, range.end - 1) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn a_range_that_left_the_page_cache_is_loaded_again() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let file = Arc::new(file);
        warm(&file, 0..3 << 20).await.unwrap();
        assert!(is_warm(&file, 0) && is_warm(&file, (3 << 20) - 1));
        warm(&file, 5..5).await.unwrap();
    }
}
