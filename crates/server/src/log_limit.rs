//! A limit for log lines that callers can cause: what a hostile or broken client does a thousand
//! times a second is worth a few lines a minute.
//!
//! One limit a kind of line, as a `static` beside it. What was left out is counted and told with
//! the next line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Lines of one kind within [`WINDOW_MS`].
const LINES_MAX: u64 = 10;
/// The time after which lines are written again, ms.
const WINDOW_MS: u64 = 60_000;

/// The limit of one kind of line.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// Window and lines in it, in one number: window << 32 | lines asked for.
    state: AtomicU64,
}

impl LogLimit {
    pub(crate) const fn new() -> LogLimit {
        LogLimit {
            state: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written now: `Some` with how many were left out since the last one.
    pub(crate) fn pass(&self) -> Option<u64> {
        static START: OnceLock<Instant> = OnceLock::new();
        let start = START.get_or_init(Instant::now);
        self.pass_at(start.elapsed().as_millis() as u64)
    }

    fn pass_at(&self, now_ms: u64) -> Option<u64> {
        let window = now_ms / WINDOW_MS + 1;
        let next = |state: u64| {
            let (last, lines) = (state >> 32, state & u64::from(u32::MAX));
            if last == window {
                (window << 32) | (lines + 1).min(u64::from(u32::MAX))
            } else {
                (window << 32) | 1
            }
        };
        let before = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                Some(next(state))
            })
            .unwrap_or_default();
        let (last, lines) = (before >> 32, before & u64::from(u32::MAX));
        match last == window {
            true if lines >= LINES_MAX => None,
            true => Some(0),
            false => Some(lines.saturating_sub(LINES_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refused requests cost some lines a minute, and what was left out is counted.
    #[test]
    fn a_kind_of_line_is_written_a_few_times_a_minute() {
        let limit = LogLimit::new();
        let written = (0..1_000).filter_map(|_| limit.pass_at(5)).count();
        assert_eq!(written as u64, LINES_MAX);
        assert_eq!(limit.pass_at(WINDOW_MS), Some(1_000 - LINES_MAX));
        assert_eq!(limit.pass_at(WINDOW_MS + 1), Some(0));
    }
}
