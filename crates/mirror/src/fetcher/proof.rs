//! Sources without topic ids (before 2.8): the proof, in the very answer that brings records, that
//! they follow ours. Pure but for one read.
//!
//! Such a topic can be deleted, made anew and filled while a Fetch waits, and the answer looks like
//! any other. So after each lapse in which that could have happened, the partition is asked for
//! from its last record on: what comes then begins with our last batch, and what follows it in the
//! same answer is its continuation. While records keep coming, and once ours ends where the
//! source's does, nothing is asked for twice.

use std::time::Duration;

use tarn_log::{PartitionLog, Slice};
use tarn_records::{BatchHeader, HEADER_BYTES};
use tokio::time::Instant;

/// A topic is not deleted, made anew and filled as far as before in so short a time.
pub(super) const LAPSE_MAX: Duration = Duration::from_millis(100);

/// What is known of the continuity of one partition.
#[derive(Debug)]
pub(super) struct Continuity {
    /// The source has no topic ids.
    needed: bool,
    /// The next Fetch shall begin with our last batch.
    overlap: bool,
    /// The answer by which records were last proven to follow ours.
    proven_at: Option<Instant>,
    /// An answer did not begin with our last batch: the content is compared.
    doubted: bool,
    /// It was, and what the source has left is the same: what follows this end is taken once.
    trusted_end: Option<i64>,
}

impl Continuity {
    pub(super) fn new(needed: bool) -> Continuity {
        Continuity {
            needed,
            overlap: true,
            proven_at: None,
            doubted: false,
            trusted_end: None,
        }
    }

    /// Whether the next Fetch shall begin with our last batch.
    pub(super) fn overlaps(&self) -> bool {
        self.needed && self.overlap
    }

    /// Whether records that follow our `end` in an answer begun at `begun` may be taken as they
    /// are; else they are asked for with our last batch in front.
    pub(super) fn may_take(&mut self, begun: Instant, end: i64) -> bool {
        let lapse = |at| begun.saturating_duration_since(at);
        let is_fresh = self.proven_at.is_some_and(|at| lapse(at) <= LAPSE_MAX);
        let takes = !self.needed || is_fresh || self.trusted_end == Some(end);
        if takes {
            self.proven_at = Some(begun);
        } else {
            self.overlap = true;
        }
        takes
    }

    /// An answer began with our last batch; `behind` = the source has more than it brought.
    pub(super) fn proven(&mut self, begun: Instant, behind: bool) {
        self.proven_at = Some(begun);
        self.overlap = behind;
    }

    /// An answer should have begun with our last batch and did not.
    pub(super) fn doubt(&mut self) {
        self.overlap = false;
        self.doubted = true;
    }

    /// The content was compared, and nothing contradicts.
    pub(super) fn compared(&mut self, end: i64) {
        if std::mem::take(&mut self.doubted) {
            self.trusted_end = Some(end);
        }
    }
}

/// The header of the local batch that holds `offset`, as bytes.
pub(super) fn local_header(log: &PartitionLog, offset: i64) -> Option<Vec<u8>> {
    let from = offset.max(log.log_start_offset());
    let slice = log.read(from, 1, log.log_end_offset(), true).ok()??;
    let head = Slice {
        len: slice.len.min(HEADER_BYTES as u64),
        ..slice
    };
    let bytes = head.read().ok()?;
    (bytes.len() == HEADER_BYTES).then(|| bytes.to_vec())
}

/// Last offset and size of the last batch of a log; `None` = it has none.
pub(super) fn tail(log: &PartitionLog) -> Option<(i64, i32)> {
    let end = log.log_end_offset();
    let head = local_header(log, end.checked_sub(1)?)?;
    let header = BatchHeader::parse(&head).ok()?;
    let size = i32::try_from(header.size()).ok()?;
    (end > log.log_start_offset()).then_some((header.last_offset(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_lapse_records_are_taken_only_with_our_last_batch_in_front() {
        let mut continuity = Continuity::new(true);
        let begun = Instant::now();
        assert!(continuity.overlaps(), "nothing is proven yet");
        continuity.proven(begun, false);
        assert!(!continuity.overlaps());
        assert!(continuity.may_take(begun + LAPSE_MAX, 10));
        let later = begun + LAPSE_MAX * 2;
        assert!(continuity.may_take(later, 20), "each answer proves anew");
        assert!(!continuity.may_take(later + LAPSE_MAX * 2, 30));
        assert!(continuity.overlaps());
    }

    #[test]
    fn a_tail_that_compaction_took_does_not_hold_up_the_copy() {
        let mut continuity = Continuity::new(true);
        let begun = Instant::now();
        continuity.doubt();
        continuity.compared(10);
        assert!(!continuity.overlaps());
        assert!(continuity.may_take(begun, 10));
        assert!(!continuity.may_take(begun + LAPSE_MAX * 2, 20));
    }

    #[test]
    fn topic_ids_need_no_proof() {
        let mut continuity = Continuity::new(false);
        assert!(!continuity.overlaps());
        assert!(continuity.may_take(Instant::now(), 10));
        assert!(!continuity.overlaps());
    }
}
