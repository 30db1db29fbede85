//! Asking ahead over a long line: when the next Fetch may go out although the present answer still comes, and from which offset on a partition
//! is asked for whose end in that answer is not known yet. Pure. What is asked for twice is passed over by [`super::reading`], and what would
//! leave a gap is never appended, so a bad estimate costs time and nothing else.

use std::time::Duration;

/// Lines with a shorter silence between two answers gain nothing.
const SILENCE_MIN: Duration = Duration::from_millis(5);
/// Answers with fewer bytes of records say nothing of the line.
const BYTES_MIN: u64 = 1 << 20;
/// Asked so many silences before the answer ends: one for the way there and back, one for a lost packet that must come again.
const SILENCES: u32 = 2;

/// A source cuts its answer within a batch: what comes last is not whole.
const MARGIN_BYTES: u64 = 1 << 20;
/// The records that are still to come may be larger than those before by one part in so many.
const MARGIN_SHARE: u64 = 16;
/// Estimates that left a gap after which a session makes no more.
const GAPS_MAX: u32 = 3;

/// How far an answer has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    /// Since its first byte.
    pub(super) receiving: Duration,
    /// Bytes of records so far.
    pub(super) bytes: u64,
    /// Bytes of the answer that are still to come.
    pub(super) left: u64,
}

/// What a session knows of its line.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// From a request to the first byte of its answer, while answers are full.
    silence: Duration,
    gaps: u32,
}

impl Ahead {
    /// Learns from a complete answer: `waited` for its first byte, `None` when it was asked for ahead; `full` = the source had more.
    pub(super) fn answered(&mut self, waited: Option<Duration>, full: bool) {
        self.silence = match waited {
            Some(waited) if full => waited,
            None if full => self.silence,
            _ => Duration::ZERO,
        };
    }

    /// An estimate was beyond what we have.
    pub(super) fn left_a_gap(&mut self) {
        self.gaps = self.gaps.saturating_add(1);
    }

    /// Whether the next Fetch should go out now.
    pub(super) fn is_due(&self, coming: Coming) -> bool {
        if self.silence < SILENCE_MIN || coming.bytes < BYTES_MIN || coming.left == 0 {
            return false;
        }
        let lead = self.silence.saturating_mul(SILENCES).as_secs_f64();
        let bytes_per_s = coming.bytes as f64 / coming.receiving.as_secs_f64().max(1e-6);
        coming.left as f64 <= bytes_per_s * lead
    }

    /// Whether offsets may be estimated.
    pub(super) fn estimates(&self) -> bool {
        self.gaps < GAPS_MAX
    }
}

/// The offset up to which an answer will surely bring whole batches, when `offsets` came with `bytes` so far, the log now ends at `end`, and
/// `left` bytes of the partition's records are still to come. `None` when that is not worth asking for.
pub(super) fn estimate(end: i64, offsets: i64, bytes: u64, left: u64) -> Option<i64> {
    let margin = MARGIN_BYTES + left / MARGIN_SHARE;
    let sure = left.checked_sub(margin).filter(|&sure| sure > 0)?;
    if offsets <= 0 || bytes < BYTES_MIN {
        return None;
    }
    let more = i128::from(offsets) * i128::from(sure) / i128::from(bytes);
    let more = i64::try_from(more).ok().filter(|&more| more > 0)?;
    end.checked_add(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn coming(ms: u64, bytes: u64, left: u64) -> Coming {
        Coming {
            receiving: Duration::from_millis(ms),
            bytes,
            left,
        }
    }

    #[test]
    fn a_long_line_is_asked_two_silences_before_the_answer_ends() {
        let mut ahead = Ahead::default();
        assert!(!ahead.is_due(coming(100, 5 * MIB, MIB)), "nothing is known");
        ahead.answered(Some(Duration::from_millis(100)), true);
        // 50 MiB/s: 10 MiB are 200 ms.
        assert!(!ahead.is_due(coming(800, 40 * MIB, 11 * MIB)));
        assert!(ahead.is_due(coming(800, 40 * MIB, 10 * MIB)));
        ahead.answered(None, true);
        assert!(ahead.is_due(coming(800, 40 * MIB, 10 * MIB)));
        ahead.answered(Some(Duration::from_millis(900)), false);
        assert!(
            !ahead.is_due(coming(800, 40 * MIB, 10 * MIB)),
            "it waited for records, not for the line"
        );
        ahead.answered(Some(Duration::from_millis(1)), true);
        assert!(!ahead.is_due(coming(800, 40 * MIB, MIB / 10)), "it is near");
    }

    #[test]
    fn an_estimate_stays_below_what_comes() {
        // 1,000 offsets in each MiB, 16 MiB left of which 2 may be cut or larger.
        assert_eq!(estimate(500, 40_000, 40 * MIB, 16 * MIB), Some(14_500));
        assert_eq!(estimate(500, 40_000, 40 * MIB, MIB), None);
        assert_eq!(estimate(500, 0, 40 * MIB, 8 * MIB), None);
        assert_eq!(estimate(500, 1, 40 * MIB, 8 * MIB), None);
        assert_eq!(
            estimate(i64::MAX - 5, 40_000, 40 * MIB, 8 * MIB),
            None,
            "no offset is that high"
        );
        let mut ahead = Ahead::default();
        for _ in 0..GAPS_MAX {
            assert!(ahead.estimates());
            ahead.left_a_gap();
        }
        assert!(!ahead.estimates());
    }
}
