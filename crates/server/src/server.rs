//! Start, wiring and shutdown of one node.

use std::net::SocketAddr;

use crate::config::Config;
use crate::error::StartError;

/// A bound listener.
#[derive(Debug, Clone)]
pub struct BoundListener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A running node. Dropping it without [`Server::shutdown`] leaves the log directories without the clean marker.
#[derive(Debug)]
pub struct Server {
    bound: Vec<BoundListener>,
    cluster_id: String,
}

/// What a shutdown did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Every log directory got its clean-shutdown marker.
    pub clean: bool,
}

impl Server {
    /// Starts a node: formats an empty directory of a one-node cluster, takes the locks, opens the port, recovers, and wires every room.
    /// Must be called inside a multi-threaded tokio runtime.
    pub async fn start(config: Config) -> Result<Server, StartError> {
        let _ = config;
        panic!("not built yet: Server::start")
    }

    /// The bound broker and controller listeners.
    pub fn listeners(&self) -> &[BoundListener] {
        &self.bound
    }

    /// Address of the first broker listener.
    pub fn address(&self) -> SocketAddr {
        self.bound[0].address
    }

    /// Cluster id, 22 characters of base64url.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Resolves when the node had to stop by itself (for example the only log directory failed), with the reason.
    pub async fn failed(&self) -> String {
        std::future::pending().await
    }

    /// Clean shutdown: no new connections, running requests finish or are cut, logs are synced and marked clean. Under 5 s.
    pub async fn shutdown(self) -> ShutdownReport {
        panic!("not built yet: Server::shutdown")
    }
}
