//! What a room brings to the runtime: the state of one internal-topic partition.

use bytes::Bytes;

/// A record to be appended. `value: None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorRecord {
    /// Key, with its version prefix; never empty.
    pub key: Bytes,
    /// Value, with its version prefix.
    pub value: Option<Bytes>,
}

/// A record as read back, or as just appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedRecord {
    /// Offset in the internal topic.
    pub offset: i64,
    /// Timestamp of the record, epoch ms.
    pub timestamp_ms: i64,
    /// Key.
    pub key: Bytes,
    /// Value; `None` is a tombstone.
    pub value: Option<Bytes>,
}

/// A record that the shard cannot take. While loading it is skipped, and the log names its offset;
/// right after an append it makes the shard load again. A shard for which a missing record would be
/// dangerous notes what it can read of it (the key) before it answers with this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(pub String);

/// What a decision without a single reply wants done: a deadline that passed, or
/// [`crate::Runtime::submit`].
#[derive(Default)]
pub struct Outcome {
    /// Records to append first.
    pub records: Vec<CoordinatorRecord>,
    /// Runs once the records are durable (at once if there are none): the place to answer waiting
    /// requests. Dropped without being run when the shard is lost.
    pub after: Option<Box<dyn FnOnce() + Send>>,
}

/// The state of one partition of the internal topic. All calls come from one task, one after the
/// other.
///
/// What is in the log changes only in [`Shard::replay`]. Soft state (waiting requests, sessions)
/// may change in decisions; it is gone when the shard is dropped: on resignation, and when an
/// append fails (the shard is then loaded again from the log).
pub trait Shard: Send + 'static {
    /// Applies one record, while loading and after each append. Records of an unknown kind should
    /// be skipped, damaged ones refused: then nothing of the record may have been applied.
    fn replay(&mut self, record: LoadedRecord) -> Result<(), ReplayError>;

    /// The whole partition was replayed; from now on decisions and deadlines come.
    fn loaded(&mut self, now_ms: i64) {
        let _ = now_ms;
    }

    /// When [`Shard::on_deadline`] wants to be called next, epoch ms. Asked after every event.
    fn next_deadline_ms(&self) -> Option<i64> {
        None
    }

    /// A deadline has passed. Must move [`Shard::next_deadline_ms`] beyond `now_ms`.
    fn on_deadline(&mut self, now_ms: i64) -> Outcome {
        let _ = now_ms;
        Outcome::default()
    }
}
