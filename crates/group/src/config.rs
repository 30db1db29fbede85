//! Settings of the group coordinator.

use tarn_coordinator::InternalTopic;
use tarn_wire::Str;

use crate::OFFSETS_TOPIC;
use crate::classic::Limits;

/// Settings; the defaults are Kafka's.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `offsets.topic.num.partitions`, used at creation only.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.replication.factor`, used at creation only.
    pub offsets_topic_replication_factor: i16,
    /// `offsets.topic.segment.bytes`, used at creation only.
    pub offsets_topic_segment_bytes: i32,
    /// `offsets.retention.minutes`, in ms.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_ms: i64,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`.
    pub members_max: usize,
    /// `group.max.id.bytes`: longest id or name that is stored (group, instance, client, protocol),
    /// 249 to [`ID_BYTES_MAX`].
    pub id_bytes_max: usize,
    /// `group.max.protocols`: most protocols one member may offer.
    pub protocols_max: usize,
    /// `group.max.bytes`: most bytes of metadata, assignments and ids of one group.
    pub group_bytes_max: usize,
    /// `group.max.rebalance.timeout.ms`: longest wait for members to join again.
    pub rebalance_timeout_ms_max: i32,
}

/// What fits the records of `__consumer_offsets` whatever is put in front of or behind it (a member
/// id ends with 37 characters of ours).
pub const ID_BYTES_MAX: usize = 32_000;
/// Longest metadata of an offset that its record has room for.
pub(crate) const OFFSET_METADATA_BYTES_MAX: usize = i16::MAX as usize;

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            offsets_topic_partitions: 50,
            offsets_topic_replication_factor: 1,
            offsets_topic_segment_bytes: 104_857_600,
            offsets_retention_ms: 7 * 86_400_000,
            offsets_retention_check_ms: 600_000,
            offset_metadata_bytes_max: 4096,
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            members_max: i32::MAX as usize,
            id_bytes_max: 8 << 10,
            protocols_max: 128,
            group_bytes_max: 16 << 20,
            rebalance_timeout_ms_max: 86_400_000,
        }
    }
}

impl GroupConfig {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            session_timeout_ms_min: self.session_timeout_ms_min,
            session_timeout_ms_max: self.session_timeout_ms_max,
            initial_rebalance_delay_ms: self.initial_rebalance_delay_ms.max(0),
            members_max: self.members_max,
            id_bytes_max: self.id_bytes_max.min(ID_BYTES_MAX),
            protocols_max: self.protocols_max,
            group_bytes_max: self.group_bytes_max,
            rebalance_timeout_ms_max: self.rebalance_timeout_ms_max.max(0),
        }
    }

    pub(crate) fn topic(&self) -> InternalTopic {
        InternalTopic {
            name: Str::from_static(OFFSETS_TOPIC),
            partitions: self.offsets_topic_partitions,
            replication_factor: self.offsets_topic_replication_factor,
            configs: vec![
                (
                    Str::from_static("cleanup.policy"),
                    Str::from_static("compact"),
                ),
                (
                    Str::from_static("compression.type"),
                    Str::from_static("producer"),
                ),
                (
                    Str::from_static("segment.bytes"),
                    Str::from(self.offsets_topic_segment_bytes.to_string()),
                ),
            ],
        }
    }
}
