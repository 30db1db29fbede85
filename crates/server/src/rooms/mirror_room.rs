//! The mirror room as the server holds it: both of its halves, started together and ended in the
//! right order.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_controller::{Controller, Rules};
use tarn_metadata::ResourceType;
use tarn_mirror::config::BrokerSettings;
use tarn_mirror::dialect::WireDialect;
use tarn_mirror::fetcher::FetchPlane;
use tarn_mirror::service::{MirrorService, alter_hook};
use tarn_mirror::transition::RetryPolicy;
use tarn_replica::ReplicaManager;
use tarn_wire::Str;

use crate::config::Config;

/// Handle to everything of mirroring.
pub(crate) struct MirrorRoom {
    pub(crate) service: Arc<MirrorService>,
    plane: Arc<FetchPlane>,
}

impl MirrorRoom {
    /// Ends every task of the room: deciding first, then fetching, so that nothing is started
    /// again.
    pub(crate) async fn shutdown(&self) {
        self.service.shutdown().await;
        self.plane.shutdown().await;
    }
}

/// Rules of the controller that the mirror room brings. They hold also while mirroring is switched
/// off: what is stored must stay sensible.
pub(crate) fn rules() -> Rules {
    Rules {
        alter_hooks: vec![(ResourceType::MIRROR, alter_hook())],
        ..Rules::default()
    }
}

/// Starts the room, unless it is switched off. Waits for no source.
pub(crate) fn mirror(
    config: &Config,
    cluster_id: &str,
    replicas: &Arc<ReplicaManager>,
    controller: &Controller,
) -> Option<MirrorRoom> {
    if !config.flag("mirror.enable") {
        return None;
    }
    let plane = FetchPlane::new(replicas.clone());
    let settings = broker_settings(config, cluster_id);
    let service = MirrorService::start(
        controller.clone(),
        replicas.clone(),
        settings,
        plane.clone(),
        |events| plane.bind(events),
    );
    Some(MirrorRoom { service, plane })
}

fn broker_settings(config: &Config, cluster_id: &str) -> BrokerSettings {
    let either = |late: &str, early: &str| {
        let key = if config.set.contains_key(late) || !config.set.contains_key(early) {
            late
        } else {
            early
        };
        config.integer(key)
    };
    let mut settings = BrokerSettings::new(config.node_id, Str::from(cluster_id));
    let partitions = either(
        "mirror.state.topic.num.partitions",
        "mirror.topic.num.partitions",
    );
    settings.state_topic_partitions =
        partitions.map_or(settings.state_topic_partitions, |n| n as i32);
    let replicas = either(
        "mirror.state.topic.replication.factor",
        "mirror.topic.replication.factor",
    );
    settings.state_topic_replication_factor = replicas.map(|n| n as i16);
    settings.fetchers = config.number("mirror.num.replica.fetchers") as i32;
    settings.refresh_interval_ms = config.number("mirror.metadata.refresh.interval.ms");
    settings.retry = RetryPolicy {
        initial_backoff_ms: config.number("mirror.failed.retry.initial.backoff.ms"),
        backoff_ms_max: config.number("mirror.failed.retry.max.backoff.ms"),
        attempts_max: config.number("mirror.failed.retry.max.attempts") as i16,
    };
    settings.wire_dialect = config
        .text("mirror.wire.dialect")
        .and_then(WireDialect::parse)
        .unwrap_or_default();
    settings.callers_max = config.number("mirror.wire.dialect.callers.max") as usize;
    settings.show_sensitive = config.flag("mirror.describe.configs.sensitive.values");
    settings.defaults = mirror_defaults(config);
    settings
}

/// Mirror keys that stand in the broker's file: defaults of every mirror.
fn mirror_defaults(config: &Config) -> BTreeMap<String, String> {
    let named = tarn_mirror::config::KEYS
        .iter()
        .filter(|def| def.name.starts_with("mirror."));
    named
        .filter_map(|def| {
            Some((
                def.name.to_owned(),
                config.set.get(def.name)?.value.trim().to_owned(),
            ))
        })
        .collect()
}
