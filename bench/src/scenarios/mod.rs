//! The registry of scenarios. Each is one `pub mod` line and one line in [`all`]; what it measures
//! stands in its own file.

use crate::scenario::Scenario;

// The machine itself.
mod bare_requests;
pub mod machine_limits;

// Brokers: produce, consume, end to end, durability (P1–P8), Kafka's own tools (P13, P14).
mod broker;
pub mod broker_durability;
pub mod broker_latency;
pub mod broker_requests;
pub mod broker_throughput;
pub mod stock_clients;

// Scale, start, restart, idle, failover (P9–P12, X7, X11).
mod scale;
pub mod scale_mirror;
pub mod scale_partitions;
pub mod scale_restart;
pub mod scale_start;

// Mirrors beside MirrorMaker 2 (X1–X6, X10, X12).
pub mod mirror_bystander;
pub mod mirror_compressed;
pub mod mirror_copy;
pub mod mirror_fanin;
pub mod mirror_lag;

// Mirrors over a long line (X8).
pub mod wan;

/// Every scenario, in the order in which `all` runs them.
#[must_use]
pub fn all() -> Vec<&'static dyn Scenario> {
    vec![
        // The machine itself.
        &machine_limits::MachineLimits,
        // Brokers.
        &broker_throughput::BrokerThroughput,
        &broker_requests::BrokerRequests,
        &broker_latency::BrokerLatency,
        &broker_durability::BrokerDurability,
        &stock_clients::StockClients,
        // Scale.
        &scale_start::Start,
        &scale_restart::Restart,
        &scale_partitions::Partitions,
        &scale_mirror::IdleMirror,
        &scale_mirror::Failover,
        // Mirrors.
        &mirror_copy::MirrorCopy,
        &mirror_compressed::MirrorCompressed,
        &mirror_lag::MirrorLag,
        &mirror_fanin::MirrorFanIn,
        &mirror_bystander::MirrorBystander,
        // Long line.
        &wan::LongLine,
    ]
}
