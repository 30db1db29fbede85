//! Record batches made once and sent many times: content, keys, compression, and the place of a
//! time stamp inside the first record.
//!
//! Does not send them. A stamp changes sixteen bytes and the checksum of one batch and nothing
//! else.

use anyhow::{Result, ensure};
use bytes::Bytes;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};
use tarn_records::{BatchBuilder, Compression, crc32c};

/// Stands in front of a stamp, so that a reader can tell a stamped record from any other.
pub(crate) const STAMP_MARK: [u8; 8] = *b"tarnload";
/// Mark and time.
pub(crate) const STAMP_BYTES: usize = 16;
/// Place of the checksum in a batch, and of the first byte that it covers.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;
/// Bytes of a key.
const KEY_BYTES: usize = 16;

/// What is inside the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Content {
    /// Bytes that no codec can shrink.
    Random,
    /// Events as a web shop would write them, for data that codecs shrink as they do in real life.
    Json,
}

/// How a producer's batches look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records in a batch, at least 1.
    pub batch_records: usize,
    /// Whether each record has a key of 16 bytes.
    pub keyed: bool,
    /// What is inside the values.
    pub content: Content,
    /// Codec of the batches.
    pub compression: Compression,
}

impl Shape {
    /// Plain records of `value_bytes` random bytes, as many as `batch_bytes` hold before
    /// compression (at least one).
    #[must_use]
    pub fn filling(value_bytes: usize, batch_bytes: usize) -> Self {
        // Length, attributes, two deltas, key length, value length, header count: twelve bytes are
        // enough for all.
        let room = batch_bytes.saturating_sub(tarn_records::HEADER_BYTES);
        Self::of(value_bytes, (room / (value_bytes + 12)).max(1))
    }

    /// Plain records of `value_bytes` random bytes, `batch_records` in a batch.
    #[must_use]
    pub fn of(value_bytes: usize, batch_records: usize) -> Self {
        Self {
            value_bytes,
            batch_records,
            keyed: false,
            content: Content::Random,
            compression: Compression::None,
        }
    }

    /// The same with a key in each record.
    #[must_use]
    pub fn keyed(self) -> Self {
        Self {
            keyed: true,
            ..self
        }
    }

    /// The same with JSON events compressed by `compression`.
    #[must_use]
    pub fn json(self, compression: Compression) -> Self {
        Self {
            content: Content::Json,
            compression,
            ..self
        }
    }

    /// Bytes of keys and values of one batch before compression: what all figures count as data.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let record = self.value_bytes + if self.keyed { KEY_BYTES } else { 0 };
        (record * self.batch_records) as u64
    }

    /// One batch; different seeds give different content. `stamped` reserves the place of a stamp
    /// in the first record.
    ///
    /// # Errors
    /// The codec fails, or a stamp has no place.
    pub fn build(&self, seed: u64, stamped: bool) -> Result<Batch> {
        ensure!(self.batch_records > 0, "a batch needs a record");
        ensure!(
            !stamped || (self.value_bytes >= STAMP_BYTES && self.compression == Compression::None),
            "a stamp needs uncompressed values of {STAMP_BYTES} bytes or more"
        );
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as i64);
        let mut random = Random::new(seed);
        let mut builder = BatchBuilder::new().compression(self.compression);
        let mut value = Vec::with_capacity(self.value_bytes + 256);
        for i in 0..self.batch_records {
            value.clear();
            match self.content {
                Content::Random => random.fill(&mut value, self.value_bytes),
                Content::Json => json_event(&mut random, &mut value, self.value_bytes),
            }
            if stamped && i == 0 {
                value[..STAMP_MARK.len()].copy_from_slice(&STAMP_MARK);
            }
            let key = format!("{:016x}", random.next());
            let key = self.keyed.then_some(key.as_bytes());
            builder.add(now_ms, key, Some(&value), &[]);
        }
        let bytes = builder.build()?;
        let stamp_at = if stamped { find_mark(&bytes)? } else { 0 };
        Ok(Batch {
            bytes: Bytes::from(bytes),
            stamp_at,
        })
    }
}

/// A finished batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// All of it, base offset 0.
    pub bytes: Bytes,
    /// Where the stamp stands in it; 0 when it has none.
    pub stamp_at: usize,
}

fn find_mark(batch: &[u8]) -> Result<usize> {
    let at = batch
        .windows(STAMP_MARK.len())
        .position(|w| w == STAMP_MARK);
    at.ok_or_else(|| anyhow::anyhow!("the stamp's mark is not in its batch"))
}

/// Writes `ns` into the stamp of `batch` and makes its checksum right again.
pub(crate) fn stamp(batch: &mut [u8], stamp_at: usize, ns: u64) {
    let at = stamp_at + STAMP_MARK.len();
    batch[at..at + 8].copy_from_slice(&ns.to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

/// The time in a stamp that starts at the first byte; `None` when there is no mark.
pub(crate) fn read_stamp(bytes: &[u8]) -> Option<u64> {
    let (mark, rest) = bytes.split_first_chunk::<8>()?;
    let ns = rest.first_chunk::<8>()?;
    (*mark == STAMP_MARK).then(|| u64::from_be_bytes(*ns))
}

/// A small generator of random numbers (xorshift), so that runs with the same seed send the same
/// bytes.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Never zero, and far apart for neighbouring seeds.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end` (at least 1).
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn fill(&mut self, out: &mut Vec<u8>, len: usize) {
        while out.len() < len {
            let bytes = self.next().to_le_bytes();
            let take = bytes.len().min(len - out.len());
            out.extend_from_slice(&bytes[..take]);
        }
    }
}

fn json_event(random: &mut Random, out: &mut Vec<u8>, len: usize) {
    const EVENTS: [&str; 5] = ["page_view", "add_to_cart", "checkout", "search", "login"];
    const PLACES: [&str; 6] = ["Berlin", "Toulouse", "Austin", "Osaka", "Nairobi", "Lima"];
    let mut text = String::with_capacity(len + 256);
    text.push('[');
    while text.len() < len {
        let n = random.next();
        write!(
            text,
            r#"{{"id":"{:012x}","event":"{}","user":{},"place":"{}","price":{}.{:02},"path":"/shop/{}/item/{}","agent":"Mozilla/5.0 (X11; Linux x86_64)"}},"#,
            n >> 16,
            EVENTS[random.below(EVENTS.len())],
            n % 500_000,
            PLACES[random.below(PLACES.len())],
            random.below(400),
            random.below(100),
            random.below(40),
            random.below(20_000),
        )
        .ok();
    }
    out.extend_from_slice(&text.as_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_records::BatchView;

    #[test]
    fn a_stamped_batch_still_has_a_right_checksum() {
        let batch = Shape::of(100, 3).keyed().build(7, true).unwrap();
        let mut bytes = batch.bytes.to_vec();
        stamp(&mut bytes, batch.stamp_at, 123_456_789);
        BatchView::first(&bytes).unwrap().check_crc().unwrap();
        assert_eq!(read_stamp(&bytes[batch.stamp_at..]), Some(123_456_789));
        assert_eq!(read_stamp(&bytes), None);
    }

    #[test]
    fn a_filled_batch_stays_below_its_size_and_comes_near() {
        for value in [100, 1_000, 10_000] {
            let len = Shape::filling(value, 262_144)
                .build(1, false)
                .unwrap()
                .bytes
                .len();
            assert!(
                (262_144 - 2 * value - 9_000..=262_144).contains(&len),
                "{value}: {len}"
            );
        }
    }

    #[test]
    fn generated_json_shrinks_as_json_does() {
        let shape = Shape::filling(1_000, 65_536).json(Compression::Zstd);
        let packed = shape.build(3, false).unwrap().bytes.len();
        let ratio = shape.payload_bytes() as f64 / packed as f64;
        assert!((2.0..12.0).contains(&ratio), "{ratio}");
    }
}
