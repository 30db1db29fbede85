//! The `client` room: an async Kafka client for machines.
//!
//! It talks to the source cluster of a mirror, between brokers, and for the command line. It owns
//! connections, version negotiation, correlation of answers, time limits, and the knowledge of
//! which broker is where. It knows no topics of ours, writes no files and keeps no data: record
//! batches of a streamed Fetch go to the caller piece by piece.
//!
//! Invariants:
//! * every wait ends: connecting, writing, the first byte and every further byte of an answer have
//!   a limit;
//! * nothing from the wire is trusted with memory: an answer beyond its limit closes the connection
//!   before it is read;
//! * every task belongs to a handle and ends with it.

mod address;
mod backoff;
mod cluster;
mod connection;
mod error;
mod handle;
mod inbound;
mod lookup;
mod stream;
mod versions;

pub use address::{HostPort, Peer};
pub use backoff::Backoff;
pub use cluster::{BrokerNode, Cluster, ClusterOptions, ClusterView, MetadataTopics};
pub use connection::{Connection, ConnectionOptions};
pub use error::{ClientError, FOREIGN_TEXT_BYTES_MAX, text_cut};
pub use handle::Handle;
pub use lookup::CoordinatorKind;
pub use stream::Security;
pub use versions::Versions;

/// What calls of this room give.
pub type Result<T> = std::result::Result<T, ClientError>;
