//! Answers that are no news: held back by a quota of the source, or empty long before the time they were given. Pure.

use std::time::Duration;

use super::watch::{HASTY_ANSWERS, Watch};
use crate::source::throttled;

/// The longest pause that a source's throttle is obeyed for at a time.
const THROTTLE_MAX: Duration = Duration::from_secs(30);
/// Hasty answers in a row from which on they are shown.
const SHOWN_FROM: u32 = 8;

/// What a fetcher knows of answers that bring nothing.
#[derive(Debug)]
pub(super) struct Idle {
    /// The wait that the last Fetch was given.
    wait: Duration,
    throttle_ms: i32,
    /// Something of the answer being read was used.
    moved: bool,
    hasty: Watch,
    pause: Option<Duration>,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle {
            wait: Duration::ZERO,
            throttle_ms: 0,
            moved: false,
            hasty: Watch::new(HASTY_ANSWERS),
            pause: None,
        }
    }
}

impl Idle {
    /// A Fetch goes out that may wait so long.
    pub(super) fn asked(&mut self, wait_ms: i32) {
        self.wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
    }

    /// An answer begins.
    pub(super) fn begin(&mut self, throttle_ms: i32) {
        self.throttle_ms = throttle_ms.max(0);
        self.moved = false;
    }

    /// It brought something: records that were kept, or an error, which has a pause of its own.
    pub(super) fn moved(&mut self) {
        self.moved = true;
    }

    /// The answer is complete, so long after its request, with so many bytes of records. False: what it left out is no news.
    pub(super) fn end(&mut self, after: Duration, bytes: u64) -> bool {
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
    pub(super) fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    /// For describe: what holds the answers back.
    pub(super) fn text(&self) -> Option<String> {
        if self.throttle_ms > 0 {
            return Some(throttled(self.throttle_ms));
        }
        let times = self.hasty.in_a_row();
        (times >= SHOWN_FROM).then(|| {
            format!("the source answers at once and brings nothing ({times} times in a row)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);
    const AT_ONCE: Duration = Duration::from_millis(1);

    #[test]
    fn an_empty_answer_that_took_its_time_is_news() {
        let mut idle = Idle::default();
        idle.asked(1_000);
        for _ in 0..100 {
            idle.begin(0);
            assert!(idle.end(WAIT, 0));
            assert_eq!(idle.take_pause(), None);
        }
    }

    #[test]
    fn empty_answers_at_once_are_paused_after_and_shown() {
        let mut idle = Idle::default();
        idle.asked(1_000);
        let mut slept = Duration::ZERO;
        for _ in 0..20 {
            idle.begin(0);
            idle.end(AT_ONCE, 0);
            slept += idle.take_pause().unwrap_or_default();
        }
        assert!(slept > Duration::from_secs(5), "{slept:?}");
        assert!(idle.text().is_some_and(|t| t.contains("20 times")));
        idle.begin(0);
        idle.moved();
        assert!(idle.end(AT_ONCE, 0));
        assert_eq!(idle.text(), None);
    }

    #[test]
    fn a_throttled_answer_is_no_news_whatever_it_took() {
        let mut idle = Idle::default();
        idle.asked(1_000);
        idle.begin(700);
        assert!(!idle.end(WAIT, 0));
        assert_eq!(idle.take_pause(), Some(Duration::from_millis(700)));
        assert!(idle.text().is_some_and(|t| t.contains("700 ms")));
    }
}
