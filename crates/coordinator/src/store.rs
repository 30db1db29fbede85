//! What the runtime needs of the internal topic, and its implementation over this broker's partitions.

use std::future::Future;
use std::pin::Pin;

use crate::error::CoordinatorError;
use crate::shard::{CoordinatorRecord, LoadedRecord};

/// A boxed future, so that stores and creators can be held as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Records read in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Data records in offset order (control batches left out).
    pub records: Vec<LoadedRecord>,
    /// Where to go on; beyond the start unless nothing could be read.
    pub next_offset: i64,
}

/// The partitions of one internal topic on this broker.
pub trait Store: Send + Sync + 'static {
    /// Log start and log end offset.
    fn bounds(&self, partition: i32) -> Result<(i64, i64), CoordinatorError>;
    /// Reads about `max_bytes` from `offset` on, at least one batch. May block on disk.
    fn read(&self, partition: i32, offset: i64, max_bytes: usize) -> Result<Chunk, CoordinatorError>;
    /// Appends as one batch with timestamp `now_ms`; gives the offset after it. Writes to the page cache only.
    fn append(&self, partition: i32, records: &[CoordinatorRecord], now_ms: i64) -> Result<i64, CoordinatorError>;
    /// Resolves when everything below `offset` is synced and below the high watermark.
    fn durable(&self, partition: i32, offset: i64) -> BoxFuture<'static, Result<(), CoordinatorError>>;
}

#[cfg(test)]
pub(crate) mod memory {
    //! A store in memory, with switches for what can go wrong.
}
