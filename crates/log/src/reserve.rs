//! How far ahead of its end a growing segment has blocks reserved: the policy and its state. The
//! file size is never touched, so it stays the log end; reserving itself (and giving back) is the
//! segment's.
//!
//! Blocks that are reserved in large steps lie together and are found without a search at each
//! write. A small or idle log reserves nothing.

use std::ops::Range;

/// A segment below this size reserves nothing.
const FROM_BYTES: u64 = 16 << 20;
/// Smallest step ahead. A step is half of what the segment holds already, between these bounds.
const STEP_BYTES_MIN: u64 = 8 << 20;
/// Largest step ahead, and so the most that a log can hold without using it.
const STEP_BYTES_MAX: u64 = 64 << 20;
/// Bytes a segment must grow after its reservation was cut away, before it gets another one.
const PAUSE_BYTES: u64 = 16 << 20;

/// State of one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserve {
    /// Blocks are reserved up to here; 0 for none.
    upto: u64,
    /// A write that ends above this reserves more; `u64::MAX` = never again.
    at: u64,
    /// Length of the file when it was last looked whether the segment is idle.
    looked_at: u64,
}

impl Default for Reserve {
    fn default() -> Self {
        Reserve {
            upto: 0,
            at: FROM_BYTES,
            looked_at: 0,
        }
    }
}

impl Reserve {
    /// What to reserve before a write that ends at `end`; it counts as reserved from now on.
    pub(crate) fn ahead_of(&mut self, end: u64) -> Option<Range<u64>> {
        if end <= self.at {
            return None;
        }
        let from = self.upto.max(end);
        self.upto = from + (end / 2).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        self.at = self.upto;
        Some(from..self.upto)
    }
    /// Reserving failed (full disk, a file system that cannot): this segment does without.
    pub(crate) fn failed(&mut self) {
        self.upto = 0;
        self.at = u64::MAX;
    }
    /// The file was cut to `len`, which took the reservation with it. Gives whether there was one
    /// behind `len`.
    pub(crate) fn cut_at(&mut self, len: u64) -> bool {
        let had = self.upto > len;
        self.upto = 0;
        if self.at != u64::MAX {
            self.at = (len + PAUSE_BYTES).max(FROM_BYTES);
        }
        had
    }
    /// Whether blocks behind `len` are reserved and the file had this length at the last call too.
    pub(crate) fn is_idle_at(&mut self, len: u64) -> bool {
        let idle = self.is_ahead_of(len) && self.looked_at == len;
        self.looked_at = len;
        idle
    }
    /// Whether blocks behind `len` are reserved.
    pub(crate) fn is_ahead_of(&self, len: u64) -> bool {
        self.upto > len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_the_segment_and_are_bounded() {
        let mut r = Reserve::default();
        assert_eq!(r.ahead_of(FROM_BYTES), None, "small logs cost nothing");
        let first = r.ahead_of(FROM_BYTES + 1).unwrap();
        assert_eq!(first.start, FROM_BYTES + 1);
        assert_eq!(first.end - first.start, STEP_BYTES_MIN);
        assert_eq!(r.ahead_of(first.end), None);
        let second = r.ahead_of(first.end + 10).unwrap();
        assert_eq!(second.start, first.end + 10);
        let late = r.ahead_of(900 << 20).unwrap();
        assert_eq!(late.end - late.start, STEP_BYTES_MAX);
    }

    #[test]
    fn a_cut_pauses_and_a_failure_ends_reserving() {
        let mut r = Reserve::default();
        r.ahead_of(20 << 20);
        assert!(r.is_ahead_of(20 << 20));
        assert!(r.cut_at(20 << 20));
        assert!(!r.cut_at(20 << 20));
        assert_eq!(r.ahead_of((20 << 20) + PAUSE_BYTES), None);
        assert!(r.ahead_of((20 << 20) + PAUSE_BYTES + 1).is_some());
        r.failed();
        assert_eq!(r.ahead_of(1 << 40), None);
    }
}
