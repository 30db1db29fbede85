//! A cluster as a client sees it: bootstrap addresses, the brokers it names, and one shared
//! connection to each.
//!
//! Where the cluster's id is known, every shared connection proves it before it is used: what
//! another cluster says (an address that moved, a name that resolves wrongly for a moment) is never
//! learnt, and a node that turns out to be another cluster's is forgotten.
//!
//! Addresses are tried in rotation, a broker that cannot be reached is left alone for a while
//! (backoff), and a broken connection is made anew at the next call. There is no task here but
//! those of the handles.

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
use crate::{ClientError, HostPort, Peer, Result, text_cut};

/// Longest host name that is believed, in bytes: that of the domain name system.
const HOST_BYTES_MAX: usize = 255;
/// Most brokers that are kept from a metadata answer.
const BROKERS_MAX: usize = 10_000;
/// Version 0 cannot ask for "no topics"; version 4 (0.11) can forbid auto-creation.
const METADATA_VERSIONS: VersionRange =
    VersionRange::new(4, <MetadataRequest as tarn_wire::Message>::VERSIONS.max);
/// How often a question is sent before a connectivity error is told.
const QUESTION_TRIES_MAX: usize = 3;
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
    /// The id of the cluster that must answer; `None` = not known, the first that answers is
    /// believed.
    pub cluster_id: Option<Str>,
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
            cluster_id: None,
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
    /// [`ClientError::WrongCluster`] when another cluster answers at one of the addresses and the
    /// right one at none, else [`ClientError::NoBroker`] with the reason of every address that was
    /// tried.
    pub async fn any(&self) -> Result<Handle> {
        let mut reasons: Vec<String> = Vec::new();
        let mut wrong = None;
        for peer in self.candidates() {
            match self.connect(&peer).await {
                Ok(handle) => return Ok(handle),
                Err(e @ ClientError::WrongCluster { .. }) => wrong = Some(e),
                Err(e) => reasons.push(e.to_string()),
            }
        }
        reasons.dedup();
        Err(wrong.unwrap_or_else(|| ClientError::NoBroker(reasons.join("; "))))
    }

    /// Addresses in the order they should be tried: open connections, then nodes and bootstrap
    /// addresses in turn, both in rotation.
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
        // In turn, so that dead nodes, however many the cluster named, never stand before a living
        // bootstrap address.
        let mut all = alternate(rotated(nodes), rotated(bootstrap.collect()));
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
    /// [`ClientError::UnknownNode`] when the cluster does not name it (ask for metadata first),
    /// else why it cannot be reached.
    pub async fn broker(&self, node: i32) -> Result<Handle> {
        let peer = self.peer_of(node)?;
        self.connect(&peer).await
    }

    /// A connection of one's own to this node, for a fetcher, with a request timeout of its own. No
    /// backoff: the caller has its own.
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

    /// The shortest round trip to any of its brokers so far, as connecting showed it; `None` before
    /// the first connection.
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
        match self.open_proven(peer).await {
            Ok(handle) => {
                state.backoff.reset();
                state.failed = None;
                state.handle = Some(handle.clone());
                Ok(handle)
            }
            // Said of this moment only: the right cluster may be there again at the next question,
            // and whoever asks has pauses of its own.
            Err(e @ ClientError::WrongCluster { .. }) => Err(e),
            Err(e) => {
                let wait = state.backoff.next_wait();
                state.failed = Some((e.clone(), Instant::now() + wait));
                Err(e)
            }
        }
    }

    /// A connection that has proven to lead to the cluster it should lead to.
    async fn open_proven(&self, peer: &Peer) -> Result<Handle> {
        let options = self.inner.options.connection.clone();
        let connection = self.open(peer.clone(), options).await?;
        let handle = Handle::new(connection, self.inner.options.idle_max);
        if self.inner.options.cluster_id.is_some() {
            let question = metadata_request(&MetadataTopics::None);
            let response = handle.call_within(&question, METADATA_VERSIONS).await?;
            self.prove(peer, &response)?;
        }
        Ok(handle)
    }

    /// Refuses the answer of another cluster; an answer without an id proves nothing. The node it
    /// came from is another's by now.
    fn prove(&self, peer: &Peer, response: &MetadataResponse) -> Result<()> {
        let found = response.cluster_id.as_ref().filter(|id| !id.is_empty());
        match (&self.inner.options.cluster_id, found) {
            (Some(expected), Some(found)) if expected != found => {
                if let Some(node) = peer.node {
                    self.inner.view.lock().brokers.remove(&node);
                }
                Err(ClientError::WrongCluster {
                    peer: peer.clone(),
                    found: Str::from(text_cut(found)),
                    expected: expected.clone(),
                })
            }
            _ => Ok(()),
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

    /// Asks any broker; tries the next one when a broker could not be reached *before* the request
    /// was sent.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_any<R: Request>(&self, request: &R) -> Result<R::Response> {
        self.any().await?.call(request).await
    }

    /// Asks any broker something that may safely be asked twice; the next broker is tried on every
    /// connectivity error.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn ask_any<R: Request>(
        &self,
        question: &R,
        wanted: VersionRange,
    ) -> Result<R::Response> {
        let mut last = None;
        for _ in 0..QUESTION_TRIES_MAX {
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
        let wanted = match topics {
            MetadataTopics::Ids(_) => VersionRange::new(12, METADATA_VERSIONS.max),
            _ => METADATA_VERSIONS,
        };
        let mut last = None;
        for _ in 0..QUESTION_TRIES_MAX {
            let handle = self.any().await?;
            match handle.call_within(&request, wanted).await {
                Err(e) if e.is_connectivity() => last = Some(e),
                Err(e) => return Err(e),
                Ok(response) => {
                    self.prove(handle.peer(), &response)?;
                    self.learn(&response);
                    return Ok(response);
                }
            }
        }
        Err(last.unwrap_or_else(|| ClientError::NoBroker(String::new())))
    }

    fn learn(&self, response: &MetadataResponse) {
        let node = |b: &tarn_wire::messages::metadata_response::MetadataResponseBroker| {
            let port = u16::try_from(b.port).ok().filter(|&p| p > 0)?;
            // No name is longer, so whoever sends a longer one has no address.
            if b.host.len() > HOST_BYTES_MAX {
                return None;
            }
            let address = HostPort {
                host: b.host.detach(),
                port,
            };
            Some((
                b.node_id,
                BrokerNode {
                    id: b.node_id,
                    address,
                    rack: b.rack.as_ref().map(|rack| Str::from(text_cut(rack))),
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
                .map(|id| Str::from(text_cut(id)));
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

    /// Adds or moves a broker that an answer other than Metadata named (Fetch, Produce and others
    /// name new leaders).
    pub fn learn_node(&self, node: BrokerNode) {
        if node.address.host.len() > HOST_BYTES_MAX {
            return;
        }
        self.inner.view.lock().brokers.insert(node.id, node);
        self.forget_old_slots();
    }
}

/// The first of `a`, the first of `b`, the second of `a`, and so on; what is left of the longer one
/// comes last.
fn alternate(a: Vec<Peer>, b: Vec<Peer>) -> Vec<Peer> {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let mut all = Vec::with_capacity(a.len() + b.len());
    loop {
        let pair = [a.next(), b.next()];
        if pair.iter().all(Option::is_none) {
            return all;
        }
        all.extend(pair.into_iter().flatten());
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

#[cfg(test)]
mod tests {
    use tarn_wire::messages::metadata_response::MetadataResponseBroker;

    use super::*;

    fn answer(cluster_id: &str, hosts: &[&str]) -> MetadataResponse {
        let broker = |(id, host): (usize, &&str)| MetadataResponseBroker {
            node_id: id as i32,
            host: Str::from(*host),
            port: 9092,
            ..Default::default()
        };
        MetadataResponse {
            cluster_id: Some(Str::from(cluster_id)),
            brokers: hosts.iter().enumerate().map(broker).collect(),
            ..Default::default()
        }
    }

    fn cluster(cluster_id: &str) -> Cluster {
        let bootstrap = HostPort::parse_list("localhost:1").unwrap();
        let mut options = ClusterOptions::new(bootstrap);
        options.cluster_id = Some(Str::from(cluster_id));
        Cluster::new(options)
    }

    /// No host name is that long.
    #[test]
    fn a_host_name_that_is_none_is_not_learnt() {
        let cluster = cluster("a");
        let long = "x".repeat(32_700);
        cluster.learn(&answer("a", &["good", &long]));
        let view = cluster.view();
        assert_eq!(view.brokers.keys().collect::<Vec<_>>(), [&0]);
    }

    /// The node at whose address another cluster answers is forgotten, the others stay.
    #[test]
    fn a_node_that_answers_as_another_cluster_is_forgotten() {
        let cluster = cluster("a");
        cluster.learn(&answer("a", &["good", "moved"]));
        let peer = node_peer(&cluster.view().brokers[&1]);
        let refused = cluster.prove(&peer, &answer("b", &["elsewhere"]));
        assert!(matches!(refused, Err(ClientError::WrongCluster { found, .. }) if found == *"b"));
        assert_eq!(cluster.view().brokers.keys().collect::<Vec<_>>(), [&0]);
        assert!(cluster.prove(&peer, &answer("a", &[])).is_ok());
        assert!(cluster.prove(&peer, &answer("", &[])).is_ok(), "no proof");
    }
}
