//! The load generator: an open-loop producer and a reader that speak the Kafka protocol themselves,
//! against any broker that serves it.
//!
//! It exists because the Java clients cost more processor time than the brokers that they would
//! measure. Nothing here allocates, decodes or computes per record: batches, requests and checksums
//! are made once. What is measured with it is said by the scenarios.

pub mod batch;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod consume;
pub mod end_to_end;
mod fetched;
pub mod histogram;
mod intake;
pub mod produce;
mod request;
mod sender;
mod side_by_side;

pub use batch::{Content, Shape};
pub use cluster::{Cluster, End, Topic};
pub use consume::{Consume, Consumed};
pub use histogram::Histogram;
pub use produce::{Choice, Produce, Produced};
