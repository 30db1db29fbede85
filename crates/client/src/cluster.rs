//! A cluster as a client sees it: bootstrap addresses, the brokers it names, and one shared connection to each.
//!
//! Addresses are tried in rotation, a broker that cannot be reached is left alone for a while (backoff), and a broken connection
//! is made anew at the next call. There is no task here but those of the handles.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::{MetadataRequest, MetadataResponse};
use tarn_wire::{Request, Str, Uuid, VersionRange};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::connection::{Connection, ConnectionOptions};
use crate::handle::Handle;
use crate::{ClientError, HostPort, Peer, Result};

/// Most brokers that are kept from a metadata answer.
const BROKERS_MAX: usize = 10_000;
/// Most addresses tried for one call before it fails.
const TRIES_MAX: usize = 16;

/// How to use a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Addresses somebody wrote down; never empty.
    pub bootstrap: Vec<HostPort>,
    /// For every connection.
    pub connection: ConnectionOptions,
    /// First pause after a failed connection attempt.
    pub reconnect_backoff: Duration,
    /// Longest pause after failed connection attempts.
    pub reconnect_backoff_max: Duration,
    /// Closes connections nobody used for this long; `None` keeps them.
    pub idle_max: Option<Duration>,
}

impl ClusterOptions {
    /// Default limits for these addresses.
    pub fn new(bootstrap: Vec<HostPort>) -> Self {
        ClusterOptions {
            bootstrap,
            connection: ConnectionOptions::default(),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            idle_max: Some(Duration::from_secs(540)),
        }
    }
}

/// A broker as the cluster advertises it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerNode {
    /// Node id.
    pub id: i32,
    /// Advertised address.
    pub address: HostPort,
    /// Rack, if any.
    pub rack: Option<Str>,
}

/// What the last metadata answer said about the cluster itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Cluster id; `None` when the cluster has none (or nothing was asked yet).
    pub cluster_id: Option<Str>,
    /// Controller's node id; in KRaft clusters any broker that forwards to it.
    pub controller: Option<i32>,
    /// Live brokers by id.
    pub brokers: BTreeMap<i32, BrokerNode>,
}

/// Which topics a metadata question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataTopics {
    /// Brokers, controller and cluster id only.
    None,
    /// Every topic the principal may see.
    All,
    /// These names.
    Names(Vec<Str>),
    /// These ids (clusters from 3.1 on).
    Ids(Vec<Uuid>),
}

/// A cluster. Cheap to clone; the connections close with the last clone.
#[derive(Clone, Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: ClusterOptions,
    view: Mutex<ClusterView>,
    slots: Mutex<HashMap<Peer, Arc<Slot>>>,
    rotation: AtomicUsize,
    round_trip_min: Mutex<Option<Duration>>,
}

/// The place of one connection; the lock makes sure that only one attempt runs.
#[derive(Debug)]
struct Slot {
    state: tokio::sync::Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    handle: Option<Handle>,
    backoff: Backoff,
    failed: Option<(ClientError, Instant)>,
}

impl Cluster {
    /// A cluster behind these addresses. Connects when first asked.
    pub fn new(options: ClusterOptions) -> Cluster {
        let inner = Inner {
            options,
            view: Mutex::default(),
            slots: Mutex::default(),
            rotation: AtomicUsize::new(0),
            round_trip_min: Mutex::new(None),
        };
        Cluster {
            inner: Arc::new(inner),
        }
    }

    /// The options it was made with.
    pub fn options(&self) -> &ClusterOptions {
        &self.inner.options
    }

    /// What is known of the cluster; empty before the first metadata answer.
    pub fn view(&self) -> ClusterView {
        self.inner.view.lock().clone()
    }

    /// A shared connection to any broker: one of those the cluster named, else a bootstrap address.
    ///
    /// # Errors
    /// [`ClientError::NoBroker`] with the reason of every address that was tried.
    pub async fn any(&self) -> Result<Handle> {
        let mut reasons: Vec<String> = Vec::new();
        for peer in self.candidates() {
            match self.connect(&peer).await {
                Ok(handle) => return Ok(handle),
                Err(e) => reasons.push(e.to_string()),
            }
        }
        reasons.dedup();
        Err(ClientError::NoBroker(reasons.join("; ")))
    }

    /// Addresses in the order they should be tried: open connections, then the others in rotation.
    fn candidates(&self) -> Vec<Peer> {
        let nodes: Vec<Peer> = self
            .inner
            .view
            .lock()
            .brokers
            .values()
            .map(node_peer)
            .collect();
        let bootstrap = self
            .inner
            .options
            .bootstrap
            .iter()
            .cloned()
            .map(Peer::bootstrap);
        let turn = self.inner.rotation.fetch_add(1, Ordering::Relaxed);
        let rotated = |mut list: Vec<Peer>| {
            if !list.is_empty() {
                let by = turn % list.len();
                list.rotate_left(by);
            }
            list
        };
        let mut all = rotated(nodes);
        all.extend(rotated(bootstrap.collect()));
        let open = |peer: &Peer| {
            let slot = self.inner.slots.lock().get(peer).cloned();
            slot.is_some_and(|s| {
                s.state
                    .try_lock()
                    .is_ok_and(|s| s.handle.as_ref().is_some_and(|h| !h.is_closed()))
            })
        };
        all.sort_by_key(|peer| !open(peer));
        all.truncate(TRIES_MAX);
        all
    }

    /// A shared connection to this node.
    ///
    /// # Errors
    /// [`ClientError::UnknownNode`] when the cluster does not name it (ask for metadata first), else why it cannot be reached.
    pub async fn broker(&self, node: i32) -> Result<Handle> {
        let peer = self.peer_of(node)?;
        self.connect(&peer).await
    }

    /// A connection of one's own to this node, for a fetcher, with a request timeout of its own. No backoff: the caller has its own.
    ///
    /// # Errors
    /// As [`Cluster::broker`].
    pub async fn open_dedicated(
        &self,
        node: i32,
        client_id: Str,
        request_timeout: Duration,
    ) -> Result<Connection> {
        let peer = self.peer_of(node)?;
        let common = self.inner.options.connection.clone();
        let options = ConnectionOptions {
            client_id,
            request_timeout,
            ..common
        };
        self.open(peer, options).await
    }

    /// The shortest round trip to any of its brokers so far, as connecting showed it; `None` before the first connection.
    pub fn round_trip_min(&self) -> Option<Duration> {
        *self.inner.round_trip_min.lock()
    }

    async fn open(&self, peer: Peer, options: ConnectionOptions) -> Result<Connection> {
        let connection = Connection::open(peer, options).await?;
        let mut min = self.inner.round_trip_min.lock();
        let known = min.unwrap_or(Duration::MAX);
        *min = Some(known.min(connection.round_trip()));
        Ok(connection)
    }

    fn peer_of(&self, node: i32) -> Result<Peer> {
        self.inner
            .view
            .lock()
            .brokers
            .get(&node)
            .map(node_peer)
            .ok_or(ClientError::UnknownNode(node))
    }

    async fn connect(&self, peer: &Peer) -> Result<Handle> {
        let slot = self.slot(peer);
        let mut state = slot.state.lock().await;
        if let Some(handle) = state.handle.as_ref().filter(|h| !h.is_closed()) {
            return Ok(handle.clone());
        }
        state.handle = None;
        if let Some((error, until)) = &state.failed
            && Instant::now() < *until
        {
            return Err(ClientError::BackingOff(error.to_string()));
        }
        let options = self.inner.options.connection.clone();
        match self.open(peer.clone(), options).await {
            Ok(connection) => {
                let handle = Handle::new(connection, self.inner.options.idle_max);
                state.backoff.reset();
                state.failed = None;
                state.handle = Some(handle.clone());
                Ok(handle)
            }
            Err(e) => {
                let wait = state.backoff.next_wait();
                state.failed = Some((e.clone(), Instant::now() + wait));
                Err(e)
            }
        }
    }

    fn slot(&self, peer: &Peer) -> Arc<Slot> {
        let options = &self.inner.options;
        let mut slots = self.inner.slots.lock();
        let new_slot = || {
            let backoff = Backoff::new(options.reconnect_backoff, options.reconnect_backoff_max);
            Arc::new(Slot {
                state: tokio::sync::Mutex::new(SlotState {
                    handle: None,
                    backoff,
                    failed: None,
                }),
            })
        };
        slots.entry(peer.clone()).or_insert_with(new_slot).clone()
    }

    /// Asks any broker; tries the next one when a broker could not be reached *before* the request was sent.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_any<R: Request>(&self, request: &R) -> Result<R::Response> {
        self.any().await?.call(request).await
    }

    /// Asks any broker something that may safely be asked twice; the next broker is tried on every connectivity error.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn ask_any<R: Request>(
        &self,
        question: &R,
        wanted: VersionRange,
    ) -> Result<R::Response> {
        let mut last = None;
        for _ in 0..3 {
            match self.any().await?.call_within(question, wanted).await {
                Err(e) if e.is_connectivity() => last = Some(e),
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| ClientError::NoBroker(String::new())))
    }

    /// Sends a request to this node.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_broker<R: Request>(&self, node: i32, request: &R) -> Result<R::Response> {
        self.broker(node).await?.call(request).await
    }

    /// Asks for metadata and remembers brokers, controller and cluster id. Never creates topics.
    ///
    /// # Errors
    /// Any [`ClientError`]. Errors of single topics are in the answer.
    pub async fn metadata(&self, topics: &MetadataTopics) -> Result<MetadataResponse> {
        let request = metadata_request(topics);
        // Version 0 cannot ask for "no topics"; version 4 (0.11) can forbid auto-creation.
        let min = if matches!(topics, MetadataTopics::Ids(_)) {
            12
        } else {
            4
        };
        let wanted = VersionRange {
            min,
            max: <MetadataRequest as tarn_wire::Message>::VERSIONS.max,
        };
        let response = self.ask_any(&request, wanted).await?;
        self.learn(&response);
        Ok(response)
    }

    fn learn(&self, response: &MetadataResponse) {
        let node = |b: &tarn_wire::messages::metadata_response::MetadataResponseBroker| {
            let port = u16::try_from(b.port).ok().filter(|&p| p > 0)?;
            let address = HostPort {
                host: b.host.detach(),
                port,
            };
            Some((
                b.node_id,
                BrokerNode {
                    id: b.node_id,
                    address,
                    rack: b.rack.as_ref().map(Str::detach),
                },
            ))
        };
        let brokers: BTreeMap<i32, BrokerNode> = response
            .brokers
            .iter()
            .take(BROKERS_MAX)
            .filter_map(node)
            .collect();
        {
            let mut view = self.inner.view.lock();
            view.cluster_id = response
                .cluster_id
                .as_ref()
                .filter(|id| !id.is_empty())
                .map(Str::detach);
            view.controller = (response.controller_id >= 0).then_some(response.controller_id);
            // An empty list is what a starting broker knows, not a cluster without brokers.
            if !brokers.is_empty() {
                view.brokers = brokers;
            }
        }
        self.forget_old_slots();
    }

    /// Drops the connections of nodes that are gone or moved to another address.
    fn forget_old_slots(&self) {
        let view = self.inner.view.lock();
        let current = |peer: &Peer| match peer.node {
            None => true,
            Some(node) => view
                .brokers
                .get(&node)
                .is_some_and(|b| b.address == peer.address),
        };
        self.inner.slots.lock().retain(|peer, _| current(peer));
    }

    /// Adds or moves a broker that an answer other than Metadata named (Fetch, Produce and others name new leaders).
    pub fn learn_node(&self, node: BrokerNode) {
        self.inner.view.lock().brokers.insert(node.id, node);
        self.forget_old_slots();
    }
}

fn node_peer(node: &BrokerNode) -> Peer {
    Peer {
        address: node.address.clone(),
        node: Some(node.id),
    }
}

fn metadata_request(topics: &MetadataTopics) -> MetadataRequest {
    let by_name = |name: &Str| MetadataRequestTopic {
        name: Some(name.clone()),
        ..Default::default()
    };
    let by_id = |id: &Uuid| MetadataRequestTopic {
        topic_id: *id,
        name: None,
        ..Default::default()
    };
    let list = match topics {
        MetadataTopics::None => Some(Vec::new()),
        MetadataTopics::All => None,
        MetadataTopics::Names(names) => Some(names.iter().map(by_name).collect()),
        MetadataTopics::Ids(ids) => Some(ids.iter().map(by_id).collect()),
    };
    MetadataRequest {
        topics: list,
        allow_auto_topic_creation: false,
        ..Default::default()
    }
}
