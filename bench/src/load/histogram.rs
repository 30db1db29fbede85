//! Counts of latencies in buckets of equal relative width, so that recording costs a few
//! instructions and no allocation.
//!
//! Owns the arithmetic only; which latencies are recorded is decided by the generator.

/// Each power of two is cut into this many buckets: a reported value is at most 1/64 (1.6 %) above
/// the true one.
const STEPS_LOG2: u32 = 6;
const STEPS: u64 = 1 << STEPS_LOG2;
/// Buckets for all of u64.
const BUCKETS: usize = ((64 - STEPS_LOG2 as usize) + 1) << STEPS_LOG2;

/// A histogram of nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Adds one latency.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket_of(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many latencies were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value that at least `share` (0 to 1) of the latencies do not pass,
    /// milliseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return top_of(bucket).min(self.max_ns) as f64 / 1e6;
            }
        }
        0.0
    }

    /// The largest latency, milliseconds.
    #[must_use]
    pub fn max_ms(&self) -> f64 {
        self.max_ns as f64 / 1e6
    }

    /// The mean, milliseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum_ns as f64 / self.count as f64 / 1e6
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - STEPS_LOG2;
    ((u64::from(shift) + 1) * STEPS + ((ns >> shift) - STEPS)) as usize
}

/// The largest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let next = u128::from(bucket % STEPS + STEPS + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_its_bucket_within_a_sixty_fourth() {
        for ns in (0..64).map(|b| (1_u64 << b) - 1).chain([
            0,
            1,
            63,
            64,
            65,
            12_345,
            987_654_321,
            u64::MAX,
        ]) {
            let top = top_of(bucket_of(ns));
            assert!(top >= ns, "{ns}: {top}");
            assert!(top - ns <= ns / 64 + 1, "{ns}: {top}");
        }
    }

    #[test]
    fn quantiles_of_a_thousand_even_steps() {
        let mut all = Histogram::default();
        for part in 0..2 {
            let mut half = Histogram::default();
            (0..500).for_each(|i| half.record((part * 500 + i + 1) * 1_000_000));
            all.merge(&half);
        }
        assert_eq!(all.count(), 1_000);
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let got = all.quantile_ms(share);
            assert!(got >= ms && got <= ms * 1.017, "{share}: {got}");
        }
        assert!((all.mean_ms() - 500.5).abs() < 1e-6);
    }
}
