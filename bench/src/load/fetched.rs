//! Walks through an answer to Fetch (versions 12 to 17) as it arrives: counts batches by their
//! headers, reads stamps, throws the rest away.
//!
//! Owns the layout of the answer; sockets are `intake`'s, sessions `consume`'s.

use anyhow::{Result, ensure};

use super::batch::{STAMP_BYTES, read_stamp};
use super::clock::now_ns;
use super::consume::Consumed;
use super::intake::Intake;

/// From this version on topics are named by id.
pub(crate) const BY_ID_FROM: i16 = 13;
/// A batch's header, and the fields of it that are read: base offset, length, last offset delta,
/// record count.
const HEADER: usize = 61;
const LENGTH_AT: usize = 8;
const LAST_DELTA_AT: usize = 23;
const COUNT_AT: usize = 57;
/// Bytes of a batch in front of what its length counts.
const PREFIX: usize = 12;

/// How far a partition is read.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Number of the partition.
    pub(crate) index: usize,
    /// Offset that is read next.
    pub(crate) next: i64,
    until: Option<i64>,
    /// Whether the session still has to learn `next`.
    pub(crate) moved: bool,
}

impl Place {
    pub(crate) fn new(index: usize, from: i64, until: Option<i64>) -> Self {
        Self {
            index,
            next: from,
            until,
            moved: false,
        }
    }

    /// Whether it is not read to its end.
    pub(crate) fn is_wanted(&self) -> bool {
        self.until.is_none_or(|until| self.next < until)
    }
}

/// What an answer is expected to be, and where its content goes.
pub(crate) struct Answer<'a> {
    pub(crate) version: i16,
    pub(crate) id: i32,
    pub(crate) places: &'a mut [Place],
    /// Place of a partition by its number.
    pub(crate) index_of: &'a [usize],
    pub(crate) stamp_at: Option<usize>,
    pub(crate) count_from_ns: u64,
    pub(crate) consumed: &'a mut Consumed,
}

/// The first fields of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) error_code: i16,
    pub(crate) session_id: i32,
}

/// Reads one answer.
pub(crate) fn read(intake: &mut Intake, answer: &mut Answer<'_>) -> Result<Head> {
    let _length = intake.i32()?;
    let id = intake.i32()?;
    ensure!(
        id == answer.id,
        "answer to request {id} instead of {}",
        answer.id
    );
    intake.skip_tags()?;
    let _throttle_ms = intake.i32()?;
    let head = Head {
        error_code: intake.i16()?,
        session_id: intake.i32()?,
    };
    for _ in 1..intake.uvarint()?.max(1) {
        if answer.version >= BY_ID_FROM {
            intake.skip(16)?;
        } else {
            let name = intake.uvarint()?.saturating_sub(1);
            intake.skip(name)?;
        }
        for _ in 1..intake.uvarint()?.max(1) {
            partition(intake, answer)?;
        }
        intake.skip_tags()?;
    }
    intake.skip_tags()?;
    Ok(head)
}

fn partition(intake: &mut Intake, answer: &mut Answer<'_>) -> Result<()> {
    let index = intake.i32()?;
    let error = intake.i16()?;
    ensure!(error == 0, "partition {index} answers error {error}");
    // High watermark, last stable offset, log start.
    intake.skip(24)?;
    for _ in 1..intake.uvarint()?.max(1) {
        intake.skip(16)?;
        intake.skip_tags()?;
    }
    let _preferred_replica = intake.i32()?;
    let records = intake.uvarint()?.saturating_sub(1);
    let at = usize::try_from(index)
        .ok()
        .and_then(|i| answer.index_of.get(i));
    let at = at.copied().filter(|at| *at < answer.places.len());
    ensure!(
        at.is_some(),
        "an answer for partition {index}, which was not asked for"
    );
    batches(intake, answer, at.unwrap_or_default(), records)?;
    intake.skip_tags()
}

fn batches(intake: &mut Intake, answer: &mut Answer<'_>, at: usize, mut left: usize) -> Result<()> {
    let seen = answer.stamp_at.map_or(HEADER, |stamp| stamp + STAMP_BYTES);
    while left >= HEADER {
        let look = seen.min(left);
        let bytes = intake.take(look)?;
        left -= look;
        let base = i64::from_be_bytes(array(bytes, 0));
        let len = PREFIX + usize::try_from(i32::from_be_bytes(array(bytes, LENGTH_AT)))?;
        let last = base + i64::from(i32::from_be_bytes(array(bytes, LAST_DELTA_AT)));
        let count = u64::try_from(i32::from_be_bytes(array(bytes, COUNT_AT)))?;
        let stamp = answer
            .stamp_at
            .and_then(|stamp| read_stamp(bytes.get(stamp..)?));
        ensure!(
            len >= look,
            "a batch of {len} bytes where {look} were expected at least"
        );
        // The last batch may be cut by the limit of bytes; it comes again.
        if len - look > left {
            break;
        }
        intake.skip(len - look)?;
        left -= len - look;
        let place = &mut answer.places[at];
        if last < place.next {
            continue;
        }
        place.next = last + 1;
        place.moved = true;
        answer.consumed.records += count;
        answer.consumed.bytes += len as u64;
        if let Some(ns) = stamp.filter(|ns| *ns >= answer.count_from_ns) {
            answer.consumed.latency.record(now_ns().saturating_sub(ns));
        }
    }
    intake.skip(left)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    // Every caller looks at the first HEADER bytes of a batch.
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
