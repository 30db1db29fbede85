//! Owns the comparison of partition folders: the batches of all `.log` files, in order, byte for
//! byte. Segment borders may differ (each side rolls by its own rules); batches may not. Reads
//! files only; knows no more of the format than offset and length.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const LOG_OVERHEAD: usize = 12;

/// One batch as it lies in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    /// First offset.
    pub base_offset: i64,
    /// All its bytes, the length prefix included.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: String = self
            .bytes
            .iter()
            .take(61)
            .map(|b| format!("{b:02x}"))
            .collect();
        write!(
            f,
            "batch at {} of {} bytes, header {head}",
            self.base_offset,
            self.bytes.len()
        )
    }
}

impl Batch {
    /// Leader epoch in the batch (magic 2).
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.bytes
            .get(12..16)
            .and_then(|b| b.try_into().ok())
            .map_or(-1, i32::from_be_bytes)
    }

    /// Magic byte.
    #[must_use]
    pub fn magic(&self) -> i8 {
        self.bytes.get(16).map_or(-1, |b| *b as i8)
    }

    /// Whether it is a control batch (magic 2).
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.bytes.get(22).is_some_and(|low| low & 0x20 != 0)
    }

    /// Number of records (magic 2).
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.bytes
            .get(57..61)
            .and_then(|b| b.try_into().ok())
            .map_or(0, i32::from_be_bytes)
    }

    /// Producer id (magic 2).
    #[must_use]
    pub fn producer_id(&self) -> i64 {
        self.bytes
            .get(43..51)
            .and_then(|b| b.try_into().ok())
            .map_or(-1, i64::from_be_bytes)
    }

    /// Type in the key of a control batch: 0 abort, 1 commit, 7 reset of producer ids; `None` for
    /// data.
    #[must_use]
    pub fn control_type(&self) -> Option<i16> {
        // Record: length, attributes, timestamp delta, offset delta, key length, then the key:
        // version and type.
        let mut at = 61;
        self.is_control().then_some(())?;
        for _ in 0..5 {
            while self.bytes.get(at)? & 0x80 != 0 {
                at += 1;
            }
            at += 1;
        }
        self.bytes
            .get(at + 2..at + 4)?
            .try_into()
            .ok()
            .map(i16::from_be_bytes)
    }

    /// Offset after the batch (magic 2).
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.base_offset
            + self
                .bytes
                .get(23..27)
                .and_then(|b| b.try_into().ok())
                .map_or(0, i32::from_be_bytes) as i64
            + 1
    }
}

/// All whole batches of a partition folder in offset order.
///
/// # Errors
/// The folder or a file cannot be read, or a batch runs over the end of its file.
pub fn batches(partition_dir: &Path) -> Result<Vec<Batch>> {
    let mut files: Vec<_> = fs::read_dir(partition_dir)
        .with_context(|| format!("{}", partition_dir.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let bytes = fs::read(&file)?;
        let mut at = 0;
        while at + LOG_OVERHEAD <= bytes.len() {
            let base_offset = i64::from_be_bytes(bytes[at..at + 8].try_into()?);
            let length = i32::from_be_bytes(bytes[at + 8..at + LOG_OVERHEAD].try_into()?);
            if length == 0 && base_offset == 0 && at > 0 {
                break; // zeros of a preallocated tail
            }
            let end =
                at + LOG_OVERHEAD + usize::try_from(length).context("negative batch length")?;
            ensure!(
                end <= bytes.len(),
                "{}: the batch at byte {at} (offset {base_offset}) ends at {end}, the file at {}",
                file.display(),
                bytes.len()
            );
            all.push(Batch {
                base_offset,
                bytes: bytes[at..end].to_vec(),
            });
            at = end;
        }
    }
    Ok(all)
}

/// Fails with the first difference unless both folders hold the same batches.
///
/// # Errors
/// A difference, or unreadable files.
pub fn same(source: &Path, mirror: &Path) -> Result<()> {
    let (a, b) = (batches(source)?, batches(mirror)?);
    prefix_of(&a, &b)?;
    ensure!(
        a.len() == b.len(),
        "the mirror holds {} batches more than the source, first {:?}",
        b.len() - a.len(),
        b[a.len()]
    );
    Ok(())
}

/// Fails with the first difference unless `b` begins with the batches of `a`.
///
/// # Errors
/// A difference.
pub fn prefix_of(a: &[Batch], b: &[Batch]) -> Result<()> {
    for (i, x) in a.iter().enumerate() {
        let Some(y) = b.get(i) else {
            anyhow::bail!(
                "batch {i} is missing in the mirror ({} of {} there): {x:?}",
                b.len(),
                a.len()
            );
        };
        ensure!(x == y, "batch {i} differs:\n  source {x:?}\n  mirror {y:?}");
    }
    Ok(())
}
