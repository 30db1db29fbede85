//! Keys of groups and client metrics as Kafka 4.3 lists them. This broker has none of the protocols
//! they are for: they are shown with their defaults, for tools that ask for them, and cannot be
//! set.

use tarn_metadata::config::ConfigType::{self, Boolean, Int, List, String};

/// One key that is only shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnservedKey {
    pub(crate) name: &'static str,
    /// The broker key that Kafka names as the source of the default, if there is one.
    pub(crate) synonym: Option<&'static str>,
    pub(crate) kind: ConfigType,
    pub(crate) default: &'static str,
}

/// One line for all of them.
pub(crate) const DOCUMENTATION: &str =
    "Shown as Kafka shows it; the protocol it belongs to is not served by this broker.";

const fn key(
    name: &'static str,
    synonym: &'static str,
    kind: ConfigType,
    default: &'static str,
) -> UnservedKey {
    UnservedKey {
        name,
        synonym: Some(synonym),
        kind,
        default,
    }
}

/// Keys of a group (resource type 32).
#[rustfmt::skip]
pub(crate) const GROUP_KEYS: &[UnservedKey] = &[
    key("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", Int, "1000"),
    key("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", Int, "5000"),
    key("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", Int, "45000"),
    key("share.assignment.interval.ms", "group.share.assignment.interval.ms", Int, "1000"),
    key("share.auto.offset.reset", "share.auto.offset.reset", String, "latest"),
    key("share.delivery.count.limit", "group.share.delivery.count.limit", Int, "5"),
    key("share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", Int, "5000"),
    key("share.isolation.level", "share.isolation.level", String, "read_uncommitted"),
    key("share.partition.max.record.locks", "group.share.partition.max.record.locks", Int, "2000"),
    key("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", Int, "30000"),
    key("share.renew.acknowledge.enable", "share.renew.acknowledge.enable", Boolean, "true"),
    key("share.session.timeout.ms", "group.share.session.timeout.ms", Int, "45000"),
    key("streams.assignment.interval.ms", "group.streams.assignment.interval.ms", Int, "1000"),
    key("streams.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms", Int, "5000"),
    key("streams.initial.rebalance.delay.ms", "group.streams.initial.rebalance.delay.ms", Int, "3000"),
    key("streams.num.standby.replicas", "group.streams.num.standby.replicas", Int, "0"),
    key("streams.session.timeout.ms", "group.streams.session.timeout.ms", Int, "45000"),
];

/// Keys of a subscription to client metrics (resource type 16).
pub(crate) const CLIENT_METRICS_KEYS: &[UnservedKey] = &[
    UnservedKey {
        name: "interval.ms",
        synonym: None,
        kind: Int,
        default: "300000",
    },
    UnservedKey {
        name: "match",
        synonym: None,
        kind: List,
        default: "",
    },
    UnservedKey {
        name: "metrics",
        synonym: None,
        kind: List,
        default: "",
    },
];
