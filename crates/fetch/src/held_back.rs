//! Responses that are no news: held back by a quota of the broker, or empty long before the time
//! they were given. Pure.
//!
//! Guards F-9: what moves nothing is asked for ever more seldom, and told.

use std::time::Duration;

use crate::stalls::{HASTY_ANSWERS, StallCounter};

/// The longest pause that a broker's throttle is obeyed for at a time.
const THROTTLE_MAX: Duration = Duration::from_secs(30);
/// Hasty answers in a row from which on they are shown.
const SHOWN_FROM: u32 = 8;

/// Why nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBackReason {
    /// A quota of the broker holds its responses back for so many ms.
    Throttled(i32),
    /// It answers at once without anything, so often in a row.
    Empty(u32),
}

/// What a fetcher knows of responses that bring nothing.
#[derive(Debug)]
pub(crate) struct HeldBack {
    /// The wait that the last Fetch was given.
    wait: Duration,
    throttle_ms: i32,
    /// Something of the answer being read was used.
    moved: bool,
    hasty: StallCounter,
    pause: Option<Duration>,
}

impl Default for HeldBack {
    fn default() -> HeldBack {
        HeldBack {
            wait: Duration::ZERO,
            throttle_ms: 0,
            moved: false,
            hasty: StallCounter::new(HASTY_ANSWERS),
            pause: None,
        }
    }
}

impl HeldBack {
    /// A Fetch goes out that may wait so long.
    pub(crate) fn asked(&mut self, wait_ms: i32) {
        self.wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
    }

    /// An answer begins.
    pub(crate) fn begin(&mut self, throttle_ms: i32) {
        self.throttle_ms = throttle_ms.max(0);
        self.moved = false;
    }

    /// It brought something: records that were kept, or an error, which has a pause of its own.
    pub(crate) fn moved(&mut self) {
        self.moved = true;
    }

    /// The answer is complete, so long after its request, with so many bytes of records. False:
    /// what it left out is no news.
    pub(crate) fn end(&mut self, after: Duration, bytes: u64) -> bool {
        if self.throttle_ms > 0 {
            let pause = Duration::from_millis(self.throttle_ms.unsigned_abs().into());
            self.pause = Some(pause.min(THROTTLE_MAX));
            return false;
        }
        if self.moved || bytes > 0 || after >= self.wait / 2 {
            self.hasty.moved();
            return true;
        }
        self.pause = self.hasty.nothing_moved();
        // Few of them are what a source does when a fetch session begins.
        self.pause.is_none()
    }

    /// How long to wait before the next Fetch.
    pub(crate) fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    /// What holds the responses back.
    pub(crate) fn reason(&self) -> Option<HeldBackReason> {
        if self.throttle_ms > 0 {
            return Some(HeldBackReason::Throttled(self.throttle_ms));
        }
        let times = self.hasty.in_a_row();
        (times >= SHOWN_FROM).then_some(HeldBackReason::Empty(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);
    const AT_ONCE: Duration = Duration::from_millis(1);

    #[test]
    fn an_empty_answer_that_took_its_time_is_news() {
        let mut held_back = HeldBack::default();
        held_back.asked(1_000);
        for _ in 0..100 {
            held_back.begin(0);
            assert!(held_back.end(WAIT, 0));
            assert_eq!(held_back.take_pause(), None);
        }
    }

    #[test]
    fn empty_answers_at_once_are_paused_after_and_shown() {
        let mut held_back = HeldBack::default();
        held_back.asked(1_000);
        let mut slept = Duration::ZERO;
        for _ in 0..20 {
            held_back.begin(0);
            held_back.end(AT_ONCE, 0);
            slept += held_back.take_pause().unwrap_or_default();
        }
        assert!(slept > Duration::from_secs(5), "{slept:?}");
        assert_eq!(held_back.reason(), Some(HeldBackReason::Empty(20)));
        held_back.begin(0);
        held_back.moved();
        assert!(held_back.end(AT_ONCE, 0));
        assert_eq!(held_back.reason(), None);
    }

    #[test]
    fn a_throttled_answer_is_no_news_whatever_it_took() {
        let mut held_back = HeldBack::default();
        held_back.asked(1_000);
        held_back.begin(700);
        assert!(!held_back.end(WAIT, 0));
        assert_eq!(held_back.take_pause(), Some(Duration::from_millis(700)));
        assert_eq!(held_back.reason(), Some(HeldBackReason::Throttled(700)));
    }
}
