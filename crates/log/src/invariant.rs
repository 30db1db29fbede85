//! Checks of invariants in running code; docs/invariants.md is their catalogue. A broken invariant
//! is a defect of this program, never of a caller: debug builds panic, release builds count it and
//! tell it in the log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all invariants together.
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// How often an invariant was found broken in this process.
pub fn invariants_broken() -> u64 {
    BROKEN.load(Ordering::Relaxed)
}

/// One place that checks an invariant; made by [`invariant!`](crate::invariant!).
#[derive(Debug)]
pub struct InvariantCheck {
    id: &'static str,
    broken: AtomicU64,
}

impl InvariantCheck {
    /// A place that checks the invariant with this id.
    pub const fn new(id: &'static str) -> InvariantCheck {
        InvariantCheck {
            id,
            broken: AtomicU64::new(0),
        }
    }

    /// The invariant does not hold; `found` says what was found.
    #[cold]
    pub fn is_broken(&self, found: fmt::Arguments<'_>) {
        debug_assert!(false, "{}: {found}", self.id);
        self.count(found);
    }

    /// Counts; gives whether it was told in the log, which is ever more seldom: the first time, the
    /// second, the fourth.
    fn count(&self, found: fmt::Arguments<'_>) -> bool {
        BROKEN.fetch_add(1, Ordering::Relaxed);
        let times = self.broken.fetch_add(1, Ordering::Relaxed) + 1;
        let is_told = times.is_power_of_two();
        if is_told {
            tracing::error!(
                invariant = self.id,
                times,
                "an invariant is broken, please report this: {found}"
            );
        }
        is_told
    }
}

/// `invariant!("L-1", holds, "what was found: {value}")`: a panic in debug builds when it does not
/// hold; in release builds a counter ([`invariants_broken`]) and a line of log.
#[macro_export]
macro_rules! invariant {
    ($id:literal, $holds:expr, $($found:tt)+) => {
        if !$holds {
            static CHECK: $crate::InvariantCheck = $crate::InvariantCheck::new($id);
            CHECK.is_broken(format_args!($($found)+));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_costs_nothing() {
        crate::invariant!("L-1", 1 + 1 == 2, "not reached");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "L-1: the end went from 5 to 4")]
    fn debug_builds_panic_at_a_broken_invariant() {
        let (from, to) = (5, 4);
        crate::invariant!("L-1", to >= from, "the end went from {from} to {to}");
    }

    #[test]
    fn release_builds_count_and_tell_ever_more_seldom() {
        let check = InvariantCheck::new("L-1");
        let before = invariants_broken();
        let told: Vec<bool> = (0..5).map(|_| check.count(format_args!("x"))).collect();
        assert_eq!(told, [true, true, false, true, false]);
        assert!(invariants_broken() >= before + 5);
    }
}
