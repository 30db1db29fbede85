//! Counts what moves nothing and says how long to wait before it is tried again. Pure.

use std::time::Duration;

/// How patient a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// So many in a row cost no wait.
    free: u32,
    /// The first wait; it doubles each time.
    first: Duration,
    /// The longest wait.
    max: Duration,
}

/// Answers for a partition that bring records or an error and move nothing: one, because what follows may ask otherwise.
pub(super) const STALLS: Patience = Patience {
    free: 1,
    first: Duration::from_millis(100),
    max: Duration::from_secs(30),
};
/// Divergences of a partition without a record appended or cut between them: each costs a preparation and two stored states.
pub(super) const DIVERGENCES: Patience = Patience {
    free: 0,
    first: Duration::from_millis(500),
    max: Duration::from_secs(300),
};
/// Empty answers that did not take the time they were given.
pub(super) const HASTY_ANSWERS: Patience = Patience {
    free: 3,
    first: Duration::from_millis(10),
    max: Duration::from_secs(1),
};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    patience: Patience,
    in_a_row: u32,
}

impl Watch {
    pub(super) fn new(patience: Patience) -> Watch {
        Watch {
            patience,
            in_a_row: 0,
        }
    }

    /// Nothing moved once more; the time to wait, `None` = none yet.
    pub(super) fn nothing_moved(&mut self) -> Option<Duration> {
        let Patience { free, first, max } = self.patience;
        let waits_before = self.in_a_row.checked_sub(free);
        self.in_a_row = self.in_a_row.saturating_add(1);
        let doublings = waits_before?.min(20);
        Some(first.saturating_mul(1 << doublings).min(max))
    }

    /// Something moved.
    pub(super) fn moved(&mut self) {
        self.in_a_row = 0;
    }

    /// How often nothing moved in a row.
    pub(super) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_begin_after_the_free_ones_double_to_the_longest_and_end_with_progress() {
        let mut watch = Watch::new(HASTY_ANSWERS);
        for _ in 0..3 {
            assert_eq!(watch.nothing_moved(), None);
        }
        let waits: Vec<u128> = (0..9)
            .filter_map(|_| watch.nothing_moved())
            .map(|w| w.as_millis())
            .collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(watch.in_a_row(), 12);
        watch.moved();
        assert_eq!(watch.nothing_moved(), None);
    }

    #[test]
    fn a_divergence_is_never_free() {
        let mut watch = Watch::new(DIVERGENCES);
        assert_eq!(watch.nothing_moved(), Some(Duration::from_millis(500)));
        for _ in 0..40 {
            watch.nothing_moved();
        }
        assert_eq!(watch.nothing_moved(), Some(Duration::from_secs(300)));
    }
}
