//! Counts the bytes of the answer a connection is making, against `response.max.bytes` and the
//! budget of answers. A connection makes one answer at a time. Not here: what is left out of an
//! answer that has no room (the handlers).

use parking_lot::Mutex;
use tarn_wire::ErrorCode;

use super::budget::{BudgetShare, Charge};

/// Answers up to this length are not charged: nearly all are shorter.
const FREE_BYTES: usize = 64 << 10;
/// The budget is charged in steps of so many bytes.
const STEP_BYTES: usize = 256 << 10;

/// The meter of one connection.
#[derive(Debug)]
pub(crate) struct AnswerMeter {
    share: BudgetShare,
    bytes_max: usize,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    bytes: usize,
    charge: Option<Charge>,
}

impl AnswerMeter {
    /// `bytes_max`: longest answer whose length its request does not bound.
    pub(crate) fn new(share: BudgetShare, bytes_max: usize) -> AnswerMeter {
        AnswerMeter {
            share,
            bytes_max,
            running: Mutex::default(),
        }
    }

    /// Counts `bytes` more. The code is for the part that stays out: POLICY_VIOLATION when the
    /// answer gets too long (ask for less), THROTTLING_QUOTA_EXCEEDED when there is no memory for
    /// it now (ask again).
    pub(crate) fn take(&self, bytes: usize) -> Result<(), ErrorCode> {
        let mut running = self.running.lock();
        let next = running.bytes.saturating_add(bytes);
        if next > self.bytes_max {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        if next > FREE_BYTES {
            let charge = running.charge.get_or_insert_with(|| self.share.charge());
            if !charge.try_grow(next.next_multiple_of(STEP_BYTES)) {
                return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
            }
        }
        running.bytes = next;
        Ok(())
    }

    /// The answer is made: gives what it was charged with, and begins anew.
    pub(crate) fn finish(&self) -> Option<Charge> {
        std::mem::take(&mut *self.running.lock()).charge
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::{ByteBudget, Shares};
    use super::*;

    /// An answer has a longest length, and takes its bytes from the budget until it has left.
    #[test]
    fn an_answer_is_bounded_and_charged() {
        let budget = ByteBudget::new(1 << 20, Shares::WHOLE);
        let share = || budget.share([127, 0, 0, 1].into());
        let (one, two) = (
            AnswerMeter::new(share(), 700 << 10),
            AnswerMeter::new(share(), 1 << 20),
        );
        one.take(600 << 10).unwrap();
        assert_eq!(one.take(200 << 10), Err(ErrorCode::POLICY_VIOLATION));
        one.take(50 << 10).unwrap();
        assert_eq!(
            two.take(700 << 10),
            Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED)
        );
        let charge = one.finish();
        assert!(charge.is_some());
        assert_eq!(
            two.take(700 << 10),
            Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED)
        );
        drop(charge);
        two.take(700 << 10).unwrap();
        one.take(10).unwrap();
        assert!(one.finish().is_none(), "a short answer is free");
    }
}
