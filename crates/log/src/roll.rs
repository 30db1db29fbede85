//! How often a log may start a segment before the last one is full. Each segment costs files,
//! memory and time for as long as it is kept, and what forces an early one (`segment.ms`, a full
//! index, offsets that do not fit) comes from outside.

/// Early segments a log may make at once …
pub(crate) const BURST: u32 = 10;
/// … and how long it takes until one more may be made, unless configured otherwise.
pub(crate) const ROLL_INTERVAL_MS_DEFAULT: i64 = 1_000;

/// The early segments a log may still make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RollBudget {
    left: u32,
    /// When `left` was last brought up to date, epoch milliseconds.
    at_ms: i64,
}

impl Default for RollBudget {
    fn default() -> Self {
        RollBudget {
            left: BURST,
            at_ms: i64::MIN,
        }
    }
}

impl RollBudget {
    /// Whether an early segment may be made at `now_ms`.
    pub(crate) fn may_roll(&mut self, now_ms: i64, interval_ms: i64) -> bool {
        self.refill(now_ms, interval_ms);
        self.left > 0
    }
    /// An early segment is made.
    pub(crate) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
    /// Milliseconds until one may be made.
    pub(crate) fn wait_ms(&self, now_ms: i64, interval_ms: i64) -> i64 {
        self.at_ms
            .saturating_add(interval_ms)
            .saturating_sub(now_ms)
            .clamp(0, interval_ms.max(0))
    }
    fn refill(&mut self, now_ms: i64, interval_ms: i64) {
        if self.left >= BURST || interval_ms <= 0 || now_ms < self.at_ms {
            self.left = if interval_ms <= 0 { BURST } else { self.left };
            self.at_ms = now_ms;
            return;
        }
        let earned = now_ms.saturating_sub(self.at_ms) / interval_ms;
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(BURST);
            let used = i64::from(earned).saturating_mul(interval_ms);
            self.at_ms = self.at_ms.saturating_add(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_the_interval_counts() {
        let mut budget = RollBudget::default();
        for _ in 0..BURST {
            assert!(budget.may_roll(1_000, 100));
            budget.take();
        }
        assert!(!budget.may_roll(1_000, 100));
        assert_eq!(budget.wait_ms(1_030, 100), 70);
        assert!(!budget.may_roll(1_099, 100));
        assert!(budget.may_roll(1_100, 100));
        budget.take();
        assert!(!budget.may_roll(1_150, 100));
        assert!(budget.may_roll(1_200, 100));
        assert!(budget.may_roll(10_000, 100), "idle time earns");
        for _ in 0..BURST {
            budget.take();
        }
        assert!(
            !budget.may_roll(9_000, 100),
            "a clock that went back earns nothing"
        );
        assert!(budget.may_roll(9_000, 0), "no limit");
    }
}
