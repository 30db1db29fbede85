//! What a producer may send: every check of Kafka's broker on one batch of format v2 that needs no
//! state of the log. Records are walked in place when they are not compressed, and read as a stream
//! when they are; keys and values are passed over. Not here: sizes, sequences, transactions and who
//! may write.

use crate::decoder::{Decoder, StreamPace};
use crate::{
    BatchHeader, BatchView, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC_OFFSET,
    NO_TIMESTAMP, RecordsError,
};

/// Smallest value of the length field in any format.
const LENGTH_MIN: i32 = 14;
const MAGIC_MAX: i8 = 2;

/// The settings of a topic that decide about its records.
#[derive(Debug, Clone, Copy)]
pub struct RecordRules {
    /// `cleanup.policy` has `compact`: a record needs a key.
    pub keys_required: bool,
    /// `message.timestamp.type` is CreateTime: timestamps must be in range.
    pub create_time: bool,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// Now, epoch milliseconds.
    pub now_ms: i64,
}

/// The one batch of a produce request that may stand in `bytes`, by its frame alone: bytes behind
/// it that are no whole batch do not count, as in Kafka. Nothing else is checked yet.
pub fn one_batch(bytes: &[u8]) -> Result<BatchView<'_>, RecordsError> {
    let size = framed(bytes)?.ok_or(RecordsError::InvalidBatch("no whole batch"))?;
    let (batch, rest) = bytes.split_at(size);
    if batch[MAGIC_OFFSET] as i8 != MAGIC_MAX {
        return Err(RecordsError::OldFormat {
            magic: batch[MAGIC_OFFSET] as i8,
            offset: BatchHeader::read(batch).base_offset,
        });
    }
    if framed(rest)?.is_some() {
        return Err(RecordsError::InvalidBatch("more than one batch"));
    }
    Ok(BatchView {
        header: BatchHeader::read(batch),
        bytes: batch,
        position: 0,
    })
}

/// Size of the whole batch at the start of `bytes`, `None` when there is none.
fn framed(bytes: &[u8]) -> Result<Option<usize>, RecordsError> {
    if bytes.len() < LENGTH_PREFIX_BYTES {
        return Ok(None);
    }
    let header = BatchHeader::read(bytes);
    let (base_offset, length) = (header.base_offset, header.length);
    if length < LENGTH_MIN {
        return Err(RecordsError::InvalidLength {
            base_offset,
            length,
        });
    }
    let Some(&magic) = bytes.get(MAGIC_OFFSET) else {
        return Ok(None);
    };
    let magic = magic as i8;
    if !(0..=MAGIC_MAX).contains(&magic) {
        return Err(RecordsError::UnknownMagic { magic, base_offset });
    }
    let size = LENGTH_PREFIX_BYTES + length as usize;
    Ok((size <= bytes.len()).then_some(size))
}

impl BatchView<'_> {
    /// Kafka's checks of a client's batch from [`one_batch`], header, CRC and records. Gives the
    /// largest timestamp of the records, −1 for none; `batch.header.max_timestamp` need not be it.
    /// Compressed records come out at this `pace`, and not more than `limit` bytes of them.
    pub fn check_produced(
        &self,
        rules: &RecordRules,
        limit: usize,
        pace: &mut dyn StreamPace,
    ) -> Result<i64, RecordsError> {
        let h = &self.header;
        let refuse = |why| Err(RecordsError::InvalidBatch(why));
        if h.base_offset != 0 {
            return refuse("the base offset must be 0");
        }
        if self.bytes.len() < HEADER_BYTES {
            return Err(RecordsError::InvalidLength {
                base_offset: h.base_offset,
                length: h.length,
            });
        }
        self.check_crc()?;
        let compression = h.compression()?;
        if h.last_offset_delta < 0 {
            return refuse("the last offset is below the first");
        }
        if h.record_count <= 0 || h.record_count - 1 != h.last_offset_delta {
            return refuse("record count and last offset delta do not fit");
        }
        if h.is_control() {
            return refuse("clients may not write control batches");
        }
        if h.has_producer_id() && h.base_sequence < 0 {
            return refuse("a batch with a producer id needs a sequence");
        }
        let mut seen = Seen::new(rules, h);
        match compression {
            Compression::None => walk(self.payload(), h, &mut seen)?,
            codec => {
                let mut decoder = Decoder::new(codec, self.payload(), limit, pace)?;
                stream(&mut decoder, h, &mut seen)?;
            }
        }
        seen.verdict()
    }

    /// The first record for which `hit` says yes, given timestamp and offset. Reads no more than it
    /// needs, in pieces.
    pub fn find_record(
        &self,
        limit: usize,
        pace: &mut dyn StreamPace,
        hit: impl Fn(i64, i64) -> bool,
    ) -> Result<Option<(i64, i64)>, RecordsError> {
        let h = &self.header;
        let mut decoder = Decoder::new(h.compression()?, self.payload(), limit, pace)?;
        for index in 0..h.record_count {
            let record = decoder.record(index)?;
            let timestamp = h.record_timestamp(record.timestamp_delta);
            let offset = h.base_offset.saturating_add(i64::from(record.offset_delta));
            if hit(timestamp, offset) {
                return Ok(Some((timestamp, offset)));
            }
        }
        Ok(None)
    }
}

/// What the records of a batch have shown so far.
struct Seen<'r> {
    rules: &'r RecordRules,
    largest: i64,
    /// The topic is LogAppendTime, or a record without time claims it: the producer may not say so.
    claims_append_time: bool,
    keyless: Option<i32>,
    out_of_range: Option<(i32, i64)>,
}

impl<'r> Seen<'r> {
    fn new(rules: &'r RecordRules, h: &BatchHeader) -> Self {
        let timeless = !rules.create_time || h.max_timestamp == NO_TIMESTAMP;
        Seen {
            rules,
            largest: NO_TIMESTAMP,
            claims_append_time: h.is_log_append_time() && timeless,
            keyless: None,
            out_of_range: None,
        }
    }

    #[inline(always)]
    fn record(&mut self, index: i32, timestamp: i64, has_key: bool) {
        if !has_key && self.rules.keys_required {
            self.keyless.get_or_insert(index);
            return;
        }
        let age = self.rules.now_ms.wrapping_sub(timestamp);
        if (age > self.rules.before_max_ms || age.wrapping_neg() > self.rules.after_max_ms)
            && timestamp != NO_TIMESTAMP
            && self.rules.create_time
        {
            self.out_of_range.get_or_insert((index, timestamp));
        }
        self.largest = self.largest.max(timestamp);
    }

    fn verdict(self) -> Result<i64, RecordsError> {
        if self.claims_append_time {
            return Err(RecordsError::ProducerAppendTime);
        }
        if let Some((index, timestamp)) = self.out_of_range {
            return Err(RecordsError::TimestampOutOfRange {
                index,
                timestamp,
                oldest: self.rules.now_ms.saturating_sub(self.rules.before_max_ms),
                newest: self.rules.now_ms.saturating_add(self.rules.after_max_ms),
            });
        }
        match self.keyless {
            Some(index) => Err(RecordsError::InvalidRecord {
                index,
                reason: "a compacted topic takes no record without key",
            }),
            None => Ok(self.largest),
        }
    }
}

/// Walks uncompressed records in place.
fn walk(payload: &[u8], h: &BatchHeader, seen: &mut Seen<'_>) -> Result<(), RecordsError> {
    if !h.is_log_append_time()
        && let Some(largest) = walk_unsuspicious(payload, h, seen.rules)?
    {
        seen.largest = largest;
        return Ok(());
    }
    walk_each(payload, h, seen)
}

/// The walk of a batch about whose records there is nothing to say: gives their largest timestamp,
/// or `None` when there is something, which only a look at each of them tells.
fn walk_unsuspicious(
    payload: &[u8],
    h: &BatchHeader,
    rules: &RecordRules,
) -> Result<Option<i64>, RecordsError> {
    let (mut low, mut high, mut all_keys) = (i64::MAX, i64::MIN, true);
    let mut at = 0;
    for index in 0..h.record_count {
        let record = short_record(payload, at).or_else(|| plain_record(payload, at));
        let (next, timestamp_delta, has_key) = record.ok_or(RecordsError::InvalidRecord {
            index,
            reason: "not a whole record",
        })?;
        low = low.min(timestamp_delta);
        high = high.max(timestamp_delta);
        all_keys &= has_key;
        at = next;
    }
    if at != payload.len() {
        return Err(LEFT_OVER);
    }
    let times = h.base_timestamp.checked_add(low);
    let times = times.zip(h.base_timestamp.checked_add(high));
    Ok(times.and_then(|(oldest, newest)| {
        let in_range = !rules.create_time
            || (rules.now_ms.saturating_sub(oldest) <= rules.before_max_ms
                && newest.saturating_sub(rules.now_ms) <= rules.after_max_ms);
        let good = in_range && (all_keys || !rules.keys_required);
        good.then_some(newest.max(NO_TIMESTAMP))
    }))
}

fn walk_each(payload: &[u8], h: &BatchHeader, seen: &mut Seen<'_>) -> Result<(), RecordsError> {
    let fixed = h.is_log_append_time().then_some(h.max_timestamp);
    let mut at = 0;
    for index in 0..h.record_count {
        let (next, timestamp_delta, has_key) =
            plain_record(payload, at).ok_or(RecordsError::InvalidRecord {
                index,
                reason: "not a whole record",
            })?;
        let timestamp = fixed.unwrap_or(h.base_timestamp.wrapping_add(timestamp_delta));
        seen.record(index, timestamp, has_key);
        at = next;
    }
    if at == payload.len() {
        Ok(())
    } else {
        Err(LEFT_OVER)
    }
}

/// As [`plain_record`], for a record as most are: numbers of one or two bytes, no headers. `None`
/// says nothing about the record.
#[inline(always)]
fn short_record(bytes: &[u8], at: usize) -> Option<(usize, i64, bool)> {
    let head: &[u8; 8] = bytes.get(at..)?.first_chunk()?;
    let word = u64::from_le_bytes(*head);
    let (size, bits) = short_varint(word)?;
    // One byte of attributes.
    let (body, mut used) = (at + bits as usize / 8, bits + 8);
    let (timestamp_delta, bits) = short_varint(word >> used)?;
    used += bits;
    let (_offset_delta, bits) = short_varint(word >> used)?;
    used += bits;
    let (key, bits) = short_varint(word >> used)?;
    used += bits;
    // What was shifted in behind the word is no number.
    if used > u64::BITS {
        return None;
    }
    let (value, at) = varint(bytes, at + used as usize / 8 + key.max(0) as usize)?;
    let at = at.checked_add(value.max(0) as usize)?;
    // Where the next one begins is told by the length alone, so that the processor need not wait
    // for the rest of this one.
    let next = body.wrapping_add(size as usize);
    let whole = *bytes.get(at)? == 0 && at + 1 == next;
    whole.then_some((next, timestamp_delta, key >= 0))
}

/// The number in the lowest one or two bytes, and how many bits it takes.
#[inline(always)]
fn short_varint(word: u64) -> Option<(i64, u32)> {
    let (v, bits) = if word & 0x80 == 0 {
        (word & 0x7f, 8)
    } else if word & 0x8000 == 0 {
        ((word & 0x7f) | (word >> 1 & 0x3f80), 16)
    } else {
        return None;
    };
    Some(((v >> 1) as i64 ^ -((v & 1) as i64), bits))
}

const LEFT_OVER: RecordsError = RecordsError::InvalidBatch("bytes behind the last record");

/// One record at `at`: where the next one begins, its timestamp delta, and whether it has a key.
#[inline(always)]
fn plain_record(bytes: &[u8], at: usize) -> Option<(usize, i64, bool)> {
    let (size, body) = varint(bytes, at)?;
    // One byte of attributes in front.
    let (timestamp_delta, at) = varlong(bytes, body + 1)?;
    let (_offset_delta, at) = varint(bytes, at)?;
    let (key, at) = varint(bytes, at)?;
    let at = at.checked_add(key.max(0) as usize)?;
    let (value, at) = varint(bytes, at)?;
    let at = at.checked_add(value.max(0) as usize)?;
    let (headers, mut at) = varint(bytes, at)?;
    if headers != 0 {
        at = plain_headers(bytes, at, headers)?;
    }
    // What ends before `bytes` does was read from it, except for an empty tail.
    let whole = at == body.checked_add(usize::try_from(size).ok()?)? && at <= bytes.len();
    whole.then_some((at, timestamp_delta, key >= 0))
}

fn plain_headers(bytes: &[u8], mut at: usize, count: i32) -> Option<usize> {
    for _ in 0..u32::try_from(count).ok()? {
        let (key, after) = varint(bytes, at)?;
        let (value, after) = varint(bytes, after.checked_add(usize::try_from(key).ok()?)?)?;
        at = after.checked_add(value.max(0) as usize)?;
    }
    Some(at)
}

#[inline(always)]
fn varint(bytes: &[u8], at: usize) -> Option<(i32, usize)> {
    let first = u32::from(*bytes.get(at)?);
    if first < 0x80 {
        return Some((((first >> 1) as i32) ^ -((first & 1) as i32), at + 1));
    }
    let second = u32::from(*bytes.get(at + 1)?);
    if second < 0x80 {
        let v = (first & 0x7f) | (second << 7);
        return Some((((v >> 1) as i32) ^ -((v & 1) as i32), at + 2));
    }
    long_varint(bytes, at)
}

#[inline(never)]
fn long_varint(bytes: &[u8], at: usize) -> Option<(i32, usize)> {
    let mut c = crate::varint::Cursor::new(bytes, at);
    Some((c.i32()?, c.pos()))
}

#[inline(always)]
fn varlong(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    let first = u64::from(*bytes.get(at)?);
    if first < 0x80 {
        return Some((((first >> 1) as i64) ^ -((first & 1) as i64), at + 1));
    }
    long_varlong(bytes, at)
}

#[inline(never)]
fn long_varlong(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    let mut c = crate::varint::Cursor::new(bytes, at);
    Some((c.i64()?, c.pos()))
}

/// Reads compressed records in order. Unlike in place, Kafka holds their offsets to be 0, 1, 2 …
fn stream(
    decoder: &mut Decoder<'_, '_>,
    h: &BatchHeader,
    seen: &mut Seen<'_>,
) -> Result<(), RecordsError> {
    for index in 0..h.record_count {
        let record = decoder.record(index)?;
        if record.offset_delta != index {
            return Err(RecordsError::InvalidRecord {
                index,
                reason: "its offset does not follow",
            });
        }
        seen.record(
            index,
            h.record_timestamp(record.timestamp_delta),
            record.has_key,
        );
    }
    // The end of the stream holds checksums of some codecs.
    match decoder.byte()? {
        None => Ok(()),
        Some(_) => Err(LEFT_OVER),
    }
}

/// What is kept of a record in a stream.
struct StreamedRecord {
    timestamp_delta: i64,
    offset_delta: i32,
    has_key: bool,
}

impl Decoder<'_, '_> {
    fn record(&mut self, index: i32) -> Result<StreamedRecord, RecordsError> {
        let bad = |reason| RecordsError::InvalidRecord { index, reason };
        let short = || bad("not a whole record");
        let size = self.varint()?.ok_or_else(short)?;
        let start = self.taken();
        let _attributes = self.byte()?.ok_or_else(short)?;
        let timestamp_delta = self.varlong()?.ok_or_else(short)?;
        let offset_delta = self.varint()?.ok_or_else(short)?;
        let has_key = self.pass()?.ok_or_else(short)?;
        self.pass()?.ok_or_else(short)?;
        let headers = self.varint()?.ok_or_else(short)?;
        let headers = u32::try_from(headers).map_err(|_| bad("negative header count"))?;
        for _ in 0..headers {
            if !self.pass()?.ok_or_else(short)? {
                return Err(bad("null header key"));
            }
            self.pass()?.ok_or_else(short)?;
        }
        if u64::try_from(size).ok() != Some(self.taken() - start) {
            return Err(bad("its length does not fit"));
        }
        Ok(StreamedRecord {
            timestamp_delta,
            offset_delta,
            has_key,
        })
    }

    /// Passes over bytes behind their length; whether they are there (not null).
    fn pass(&mut self) -> Result<Option<bool>, RecordsError> {
        let Some(length) = self.varint()? else {
            return Ok(None);
        };
        let Ok(length) = u64::try_from(length) else {
            return Ok(Some(false));
        };
        Ok(self.skip(length)?.then_some(true))
    }

    fn varint(&mut self) -> Result<Option<i32>, RecordsError> {
        let v = self.unsigned(5)?.and_then(|v| u32::try_from(v).ok());
        Ok(v.map(|v| ((v >> 1) as i32) ^ -((v & 1) as i32)))
    }

    fn varlong(&mut self) -> Result<Option<i64>, RecordsError> {
        let v = self.unsigned(10)?;
        Ok(v.map(|v| ((v >> 1) as i64) ^ -((v & 1) as i64)))
    }

    fn unsigned(&mut self, bytes_max: u32) -> Result<Option<u64>, RecordsError> {
        let mut value = 0u64;
        for i in 0..bytes_max {
            let Some(b) = self.byte()? else {
                return Ok(None);
            };
            value |= u64::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    /// The quick walk and the look at each record agree, whatever byte is wrong.
    #[test]
    fn the_quick_walk_says_what_the_thorough_one_says() {
        const NOW: i64 = 1_700_000_000_000;
        let mut builder = BatchBuilder::new();
        for (i, size) in [0, 5, 70, 200, 3, 9_000].into_iter().enumerate() {
            let key = (i % 3 > 0).then_some(&b"key"[..]);
            builder.add(NOW + 40 * i as i64, key, Some(&vec![9; size]), &[]);
        }
        let batch = builder.build().unwrap();
        let header = BatchHeader::read(&batch);
        let (mut quick_ones, mut differ) = (0, 0);
        for keys_required in [false, true] {
            let rules = RecordRules {
                keys_required,
                create_time: true,
                before_max_ms: 1000,
                after_max_ms: 1000,
                now_ms: NOW,
            };
            for at in (0..400).chain(9_000..batch.len() - HEADER_BYTES) {
                for flip in [0, 1, 2, 3, 0x40, 0x80, 0x81, 0xff] {
                    let mut payload = batch[HEADER_BYTES..].to_vec();
                    payload[at] ^= flip;
                    let verdict = |walked: Result<(), RecordsError>, seen: Seen<'_>| {
                        walked.and_then(|()| seen.verdict())
                    };
                    let mut seen = Seen::new(&rules, &header);
                    let thorough = walk_each(&payload, &header, &mut seen);
                    let thorough = verdict(thorough, seen);
                    let mut seen = Seen::new(&rules, &header);
                    let quick = walk(&payload, &header, &mut seen);
                    let quick = verdict(quick, seen);
                    assert_eq!(quick, thorough, "byte {at} flipped by {flip}");
                    let unsuspicious = walk_unsuspicious(&payload, &header, &rules);
                    quick_ones += usize::from(matches!(unsuspicious, Ok(Some(_))));
                    differ += usize::from(quick.is_err());
                }
            }
        }
        assert!(quick_ones > 100 && differ > 100, "{quick_ones}, {differ}");
    }
}
