//! The four codecs in Kafka's framings, with an output cap on every decompression.
//!
//! gzip: RFC 1952, several members; snappy: xerial stream or one raw block; lz4: standard frame (written as the Java client
//! does: independent 64 KiB blocks, no content checksum); zstd: standard frames, window at most 2^27.

use std::io::{Read, Write};

use crate::RecordsError;

/// Cap for callers without a better idea: far above any record Kafka would take, far below a machine's memory.
pub const DECOMPRESSED_BYTES_MAX_DEFAULT: usize = 256 << 20;

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Compression codec, by its bits in the batch attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Compression {
    /// 0
    #[default]
    None,
    /// 1
    Gzip,
    /// 2
    Snappy,
    /// 3
    Lz4,
    /// 4
    Zstd,
}

impl Compression {
    /// From the low three attribute bits.
    pub fn from_bits(bits: u8) -> Result<Compression, RecordsError> {
        Ok(match bits {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            n => return Err(RecordsError::UnknownCompression(n)),
        })
    }
    /// Attribute bits.
    pub fn bits(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }
    /// Kafka's name (`none`, `gzip`, `snappy`, `lz4`, `zstd`).
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Decompresses all of `data`; error `TooLarge` as soon as more than `limit` bytes come out.
    pub fn decompress(self, data: &[u8], limit: usize) -> Result<Vec<u8>, RecordsError> {
        match self {
            Compression::None if data.len() > limit => Err(RecordsError::TooLarge { limit }),
            Compression::None => Ok(data.to_vec()),
            Compression::Gzip => self.drain(flate2::read::MultiGzDecoder::new(data), limit),
            Compression::Lz4 => self.drain(lz4_flex::frame::FrameDecoder::new(data), limit),
            Compression::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(data).map_err(|e| self.failed(e))?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(|e| self.failed(e))?;
                self.drain(decoder, limit)
            }
            Compression::Snappy if data.starts_with(&XERIAL_MAGIC) => self.unxerial(data, limit),
            Compression::Snappy => {
                let mut out = Vec::new();
                self.snappy_block(data, limit, &mut out)?;
                Ok(out)
            }
        }
    }

    /// Compresses as Kafka's own clients frame it, default level.
    pub fn compress(self, data: &[u8]) -> Result<Vec<u8>, RecordsError> {
        let failed = |e: std::io::Error| RecordsError::Compress {
            codec: self,
            reason: e.to_string(),
        };
        match self {
            Compression::None => Ok(data.to_vec()),
            Compression::Gzip => {
                let mut e =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                e.write_all(data).map_err(failed)?;
                e.finish().map_err(failed)
            }
            Compression::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_mode(lz4_flex::frame::BlockMode::Independent)
                    .block_size(lz4_flex::frame::BlockSize::Max64KB);
                let mut e = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                e.write_all(data).map_err(failed)?;
                e.finish().map_err(|e| RecordsError::Compress {
                    codec: self,
                    reason: e.to_string(),
                })
            }
            Compression::Zstd => zstd::stream::encode_all(data, 0).map_err(failed),
            Compression::Snappy => {
                let mut out = XERIAL_MAGIC.to_vec();
                out.extend_from_slice(&1i32.to_be_bytes());
                out.extend_from_slice(&1i32.to_be_bytes());
                let mut encoder = snap::raw::Encoder::new();
                for block in data.chunks(XERIAL_BLOCK_BYTES) {
                    let packed =
                        encoder
                            .compress_vec(block)
                            .map_err(|e| RecordsError::Compress {
                                codec: self,
                                reason: e.to_string(),
                            })?;
                    out.extend_from_slice(&(packed.len() as i32).to_be_bytes());
                    out.extend_from_slice(&packed);
                }
                Ok(out)
            }
        }
    }

    fn failed(self, e: impl std::fmt::Display) -> RecordsError {
        RecordsError::Decompress {
            codec: self,
            reason: e.to_string(),
        }
    }

    fn drain(self, reader: impl Read, limit: usize) -> Result<Vec<u8>, RecordsError> {
        let mut out = Vec::new();
        let cap = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        reader
            .take(cap)
            .read_to_end(&mut out)
            .map_err(|e| self.failed(e))?;
        if out.len() > limit {
            return Err(RecordsError::TooLarge { limit });
        }
        Ok(out)
    }

    fn unxerial(self, data: &[u8], limit: usize) -> Result<Vec<u8>, RecordsError> {
        let mut out = Vec::new();
        let mut rest = data;
        while !rest.is_empty() {
            // Streams may be concatenated: a header can stand where a block could.
            if rest.starts_with(&XERIAL_MAGIC) {
                rest = rest
                    .get(XERIAL_HEADER_BYTES..)
                    .ok_or_else(|| self.failed("xerial header is cut off"))?;
                continue;
            }
            let (size, after) = rest
                .split_at_checked(4)
                .ok_or_else(|| self.failed("block length is cut off"))?;
            let size = i32::from_be_bytes([size[0], size[1], size[2], size[3]]);
            let size = usize::try_from(size).map_err(|_| self.failed("negative block length"))?;
            let block = after
                .get(..size)
                .ok_or_else(|| self.failed("block is cut off"))?;
            self.snappy_block(block, limit, &mut out)?;
            rest = &after[size..];
        }
        Ok(out)
    }

    fn snappy_block(
        self,
        block: &[u8],
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordsError> {
        let size = snap::raw::decompress_len(block).map_err(|e| self.failed(e))?;
        if out.len().saturating_add(size) > limit {
            return Err(RecordsError::TooLarge { limit });
        }
        // A length field alone must not reserve memory: snappy cannot expand more than about 64 times its input.
        if size > block.len().saturating_mul(64).saturating_add(64) {
            return Err(self.failed("claimed size is impossible"));
        }
        let at = out.len();
        out.resize(at + size, 0);
        let n = snap::raw::Decoder::new()
            .decompress(block, &mut out[at..])
            .map_err(|e| self.failed(e))?;
        out.truncate(at + n);
        Ok(())
    }
}
