//! Pipelining over a WAN link: when the next Fetch goes out although the current response is still
//! arriving, and from which offset it asks for a partition whose end in that response is not known
//! yet. Pure. A batch that is asked for twice is passed over by its user, and a batch that would
//! leave a gap is never appended, so a bad estimate costs time and nothing else.

use std::time::Duration;

/// Links with a shorter round trip gain nothing.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(5);
/// Responses with fewer bytes of records say nothing about the link.
const BYTES_MIN: u64 = 1 << 20;
/// The next Fetch goes out this many round trips before the current response is expected to end:
/// one for the way there and back, one for a lost packet that must be sent again.
const ROUND_TRIPS: u32 = 2;

/// A source cuts its answer within a batch: what comes last is not whole.
const MARGIN_BYTES: u64 = 1 << 20;
/// The records that are still to come may be larger than those before by one part in so many.
const MARGIN_SHARE: u64 = 16;
/// After this many estimates that left a gap a fetcher makes no more.
const GAPS_MAX: u32 = 3;

/// How far a response has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    /// Since its first byte.
    pub(crate) receiving: Duration,
    /// Bytes of records so far.
    pub(crate) bytes: u64,
    /// Bytes of the answer that are still to come.
    pub(crate) left: u64,
}

/// What a fetcher knows of its link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipelining {
    /// From a request to the first byte of its response, while responses are full.
    round_trip: Duration,
    gaps: u32,
}

impl Pipelining {
    /// Learns from a complete response: `waited` for its first byte, `None` when its request was
    /// pipelined; `full` = the source had more.
    pub(crate) fn answered(&mut self, waited: Option<Duration>, full: bool) {
        self.round_trip = match waited {
            Some(waited) if full => waited,
            None if full => self.round_trip,
            _ => Duration::ZERO,
        };
    }

    /// An estimate was beyond what we have.
    pub(crate) fn left_a_gap(&mut self) {
        self.gaps = self.gaps.saturating_add(1);
    }

    /// Whether the next Fetch should go out now.
    pub(crate) fn is_due(&self, coming: Coming) -> bool {
        if self.round_trip < ROUND_TRIP_MIN || coming.bytes < BYTES_MIN || coming.left == 0 {
            return false;
        }
        let lead = self.round_trip.saturating_mul(ROUND_TRIPS).as_secs_f64();
        let bytes_per_s = coming.bytes as f64 / coming.receiving.as_secs_f64().max(1e-6);
        coming.left as f64 <= bytes_per_s * lead
    }

    /// Whether offsets may be estimated.
    pub(crate) fn estimates(&self) -> bool {
        self.gaps < GAPS_MAX
    }
}

/// The offset up to which an answer will surely bring whole batches, when `offsets` came with
/// `bytes` so far, the log now ends at `end`, and `left` bytes of the partition's records are still
/// to come. `None` when that is not worth asking for.
pub fn estimate(end: i64, offsets: i64, bytes: u64, left: u64) -> Option<i64> {
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
    fn over_a_wan_link_the_next_fetch_goes_out_two_round_trips_before_the_response_ends() {
        let mut pipelining = Pipelining::default();
        assert!(
            !pipelining.is_due(coming(100, 5 * MIB, MIB)),
            "nothing is known"
        );
        pipelining.answered(Some(Duration::from_millis(100)), true);
        // 50 MiB/s: 10 MiB are 200 ms.
        assert!(!pipelining.is_due(coming(800, 40 * MIB, 11 * MIB)));
        assert!(pipelining.is_due(coming(800, 40 * MIB, 10 * MIB)));
        pipelining.answered(None, true);
        assert!(pipelining.is_due(coming(800, 40 * MIB, 10 * MIB)));
        pipelining.answered(Some(Duration::from_millis(900)), false);
        assert!(
            !pipelining.is_due(coming(800, 40 * MIB, 10 * MIB)),
            "it waited for records, not for the link"
        );
        pipelining.answered(Some(Duration::from_millis(1)), true);
        assert!(
            !pipelining.is_due(coming(800, 40 * MIB, MIB / 10)),
            "it is near"
        );
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
        let mut pipelining = Pipelining::default();
        for _ in 0..GAPS_MAX {
            assert!(pipelining.estimates());
            pipelining.left_a_gap();
        }
        assert!(!pipelining.estimates());
    }
}
