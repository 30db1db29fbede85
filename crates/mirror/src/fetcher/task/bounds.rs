//! Asking the source where its logs begin and end: where empty logs of ours start, and what to do when our log end is out of its range. Needs a
//! connection without open requests.

use std::sync::Arc;

use tarn_client::Connection;
use tarn_wire::messages::ListOffsetsRequest;
use tarn_wire::{Message, Str};
use tokio::time::Instant;

use super::{Fetcher, Result};
use crate::fetcher::answers::{OutOfRange, out_of_range};
use crate::fetcher::checks::no_value;
use crate::fetcher::partition_state::{PartitionFetchState, last_epoch};
use crate::source::{NoValue, bounds_request, now_ms, read_bounds};

/// Partitions in one ListOffsets.
const BOUNDS_CHUNK: usize = 1_000;

impl Fetcher {
    /// Empty logs begin where the source's log begins.
    pub(super) async fn find_starts(&mut self, connection: Option<&mut Connection>) -> Result<()> {
        let now = Instant::now();
        let needs = |partition: &&Arc<PartitionFetchState>| {
            partition.is_ready(now) && partition.with(|s| s.needs_start)
        };
        let partitions: Vec<Arc<PartitionFetchState>> = self
            .assignment
            .partitions
            .iter()
            .filter(needs)
            .cloned()
            .collect();
        self.starts_wanted = connection.is_none() && !partitions.is_empty();
        let Some(connection) = connection else {
            return Ok(());
        };
        for chunk in partitions.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            for (partition, start) in chunk.iter().zip(starts) {
                match start {
                    Ok(start) => self.mirror.start_at(partition, start),
                    Err(e) => self.no_bounds(partition, &e),
                }
            }
        }
        Ok(())
    }

    /// Partitions whose log end was out of range at the source.
    pub(super) async fn compare_bounds(&mut self, connection: &mut Connection) -> Result<()> {
        let indices = std::mem::take(&mut self.compare);
        let partitions: Vec<Arc<PartitionFetchState>> = indices
            .iter()
            .map(|&i| self.assignment.partitions[i].clone())
            .collect();
        self.touched.extend(indices);
        for chunk in partitions.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            let ends = self.bounds(connection, chunk, true).await?;
            for ((partition, start), end) in chunk.iter().zip(starts).zip(ends) {
                match (start, end) {
                    (Ok(start), Ok(end)) => self.resolve_range(partition, start, end),
                    (Err(e), _) | (_, Err(e)) => self.no_bounds(partition, &e),
                }
            }
        }
        Ok(())
    }

    fn resolve_range(
        &self,
        partition: &Arc<PartitionFetchState>,
        source_start: i64,
        source_end: i64,
    ) {
        let local_end = partition.local.log().log_end_offset();
        match out_of_range(
            local_end,
            last_epoch(&partition.local),
            source_start,
            source_end,
        ) {
            OutOfRange::StartAt { offset, skipped } => {
                self.mirror.skip_to(partition, offset, skipped)
            }
            OutOfRange::Diverged(text) => self.mirror.diverged(partition, text),
            OutOfRange::Again(text) => partition.back_off(&text, now_ms()),
        }
    }

    fn no_bounds(&self, partition: &Arc<PartitionFetchState>, why: &NoValue) {
        no_value(&self.mirror, partition, why, "ListOffsets");
        self.mirror.wake();
    }

    async fn bounds(
        &self,
        connection: &mut Connection,
        partitions: &[Arc<PartitionFetchState>],
        end: bool,
    ) -> Result<Vec<std::result::Result<i64, NoValue>>> {
        let names: Vec<(Str, i32)> = partitions
            .iter()
            .map(|s| (s.name().topic.clone(), s.name().partition))
            .collect();
        let wanted = ListOffsetsRequest::VERSIONS;
        let version = connection
            .versions()
            .require::<ListOffsetsRequest>(connection.peer(), wanted)?;
        let response = connection
            .call_at(&bounds_request(&names, end), version)
            .await?;
        Ok(names
            .iter()
            .map(|(topic, partition)| read_bounds(&response, topic, *partition))
            .collect())
    }
}
