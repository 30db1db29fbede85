//! Record values of the mirror scenarios and filling topics with them as fast as the source takes
//! them. Batches are built once and sent again and again: what a mirror does with a batch does not
//! depend on whether it has seen its bytes before.

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::records::Compression;
use tarn_tests::raw::RawClient;

use super::wire::{self, Topic};

/// Bytes of each record's value.
pub const VALUE_BYTES: usize = 1000;
/// Fills a batch of 256 KiB, the tuned producer's batch size.
const RECORDS_PER_BATCH: usize = 256;
/// Raw value bytes of one batch.
pub const BATCH_VALUE_BYTES: u64 = (VALUE_BYTES * RECORDS_PER_BATCH) as u64;
const DIFFERENT_BATCHES: u64 = 32;
/// Batches in one request, one partition each.
const PARTITIONS_PER_REQUEST: usize = 8;

/// What the values look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Random bytes, not compressed.
    Random,
    /// Generated JSON in batches compressed with this codec.
    Json(Compression),
}

/// A small generator of numbers that are random enough for payloads; the same seed gives the same
/// bytes in each run.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[(self.roll() % from.len() as u64) as usize]
    }

    /// `VALUE_BYTES` random bytes.
    pub fn random_value(&mut self) -> Bytes {
        let mut value = Vec::with_capacity(VALUE_BYTES + 8);
        while value.len() < VALUE_BYTES {
            value.extend_from_slice(&self.roll().to_le_bytes());
        }
        value.truncate(VALUE_BYTES);
        value.into()
    }

    /// An order as JSON text, `VALUE_BYTES` long: names repeat, numbers and ids do not.
    pub fn json_value(&mut self) -> Bytes {
        const CITIES: [&str; 8] = [
            "Lisbon", "Oslo", "Quito", "Nairobi", "Osaka", "Tallinn", "Perth", "Lima",
        ];
        const STATES: [&str; 5] = ["new", "paid", "packed", "shipped", "returned"];
        const GOODS: [&str; 8] = [
            "kettle", "lamp", "bicycle", "rope", "notebook", "tent", "compass", "mug",
        ];
        let mut text = format!(
            "{{\"orderId\":\"{:016x}\",\"customerId\":{},\"city\":\"{}\",\"state\":\"{}\",\"items\":[",
            self.roll(),
            self.roll() % 10_000_000,
            self.pick(&CITIES),
            self.pick(&STATES)
        );
        while text.len() < VALUE_BYTES - 100 {
            let item = format!(
                "{{\"sku\":\"{:08x}\",\"name\":\"{}\",\"quantity\":{},\"price\":{}.{:02}}},",
                self.roll() as u32,
                self.pick(&GOODS),
                self.roll() % 9 + 1,
                self.roll() % 500,
                self.roll() % 100
            );
            text.push_str(&item);
        }
        text.push_str("null],\"comment\":\"");
        while text.len() < VALUE_BYTES - 2 {
            text.push('.');
        }
        text.push_str("\"}");
        text.into_bytes().into()
    }
}

impl Payload {
    /// Batches of this kind, all different.
    ///
    /// # Errors
    /// They cannot be encoded.
    pub fn batches(self) -> Result<Vec<Bytes>> {
        (0..DIFFERENT_BATCHES)
            .map(|seed| {
                let mut dice = Dice::new(seed);
                let values: Vec<Bytes> = (0..RECORDS_PER_BATCH)
                    .map(|_| match self {
                        Self::Random => dice.random_value(),
                        Self::Json(_) => dice.json_value(),
                    })
                    .collect();
                let compression = match self {
                    Self::Random => Compression::None,
                    Self::Json(codec) => codec,
                };
                wire::batch(&values, compression)
            })
            .collect()
    }
}

/// Appends `value_bytes` of raw values (rounded up to whole rounds of batches) to a topic, spread
/// evenly over its partitions; gives the raw bytes that were written.
///
/// # Errors
/// The source refuses.
pub fn fill(port: u16, topic: &Topic, value_bytes: u64, payload: Payload) -> Result<u64> {
    let batches = payload.batches()?;
    let partitions: Vec<i32> = (0..topic.partitions).collect();
    let per_partition = value_bytes
        .div_ceil(BATCH_VALUE_BYTES)
        .div_ceil(partitions.len() as u64)
        .max(1);
    let mut client = RawClient::connect(port)?;
    let mut next = batches.iter().cycle();
    for _ in 0..per_partition {
        for group in partitions.chunks(PARTITIONS_PER_REQUEST) {
            let request = group
                .iter()
                .map(|p| Ok((*p, next.next().context("there are batches")?.clone())))
                .collect::<Result<_>>()?;
            wire::produce(&mut client, &topic.name, request)?;
        }
    }
    Ok(per_partition * partitions.len() as u64 * BATCH_VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_and_json_is_json() {
        let mut dice = Dice::new(7);
        assert_eq!(dice.random_value().len(), VALUE_BYTES);
        for _ in 0..100 {
            let value = dice.json_value();
            assert_eq!(value.len(), VALUE_BYTES);
            serde_json::from_slice::<serde_json::Value>(&value).expect("JSON");
        }
    }

    #[test]
    fn json_batches_shrink_as_real_ones_do() {
        let zstd = Payload::Json(Compression::Zstd).batches().expect("batches");
        let ratio = BATCH_VALUE_BYTES as f64 / zstd[0].len() as f64;
        assert!((2.5..8.0).contains(&ratio), "{ratio}");
    }
}
