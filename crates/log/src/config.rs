//! Settings of one partition log and of opening it. Defaults are Kafka 4.3's.

use std::sync::Arc;

use tarn_records::Compressor;

use crate::roll::ROLL_INTERVAL_MS_DEFAULT;
use crate::state::LogDirState;

/// `message.timestamp.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's timestamps are kept.
    #[default]
    CreateTime,
    /// The broker stamps the batch when it appends it as leader (never on the copy path).
    LogAppendTime,
}

/// Topic-level settings of one log. All can be changed at run time by
/// [`crate::PartitionLog::update_config`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: roll above this many bytes; a single larger batch still gets its own
    /// segment on the copy path.
    pub segment_bytes: u32,
    /// `segment.ms`: roll when the first record of the segment is this much older than the append.
    pub segment_ms: i64,
    /// `log.roll.min.interval.ms`: how fast segments may be rolled that are not full, after a burst
    /// of ten; 0 for no limit. A roll that is only due waits; one that cannot wait (offsets that do
    /// not fit) is refused.
    pub roll_interval_ms: i64,
    /// `segment.index.bytes`: roll when an index would grow above this.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: one index entry per this many bytes of log.
    pub index_interval_bytes: u32,
    /// `retention.ms`, −1 for no limit.
    pub retention_ms: i64,
    /// `retention.bytes`, −1 for no limit.
    pub retention_bytes: i64,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`: client records must have keys, and the cleaner keeps
    /// the last one of each key.
    pub compact: bool,
    /// `delete.retention.ms`: how long the cleaner leaves a tombstone after it first saw it.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: records younger than this are not cleaned.
    pub min_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio` in millionths: a log is cleaned when a larger share of it is
    /// new.
    pub min_cleanable_dirty_ppm: u32,
    /// `compression.type`: what producers' batches are brought into; `None` keeps what the producer
    /// chose.
    pub compression: Option<Compressor>,
    /// `max.message.bytes`: largest batch a leader append takes. Not applied on the copy path.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `producer.ids.per.partition.max`: more producers than these are forgotten, the one idle
    /// longest first.
    pub producer_ids_max: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            roll_interval_ms: ROLL_INTERVAL_MS_DEFAULT,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_ms: 7 * 24 * 3_600_000,
            retention_bytes: -1,
            delete: true,
            compact: false,
            delete_retention_ms: 86_400_000,
            min_compaction_lag_ms: 0,
            min_cleanable_dirty_ppm: 500_000,
            compression: None,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            producer_id_expiration_ms: 86_400_000,
            producer_ids_max: 10_000,
        }
    }
}

/// How to open a log. [`crate::LogDir::open_log`] fills it from the checkpoints; tests may fill it
/// by hand.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The directory was closed cleanly: a log that ends at its recovery point is not checked
    /// again.
    pub clean_shutdown: bool,
    /// Everything below was synced. `None` = unknown (checkpoint unreadable): check everything, but
    /// refuse to cut sealed segments.
    pub recovery_point: Option<i64>,
    /// From the log-start checkpoint, whose lines go by name: believed only where the log bears it
    /// out.
    pub log_start_offset: i64,
    /// From the high-watermark checkpoint; clamped into the log.
    pub high_watermark: i64,
    /// Kafka's 22-character topic id for `partition.metadata`; `None` writes no such file.
    pub topic_id: Option<String>,
    /// Time of opening, epoch milliseconds.
    pub now_ms: i64,
    /// State shared by all logs of one directory (health, open files, recovery points).
    pub dir_state: Arc<LogDirState>,
}
