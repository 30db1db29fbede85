//! Counts what moves nothing and says how long to wait before it is tried again. Pure.

use std::time::Duration;

/// How long is waited after answers that move nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// So many in a row cost no wait.
    pub free: u32,
    /// The first wait; it doubles each time.
    pub first: Duration,
    /// The longest wait.
    pub max: Duration,
}

/// Empty answers that did not take the time they were given.
pub(crate) const HASTY_ANSWERS: Patience = Patience {
    free: 3,
    first: Duration::from_millis(10),
    max: Duration::from_secs(1),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct StallCounter {
    patience: Patience,
    in_a_row: u32,
}

impl StallCounter {
    /// Nothing happened yet.
    pub fn new(patience: Patience) -> StallCounter {
        StallCounter {
            patience,
            in_a_row: 0,
        }
    }

    /// Nothing moved once more; the time to wait, `None` = none yet.
    pub fn nothing_moved(&mut self) -> Option<Duration> {
        let Patience { free, first, max } = self.patience;
        let waits_before = self.in_a_row.checked_sub(free);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let doublings = waits_before?.min(20);
        Some(first.saturating_mul(1 << doublings).min(max))
    }

    /// Something moved.
    pub fn moved(&mut self) {
        self.in_a_row = 0;
    }

    /// How often nothing moved in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_begin_after_the_free_ones_double_to_the_longest_and_end_with_progress() {
        let mut stalls = StallCounter::new(HASTY_ANSWERS);
        for _ in 0..3 {
            assert_eq!(stalls.nothing_moved(), None);
        }
        let waits: Vec<u128> = (0..9)
            .filter_map(|_| stalls.nothing_moved())
            .map(|w| w.as_millis())
            .collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(stalls.in_a_row(), 12);
        stalls.moved();
        assert_eq!(stalls.nothing_moved(), None);
    }

    #[test]
    fn without_a_free_one_the_first_waits_already() {
        let mut stalls = StallCounter::new(Patience {
            free: 0,
            first: Duration::from_millis(500),
            max: Duration::from_secs(300),
        });
        assert_eq!(stalls.nothing_moved(), Some(Duration::from_millis(500)));
        for _ in 0..40 {
            stalls.nothing_moved();
        }
        assert_eq!(stalls.nothing_moved(), Some(Duration::from_secs(300)));
    }
}
