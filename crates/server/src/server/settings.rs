//! From broker keys to the settings of each room.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_controller::{Endpoint, Rules, Settings};
use tarn_group::GroupConfig;
use tarn_log::DescriptorShares;
use tarn_metadata::Image;
use tarn_replica::{CleanerConfig, Durability, ReplicaConfig};
use tarn_wire::{Str, Uuid};

use super::BoundListener;
use crate::config::{Config, keys};
use crate::decompression::Decompression;
use crate::fetch_session::SessionLimits;
use crate::live;
use crate::net::budget::{ByteBudget, Shares};
use crate::net::frames::ReadLimits;
use crate::net::listener::ConnectionCaps;
use std::time::Duration;

/// The smaller of what a fresh cluster of `brokers` can hold and Kafka's 3, unless the key is set.
fn internal_replication(config: &Config, key: &str, brokers: usize) -> i16 {
    match config.set.contains_key(key) {
        true => config.number(key) as i16,
        false => brokers.clamp(1, 3) as i16,
    }
}

/// Settings of the controller; `bound` are its listeners with the ports that were really bound.
pub(super) fn controller(
    config: &Config,
    cluster_id: &str,
    directory_id: Uuid,
    bound: &[BoundListener],
    hooks: Rules,
) -> Settings {
    let broker_values: BTreeMap<String, String> = config
        .static_pairs()
        .map(|(k, v)| (k.to_owned(), v.trim().to_owned()))
        .collect();
    let mut settings =
        Settings::single(config.node_id, cluster_id, config.metadata_log_dir.clone());
    settings.directory_id = directory_id;
    settings.endpoints = config
        .controller_listeners
        .iter()
        .map(|l| Endpoint {
            name: Str::from(l.name.as_str()),
            host: Str::from(l.host.as_str()),
            port: bound
                .iter()
                .find(|b| b.name == l.name)
                .map_or(l.port, |b| b.address.port()),
        })
        .collect();
    settings.snapshot_after_bytes = config
        .number("metadata.log.max.record.bytes.between.snapshots")
        .max(1) as u64;
    settings.rules = Rules {
        num_partitions: config.number("num.partitions") as i32,
        default_replication_factor: config.number("default.replication.factor") as i16,
        request_partitions_max: config.number("request.partitions.max") as i32,
        broker_configs: keys::definitions(),
        broker_values: Arc::new(broker_values),
        ..hooks
    };
    settings
}

pub(super) fn replicas(config: &Config) -> ReplicaConfig {
    let mut replica = ReplicaConfig::new(config.node_id, config.log_dirs.clone());
    let durability = config
        .text("log.ack.durability")
        .and_then(|text| text.parse().ok());
    replica.durability = durability.unwrap_or(Durability::Disk);
    replica.retention_check_ms = config.number("log.retention.check.interval.ms") as u64;
    replica.checkpoint_ms = config
        .number("log.flush.offset.checkpoint.interval.ms")
        .max(1000) as u64;
    replica.cleaner = CleanerConfig {
        enabled: config.flag("log.cleaner.enable"),
        backoff_ms: config.number("log.cleaner.backoff.ms").max(1) as u64,
        map_bytes: usize::try_from(config.number("log.cleaner.dedupe.buffer.size"))
            .unwrap_or(usize::MAX),
        bytes_per_second: config
            .text("log.cleaner.io.max.bytes.per.second")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(f64::MAX),
    };
    replica.stall_offline_after =
        Duration::from_millis(config.number("log.dir.stall.timeout.ms").max(1) as u64);
    replica.broker_values = config
        .static_pairs()
        .map(|(k, v)| (Str::from(k), Str::from(v.trim())))
        .collect();
    replica
}

pub(super) fn groups(config: &Config) -> GroupConfig {
    let int = |key: &str| config.number(key) as i32;
    GroupConfig {
        offsets_topic_partitions: int("offsets.topic.num.partitions"),
        offsets_topic_replication_factor: internal_replication(
            config,
            "offsets.topic.replication.factor",
            1,
        ),
        offsets_topic_segment_bytes: int("offsets.topic.segment.bytes"),
        offsets_retention_ms: config
            .number("offsets.retention.minutes")
            .saturating_mul(60_000),
        offsets_retention_check_ms: config.number("offsets.retention.check.interval.ms"),
        offset_metadata_bytes_max: config.number("offset.metadata.max.bytes").max(0) as usize,
        session_timeout_ms_min: int("group.min.session.timeout.ms"),
        session_timeout_ms_max: int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms: int("group.initial.rebalance.delay.ms"),
        members_max: int("group.max.size").max(1) as usize,
        id_bytes_max: int("group.max.id.bytes").max(1) as usize,
        protocols_max: int("group.max.protocols").max(1) as usize,
        group_bytes_max: int("group.max.bytes").max(1) as usize,
        rebalance_timeout_ms_max: int("group.max.rebalance.timeout.ms"),
    }
}

/// Who gets how many of the descriptors of this process.
pub(super) fn shares(config: &Config) -> DescriptorShares {
    DescriptorShares::of_process(u64::try_from(config.number("log.open.files.max")).ok())
}

/// Caps on connections as the file and the image have them.
pub(crate) fn caps(config: &Config, image: &Image) -> ConnectionCaps {
    let cap = |key: &str| usize::try_from(live::number(config, image, key)).unwrap_or(0);
    let overrides = live::text(config, image, "max.connections.per.ip.overrides");
    let overrides = overrides.or_else(|| {
        let text = config.text("max.connections.per.ip.overrides");
        text.map(str::to_owned)
    });
    let overrides = overrides.unwrap_or_default();
    let overrides = overrides.split(',').filter_map(|item| {
        let (host, number) = item.trim().rsplit_once(':')?;
        Some((host.parse().ok()?, number.trim().parse().ok()?))
    });
    ConnectionCaps {
        total: cap("max.connections").min(shares(config).connections),
        per_ip: cap("max.connections.per.ip"),
        overrides: overrides.collect(),
    }
}

pub(super) fn read_limits(config: &Config) -> ReadLimits {
    let idle = config.number("connections.max.idle.ms");
    ReadLimits {
        frame_bytes_max: config.number("socket.request.max.bytes") as usize,
        // Kafka reads a negative or absent limit as "never"; a year is that.
        idle: if idle > 0 {
            Duration::from_millis(idle as u64)
        } else {
            Duration::from_secs(365 * 86_400)
        },
        frame_time_max: Duration::from_millis(config.number("socket.frame.timeout.ms") as u64),
    }
}

/// The budgets of requests and of answers.
pub(super) fn budgets(config: &Config) -> (ByteBudget, ByteBudget) {
    let percent = |key: &str| config.number(key).clamp(1, 100) as u64;
    let shares = Shares {
        connection_percent: percent("queued.max.percent.per.connection"),
        address_percent: percent("queued.max.percent.per.ip"),
    };
    let budget = |key: &str, memory_divisor: u64| {
        let bytes = u64::try_from(config.number(key)).ok();
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let default = || ByteBudget::memory_part_bytes(memory_divisor);
        ByteBudget::new(bytes.unwrap_or_else(default), shares)
    };
    (
        budget("queued.max.request.bytes", 4),
        budget("queued.max.response.bytes", 8),
    )
}

pub(super) fn sessions(config: &Config) -> SessionLimits {
    let limit = |key: &str| usize::try_from(config.number(key)).unwrap_or(0);
    SessionLimits {
        sessions: limit("max.incremental.fetch.session.cache.slots"),
        partitions_per_session: limit("fetch.session.max.partitions"),
        partitions: limit("fetch.sessions.max.partitions"),
    }
}

pub(super) fn decompression(config: &Config) -> Decompression {
    let number = |key| usize::try_from(config.number(key)).unwrap_or(0);
    Decompression::new(
        number("decompression.threads"),
        number("decompression.memory.bytes"),
    )
}

/// Size of a socket buffer, when it was set by hand; otherwise the system tunes it, which is better
/// on long paths.
pub(super) fn socket_buffer(config: &Config, key: &str) -> Option<usize> {
    config.set.get(key)?;
    usize::try_from(config.number(key))
        .ok()
        .filter(|bytes| *bytes > 0)
}
