//! Wiring of the rooms: the hooks and creators they need of each other, the registration of this
//! node, and the loop that carries the metadata to all of them in order.

use std::sync::Arc;
use std::time::Duration;

use tarn_controller::plan::{NewTopic, plan_topic, supported_features};
use tarn_controller::{ApiError, Controller, ControllerError};
use tarn_coordinator::{InternalTopic, TopicCreator, system_clock};
use tarn_group::{GroupConfig, GroupCoordinator};
use tarn_log::LogDir;
use tarn_replica::ReplicaManager;
use tarn_wire::messages::BrokerRegistrationRequest;
use tarn_wire::messages::broker_registration_request::{Feature, Listener as WireListener};
use tarn_wire::{ErrorCode, Str, Uuid};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Listener};
use crate::error::StartError;
use crate::node::Node;
use crate::server::settings;
use crate::storage::Identity;

mod mirror_room;

pub(crate) use mirror_room::{MirrorRoom, mirror, rules};

/// What a controller that does not start means for the operator.
pub(crate) fn controller_failed(config: &Config, error: ControllerError) -> StartError {
    match error {
        ControllerError::BadFile { path, reason } => StartError::Corrupt {
            what: path.display().to_string(),
            reason,
        },
        ControllerError::Log(
            error @ (tarn_log::LogError::Damaged { .. } | tarn_log::LogError::Missing { .. }),
        ) => {
            let what = config
                .metadata_log_dir
                .join("__cluster_metadata-0")
                .display()
                .to_string();
            StartError::Corrupt {
                what,
                reason: error.to_string(),
            }
        }
        error => StartError::Room {
            room: "the controller",
            reason: error.to_string(),
        },
    }
}

/// Registers this node as a broker and unfences it; gives its broker epoch.
pub(crate) async fn register(
    config: &Config,
    controller: &Controller,
    identity: &Identity,
    advertised: &[Listener],
    dirs: &[Arc<LogDir>],
) -> Result<i64, StartError> {
    let request = BrokerRegistrationRequest {
        broker_id: config.node_id,
        cluster_id: Str::from(identity.cluster_id.as_str()),
        incarnation_id: Uuid::random(),
        listeners: advertised
            .iter()
            .map(|l| WireListener {
                name: Str::from(l.name.as_str()),
                host: Str::from(l.host.as_str()),
                port: l.port,
                security_protocol: 0,
                ..WireListener::default()
            })
            .collect(),
        features: supported_features()
            .iter()
            .map(|feature| Feature {
                name: Str::from(feature.name),
                min_supported_version: feature.min,
                max_supported_version: feature.max,
                ..Feature::default()
            })
            .collect(),
        rack: config.text("broker.rack").map(Str::from),
        log_dirs: dirs
            .iter()
            .filter_map(|dir| tarn_replica::directory_id(dir))
            .collect(),
        previous_broker_epoch: -1,
        ..BrokerRegistrationRequest::default()
    };
    controller
        .register_and_unfence(request)
        .await
        .map_err(|error| StartError::Room {
            room: "the broker's registration",
            reason: error.to_string(),
        })
}

/// Creates internal topics with the broker's own identity.
pub(crate) fn topic_creator(
    controller: &Controller,
    replicas: &Arc<ReplicaManager>,
) -> TopicCreator {
    let (controller, replicas) = (controller.clone(), replicas.clone());
    Arc::new(move |topic: InternalTopic| {
        let (controller, replicas) = (controller.clone(), replicas.clone());
        Box::pin(async move {
            let name = topic.name.clone();
            let wanted = NewTopic {
                name: topic.name,
                id: None,
                partitions: topic.partitions,
                replication_factor: topic.replication_factor,
                assignments: Vec::new(),
                configs: topic.configs,
            };
            let created = controller
                .submit("create internal topic", move |image, ctx| {
                    Ok::<_, ApiError>((plan_topic(image, ctx, &wanted)?, ()))
                })
                .await;
            match created {
                Err(error) if error.code != ErrorCode::TOPIC_ALREADY_EXISTS => {
                    Err(error.to_string())
                }
                _ => {
                    wait_until_known(&replicas, &name).await;
                    Ok(())
                }
            }
        })
    })
}

/// Waits, not for long, until the partitions of a topic are there, so that its coordinator can be
/// asked at once.
async fn wait_until_known(replicas: &ReplicaManager, topic: &str) {
    const WAIT_MAX: Duration = Duration::from_secs(2);
    let mut progress = replicas.progress();
    let there = progress.wait_for(|_| replicas.partition(topic, 0).is_ok());
    // When it takes longer, the caller is told that the coordinator loads, and asks again.
    let _ = tokio::time::timeout(WAIT_MAX, there).await;
}

/// The group coordinator.
pub(crate) fn groups(
    config: GroupConfig,
    replicas: &Arc<ReplicaManager>,
    controller: &Controller,
) -> Arc<GroupCoordinator> {
    GroupCoordinator::new(
        config,
        replicas.clone(),
        topic_creator(controller, replicas),
        system_clock(),
    )
}

/// Carries every image to partitions first, then to the coordinators, until `stop`. (The mirror
/// room follows by itself, behind the partitions.)
pub(crate) async fn follow_metadata(node: Arc<Node>, stop: CancellationToken) {
    let mut images = node.controller.subscribe();
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            next = images.next() => next,
        };
        let Some((image, delta)) = next else { return };
        node.replicas.apply(image.clone(), &delta).await;
        node.groups.apply(&image, &delta);
        node.live.follow(&node.config, &image);
        node.connections
            .set_caps(settings::caps(&node.config, &image));
        node.applied.reached(image.offset());
    }
}
