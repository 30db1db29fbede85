//! Keeps the memory of a virtual machine warm. A page that lies free for some seconds may be given
//! back to the host, and then its next use costs a fault of the host: 1–2.5 processor seconds for
//! each gigabyte appended, for whoever appends. So before a round the free memory is filled with
//! page cache that nobody needs; appends then recycle these clean pages, on both sides alike.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::scenario::Ctx;

/// Left free: the kernel itself keeps about this much on a machine with a full page cache.
const FREE_BYTES: u64 = 700 << 20;
/// More than this free means that a round would take pages that were away.
const FREE_BYTES_MAX: u64 = 1 << 30;
const PIECE_BYTES: usize = 1 << 20;
const PIECES_BETWEEN_LOOKS: usize = 64;
/// The ballast is one sparse file, larger than the memory by this factor, read in turn.
const TIMES_MEMORY: u64 = 2;

/// Where the next read goes on.
static NEXT: Mutex<u64> = Mutex::new(0);

/// Fills the free memory with clean page cache.
///
/// # Errors
/// The temporary folder takes no sparse file.
pub fn warm(ctx: &Ctx) -> Result<()> {
    let (free, total) = (meminfo("MemFree:")?, meminfo("MemTotal:")?);
    if free < FREE_BYTES_MAX {
        return Ok(());
    }
    ctx.progress(format!("warming {} MiB of free memory", free >> 20));
    // Holes are read as zeros: pages, but no disk.
    let path = std::env::temp_dir().join(format!("tarn-bench-ballast-{}", std::process::id()));
    let size = total * TIMES_MEMORY;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("the ballast {}", path.display()))?;
    file.set_len(size)?;
    let mut next = NEXT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = size;
    while left > 0 && meminfo("MemFree:")? > FREE_BYTES {
        for _ in 0..PIECES_BETWEEN_LOOKS {
            file.seek(SeekFrom::Start(*next % size))?;
            let read = file.read(&mut piece)? as u64;
            *next = (*next + read.max(1)) % size;
            left = left.saturating_sub(read.max(1));
        }
    }
    Ok(())
}

/// Drops the ballast; the memory is free again.
pub fn release() {
    let path = std::env::temp_dir().join(format!("tarn-bench-ballast-{}", std::process::id()));
    fs::remove_file(path).ok();
}

fn meminfo(key: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .with_context(|| format!("/proc/meminfo has no {key}"))?;
    Ok(kib * 1024)
}
