//! Every topic key of Kafka 4.3, and ours of cluster mirroring, as one table.
//!
//! Owns names, types, defaults, ranges and broker synonyms; the effect of a key is the log's and
//! the replica room's. `mirror.name` is not here: it is virtual, shown read-only to who asks for it
//! and refused everywhere else ([`MIRROR_NAME`]).

use super::{BrokerSynonym, ConfigDef, ConfigType, Importance, Validator};

/// The virtual key that shows a topic's mirror.
pub const MIRROR_NAME: &str = "mirror.name";

/// Why [`MIRROR_NAME`] cannot be set.
pub const MIRROR_NAME_REFUSAL: &str = "The 'mirror.name' configuration can only be modified through dedicated mirror management APIs.";

const MAX_TEXT: &str = "9223372036854775807";

const fn key(
    name: &'static str,
    kind: ConfigType,
    default: &'static str,
    validator: Validator,
    synonyms: &'static [BrokerSynonym],
    doc: &'static str,
) -> ConfigDef {
    ConfigDef::new(name, kind, Some(default), doc)
        .valid(validator)
        .synonyms(synonyms)
}

const fn same(name: &'static str) -> BrokerSynonym {
    BrokerSynonym::same(name)
}

/// The table, in alphabetical order of the names.
pub const TOPIC_CONFIGS: &[ConfigDef] = &[
    key("cleanup.policy", ConfigType::List, "delete", Validator::ListOf(&["compact", "delete"], true), &[same("log.cleanup.policy")],
        "What happens to old segments: delete, compact, both, or nothing (empty)."),
    key("compression.gzip.level", ConfigType::Int, "-1", Validator::ExactOrBetween(-1, 1, 9), &[same("compression.gzip.level")],
        "Level used when this broker compresses with gzip."),
    key("compression.lz4.level", ConfigType::Int, "9", Validator::Between(1, 17), &[same("compression.lz4.level")],
        "Level used when this broker compresses with lz4."),
    key("compression.type", ConfigType::String, "producer", Validator::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), &[same("compression.type")],
        "Codec batches are stored with; producer keeps what the producer chose."),
    key("compression.zstd.level", ConfigType::Int, "3", Validator::Between(-131_072, 22), &[same("compression.zstd.level")],
        "Level used when this broker compresses with zstd."),
    key("delete.retention.ms", ConfigType::Long, "86400000", Validator::AtLeast(0), &[same("log.cleaner.delete.retention.ms")],
        "How long a compacted topic keeps tombstones after their segment was cleaned."),
    key("file.delete.delay.ms", ConfigType::Long, "60000", Validator::AtLeast(0), &[same("log.segment.delete.delay.ms")],
        "How long a dropped segment's files stay on disk for readers that still use them."),
    key("flush.messages", ConfigType::Long, MAX_TEXT, Validator::AtLeast(1), &[same("log.flush.interval.messages")],
        "Forces a sync after this many records."),
    key("flush.ms", ConfigType::Long, MAX_TEXT, Validator::AtLeast(0), &[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")],
        "Forces a sync after this much time."),
    key("follower.replication.throttled.replicas", ConfigType::List, "", Validator::ThrottledReplicas, &[],
        "Follower replicas whose fetching is throttled."),
    key("index.interval.bytes", ConfigType::Int, "4096", Validator::AtLeast(0), &[same("log.index.interval.bytes")],
        "Bytes of log between two entries of the offset index."),
    key("leader.replication.throttled.replicas", ConfigType::List, "", Validator::ThrottledReplicas, &[],
        "Leader replicas whose serving of followers is throttled."),
    key("local.retention.bytes", ConfigType::Long, "-2", Validator::AtLeast(-2), &[same("log.local.retention.bytes")],
        "Local size limit of a tiered topic; -2 takes retention.bytes."),
    key("local.retention.ms", ConfigType::Long, "-2", Validator::AtLeast(-2), &[same("log.local.retention.ms")],
        "Local time limit of a tiered topic; -2 takes retention.ms."),
    key("max.compaction.lag.ms", ConfigType::Long, MAX_TEXT, Validator::AtLeast(1), &[same("log.cleaner.max.compaction.lag.ms")],
        "Longest time a record may stay out of compaction."),
    key("max.message.bytes", ConfigType::Int, "1048588", Validator::AtLeast(0), &[same("message.max.bytes")],
        "Largest batch a producer may append; copied batches are not limited by it."),
    key("message.timestamp.after.max.ms", ConfigType::Long, "3600000", Validator::AtLeast(0), &[same("log.message.timestamp.after.max.ms")],
        "How far a producer's timestamp may lie in the future."),
    key("message.timestamp.before.max.ms", ConfigType::Long, MAX_TEXT, Validator::AtLeast(0), &[same("log.message.timestamp.before.max.ms")],
        "How far a producer's timestamp may lie in the past."),
    key("message.timestamp.type", ConfigType::String, "CreateTime", Validator::OneOf(&["CreateTime", "LogAppendTime"]), &[same("log.message.timestamp.type")],
        "Whose clock stamps records: the producer's or the broker's."),
    key("min.cleanable.dirty.ratio", ConfigType::Double, "0.5", Validator::Fraction(0.0, 1.0), &[same("log.cleaner.min.cleanable.ratio")],
        "Share of uncleaned log that makes a compacted log due for cleaning."),
    key("min.compaction.lag.ms", ConfigType::Long, "0", Validator::AtLeast(0), &[same("log.cleaner.min.compaction.lag.ms")],
        "Shortest time a record stays out of compaction."),
    key("min.insync.replicas", ConfigType::Int, "1", Validator::AtLeast(1), &[same("min.insync.replicas")],
        "In-sync replicas an acks=all append needs."),
    ConfigDef::new("mirror.local.retention", ConfigType::Boolean, Some("false"), "Lets local retention delete from the topic while it is a mirror; otherwise its beginning follows the source alone."),
    ConfigDef::new("mirror.replication.throttled.replicas", ConfigType::List, Some(""), "Mirror partitions whose copying is throttled.")
        .valid(Validator::ThrottledReplicas),
    ConfigDef::new("mirror.support.unclean.leader.election", ConfigType::Boolean, Some("false"), "Preparation of a mirror waits for all replicas, so that an unclean election at the source cannot leave one behind.")
        .importance(Importance::Low),
    key("preallocate", ConfigType::Boolean, "false", Validator::Any, &[same("log.preallocate")],
        "Reserves a segment's disk space when it is created."),
    key("remote.log.copy.disable", ConfigType::Boolean, "false", Validator::Any, &[],
        "Makes a tiered topic's remote part read-only."),
    key("remote.log.delete.on.disable", ConfigType::Boolean, "false", Validator::Any, &[],
        "Deletes remote data when tiering of the topic is switched off."),
    key("remote.storage.enable", ConfigType::Boolean, "false", Validator::Any, &[],
        "Tiered storage for this topic."),
    key("retention.bytes", ConfigType::Long, "-1", Validator::Any, &[same("log.retention.bytes")],
        "Largest size of a partition before old segments go; -1 = no limit."),
    key("retention.ms", ConfigType::Long, "604800000", Validator::AtLeast(-1),
        &[same("log.retention.ms"), BrokerSynonym::minutes("log.retention.minutes"), BrokerSynonym::hours("log.retention.hours")],
        "How long records are kept; -1 = for ever."),
    key("segment.bytes", ConfigType::Int, "1073741824", Validator::AtLeast(1_048_576), &[same("log.segment.bytes")],
        "Size at which a segment is closed."),
    key("segment.index.bytes", ConfigType::Int, "10485760", Validator::AtLeast(4), &[same("log.index.size.max.bytes")],
        "Size at which a segment's offset index is full."),
    key("segment.jitter.ms", ConfigType::Long, "0", Validator::AtLeast(0), &[same("log.roll.jitter.ms"), BrokerSynonym::hours("log.roll.jitter.hours")],
        "Random time taken off segment.ms so that segments do not all roll at once."),
    key("segment.ms", ConfigType::Long, "604800000", Validator::AtLeast(1), &[same("log.roll.ms"), BrokerSynonym::hours("log.roll.hours")],
        "Age at which a segment is closed even if it is not full."),
    key("unclean.leader.election.enable", ConfigType::Boolean, "false", Validator::Any, &[same("unclean.leader.election.enable")],
        "Allows a replica that may miss records to lead when no other is left."),
];

/// Finds a topic key.
pub fn find(name: &str) -> Option<&'static ConfigDef> {
    TOPIC_CONFIGS
        .binary_search_by(|def| def.name.cmp(name))
        .ok()
        .map(|index| &TOPIC_CONFIGS[index])
}
