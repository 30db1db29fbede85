//! The v2 batch header: parsing with every check that needs no other state, walking the batches of
//! a slice, the CRC, and the only two patches that exist (offset + leader epoch outside the CRC;
//! log-append time inside it).

use crate::{Compression, RecordsError, crc32c};

/// Size of a v2 batch header.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part counted by the length field (base offset and length itself).
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// Where the magic byte is, in all message formats.
pub const MAGIC_OFFSET: usize = 16;
/// Producer id of a batch without one.
pub const NO_PRODUCER_ID: i64 = -1;
/// Producer epoch of a batch without one.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// Base sequence of a batch without one.
pub const NO_SEQUENCE: i32 = -1;
/// Leader epoch of a batch nobody stamped.
pub const NO_LEADER_EPOCH: i32 = -1;
/// Timestamp of a batch without one.
pub const NO_TIMESTAMP: i64 = -1;

const CRC_OFFSET: usize = 17;
const ATTRIBUTES_OFFSET: usize = 21;
const MAX_TIMESTAMP_OFFSET: usize = 35;
const OLD_FORMAT_LENGTH_MIN: i32 = 14;

const TIMESTAMP_TYPE_BIT: i16 = 1 << 3;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;
pub(crate) const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// A batch header, copied out of its bytes. All fields are as found; [`BatchHeader::parse`] has
/// checked their ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record (≥ 0).
    pub base_offset: i64,
    /// Length field: bytes after the first twelve.
    pub length: i32,
    /// Partition leader epoch (≥ −1).
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Attribute bits.
    pub attributes: i16,
    /// Last offset − base offset (≥ 0), kept by compaction.
    pub last_offset_delta: i32,
    /// Timestamp the record deltas count from (or the delete horizon, see
    /// [`BatchHeader::has_delete_horizon`]).
    pub base_timestamp: i64,
    /// Largest timestamp, or the append time with LogAppendTime; −1 for none.
    pub max_timestamp: i64,
    /// Producer id, −1 for none.
    pub producer_id: i64,
    /// Producer epoch, −1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, −1 for none.
    pub base_sequence: i32,
    /// Number of records (≥ 0; 0 in batches emptied by compaction).
    pub record_count: i32,
}

fn be<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0u8; N];
    if let Some(s) = b.get(at..at + N) {
        out.copy_from_slice(s);
    }
    out
}

impl BatchHeader {
    /// Parses and checks the header at the start of `bytes`, which needs to hold the header only,
    /// not the whole batch. `Truncated` means "more bytes needed"; each other error is final.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, RecordsError> {
        if bytes.len() <= MAGIC_OFFSET {
            return Err(RecordsError::Truncated {
                need: HEADER_BYTES,
                have: bytes.len(),
            });
        }
        let base_offset = i64::from_be_bytes(be(bytes, 0));
        let length = i32::from_be_bytes(be(bytes, 8));
        let magic = bytes[MAGIC_OFFSET] as i8;
        if length < OLD_FORMAT_LENGTH_MIN {
            return Err(RecordsError::InvalidLength {
                base_offset,
                length,
            });
        }
        match magic {
            2 => {}
            0 | 1 => {
                return Err(RecordsError::OldFormat {
                    magic,
                    offset: base_offset,
                });
            }
            _ => return Err(RecordsError::UnknownMagic { magic, base_offset }),
        }
        if (length as usize) < HEADER_BYTES - LENGTH_PREFIX_BYTES {
            return Err(RecordsError::InvalidLength {
                base_offset,
                length,
            });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(RecordsError::Truncated {
                need: HEADER_BYTES,
                have: bytes.len(),
            });
        }
        let h = BatchHeader::read(bytes);
        h.check()?;
        Ok(h)
    }

    /// The fields as they stand, nothing checked; those behind the end of `bytes` are 0.
    pub(crate) fn read(bytes: &[u8]) -> BatchHeader {
        BatchHeader {
            base_offset: i64::from_be_bytes(be(bytes, 0)),
            length: i32::from_be_bytes(be(bytes, 8)),
            leader_epoch: i32::from_be_bytes(be(bytes, 12)),
            crc: u32::from_be_bytes(be(bytes, CRC_OFFSET)),
            attributes: i16::from_be_bytes(be(bytes, ATTRIBUTES_OFFSET)),
            last_offset_delta: i32::from_be_bytes(be(bytes, 23)),
            base_timestamp: i64::from_be_bytes(be(bytes, 27)),
            max_timestamp: i64::from_be_bytes(be(bytes, MAX_TIMESTAMP_OFFSET)),
            producer_id: i64::from_be_bytes(be(bytes, 43)),
            producer_epoch: i16::from_be_bytes(be(bytes, 51)),
            base_sequence: i32::from_be_bytes(be(bytes, 53)),
            record_count: i32::from_be_bytes(be(bytes, 57)),
        }
    }

    fn check(&self) -> Result<(), RecordsError> {
        // The next offset must exist too, hence the strict bound.
        let last = self
            .base_offset
            .checked_add(i64::from(self.last_offset_delta));
        let offsets_ok = self.base_offset >= 0
            && self.last_offset_delta >= 0
            && last.is_some_and(|l| l < i64::MAX)
            && self.record_count >= 0;
        if !offsets_ok {
            return Err(RecordsError::InvalidOffsets {
                base_offset: self.base_offset,
                last_offset_delta: self.last_offset_delta,
                record_count: self.record_count,
            });
        }
        if self.leader_epoch < NO_LEADER_EPOCH {
            return Err(RecordsError::InvalidLeaderEpoch {
                base_offset: self.base_offset,
                epoch: self.leader_epoch,
            });
        }
        Ok(())
    }

    /// Whole size of the batch in bytes, header included.
    pub fn size(&self) -> usize {
        LENGTH_PREFIX_BYTES + self.length.max(0) as usize
    }
    /// Offset of the last record the batch ever had.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }
    /// Offset after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }
    /// Compression codec; error for unknown bits.
    pub fn compression(&self) -> Result<Compression, RecordsError> {
        Compression::from_bits((self.attributes & 0x07) as u8)
    }
    /// The timestamps are the broker's append time.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_TYPE_BIT != 0
    }
    /// Timestamp of a record with this delta.
    pub(crate) fn record_timestamp(&self, delta: i64) -> i64 {
        if self.is_log_append_time() {
            self.max_timestamp
        } else {
            self.base_timestamp.wrapping_add(delta)
        }
    }
    /// Part of a transaction (markers included).
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }
    /// Control batch: not for consumers.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }
    /// `base_timestamp` is the delete horizon of a compacted batch (KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }
    /// Written by an idempotent producer (or a marker of one).
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }
    /// Sequence of the last record; wraps past `i32::MAX` to 0 as producers do; −1 without
    /// sequence.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        let sum = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (sum % (i64::from(i32::MAX) + 1)) as i32
    }
    /// Attribute bits for a builder.
    pub(crate) fn attribute_bits(
        compression: Compression,
        append_time: bool,
        transactional: bool,
        control: bool,
    ) -> i16 {
        let mut bits = i16::from(compression.bits());
        for (on, bit) in [
            (append_time, TIMESTAMP_TYPE_BIT),
            (transactional, TRANSACTIONAL_BIT),
            (control, CONTROL_BIT),
        ] {
            if on {
                bits |= bit;
            }
        }
        bits
    }
    /// Writes all fields into the first [`HEADER_BYTES`] of `out` (magic 2); shorter slices are
    /// left alone.
    pub(crate) fn write_to(&self, out: &mut [u8]) {
        if out.len() < HEADER_BYTES {
            return;
        }
        out[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        out[MAGIC_OFFSET] = 2;
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }
    /// First byte the CRC covers, counted from the start of the batch.
    pub const CRC_FROM: usize = ATTRIBUTES_OFFSET;
}

/// One whole batch inside a slice.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes.
    pub bytes: &'a [u8],
    /// Where it starts in the slice that was walked.
    pub position: usize,
}

impl<'a> BatchView<'a> {
    /// The first batch of `bytes`; `Truncated` when it is not whole.
    pub fn first(bytes: &'a [u8]) -> Result<BatchView<'a>, RecordsError> {
        let header = BatchHeader::parse(bytes)?;
        let whole = bytes.get(..header.size());
        let whole = whole.ok_or(RecordsError::Truncated {
            need: header.size(),
            have: bytes.len(),
        })?;
        Ok(BatchView {
            header,
            bytes: whole,
            position: 0,
        })
    }
    /// Compares the stored CRC with the bytes.
    pub fn check_crc(&self) -> Result<(), RecordsError> {
        let computed = crc32c(&self.bytes[BatchHeader::CRC_FROM..]);
        if computed != self.header.crc {
            let h = &self.header;
            return Err(RecordsError::CrcMismatch {
                base_offset: h.base_offset,
                stored: h.crc,
                computed,
            });
        }
        Ok(())
    }
    /// The records part, still compressed.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }
    /// Iterates the records, decompressing to at most `limit` bytes (the payload is copied; see
    /// [`crate::records`] for the sharing form).
    pub fn records(&self, limit: usize) -> Result<crate::RecordIter, RecordsError> {
        crate::record::iter(
            &self.header,
            bytes::Bytes::copy_from_slice(self.payload()),
            limit,
        )
    }
}

/// Walks the batches of a slice. A cut-off last batch ends the walk without error;
/// [`Batches::rest`] says how many bytes were left. After an error the walk is over.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    pos: usize,
    over: bool,
}

/// The batches of `bytes`. CRCs are not checked, see [`BatchView::check_crc`].
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches {
        bytes,
        pos: 0,
        over: false,
    }
}

impl Batches<'_> {
    /// Bytes not (yet) walked: after the end, the cut-off last batch.
    pub fn rest(&self) -> usize {
        self.bytes.len() - self.pos
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over || self.pos >= self.bytes.len() {
            return None;
        }
        match BatchView::first(&self.bytes[self.pos..]) {
            Ok(mut b) => {
                b.position = self.pos;
                self.pos += b.bytes.len();
                Some(Ok(b))
            }
            Err(RecordsError::Truncated { .. }) => {
                self.over = true;
                None
            }
            Err(e) => {
                self.over = true;
                Some(Err(e))
            }
        }
    }
}

/// Bytes of the whole batches at the start of `bytes` (0 when the first is cut off or malformed).
pub fn whole_batches_len(bytes: &[u8]) -> usize {
    batches(bytes)
        .map_while(Result::ok)
        .map(|b| b.bytes.len())
        .sum()
}

/// Sets base offset and leader epoch of the batch at the start of `batch`. Neither is covered by
/// the CRC.
pub fn patch_base_offset_and_leader_epoch(
    batch: &mut [u8],
    base_offset: i64,
    leader_epoch: i32,
) -> Result<(), RecordsError> {
    if batch.len() < HEADER_BYTES {
        return Err(RecordsError::Truncated {
            need: HEADER_BYTES,
            have: batch.len(),
        });
    }
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    Ok(())
}

/// Turns the whole batch at the start of `batch` into a LogAppendTime batch of time `now_ms` and
/// recomputes its CRC.
pub fn patch_log_append_time(batch: &mut [u8], now_ms: i64) -> Result<(), RecordsError> {
    patch_time(batch, now_ms, |bits| bits | TIMESTAMP_TYPE_BIT)
}

/// Turns the whole batch at the start of `batch` into a CreateTime batch whose largest timestamp is
/// `max_timestamp`; the CRC is recomputed when that changes anything.
pub fn patch_create_time(batch: &mut [u8], max_timestamp: i64) -> Result<(), RecordsError> {
    patch_time(batch, max_timestamp, |bits| bits & !TIMESTAMP_TYPE_BIT)
}

fn patch_time(
    batch: &mut [u8],
    max_timestamp: i64,
    bits: impl Fn(i16) -> i16,
) -> Result<(), RecordsError> {
    let header = BatchView::first(batch)?.header;
    let attributes = bits(header.attributes);
    if (attributes, max_timestamp) == (header.attributes, header.max_timestamp) {
        return Ok(());
    }
    batch[ATTRIBUTES_OFFSET..ATTRIBUTES_OFFSET + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_OFFSET..MAX_TIMESTAMP_OFFSET + 8]
        .copy_from_slice(&max_timestamp.to_be_bytes());
    let crc = crc32c(&batch[ATTRIBUTES_OFFSET..header.size()]);
    batch[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}
