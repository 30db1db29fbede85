//! Reading: slices for fetches, look-ups by timestamp, scrubbing. Nothing here takes the writer
//! lock.

use std::sync::Arc;

use tarn_records::{BatchView, NO_TIMESTAMP, StreamPace};

use super::PartitionLog;
use super::produce::PRODUCED_BYTES_MAX;
use crate::error::LogError;
use crate::scan::{Found, Scanner};
use crate::segment::Segment;
use crate::types::{Slice, TimestampAndOffset};

/// A segment may be removed between taking the snapshot and opening its file; a fresh snapshot
/// settles it.
const SNAPSHOT_TRIES: usize = 3;

impl PartitionLog {
    /// Finds the bytes from the batch that contains `offset` (or the first one after it, over
    /// gaps), never at or past `upper_offset` (high watermark, LSO or log end), at most
    /// `max_bytes`, within one segment. `min_one`: the first batch is given whole even when larger
    /// than `max_bytes` (KIP-74). `Ok(None)`: in range, nothing to read yet (or, without `min_one`,
    /// the first batch does not fit). Error `OffsetOutOfRange` outside `log_start ..= log_end`.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: u64,
        upper_offset: i64,
        min_one: bool,
    ) -> Result<Option<Slice>, LogError> {
        self.with_snapshot(|segments, end| {
            let (log_start, log_end) = (self.log_start_offset(), end.offset);
            if offset < log_start || offset > log_end {
                return Err(LogError::OffsetOutOfRange {
                    offset,
                    log_start,
                    log_end,
                });
            }
            let upper = upper_offset.min(log_end);
            if offset >= upper {
                return Ok(None);
            }
            let Some((at, first)) = find(segments, end, offset)? else {
                return Ok(None);
            };
            let bound = bound(segments, end, at, upper)?;
            let first_size = first.header.size() as u64;
            if first.position + first_size > bound || (first_size > max_bytes && !min_one) {
                return Ok(None);
            }
            let segment = &segments[at];
            Ok(Some(Slice {
                file: segment.log.get().map_err(|e| segment.log.read_failed(e))?,
                position: first.position,
                len: (bound - first.position).min(max_bytes.max(first_size)),
                first_batch_base_offset: first.header.base_offset,
                first_batch_size: first_size,
            }))
        })
    }

    /// First record with timestamp ≥ `timestamp` (ListOffsets) at or above the log start, also
    /// inside compressed batches. Not bounded by the high watermark: the caller compares.
    /// Compressed records are read at this `pace`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        pace: &mut dyn StreamPace,
    ) -> Result<Option<TimestampAndOffset>, LogError> {
        self.with_snapshot(|segments, end| {
            let start = self.log_start_offset();
            for (at, s) in segments.iter().enumerate() {
                if s.largest_timestamp()?.0 < timestamp {
                    continue;
                }
                let limit = limit(segments, end, at);
                let from = s.offset_before_time(timestamp)?.max(start);
                let Some(first) = s.locate(from, limit)? else {
                    continue;
                };
                let mut scan = Scanner::new(&s.log, first.position, limit);
                while let Some(b) = scan.next(|_| false).map_err(|e| s.damaged(e, from))? {
                    if b.header.max_timestamp < timestamp {
                        continue;
                    }
                    let hit = |t: i64, offset: i64| t >= timestamp && offset >= start;
                    if let Some(found) = record_in(s, &b, pace, hit)? {
                        return Ok(Some(found));
                    }
                }
            }
            Ok(None)
        })
    }

    /// The first record with the largest timestamp (ListOffsets −3). Compressed records are read at
    /// this `pace`.
    pub fn max_timestamp(
        &self,
        pace: &mut dyn StreamPace,
    ) -> Result<Option<TimestampAndOffset>, LogError> {
        self.with_snapshot(|segments, end| {
            let mut best: Option<(usize, i64, i64)> = None;
            for (at, s) in segments.iter().enumerate() {
                let (timestamp, offset) = s.largest_timestamp()?;
                if timestamp > best.map_or(NO_TIMESTAMP, |b| b.1) {
                    best = Some((at, timestamp, offset));
                }
            }
            let Some((at, timestamp, offset)) = best else {
                return Ok(None);
            };
            let s = &segments[at];
            match s.locate(offset, limit(segments, end, at))? {
                Some(b) => record_in(s, &b, pace, |t, _| t >= timestamp),
                None => Ok(None),
            }
        })
    }

    /// CRC check of every batch in `from .. to` (scrubbing; sendfile does not look at bodies).
    /// Error `Damaged` names the place.
    pub fn verify(&self, from: i64, to: i64) -> Result<(), LogError> {
        self.with_snapshot(|segments, end| {
            for (at, s) in segments.iter().enumerate().skip(floor(segments, from)) {
                if s.base_offset >= to {
                    break;
                }
                let limit = limit(segments, end, at);
                let start = s.locate(from, limit)?.map_or(limit, |b| b.position);
                let mut scan = Scanner::new(&s.log, start, limit);
                let mut near = from.max(s.base_offset);
                while let Some(b) = scan
                    .next(|h| h.base_offset < to)
                    .map_err(|e| s.damaged(e, near))?
                {
                    near = b.header.next_offset();
                    if near >= to {
                        break;
                    }
                }
            }
            Ok(())
        })
    }

    pub(super) fn with_snapshot<T>(
        &self,
        mut op: impl FnMut(&[Arc<Segment>], &super::LogEnd) -> Result<T, LogError>,
    ) -> Result<T, LogError> {
        let mut tries = 0;
        loop {
            // The end first: a segment list taken later can only know more.
            let end = self.end.load_full();
            let segments = self.segments.load_full();
            match op(&segments, &end) {
                Err(LogError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound
                        && tries + 1 < SNAPSHOT_TRIES =>
                {
                    tries += 1;
                }
                done => return done,
            }
        }
    }
}

/// Index of the segment that would hold `offset`.
pub(super) fn floor(segments: &[Arc<Segment>], offset: i64) -> usize {
    segments
        .partition_point(|s| s.base_offset <= offset)
        .saturating_sub(1)
}

/// Bytes of a segment that belong to the log as `end` saw it.
pub(super) fn limit(segments: &[Arc<Segment>], end: &super::LogEnd, at: usize) -> u64 {
    let s = &segments[at];
    match s.base_offset.cmp(&end.segment_base) {
        std::cmp::Ordering::Less => s.size(),
        std::cmp::Ordering::Equal => end.position.min(s.size()),
        std::cmp::Ordering::Greater => 0,
    }
}

/// The first batch whose last offset is ≥ `offset`, in its segment or a later one.
fn find(
    segments: &[Arc<Segment>],
    end: &super::LogEnd,
    offset: i64,
) -> Result<Option<(usize, Found)>, LogError> {
    for at in floor(segments, offset)..segments.len() {
        if let Some(found) = segments[at].locate(offset, limit(segments, end, at))? {
            return Ok(Some((at, found)));
        }
    }
    Ok(None)
}

/// Byte position in segment `at` where batches that reach `upper` begin.
fn bound(
    segments: &[Arc<Segment>],
    end: &super::LogEnd,
    at: usize,
    upper: i64,
) -> Result<u64, LogError> {
    let limit = limit(segments, end, at);
    let next_base = segments.get(at + 1).map(|s| s.base_offset);
    if upper >= end.offset || next_base.is_some_and(|b| b <= upper) {
        return Ok(limit);
    }
    Ok(segments[at]
        .locate(upper, limit)?
        .map_or(limit, |b| b.position))
}

fn record_in(
    segment: &Segment,
    batch: &Found,
    pace: &mut dyn StreamPace,
    hit: impl Fn(i64, i64) -> bool,
) -> Result<Option<TimestampAndOffset>, LogError> {
    let mut bytes = vec![0u8; batch.header.size()];
    segment.log.read_at(&mut bytes, batch.position)?;
    let view = BatchView::first(&bytes)?;
    view.check_crc()?;
    let found = view.find_record(PRODUCED_BYTES_MAX, pace, hit)?;
    Ok(found.map(|(timestamp, offset)| TimestampAndOffset {
        timestamp,
        offset,
        leader_epoch: batch.header.leader_epoch,
    }))
}
