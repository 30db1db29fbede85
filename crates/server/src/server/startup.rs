//! The steps of a start, in order, each with its own typed error.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_controller::Controller;
use tarn_log::{LogDir, LogError};
use tarn_mirror::dialect::WireDialect;
use tarn_replica::ReplicaManager;
use tarn_wire::{Str, Uuid};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{BoundListener, Server, directories, settings};
use crate::config::{Config, Listener};
use crate::error::StartError;
use crate::fetch_session::SessionCache;
use crate::live::Live;
use crate::net::connection::{self, ConnectionSettings};
use crate::net::listener::{self, ConnectionCounter};
use crate::node::{Applied, Node};
use crate::rooms;
use crate::storage;

/// A listener that is bound but not served yet.
struct Socket {
    listener: TcpListener,
    name: Arc<str>,
    controller: bool,
}

pub(super) async fn start(config: Config) -> Result<Server, StartError> {
    let limit = tarn_log::raise_descriptor_limit();
    let shares = settings::shares(&config);
    tarn_log::set_open_files_max(shares.log_files);
    tracing::info!(limit, ?shares, "open files");
    let (bound, sockets) = bind_all(&config).await?;
    let identity = {
        let config = config.clone();
        blocking(move || storage::identity(&config)).await?
    };
    let (mut dirs, metadata_dirs) = open_formatted(&config, &identity).await?;
    let advertised = with_bound_ports(&config, &bound);
    let settings = settings::controller(
        &config,
        &identity.cluster_id,
        identity.metadata_directory_id,
        &bound,
        rooms::rules(),
    );
    let controller = Controller::start(settings)
        .await
        .map_err(|error| rooms::controller_failed(&config, error))?;
    let missing = compare_dirs(&config, &identity, &controller, &mut dirs).await?;
    let broker_epoch = rooms::register(&config, &controller, &identity, &advertised, &dirs).await?;
    directories::record(&config, &controller, &dirs, &missing).await?;
    let replicas = start_replicas(&config, &controller, dirs, missing).await?;
    let image = controller.image();
    let groups = rooms::groups(settings::groups(&config), &replicas, &controller);
    let mirror = rooms::mirror(&config, &identity.cluster_id, &replicas, &controller);
    let node = Arc::new(Node {
        cluster_id: Str::from(identity.cluster_id),
        controller,
        replicas,
        groups,
        mirror,
        sessions: Mutex::new(SessionCache::new(settings::sessions(&config))),
        decompression: settings::decompression(&config),
        advertised,
        broker_epoch,
        producer_ids: Default::default(),
        applied: Applied::default(),
        stop: CancellationToken::new(),
        elements_max: config.number("request.max.elements").max(1) as usize,
        live: Live::new(&config, &image),
        connections: ConnectionCounter::new(settings::caps(&config, &image)),
        config,
    });
    let stop_following = CancellationToken::new();
    let followers = TaskTracker::new();
    followers.spawn(rooms::follow_metadata(node.clone(), stop_following.clone()));
    followers.spawn(directories::follow(node.clone(), stop_following.clone()));
    let stop_serving = CancellationToken::new();
    let connections = TaskTracker::new();
    serve_all(&node, sockets, &stop_serving, &connections);
    tracing::info!(node = node.id(), cluster_id = %node.cluster_id, listeners = ?bound, "started");
    Ok(Server {
        bound,
        node,
        stop_serving,
        stop_following,
        connections,
        followers,
        _metadata_dirs: metadata_dirs,
    })
}

async fn start_replicas(
    config: &Config,
    controller: &Controller,
    dirs: Dirs,
    missing: Vec<Uuid>,
) -> Result<Arc<ReplicaManager>, StartError> {
    let mut replica_settings = settings::replicas(config);
    replica_settings.missing_dirs = missing;
    ReplicaManager::start_with_dirs(replica_settings, dirs, controller.image())
        .await
        .map_err(|error| StartError::Room {
            room: "the partitions",
            reason: error.to_string(),
        })
}

async fn bind_all(config: &Config) -> Result<(Vec<BoundListener>, Vec<Socket>), StartError> {
    let backlog = config.number("socket.listen.backlog.size").max(1) as u32;
    let mut bound = Vec::new();
    let mut sockets = Vec::new();
    let all = config
        .listeners
        .iter()
        .map(|l| (l, false))
        .chain(config.controller_listeners.iter().map(|l| (l, true)));
    for (wanted, controller) in all {
        let failed = |source| StartError::Bind {
            listener: wanted.name.clone(),
            address: format!("{}:{}", wanted.host, wanted.port),
            source,
        };
        let listener = listener::bind(&wanted.host, wanted.port, backlog)
            .await
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        bound.push(BoundListener {
            name: wanted.name.clone(),
            address,
        });
        sockets.push(Socket {
            listener,
            name: Arc::from(wanted.name.as_str()),
            controller,
        });
    }
    Ok((bound, sockets))
}

/// Advertised listeners; port 0 takes the port that was really bound.
fn with_bound_ports(config: &Config, bound: &[BoundListener]) -> Vec<Listener> {
    let mut advertised = config.advertised_listeners.clone();
    for listener in advertised.iter_mut().filter(|listener| listener.port == 0) {
        if let Some(bound) = bound.iter().find(|bound| bound.name == listener.name) {
            listener.port = bound.address.port();
        }
    }
    advertised
}

/// Opened and locked directories.
type Dirs = Vec<Arc<LogDir>>;

/// The directories for partitions, and the metadata directory when it is none of them (it is only
/// locked).
fn split_dirs(config: &Config, dirs: Vec<Arc<LogDir>>) -> Result<(Dirs, Dirs), StartError> {
    if !dirs.iter().any(|dir| dir.path() == config.metadata_log_dir) {
        return Err(StartError::LogDir {
            path: config.metadata_log_dir.clone(),
            reason: "it holds the metadata log and cannot be opened, see above".to_owned(),
        });
    }
    let (partitions, metadata): (Vec<_>, Vec<_>) = dirs
        .into_iter()
        .partition(|dir| config.log_dirs.iter().any(|path| path == dir.path()));
    Ok((partitions, metadata))
}

/// Opens the directories that are formatted.
async fn open_formatted(
    config: &Config,
    identity: &storage::Identity,
) -> Result<(Dirs, Dirs), StartError> {
    let formatted = all_dirs(config)
        .into_iter()
        .filter(|path| !identity.unformatted.contains(path))
        .collect();
    let (dirs, metadata_dirs) = split_dirs(config, open_dirs(formatted).await?)?;
    directories::refuse_lost_metadata(config, &dirs)?;
    Ok((dirs, metadata_dirs))
}

/// Holds the directories against the metadata, and adds new ones; gives the ids of those that are
/// missing.
async fn compare_dirs(
    config: &Config,
    identity: &storage::Identity,
    controller: &Controller,
    dirs: &mut Dirs,
) -> Result<Vec<Uuid>, StartError> {
    let image = controller.image();
    let missing = directories::missing(config, &image, dirs);
    missing.refuse_empty(&identity.unformatted)?;
    missing.tell();
    directories::refuse_emptied(config, &image, dirs)?;
    add_new_dirs(config, identity, dirs).await?;
    directories::remember(config, dirs);
    Ok(missing.ids)
}

/// Formats the empty directories, which are known to be new by now, and opens them.
async fn add_new_dirs(
    config: &Config,
    identity: &storage::Identity,
    dirs: &mut Dirs,
) -> Result<(), StartError> {
    if !identity.unformatted.is_empty() {
        let (wanted, cluster_id) = (config.clone(), identity.cluster_id.clone());
        blocking(move || storage::format(&wanted, &cluster_id, true)).await?;
        tracing::info!(dirs = ?identity.unformatted, "formatted new log directories");
        dirs.extend(open_dirs(identity.unformatted.clone()).await?);
        let place = |dir: &Arc<LogDir>| config.log_dirs.iter().position(|p| p == dir.path());
        dirs.sort_by_key(place);
    }
    if dirs.is_empty() {
        let path = config.log_dirs[0].clone();
        return Err(StartError::LogDir {
            path,
            reason: "no log directory can be opened, see above".to_owned(),
        });
    }
    Ok(())
}

/// The log directories, and the metadata directory when it is another one.
fn all_dirs(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = config.log_dirs.clone();
    if !paths.contains(&config.metadata_log_dir) {
        paths.push(config.metadata_log_dir.clone());
    }
    paths
}

/// Locks and opens every directory. One that is broken is left out while another one works; one
/// that is locked never is.
async fn open_dirs(paths: Vec<PathBuf>) -> Result<Vec<Arc<LogDir>>, StartError> {
    blocking(move || {
        let mut dirs = Vec::new();
        let mut first_failure = None;
        for path in paths {
            match LogDir::open(&path) {
                Ok(dir) => dirs.push(dir),
                Err(LogError::Locked { .. }) => return Err(StartError::Locked { path }),
                Err(error) => {
                    tracing::error!(dir = %path.display(), %error, "log directory left out");
                    first_failure.get_or_insert(StartError::LogDir {
                        path,
                        reason: error.to_string(),
                    });
                }
            }
        }
        match first_failure {
            Some(error) if dirs.is_empty() => Err(error),
            _ => Ok(dirs),
        }
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StartError::Room {
            room: "the log directories",
            reason: error.to_string(),
        }),
    }
}

fn serve_all(
    node: &Arc<Node>,
    sockets: Vec<Socket>,
    stop: &CancellationToken,
    connections: &TaskTracker,
) {
    let config = &node.config;
    let accepting = &node.stop;
    let dialect = config
        .text("mirror.wire.dialect")
        .and_then(WireDialect::parse)
        .unwrap_or_default();
    let limits = settings::read_limits(config);
    let (requests, answers) = settings::budgets(config);
    for socket in sockets {
        let settings = ConnectionSettings {
            inter_broker: config.is_for_brokers_only(&socket.name),
            listener: socket.name,
            controller: socket.controller,
            dialect,
            limits: limits.clone(),
            requests: requests.clone(),
            answers: answers.clone(),
            answer_bytes_max: config.number("response.max.bytes").max(0) as usize,
            unread_bytes_max: config.number("socket.unread.response.max.bytes").max(1) as usize,
            send_buffer: settings::socket_buffer(config, "socket.send.buffer.bytes"),
            receive_buffer: settings::socket_buffer(config, "socket.receive.buffer.bytes"),
        };
        let counter = node.connections.clone();
        let (node, tasks, stop_all) = (node.clone(), connections.clone(), stop.clone());
        let serve = move |stream, peer, slot| {
            let work = connection::serve(
                stream,
                peer,
                slot,
                node.clone(),
                settings.clone(),
                stop_all.child_token(),
            );
            tasks.spawn(work);
        };
        connections.spawn(listener::accept_loop(
            socket.listener,
            counter,
            accepting.clone(),
            serve,
        ));
    }
}
