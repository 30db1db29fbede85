//! Reading compressed records as a stream: memory for the codec's own window only, whatever comes
//! out. A [`StreamPace`] is told how much memory that is before anything is allocated, and is
//! called between two pieces, so that long work can give way. Not here: what the records mean, and
//! whole-payload decompression (`compression`).

use std::io::{self, BufRead, Read};

use crate::compression::{XERIAL_HEADER_BYTES, XERIAL_MAGIC};
use crate::{Compression, RecordsError};

/// Bytes that come out between two calls of the caller's pause.
pub const PIECE_BYTES: usize = 256 * 1024;
/// Bytes taken from a codec at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// What a codec needs besides its window: tables and buffers.
const CODEC_BYTES: usize = 256 * 1024;
/// The largest window of a zstd frame, as Kafka's clients and brokers have it.
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Snappy cannot expand more than about 64 times.
const SNAPPY_RATIO_MAX: usize = 64;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const LZ4_BLOCK_BYTES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What reading a long stream asks of the one who runs it. Both questions may block; a `false` ends
/// the reading with [`RecordsError::Stopped`].
pub trait StreamPace {
    /// A stream that takes `bytes` of memory begins; the one before it has ended.
    fn begin(&mut self, bytes: usize) -> bool;
    /// Another [`PIECE_BYTES`] came out.
    fn pause(&mut self) -> bool;
}

/// Reads on without asking anybody: for what is short, or has a thread of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unpaced;

impl StreamPace for Unpaced {
    fn begin(&mut self, _bytes: usize) -> bool {
        true
    }
    fn pause(&mut self) -> bool {
        true
    }
}

impl Compression {
    /// Bytes of memory that reading `payload` as a stream takes, by what it claims itself; reading
    /// holds to it.
    pub fn stream_bytes(self, payload: &[u8]) -> usize {
        CODEC_BYTES
            + match self {
                Compression::None | Compression::Gzip => 0,
                Compression::Lz4 => lz4_bytes(payload),
                Compression::Snappy => snappy_bytes(payload),
                Compression::Zstd => zstd_window(payload),
            }
    }
}

fn lz4_bytes(payload: &[u8]) -> usize {
    // Magic (4), FLG, BD: bits 4 to 6 of BD are the size of a block. One block comes in, one goes
    // out.
    let id = payload.get(5).map_or(7, |bd| usize::from(bd >> 4) & 7);
    2 * LZ4_BLOCK_BYTES[id.clamp(4, 7) - 4]
}

fn snappy_bytes(payload: &[u8]) -> usize {
    let mut blocks = SnappyBlocks::new(payload);
    let mut largest = 0;
    while let Some(Ok(block)) = blocks.next_block() {
        let claimed = snap::raw::decompress_len(block).unwrap_or(0);
        largest = largest.max(claimed.min(snappy_bytes_max(block)));
    }
    largest
}

/// The most that a block of snappy can hold.
pub(crate) fn snappy_bytes_max(block: &[u8]) -> usize {
    block
        .len()
        .saturating_mul(SNAPPY_RATIO_MAX)
        .saturating_add(SNAPPY_RATIO_MAX)
}

/// Window of the first frame; the largest one that is read when it cannot be told.
fn zstd_window(payload: &[u8]) -> usize {
    let largest = 1usize << ZSTD_WINDOW_LOG_MAX;
    let tell = || {
        let descriptor = *payload.strip_prefix(&ZSTD_MAGIC)?.first()?;
        let fields = &payload[ZSTD_MAGIC.len() + 1..];
        if descriptor & 0x20 == 0 {
            let window = *fields.first()?;
            let base = 1u64 << (10 + (window >> 3));
            return Some(base + base / 8 * u64::from(window & 7));
        }
        // A single segment: the window is the content, whose size follows the dictionary id.
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let (width, plus) = [(1, 0), (2, 256), (4, 0), (8, 0)][usize::from(descriptor >> 6)];
        let size = fields.get(dictionary..dictionary + width)?;
        let size = size
            .iter()
            .rev()
            .fold(0u64, |n, b| (n << 8) | u64::from(*b));
        Some(size.saturating_add(plus))
    };
    let window = tell().map_or(largest, |n| usize::try_from(n).unwrap_or(usize::MAX));
    window.min(largest)
}

/// The blocks of a xerial stream, or the one raw block.
pub(crate) struct SnappyBlocks<'a> {
    rest: &'a [u8],
    raw: bool,
}

impl<'a> SnappyBlocks<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        SnappyBlocks {
            rest: payload,
            raw: !payload.starts_with(&XERIAL_MAGIC),
        }
    }
    pub(crate) fn next_block(&mut self) -> Option<Result<&'a [u8], &'static str>> {
        if self.raw {
            self.raw = false;
            return Some(Ok(std::mem::take(&mut self.rest)));
        }
        // Streams may be concatenated: a header can stand where a block could.
        while self.rest.starts_with(&XERIAL_MAGIC) {
            let Some(rest) = self.rest.get(XERIAL_HEADER_BYTES..) else {
                return Some(Err("xerial header is cut off"));
            };
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        Some(self.length_and_block())
    }
    fn length_and_block(&mut self) -> Result<&'a [u8], &'static str> {
        let (size, after) = self
            .rest
            .split_first_chunk::<4>()
            .ok_or("block length is cut off")?;
        let size =
            usize::try_from(i32::from_be_bytes(*size)).map_err(|_| "negative block length")?;
        let (block, rest) = after.split_at_checked(size).ok_or("block is cut off")?;
        self.rest = rest;
        Ok(block)
    }
}

/// What a stream of one codec is read from.
enum Codec<'a> {
    Plain(&'a [u8]),
    Gzip(Box<Option<flate2::bufread::GzDecoder<&'a [u8]>>>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<&'a [u8]>>),
    Zstd(zstd::stream::read::Decoder<'a, &'a [u8]>),
    Snappy {
        blocks: SnappyBlocks<'a>,
        block: Vec<u8>,
        at: usize,
    },
}

impl Codec<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Codec::Plain(rest) => rest.read(into),
            Codec::Gzip(member) => read_gzip(member, into),
            Codec::Lz4(frame) => frame.read(into),
            Codec::Zstd(frames) => frames.read(into),
            Codec::Snappy { blocks, block, at } => {
                while *at == block.len() {
                    let Some(next) = blocks.next_block() else {
                        return Ok(0);
                    };
                    unsnap(next.map_err(io::Error::other)?, block)?;
                    *at = 0;
                }
                let n = into.len().min(block.len() - *at);
                into[..n].copy_from_slice(&block[*at..*at + n]);
                *at += n;
                Ok(n)
            }
        }
    }
}

/// Members follow each other; what is no member behind the last one is left alone, as Java does.
fn read_gzip(
    member: &mut Option<flate2::bufread::GzDecoder<&[u8]>>,
    into: &mut [u8],
) -> io::Result<usize> {
    loop {
        let Some(decoder) = member else { return Ok(0) };
        let n = decoder.read(into)?;
        if n > 0 || into.is_empty() {
            return Ok(n);
        }
        let rest = member
            .take()
            .map(flate2::bufread::GzDecoder::into_inner)
            .unwrap_or_default();
        if rest.starts_with(&GZIP_MAGIC) {
            *member = Some(flate2::bufread::GzDecoder::new(rest));
        }
    }
}

fn unsnap(block: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    let size = snap::raw::decompress_len(block).map_err(io::Error::other)?;
    // A length field alone must not reserve memory.
    if size > snappy_bytes_max(block) {
        return Err(io::Error::other("claimed size is impossible"));
    }
    into.resize(size, 0);
    let n = snap::raw::Decoder::new()
        .decompress(block, into)
        .map_err(io::Error::other)?;
    into.truncate(n);
    Ok(())
}

/// Bytes of one payload as they come out of its codec.
pub(crate) struct Decoder<'a, 'p> {
    compression: Compression,
    codec: Codec<'a>,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes that came out so far.
    produced: u64,
    produced_max: u64,
    since_pause: usize,
    pace: &'p mut dyn StreamPace,
}

impl<'a, 'p> Decoder<'a, 'p> {
    /// More than `limit` bytes are an error.
    pub(crate) fn new(
        compression: Compression,
        payload: &'a [u8],
        limit: usize,
        pace: &'p mut dyn StreamPace,
    ) -> Result<Self, RecordsError> {
        if compression != Compression::None && !pace.begin(compression.stream_bytes(payload)) {
            return Err(RecordsError::Stopped);
        }
        let failed = |e: io::Error| RecordsError::Decompress {
            codec: compression,
            reason: e.to_string(),
        };
        let codec = match compression {
            Compression::None => Codec::Plain(payload),
            Compression::Gzip => {
                Codec::Gzip(Box::new(Some(flate2::bufread::GzDecoder::new(payload))))
            }
            Compression::Lz4 => Codec::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(payload))),
            Compression::Zstd => {
                let mut frames =
                    zstd::stream::read::Decoder::with_buffer(payload).map_err(failed)?;
                // Later frames may not take more than what the first one was counted for.
                let window = zstd_window(payload).max(1 << 10);
                let log = usize::BITS - (window - 1).leading_zeros();
                frames
                    .window_log_max(log.min(ZSTD_WINDOW_LOG_MAX))
                    .map_err(failed)?;
                Codec::Zstd(frames)
            }
            Compression::Snappy => Codec::Snappy {
                blocks: SnappyBlocks::new(payload),
                block: Vec::new(),
                at: 0,
            },
        };
        Ok(Decoder {
            compression,
            codec,
            buffer: Vec::new(),
            at: 0,
            produced: 0,
            produced_max: u64::try_from(limit).unwrap_or(u64::MAX),
            since_pause: 0,
            pace,
        })
    }

    /// Fills the empty buffer; false at the end.
    fn refill(&mut self) -> Result<bool, RecordsError> {
        self.at = 0;
        self.buffer.resize(BUFFER_BYTES, 0);
        let read = loop {
            match self.codec.read(&mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let n = read.map_err(|e| RecordsError::Decompress {
            codec: self.compression,
            reason: e.to_string(),
        })?;
        self.buffer.truncate(n);
        self.produced += n as u64;
        if self.produced > self.produced_max {
            return Err(RecordsError::TooLarge {
                limit: usize::try_from(self.produced_max).unwrap_or(usize::MAX),
            });
        }
        self.since_pause += n;
        if self.since_pause >= PIECE_BYTES {
            self.since_pause = 0;
            if !self.pace.pause() {
                return Err(RecordsError::Stopped);
            }
        }
        Ok(n > 0)
    }

    pub(crate) fn byte(&mut self) -> Result<Option<u8>, RecordsError> {
        if self.at == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(Some(byte))
    }

    /// Passes over `n` bytes; false when the stream ends before.
    pub(crate) fn skip(&mut self, mut n: u64) -> Result<bool, RecordsError> {
        loop {
            let here = (self.buffer.len() - self.at) as u64;
            if n <= here {
                self.at += n as usize;
                return Ok(true);
            }
            n -= here;
            if !self.refill()? {
                return Ok(false);
            }
        }
    }

    /// Bytes taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.produced - (self.buffer.len() - self.at) as u64
    }
}

impl Read for Decoder<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut here = self.fill_buf()?;
        let n = here.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Decoder<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            self.refill().map_err(io::Error::other)?;
        }
        Ok(&self.buffer[self.at..])
    }
    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.buffer.len());
    }
}
