//! Waiting longer after each failure, with jitter so that many waiters do not come back together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// An exponential backoff: doubles from `initial` to `max`, each wait drawn between half of that
/// and all of it.
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// A backoff that has seen no failure.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Backoff {
            initial,
            max: max.max(initial),
            failures: 0,
        }
    }

    /// Counts a failure and gives the time to wait before the next try.
    pub fn next_wait(&mut self) -> Duration {
        let full = self
            .initial
            .saturating_mul(1u32 << self.failures.min(20))
            .min(self.max);
        self.failures = self.failures.saturating_add(1);
        jittered(full)
    }

    /// Forgets all failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Between half of `full` and `full`.
fn jittered(full: Duration) -> Duration {
    // Each RandomState has other keys, which is all the randomness a jitter needs.
    let random = RandomState::new().hash_one(0u8) % 1024;
    full / 2 + full.mul_f64(random as f64 / 2048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(1000));
        for full in [100u64, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next_wait().as_millis() as u64;
            assert!((full / 2..=full).contains(&wait), "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= Duration::from_millis(100));
    }
}
