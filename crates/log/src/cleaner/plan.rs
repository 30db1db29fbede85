//! What is cleaned: pure. Which segments may be touched, whether it is worth it, which are merged
//! into one, and which records stay.

use std::ops::Range;

/// A closed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedSegment {
    /// Base offset.
    pub(crate) base: i64,
    /// Base offset of the next segment.
    pub(crate) end: i64,
    /// Size of the `.log` file.
    pub(crate) bytes: u64,
    /// Largest timestamp, −1 for none.
    pub(crate) largest_timestamp: i64,
}

/// How far a log may be cleaned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Everything below was cleaned before.
    pub(crate) first_dirty: i64,
    /// Nothing at or above is touched: high watermark, last stable offset, synced end, whichever is
    /// lowest.
    pub(crate) stable: i64,
    /// Records younger than this stay out of it.
    pub(crate) newest_timestamp: i64,
}

/// Segments `0 .. until` are rewritten; those from `dirty` on have not been seen yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) dirty: usize,
    pub(crate) until: usize,
    pub(crate) dirty_bytes: u64,
    pub(crate) total_bytes: u64,
}

impl Plan {
    /// Share of the bytes that were not cleaned before, in millionths.
    pub(crate) fn dirty_ppm(&self) -> u32 {
        let ppm = u128::from(self.dirty_bytes) * 1_000_000 / u128::from(self.total_bytes.max(1));
        ppm.min(1_000_000) as u32
    }
}

/// What of the closed segments, oldest first, can be cleaned; `None` when nothing new can.
pub(crate) fn plan(closed: &[ClosedSegment], bounds: &Bounds) -> Option<Plan> {
    let until = closed
        .iter()
        .take_while(|s| s.end <= bounds.stable && s.largest_timestamp <= bounds.newest_timestamp)
        .count();
    let dirty = closed[..until].partition_point(|s| s.end <= bounds.first_dirty);
    let bytes = |of: &[ClosedSegment]| of.iter().map(|s| s.bytes).sum();
    let plan = Plan {
        dirty,
        until,
        dirty_bytes: bytes(&closed[dirty..until]),
        total_bytes: bytes(&closed[..until]),
    };
    (plan.dirty_bytes > 0).then_some(plan)
}

/// Neighbours that become one segment: together not above `bytes_max`, and their offsets fit one
/// segment.
pub(crate) fn groups(closed: &[ClosedSegment], bytes_max: u64) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, s) in closed.iter().enumerate() {
        let joins = out.last().is_some_and(|group| {
            bytes + s.bytes <= bytes_max
                && s.end - 1 - closed[group.start].base <= i64::from(i32::MAX)
        });
        match out.last_mut() {
            Some(group) if joins => {
                group.end = at + 1;
                bytes += s.bytes;
            }
            _ => {
                out.push(at..at + 1);
                bytes = s.bytes;
            }
        }
    }
    out
}

/// What decides about a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fate {
    /// Offset of the newest record with its key among those looked at; `None` when there is none.
    pub(crate) newest: Option<i64>,
    /// It lies behind everything that was looked at.
    pub(crate) unseen: bool,
    /// Its batch was marked in an earlier pass, and that time has come.
    pub(crate) horizon_passed: bool,
}

/// Whether a record stays: the newest of its key does, a tombstone only until its horizon. One
/// without key has no place in a compacted log.
pub(crate) fn stays(offset: i64, has_key: bool, has_value: bool, fate: Fate) -> bool {
    if fate.unseen {
        return true;
    }
    has_key
        && fate.newest.is_none_or(|newest| offset >= newest)
        && (has_value || !fate.horizon_passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(sizes: &[u64]) -> Vec<ClosedSegment> {
        (0..)
            .zip(sizes)
            .map(|(i, &bytes)| ClosedSegment {
                base: i * 10,
                end: i * 10 + 10,
                bytes,
                largest_timestamp: i * 100,
            })
            .collect()
    }

    fn bounds(first_dirty: i64, stable: i64, newest_timestamp: i64) -> Bounds {
        Bounds {
            first_dirty,
            stable,
            newest_timestamp,
        }
    }

    #[test]
    fn nothing_unstable_or_too_young_is_touched() {
        let all = closed(&[50, 50, 50]);
        let until = |b: Bounds| plan(&all, &b).map(|p| (p.dirty, p.until, p.dirty_ppm()));
        assert_eq!(until(bounds(0, 30, 1000)), Some((0, 3, 1_000_000)));
        assert_eq!(until(bounds(0, 29, 1000)), Some((0, 2, 1_000_000)));
        assert_eq!(until(bounds(0, 30, 150)), Some((0, 2, 1_000_000)));
        assert_eq!(until(bounds(20, 30, 1000)), Some((2, 3, 333_333)));
        // A run that ended inside a segment looks at that segment again.
        assert_eq!(until(bounds(15, 30, 1000)), Some((1, 3, 666_666)));
        assert_eq!(until(bounds(30, 30, 1000)), None);
        assert_eq!(until(bounds(0, 5, 1000)), None);
        assert_eq!(plan(&[], &bounds(0, 5, 5)), None);
    }

    #[test]
    fn neighbours_are_merged_up_to_a_size_and_a_span_of_offsets() {
        assert_eq!(
            groups(&closed(&[60, 30, 30, 100, 5]), 100),
            [0..2, 2..3, 3..4, 4..5]
        );
        let mut far = closed(&[1, 1]);
        far[1].end = far[0].base + i64::from(i32::MAX) + 2;
        assert_eq!(groups(&far, 100), [0..1, 1..2]);
        assert!(groups(&[], 100).is_empty());
    }

    #[test]
    fn the_newest_of_a_key_stays_and_a_tombstone_until_its_horizon() {
        let fate = |newest, horizon_passed| Fate {
            newest,
            unseen: false,
            horizon_passed,
        };
        assert!(stays(5, true, true, fate(Some(5), true)));
        assert!(stays(5, true, true, fate(None, true)));
        assert!(!stays(5, true, true, fate(Some(6), false)));
        assert!(stays(5, true, false, fate(Some(5), false)));
        assert!(!stays(5, true, false, fate(Some(5), true)));
        assert!(!stays(5, false, true, fate(None, false)));
        let unseen = Fate {
            unseen: true,
            ..fate(None, true)
        };
        assert!(stays(5, false, false, unseen));
    }
}
