//! How much one Fetch asks for and how long it may wait. Pure: decisions from what the last answers
//! looked like.
//!
//! Over a WAN link the time from a request to the first byte of its answer is lost, once per
//! answer; so answers grow until that share is small. They are appended piece by piece, so a large
//! answer costs no memory.

use std::time::Duration;

/// The default of `mirror.fetch.response.max.bytes` and of `replica.fetch.response.max.bytes`: only
/// then the size is ours to choose.
const RESPONSE_BYTES_DEFAULT: i32 = 10 * 1024 * 1024;
/// What a source with default settings puts into one answer at most (its `fetch.max.bytes`).
const RESPONSE_BYTES_MAX: i32 = 55 * 1024 * 1024;
/// Answers grow while waiting takes more than one part in so many of the time that receiving takes.
const WAIT_SHARE: u32 = 32;
/// Empty answers in a row after which a Fetch may wait longer.
const QUIET_ROUNDS: u32 = 3;
/// How much longer it may wait then.
const QUIET_FACTOR: i32 = 2;

/// After a small answer of a wide fetch session so many times as long is rested as the source took
/// for it. A source looks at every partition of a session to answer one Fetch, some 10 µs each, and
/// several times when it has to wait for the first record: with an answer per record, 1,000
/// partitions keep it busy with nothing else.
const REST_FACTOR: u32 = 2;
/// Bound of the rest for each partition of the session, for what was mostly waiting for a record …
const REST_PER_PARTITION: Duration = Duration::from_micros(40);
/// … and for all of them: what lag at most grows by.
const REST_MAX: Duration = Duration::from_millis(100);
/// Sessions with fewer partitions cost the source little and never rest.
const REST_PARTITIONS_MIN: u32 = 100;
/// Answers with more bytes of records than this are followed by the next Fetch at once.
const REST_BYTES_MAX: u64 = 256 * 1024;

/// What an answer looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Most bytes that it was asked for.
    pub(crate) asked_bytes: i32,
    /// From the request to the first byte.
    pub(crate) waited: Duration,
    /// From the first byte to the last.
    pub(crate) receiving: Duration,
    /// Bytes of records in it.
    pub(crate) bytes: u64,
}

/// Size and wait of the next Fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizing {
    configured: i32,
    bytes_max: i32,
    quiet_rounds: u32,
    last: Option<Answer>,
}

impl Sizing {
    /// Starts at the configured most bytes of a response.
    pub(crate) fn new(configured: i32) -> Sizing {
        Sizing {
            configured,
            bytes_max: configured,
            quiet_rounds: 0,
            last: None,
        }
    }

    /// Takes the setting again; another value starts anew.
    pub(crate) fn configure(&mut self, configured: i32) {
        if self.configured != configured {
            *self = Sizing::new(configured);
        }
    }

    /// Most bytes of the next answer.
    pub(crate) fn bytes_max(&self) -> i32 {
        self.bytes_max
    }

    /// Longest wait of the next Fetch where `configured` is the configured one. Data ends a wait,
    /// so nothing comes later for it.
    pub(crate) fn wait_ms(&self, configured: i32) -> i32 {
        if self.quiet_rounds >= QUIET_ROUNDS {
            configured.saturating_mul(QUIET_FACTOR)
        } else {
            configured
        }
    }

    /// How long to rest before the next Fetch of a session of so many partitions, while all that
    /// came was little: the records of many partitions then come in one answer instead of one each.
    /// `None` = not at all.
    pub(crate) fn rest(&self, partitions: usize) -> Option<Duration> {
        let last = self.last.filter(|a| a.bytes <= REST_BYTES_MAX)?;
        let partitions = u32::try_from(partitions).unwrap_or(u32::MAX);
        let most = REST_PER_PARTITION.saturating_mul(partitions).min(REST_MAX);
        (partitions >= REST_PARTITIONS_MIN)
            .then(|| last.waited.saturating_mul(REST_FACTOR).min(most))
    }

    /// Whether the source had more than an answer holds.
    pub(crate) fn is_full(answer: Answer) -> bool {
        answer.bytes >= u64::try_from(answer.asked_bytes / 4 * 3).unwrap_or(0)
    }

    /// Learns from a complete answer.
    pub(crate) fn answered(&mut self, answer: Answer) {
        self.last = Some(answer);
        self.quiet_rounds = if answer.bytes == 0 {
            self.quiet_rounds.saturating_add(1)
        } else {
            0
        };
        if self.configured != RESPONSE_BYTES_DEFAULT {
            return;
        }
        if Self::is_full(answer) && answer.waited * WAIT_SHARE > answer.receiving {
            // What went out meanwhile may ask for more already.
            let doubled = answer.asked_bytes.saturating_mul(2);
            self.bytes_max = self.bytes_max.max(doubled).min(RESPONSE_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(waited_ms: u64, receiving_ms: u64, bytes: i32) -> Answer {
        Answer {
            asked_bytes: bytes.max(RESPONSE_BYTES_DEFAULT),
            waited: Duration::from_millis(waited_ms),
            receiving: Duration::from_millis(receiving_ms),
            bytes: u64::try_from(bytes).expect("a size"),
        }
    }

    #[test]
    fn over_a_long_line_answers_grow_to_what_the_source_gives() {
        let mut sizing = Sizing::new(RESPONSE_BYTES_DEFAULT);
        for _ in 0..5 {
            let bytes = sizing.bytes_max();
            // 50 MB/s and 100 ms.
            sizing.answered(answer(100, u64::try_from(bytes).unwrap() / 50_000, bytes));
        }
        assert_eq!(sizing.bytes_max(), RESPONSE_BYTES_MAX);
    }

    #[test]
    fn an_answer_is_full_by_what_it_was_asked_for() {
        let mut sizing = Sizing::new(RESPONSE_BYTES_DEFAULT);
        let first = answer(100, 200, RESPONSE_BYTES_DEFAULT);
        sizing.answered(first);
        assert_eq!(sizing.bytes_max(), 2 * RESPONSE_BYTES_DEFAULT);
        // Pipelined, before the size grew.
        assert!(Sizing::is_full(first));
        sizing.answered(first);
        assert_eq!(sizing.bytes_max(), 2 * RESPONSE_BYTES_DEFAULT);
    }

    #[test]
    fn near_the_source_and_with_half_empty_answers_they_stay_as_they_are() {
        let mut sizing = Sizing::new(RESPONSE_BYTES_DEFAULT);
        sizing.answered(answer(1, 100, RESPONSE_BYTES_DEFAULT));
        sizing.answered(answer(900, 1, 5_000));
        assert_eq!(sizing.bytes_max(), RESPONSE_BYTES_DEFAULT);
    }

    #[test]
    fn a_size_that_somebody_chose_is_kept() {
        let mut sizing = Sizing::new(1_000_000);
        sizing.answered(answer(100, 10, 1_000_000));
        assert_eq!(sizing.bytes_max(), 1_000_000);
        sizing.configure(RESPONSE_BYTES_DEFAULT);
        assert_eq!(sizing.bytes_max(), RESPONSE_BYTES_DEFAULT);
    }

    #[test]
    fn only_wide_sessions_rest_and_only_after_small_answers() {
        let mut sizing = Sizing::new(RESPONSE_BYTES_DEFAULT);
        assert_eq!(sizing.rest(5_000), None, "nothing was answered yet");
        sizing.answered(answer(5, 0, 500));
        assert_eq!(sizing.rest(8), None);
        assert_eq!(sizing.rest(500), Some(Duration::from_millis(10)));
        sizing.answered(answer(900, 0, 500));
        assert_eq!(
            sizing.rest(500),
            Some(Duration::from_millis(20)),
            "it waited for a record"
        );
        assert_eq!(sizing.rest(100_000), Some(REST_MAX));
        sizing.answered(answer(1, 10, 1 << 20));
        assert_eq!(sizing.rest(5_000), None, "there is more to fetch");
    }

    #[test]
    fn only_a_quiet_source_may_hold_back_longer() {
        let mut sizing = Sizing::new(RESPONSE_BYTES_DEFAULT);
        for _ in 0..QUIET_ROUNDS {
            assert_eq!(sizing.wait_ms(1_000), 1_000);
            sizing.answered(answer(1_000, 0, 0));
        }
        assert_eq!(sizing.wait_ms(1_000), 2_000);
        sizing.answered(answer(10, 0, 1));
        assert_eq!(sizing.wait_ms(1_000), 1_000);
    }
}
