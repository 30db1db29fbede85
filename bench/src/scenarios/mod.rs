//! The registry of scenarios. Each is one `pub mod` line and one line in [`all`]; what it measures stands in its own file.

use crate::scenario::Scenario;

// The machine itself.
pub mod machine_limits;

// Brokers: produce, consume, end to end, durability (P1–P8).

// Scale, start, restart, idle, failover (P9–P12, X7, X11).
mod scale;
pub mod scale_mirror;
pub mod scale_partitions;
pub mod scale_restart;
pub mod scale_start;

// Mirrors beside MirrorMaker 2 (X1–X6, X10, X12).

// Mirrors over a long line (X8).

/// Every scenario, in the order in which `all` runs them.
#[must_use]
pub fn all() -> Vec<&'static dyn Scenario> {
    vec![
        // The machine itself.
        &machine_limits::MachineLimits,
        // Brokers.

        // Scale.
        &scale_start::Start,
        &scale_restart::Restart,
        &scale_partitions::Partitions,
        &scale_mirror::IdleMirror,
        &scale_mirror::Failover,
        // Mirrors.

        // Long line.
    ]
}
