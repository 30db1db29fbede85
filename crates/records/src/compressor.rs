//! Compressing as Kafka's own clients frame it, and bringing a whole batch into another codec. What
//! comes out has a limit.

use std::io::{self, Read, Write};

use crate::compression::XERIAL_MAGIC;
use crate::decoder::{Decoder, StreamPace};
use crate::{
    BatchHeader, BatchView, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, RecordsError, crc32c,
};

const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// A codec and how hard it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressor {
    /// The codec.
    pub codec: Compression,
    /// Level of gzip (1 to 9) or zstd (up to 22); `None` is the codec's own default. The others
    /// have none.
    pub level: Option<i32>,
}

/// Takes at most `bytes_max` bytes.
struct Sink {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(piece.len()) > self.bytes_max {
            return Err(io::Error::other(RecordsError::TooLarge {
                limit: self.bytes_max,
            }));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Compressor {
    /// `codec` at its default level.
    pub fn new(codec: Compression) -> Compressor {
        Compressor { codec, level: None }
    }

    /// Compresses what `data` gives behind what `into` holds; `into` may not grow above
    /// `bytes_max`.
    pub(crate) fn compress(
        self,
        data: impl Read,
        into: Vec<u8>,
        bytes_max: usize,
    ) -> Result<Vec<u8>, RecordsError> {
        let sink = Sink {
            bytes: into,
            bytes_max,
        };
        // Errors of this crate travel inside those of the codecs.
        self.run(data, sink).map(|sink| sink.bytes).map_err(|e| {
            e.downcast().unwrap_or_else(|e| RecordsError::Compress {
                codec: self.codec,
                reason: e.to_string(),
            })
        })
    }

    fn run(self, mut data: impl Read, mut sink: Sink) -> io::Result<Sink> {
        match self.codec {
            Compression::None => {
                io::copy(&mut data, &mut sink)?;
                Ok(sink)
            }
            Compression::Gzip => {
                let level = self.level.and_then(|level| u32::try_from(level).ok());
                let level = level.map_or_else(flate2::Compression::default, |level| {
                    flate2::Compression::new(level.min(9))
                });
                let mut encoder = flate2::write::GzEncoder::new(sink, level);
                io::copy(&mut data, &mut encoder)?;
                encoder.finish()
            }
            Compression::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_mode(lz4_flex::frame::BlockMode::Independent)
                    .block_size(lz4_flex::frame::BlockSize::Max64KB);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, sink);
                io::copy(&mut data, &mut encoder)?;
                encoder.finish().map_err(io::Error::from)
            }
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(sink, self.level.unwrap_or(0))?;
                io::copy(&mut data, &mut encoder)?;
                encoder.finish()
            }
            Compression::Snappy => {
                xerial(data, &mut sink)?;
                Ok(sink)
            }
        }
    }
}

fn xerial(mut data: impl Read, sink: &mut Sink) -> io::Result<()> {
    sink.write_all(&XERIAL_MAGIC)?;
    sink.write_all(&1i32.to_be_bytes())?;
    sink.write_all(&1i32.to_be_bytes())?;
    let mut encoder = snap::raw::Encoder::new();
    let mut block = Vec::new();
    loop {
        block.clear();
        data.by_ref()
            .take(XERIAL_BLOCK_BYTES as u64)
            .read_to_end(&mut block)?;
        if block.is_empty() {
            return Ok(());
        }
        let packed = encoder.compress_vec(&block).map_err(io::Error::other)?;
        sink.write_all(&(packed.len() as i32).to_be_bytes())?;
        sink.write_all(&packed)?;
    }
}

impl BatchView<'_> {
    /// The same batch with its records in another codec. More than `bytes_max` bytes of it are an
    /// error, and so are more than `limit` bytes of records.
    pub fn recompressed(
        &self,
        to: Compressor,
        bytes_max: usize,
        limit: usize,
        pace: &mut dyn StreamPace,
    ) -> Result<Vec<u8>, RecordsError> {
        let decoder = Decoder::new(self.header.compression()?, self.payload(), limit, pace)?;
        let mut bytes = to.compress(decoder, vec![0; HEADER_BYTES], bytes_max)?;
        let too_large = RecordsError::TooLarge { limit: bytes_max };
        let mut header = BatchHeader {
            length: i32::try_from(bytes.len() - LENGTH_PREFIX_BYTES).map_err(|_| too_large)?,
            attributes: (self.header.attributes & !0x07) | i16::from(to.codec.bits()),
            ..self.header
        };
        header.write_to(&mut bytes);
        header.crc = crc32c(&bytes[BatchHeader::CRC_FROM..]);
        header.write_to(&mut bytes);
        Ok(bytes)
    }
}
