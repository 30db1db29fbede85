//! The two clocks of the generator: the machine's monotonic clock, which all processes share, and
//! the processor time of a thread.
//!
//! Not here: what is done with the times.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: f64 = 1e9;

/// Nanoseconds of the monotonic clock; comparable between processes of one machine.
#[must_use]
pub fn now_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// Processor time of the calling thread so far, seconds.
#[must_use]
pub(crate) fn thread_processor_s() -> f64 {
    ns_of(ClockId::ThreadCPUTime) as f64 / NS_PER_S
}

fn ns_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
