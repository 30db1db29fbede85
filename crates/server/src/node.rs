//! What handlers see of the server: the rooms, the configuration, and what is known of the calling
//! connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tarn_controller::Controller;
use tarn_group::GroupCoordinator;
use tarn_metadata::Image;
use tarn_mirror::dialect::{DialectMemory, WireDialect};
use tarn_replica::{ReplicaError, ReplicaManager};
use tarn_wire::{ErrorCode, Str};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Listener};
use crate::decompression::Decompression;
use crate::fetch_session::SessionCache;
use crate::live::Live;
use crate::net::listener::ConnectionCounter;
use crate::net::meter::AnswerMeter;
use crate::rooms::MirrorRoom;

/// Error code with which the prototype refuses writes to a mirror topic.
const READ_ONLY_TOPIC: i16 = 134;

/// One node, as handlers see it.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) cluster_id: Str,
    pub(crate) controller: Controller,
    pub(crate) replicas: Arc<ReplicaManager>,
    pub(crate) groups: Arc<GroupCoordinator>,
    pub(crate) mirror: Option<MirrorRoom>,
    pub(crate) sessions: Mutex<SessionCache>,
    /// Where compressed records are read.
    pub(crate) decompression: Decompression,
    /// Advertised listeners with the ports that were really bound.
    pub(crate) advertised: Vec<Listener>,
    /// Epoch of this node's registration.
    pub(crate) broker_epoch: i64,
    pub(crate) producer_ids: tokio::sync::Mutex<crate::handlers::init_producer_id::IdBlock>,
    /// How far the partitions have followed the metadata.
    pub(crate) applied: Applied,
    pub(crate) stop: CancellationToken,
    /// What may change while the broker runs.
    pub(crate) live: Live,
    /// Open connections and their caps.
    pub(crate) connections: Arc<ConnectionCounter>,
    /// `request.max.elements`.
    pub(crate) elements_max: usize,
}

/// How long a request waits for the partitions to follow a change it made.
const APPLY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Metadata offset up to which this node's partitions are in line.
#[derive(Debug)]
pub(crate) struct Applied(watch::Sender<i64>);

impl Default for Applied {
    fn default() -> Applied {
        Applied(watch::Sender::new(-1))
    }
}

impl Applied {
    /// Notes that the partitions are in line with the image of `offset`.
    pub(crate) fn reached(&self, offset: i64) {
        self.0
            .send_modify(|reached| *reached = offset.max(*reached));
    }
}

impl Node {
    /// The newest metadata.
    pub(crate) fn image(&self) -> Arc<Image> {
        self.controller.image()
    }

    /// Waits, not for long, until the partitions are in line with the newest image, so that what a
    /// request created can be used at once.
    pub(crate) async fn wait_applied(&self) {
        let offset = self.image().offset();
        let mut reached = self.applied.0.subscribe();
        let wait = tokio::time::timeout(
            APPLY_WAIT_MAX,
            reached.wait_for(|reached| *reached >= offset),
        );
        tokio::select! {
            _ = wait => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Whether mirror APIs are served.
    pub(crate) fn mirror_enabled(&self) -> bool {
        self.mirror.is_some()
    }

    /// This node's id.
    pub(crate) fn id(&self) -> i32 {
        self.config.node_id
    }

    /// Host and port of a broker as clients of `listener` reach it.
    pub(crate) fn endpoint(
        &self,
        image: &Image,
        broker: i32,
        listener: &str,
    ) -> Option<(Str, i32)> {
        if broker == self.id() {
            let own = self
                .advertised
                .iter()
                .find(|l| l.name == listener)
                .or(self.advertised.first())?;
            return Some((Str::from(own.host.as_str()), i32::from(own.port)));
        }
        let endpoint = image.broker(broker)?.endpoint(listener)?;
        Some((endpoint.host.clone(), i32::from(endpoint.port)))
    }

    /// Kafka error code of a partition's refusal, for this connection.
    pub(crate) fn code(&self, error: &ReplicaError, connection: &ConnectionInfo) -> ErrorCode {
        match error {
            ReplicaError::ReadOnly { .. } => self.read_only_code(connection),
            error => error.code(),
        }
    }

    /// The read-only error: 44, or 134 where the client or the configuration knows it.
    pub(crate) fn read_only_code(&self, connection: &ConnectionInfo) -> ErrorCode {
        let prototype =
            self.config.number("mirror.read.only.error.code") == i64::from(READ_ONLY_TOPIC);
        if prototype || connection.dialect.lock().knows_read_only_error() {
            ErrorCode(READ_ONLY_TOPIC)
        } else {
            ErrorCode::POLICY_VIOLATION
        }
    }
}

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<str>,
    pub(crate) controller: bool,
    /// Whether only brokers of this cluster use the listener.
    pub(crate) inter_broker: bool,
    /// The mirror dialect it has proven.
    pub(crate) dialect: Mutex<DialectMemory>,
    /// Bounds the answer that is made now.
    pub(crate) meter: AnswerMeter,
}

impl ConnectionInfo {
    pub(crate) fn new(
        peer: SocketAddr,
        listener: Arc<str>,
        controller: bool,
        inter_broker: bool,
        dialect: WireDialect,
        meter: AnswerMeter,
    ) -> ConnectionInfo {
        ConnectionInfo {
            peer,
            listener,
            controller,
            inter_broker,
            dialect: Mutex::new(DialectMemory::new(dialect)),
            meter,
        }
    }

    /// Whether a request may be one of a broker of this cluster. Until there are ACLs: by the
    /// listener that only brokers use, or from this host.
    pub(crate) fn is_from_broker(&self) -> bool {
        self.inter_broker || self.peer.ip().to_canonical().is_loopback()
    }
}

/// Epoch milliseconds.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::budget::{ByteBudget, Shares};

    /// Who may send what only brokers send.
    #[test]
    fn a_broker_is_known_by_its_listener_or_by_loopback() {
        let from = |peer: &str, inter_broker: bool| {
            let peer: SocketAddr = peer.parse().unwrap();
            let listener = Arc::from("L");
            let budget = ByteBudget::new(1 << 20, Shares::WHOLE);
            let meter = AnswerMeter::new(budget.share(peer.ip()), 1 << 20);
            ConnectionInfo::new(
                peer,
                listener,
                false,
                inter_broker,
                WireDialect::Auto,
                meter,
            )
            .is_from_broker()
        };
        for near in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(from(near, false), "{near}");
        }
        for far in ["10.0.0.1:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!from(far, false), "{far}");
            assert!(from(far, true), "{far}");
        }
    }
}
