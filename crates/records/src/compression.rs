//! The four codecs in Kafka's framings, with an output cap on every decompression.
//!
//! gzip: RFC 1952, several members; snappy: xerial stream or one raw block; lz4: standard frame
//! (written as the Java client does: independent 64 KiB blocks, no content checksum); zstd:
//! standard frames, window at most 2^27.

use std::io::Read;

use crate::RecordsError;
use crate::compressor::Compressor;
use crate::decoder::{Decoder, Unpaced};

/// Cap for callers without a better idea: far above any record Kafka would take, far below a
/// machine's memory.
pub const DECOMPRESSED_BYTES_MAX_DEFAULT: usize = 256 << 20;

pub(crate) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
pub(crate) const XERIAL_HEADER_BYTES: usize = 16;

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
        if self == Compression::None {
            return match data.len() > limit {
                true => Err(RecordsError::TooLarge { limit }),
                false => Ok(data.to_vec()),
            };
        }
        let mut out = Vec::new();
        let mut pace = Unpaced;
        let mut decoder = Decoder::new(self, data, limit, &mut pace)?;
        match decoder.read_to_end(&mut out) {
            Ok(_) => Ok(out),
            // The decoder's own errors travel inside.
            Err(e) => Err(e.downcast().unwrap_or_else(|e| self.failed(e))),
        }
    }

    /// Compresses as Kafka's own clients frame it, default level.
    pub fn compress(self, data: &[u8]) -> Result<Vec<u8>, RecordsError> {
        Compressor::new(self).compress(data, Vec::new(), usize::MAX)
    }

    fn failed(self, e: impl std::fmt::Display) -> RecordsError {
        RecordsError::Decompress {
            codec: self,
            reason: e.to_string(),
        }
    }
}
