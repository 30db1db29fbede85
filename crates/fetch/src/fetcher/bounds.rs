//! Asking the leader where its logs begin and end: where empty logs of ours start, and what to do
//! when our log end is out of its range. Needs a connection without open requests.

use std::sync::Arc;

use tarn_client::Connection;
use tarn_wire::messages::ListOffsetsRequest;
use tarn_wire::{Message, Str};
use tokio::time::Instant;

use super::{Fetcher, Result};
use crate::{FetchPolicy, FetchedPartition, LogBounds, NoOffset, bounds_request, read_bounds};

/// Partitions in one ListOffsets.
const BOUNDS_CHUNK: usize = 1_000;

/// What waits for a connection without open requests.
#[derive(Default)]
pub(super) struct BoundsWanted {
    /// Some partitions need the start of their leader's log.
    pub(super) has_starts: bool,
    /// Partitions whose log end was out of range at the leader.
    pub(super) out_of_range: Vec<usize>,
}

type Bounds = Vec<std::result::Result<i64, NoOffset>>;

impl<P: FetchPolicy> Fetcher<P> {
    /// Empty logs begin where the leader's log begins.
    pub(super) async fn find_starts(
        &mut self,
        connection: Option<&mut Connection>,
    ) -> Result<(), P> {
        let now = Instant::now();
        let needs = |p: &&Arc<P::Partition>| self.policy.needs_start(p, now);
        let all = self.assignment.partitions.iter();
        let partitions: Vec<Arc<P::Partition>> = all.filter(needs).cloned().collect();
        self.bounds.has_starts = connection.is_none() && !partitions.is_empty();
        let Some(connection) = connection else {
            return Ok(());
        };
        for chunk in partitions.chunks(BOUNDS_CHUNK) {
            let starts = self.ask_for_bounds(connection, chunk, false).await?;
            for (partition, start) in chunk.iter().zip(starts) {
                self.policy.start_found(partition, start);
            }
        }
        Ok(())
    }

    /// Partitions whose log end was out of range at the leader.
    pub(super) async fn ask_bounds(&mut self, connection: &mut Connection) -> Result<(), P> {
        let indices = std::mem::take(&mut self.bounds.out_of_range);
        let partitions: Vec<Arc<P::Partition>> = indices
            .iter()
            .map(|&i| self.assignment.partitions[i].clone())
            .collect();
        self.told.touched.extend(indices);
        for chunk in partitions.chunks(BOUNDS_CHUNK) {
            let starts = self.ask_for_bounds(connection, chunk, false).await?;
            let ends = self.ask_for_bounds(connection, chunk, true).await?;
            for ((partition, start), end) in chunk.iter().zip(starts).zip(ends) {
                let both = start.and_then(|start| end.map(|end| LogBounds { start, end }));
                self.policy.out_of_range(partition, both);
            }
        }
        Ok(())
    }

    async fn ask_for_bounds(
        &self,
        connection: &mut Connection,
        partitions: &[Arc<P::Partition>],
        end: bool,
    ) -> Result<Bounds, P> {
        let names: Vec<(Str, i32)> = partitions
            .iter()
            .map(|p| (p.topic().clone(), p.partition()))
            .collect();
        let wanted = ListOffsetsRequest::VERSIONS;
        let version = connection
            .versions()
            .require::<ListOffsetsRequest>(connection.peer(), wanted)?;
        let request = bounds_request(self.policy.options().replica_id, &names, end);
        let response = connection.call_at(&request, version).await?;
        Ok(names
            .iter()
            .map(|(topic, partition)| read_bounds(&response, topic, *partition))
            .collect())
    }
}
