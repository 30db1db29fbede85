//! Start, wiring and shutdown of one node.
//!
//! Order of a start: ports (a taken port must not touch any data), identity of the directories,
//! locks, controller, registration, partitions, coordinators, mirror, and only then are connections
//! served. A shutdown goes the other way round.

mod directories;
pub(crate) mod settings;
mod startup;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tarn_log::LogDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::error::StartError;
use crate::node::Node;

/// How long running requests may still take when a shutdown begins.
const REQUESTS_GRACE: Duration = Duration::from_millis(500);
/// Bound of each later step of a shutdown.
const STEP_MAX: Duration = Duration::from_millis(1000);
/// Bound of closing the logs, which syncs them.
const CLOSE_MAX: Duration = Duration::from_secs(30);

/// A bound listener.
#[derive(Debug, Clone)]
pub struct BoundListener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What a shutdown did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Every log directory got its clean-shutdown marker.
    pub clean: bool,
}

/// A running node. Dropping it without [`Server::shutdown`] leaves the log directories without the
/// clean marker.
pub struct Server {
    bound: Vec<BoundListener>,
    node: Arc<Node>,
    /// Ends connections at once, whatever they do.
    stop_serving: CancellationToken,
    /// Ends the loop that follows the metadata.
    stop_following: CancellationToken,
    connections: TaskTracker,
    followers: TaskTracker,
    /// Locks of directories without partitions.
    _metadata_dirs: Vec<Arc<LogDir>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.node.stop.cancel();
        self.stop_serving.cancel();
        self.stop_following.cancel();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server(node {} at {:?})", self.node.id(), self.bound)
    }
}

impl Server {
    /// Starts a node: formats an empty directory of a one-node cluster, takes the locks, opens the
    /// port, recovers, and wires every room. Must be called inside a multi-threaded tokio runtime.
    pub async fn start(config: Config) -> Result<Server, StartError> {
        startup::start(config).await
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
        &self.node.cluster_id
    }

    /// Resolves when the node had to stop by itself (for example the only log directory failed),
    /// with the reason.
    pub async fn failed(&self) -> String {
        let halted = self.node.replicas.halted();
        tokio::select! {
            () = halted.cancelled() => {
                "every log directory is offline; look for the first disk error above, repair the disk and start again".to_owned()
            }
            error = self.node.controller.wait_halted() => error.to_string(),
        }
    }

    /// Clean shutdown: no new connections, running requests finish or are cut, logs are synced and
    /// marked clean. Under 5 s.
    pub async fn shutdown(self) -> ShutdownReport {
        tracing::info!(node = self.node.id(), "shutting down");
        // Nothing is accepted or read any more and long polls end; requests that run get their
        // answers, if they are quick.
        self.node.stop.cancel();
        self.connections.close();
        let _ = tokio::time::timeout(REQUESTS_GRACE, self.connections.wait()).await;
        self.stop_serving.cancel();
        bounded("connections", STEP_MAX, self.connections.wait()).await;
        if let Some(mirror) = &self.node.mirror {
            bounded("mirror", STEP_MAX, mirror.shutdown()).await;
        }
        bounded("groups", STEP_MAX, self.node.groups.shutdown()).await;
        self.stop_following.cancel();
        self.followers.close();
        bounded("metadata followers", STEP_MAX, self.followers.wait()).await;
        bounded("controller", STEP_MAX, self.node.controller.shutdown()).await; // Last, because it gives the locks back.
        let clean = matches!(
            tokio::time::timeout(
                CLOSE_MAX,
                self.node.replicas.shutdown(self.node.broker_epoch)
            )
            .await,
            Ok(Ok(()))
        );
        tracing::info!(node = self.node.id(), clean, "stopped");
        ShutdownReport { clean }
    }
}

/// Waits for a step, not longer than `limit`.
async fn bounded<T>(step: &str, limit: Duration, work: impl Future<Output = T>) {
    if tokio::time::timeout(limit, work).await.is_err() {
        tracing::warn!(step, "did not stop in time, going on without it");
    }
}
