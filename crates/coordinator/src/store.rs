//! What the runtime needs of the internal topic, and its implementation over this broker's
//! partitions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tarn_records::{BatchBuilder, DECOMPRESSED_BYTES_MAX_DEFAULT, batches, records};
use tarn_replica::{AppendSource, Partition, ReplicaManager};
use tarn_wire::Str;

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
    fn read(
        &self,
        partition: i32,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Chunk, CoordinatorError>;
    /// Appends as one batch with timestamp `now_ms`; gives the offset after it. Writes to the page
    /// cache only.
    fn append(
        &self,
        partition: i32,
        records: &[CoordinatorRecord],
        now_ms: i64,
    ) -> Result<i64, CoordinatorError>;
    /// Resolves when everything below `offset` is synced and below the high watermark.
    fn durable(
        &self,
        partition: i32,
        offset: i64,
    ) -> BoxFuture<'static, Result<(), CoordinatorError>>;
}

/// Batches are closed when they reach this size, so that a large decision does not make one huge
/// batch.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The internal topic on this broker's partitions.
pub struct ReplicaStore {
    replicas: Arc<ReplicaManager>,
    topic: Str,
}

impl ReplicaStore {
    /// The store of `topic`.
    pub fn new(replicas: Arc<ReplicaManager>, topic: Str) -> Arc<Self> {
        Arc::new(ReplicaStore { replicas, topic })
    }

    fn led(&self, partition: i32) -> Result<Arc<Partition>, CoordinatorError> {
        let found = self
            .replicas
            .partition(&self.topic, partition)
            .map_err(log_error)?;
        found.check_leader().map_err(log_error)?;
        Ok(found)
    }
}

fn log_error(error: impl std::fmt::Display) -> CoordinatorError {
    CoordinatorError::Log(error.to_string())
}

impl Store for ReplicaStore {
    fn bounds(&self, partition: i32) -> Result<(i64, i64), CoordinatorError> {
        let partition = self.led(partition)?;
        Ok((
            partition.log().log_start_offset(),
            partition.log().log_end_offset(),
        ))
    }

    fn read(
        &self,
        partition: i32,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Chunk, CoordinatorError> {
        let partition = self.led(partition)?;
        let log = partition.log();
        let end = log.log_end_offset();
        let mut chunk = Chunk {
            records: Vec::new(),
            next_offset: offset,
        };
        let Some(slice) = log
            .read(offset, max_bytes as u64, end, true)
            .map_err(log_error)?
        else {
            // Nothing but a gap up to the end.
            chunk.next_offset = end;
            return Ok(chunk);
        };
        let bytes = slice.read().map_err(log_error)?;
        for batch in batches(&bytes) {
            let batch = batch.map_err(log_error)?;
            // What it holds cannot be told, so it cannot be skipped: the keys it sets would keep
            // older values.
            batch.check_crc().map_err(log_error)?;
            chunk.next_offset = batch.header.next_offset();
            if batch.header.is_control() {
                continue;
            }
            let whole = bytes.slice_ref(batch.bytes);
            for record in records(&whole, DECOMPRESSED_BYTES_MAX_DEFAULT).map_err(log_error)? {
                let record = record.map_err(log_error)?;
                let Some(key) = record.key.filter(|_| record.offset >= offset) else {
                    continue;
                };
                chunk.records.push(LoadedRecord {
                    offset: record.offset,
                    timestamp_ms: record.timestamp,
                    key,
                    value: record.value,
                });
            }
        }
        Ok(chunk)
    }

    fn append(
        &self,
        partition: i32,
        records: &[CoordinatorRecord],
        now_ms: i64,
    ) -> Result<i64, CoordinatorError> {
        let partition = self.led(partition)?;
        // One append for all of them: several batches when they are large, all or nothing.
        let (mut bytes, mut builder) = (Vec::new(), BatchBuilder::new());
        for record in records {
            if !builder.is_empty() && builder.size() >= BATCH_BYTES_MAX {
                bytes.extend(builder.build().map_err(log_error)?);
                builder = BatchBuilder::new();
            }
            builder.add(now_ms, Some(&record.key), record.value.as_deref(), &[]);
        }
        bytes.extend(builder.build().map_err(log_error)?);
        let info = partition
            .append(&mut bytes, AppendSource::Coordinator, now_ms)
            .map_err(log_error)?;
        Ok(info.last_offset + 1)
    }

    fn durable(
        &self,
        partition: i32,
        offset: i64,
    ) -> BoxFuture<'static, Result<(), CoordinatorError>> {
        let partition = self.led(partition);
        Box::pin(async move {
            partition?
                .wait_committed(offset, -1)
                .await
                .map_err(log_error)
        })
    }
}
