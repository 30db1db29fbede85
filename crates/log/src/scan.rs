//! Walks the batches of a segment file from a position, with or without reading their bodies. Says
//! exactly where and why it stopped; never looks for a next batch behind damage.

use std::sync::Arc;

use tarn_records::{BatchHeader, Crc32c, HEADER_BYTES, RecordsError};

use crate::error::LogError;
use crate::file::FileHandle;

const HEADER_READ_BYTES: usize = 4 * 1024;
const BODY_READ_BYTES: usize = 256 * 1024;

/// One batch found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

/// Why a walk cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The bytes at `position` are not a whole good batch.
    Bad { position: u64, reason: String },
    /// The file cannot be read.
    Failed(LogError),
}

/// A forward walk over `position .. end`.
#[derive(Debug)]
pub(crate) struct Scanner {
    file: Arc<FileHandle>,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl Scanner {
    pub(crate) fn new(file: &Arc<FileHandle>, position: u64, end: u64) -> Self {
        Scanner {
            file: Arc::clone(file),
            position,
            end,
            buffer: Vec::new(),
            buffer_at: 0,
        }
    }

    /// Where the next batch is looked for.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes at `position`, at least `need` of them unless the walk's end is nearer.
    fn window(&mut self, position: u64, need: usize, chunk: usize) -> Result<&[u8], LogError> {
        let have_to = self.buffer_at + self.buffer.len() as u64;
        let need_to = (position + need as u64).min(self.end);
        if position < self.buffer_at || need_to > have_to {
            let want = (chunk.max(need) as u64).min(self.end.saturating_sub(position)) as usize;
            self.buffer.resize(want, 0);
            let n = self.file.read_at(&mut self.buffer, position)?;
            self.buffer.truncate(n);
            self.buffer_at = position;
        }
        Ok(&self.buffer[(position - self.buffer_at) as usize..])
    }

    /// The next batch; `check` compares its CRC. `Ok(None)` exactly at the end.
    pub(crate) fn next(
        &mut self,
        check: impl FnOnce(&BatchHeader) -> bool,
    ) -> Result<Option<Found>, Stop> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let bad = |reason: String| Stop::Bad { position, reason };
        let window = self
            .window(position, HEADER_BYTES, HEADER_READ_BYTES)
            .map_err(Stop::Failed)?;
        let header = BatchHeader::parse(window).map_err(|e| bad(e.to_string()))?;
        let next = position + header.size() as u64;
        if next > self.end {
            return Err(bad(format!("batch of {} bytes is cut off", header.size())));
        }
        if check(&header) {
            let computed = self.crc(position, next).map_err(Stop::Failed)?;
            if computed != header.crc {
                let e = RecordsError::CrcMismatch {
                    base_offset: header.base_offset,
                    stored: header.crc,
                    computed,
                };
                return Err(bad(e.to_string()));
            }
        }
        self.position = next;
        Ok(Some(Found { position, header }))
    }

    fn crc(&mut self, position: u64, next: u64) -> Result<u32, LogError> {
        let mut crc = Crc32c::new();
        let mut at = position + BatchHeader::CRC_FROM as u64;
        while at < next {
            let window = self.window(at, 1, BODY_READ_BYTES)?;
            let n = (window.len() as u64).min(next - at) as usize;
            if n == 0 {
                break;
            }
            crc.update(&window[..n]);
            at += n as u64;
        }
        Ok(crc.value())
    }
}
