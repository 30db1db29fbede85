//! Asking the source where its logs begin and end: where empty logs of ours start, and what to do when our log end is out of its range. Needs a
//! connection without open requests.

use std::sync::Arc;

use tarn_client::Connection;
use tarn_wire::messages::ListOffsetsRequest;
use tarn_wire::{ErrorCode, Message, Str};
use tokio::time::Instant;

use super::{Result, Session};
use crate::fetcher::answers::{OnError, OutOfRange, on_error, out_of_range};
use crate::fetcher::slot::{Slot, last_epoch};
use crate::source::{bounds_request, now_ms, read_bounds};

/// Partitions in one ListOffsets.
const BOUNDS_CHUNK: usize = 1_000;

impl Session {
    /// Empty logs begin where the source's log begins.
    pub(super) async fn find_starts(&mut self, connection: Option<&mut Connection>) -> Result<()> {
        let now = Instant::now();
        let needs = |slot: &&Arc<Slot>| slot.is_ready(now) && slot.with(|s| s.needs_start);
        let slots: Vec<Arc<Slot>> = self.table.slots.iter().filter(needs).cloned().collect();
        self.starts_wanted = connection.is_none() && !slots.is_empty();
        let Some(connection) = connection else {
            return Ok(());
        };
        for chunk in slots.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            for (slot, start) in chunk.iter().zip(starts) {
                match start {
                    Ok(start) => self.mirror.start_at(slot, start),
                    Err(code) => self.bounds_error(slot, code),
                }
            }
        }
        Ok(())
    }

    /// Partitions whose log end was out of range at the source.
    pub(super) async fn compare_bounds(&mut self, connection: &mut Connection) -> Result<()> {
        let indices = std::mem::take(&mut self.compare);
        let slots: Vec<Arc<Slot>> = indices
            .iter()
            .map(|&i| self.table.slots[i].clone())
            .collect();
        self.touched.extend(indices);
        for chunk in slots.chunks(BOUNDS_CHUNK) {
            let starts = self.bounds(connection, chunk, false).await?;
            let ends = self.bounds(connection, chunk, true).await?;
            for ((slot, start), end) in chunk.iter().zip(starts).zip(ends) {
                match (start, end) {
                    (Ok(start), Ok(end)) => self.resolve_range(slot, start, end),
                    (Err(code), _) | (_, Err(code)) => self.bounds_error(slot, code),
                }
            }
        }
        Ok(())
    }

    fn resolve_range(&self, slot: &Arc<Slot>, source_start: i64, source_end: i64) {
        let local_end = slot.local.log().log_end_offset();
        match out_of_range(local_end, last_epoch(&slot.local), source_start, source_end) {
            OutOfRange::StartAt { offset, skipped } => self.mirror.skip_to(slot, offset, skipped),
            OutOfRange::Diverged(text) => self.mirror.diverged(slot, text),
            OutOfRange::Again(text) => slot.back_off(&text, now_ms()),
        }
    }

    fn bounds_error(&self, slot: &Arc<Slot>, code: ErrorCode) {
        let text = format!(
            "the source refused ListOffsets of {}: {}",
            slot.name(),
            code.name()
        );
        match on_error(code) {
            OnError::Fail(failure) => self.mirror.failed(slot, failure),
            OnError::FindLeader | OnError::LookAtTopic => {
                slot.with(|s| s.set_leader(None));
                slot.back_off(&text, now_ms());
                self.mirror.refresh_wanted(&slot.name().topic);
                self.mirror.wake();
            }
            OnError::Wait | OnError::CompareBounds => slot.back_off(&text, now_ms()),
        }
    }

    async fn bounds(
        &self,
        connection: &mut Connection,
        slots: &[Arc<Slot>],
        end: bool,
    ) -> Result<Vec<std::result::Result<i64, ErrorCode>>> {
        let names: Vec<(Str, i32)> = slots
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
