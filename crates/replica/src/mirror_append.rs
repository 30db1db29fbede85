//! The way in for the data plane of a mirror: verbatim appends by pieces, cuts, and the source's
//! log start.
//!
//! Everything here is allowed only while the partition is read-only by its mirror. Whole batches
//! become visible as they arrive (below the epoch gate), waiting fetches are woken at once, and the
//! syncer is told so that they are on disk within its bounds.

use std::sync::Arc;

use tarn_log::{MirrorAppend, MirrorAppendInfo, MirrorBounds};

use crate::disk;
use crate::error::ReplicaError;
use crate::partition::Partition;

/// A verbatim append under way. Holds no lock; may live across awaits. Dropping it drops an
/// unfinished batch.
#[derive(Debug)]
pub struct PartitionMirrorAppend {
    partition: Arc<Partition>,
    /// `None` only after `finish`.
    append: Option<MirrorAppend>,
    end_offset: i64,
}

impl Partition {
    /// Begins a verbatim append at the log end, which must be `expected_offset`.
    pub fn mirror_append(
        self: &Arc<Self>,
        expected_offset: i64,
        now_ms: i64,
    ) -> Result<PartitionMirrorAppend, ReplicaError> {
        self.count_mirror_append(1);
        let begun = disk::run(self.log(), || {
            self.as_mirror(|| self.log().mirror_append(expected_offset, now_ms))
        });
        match begun {
            Ok(append) => Ok(PartitionMirrorAppend {
                partition: self.clone(),
                append: Some(append),
                end_offset: expected_offset,
            }),
            Err(error) => {
                self.count_mirror_append(-1);
                Err(error)
            }
        }
    }

    /// Cuts the log so that no batch with an offset ≥ `offset` stays; gives the new log end. Blocks
    /// on disk.
    pub fn mirror_truncate_to(&self, offset: i64) -> Result<i64, ReplicaError> {
        let end = self.as_mirror(|| self.log().truncate_to(offset))?;
        self.advance_high_watermark();
        self.watchers().signal();
        Ok(end)
    }

    /// Discards the whole log; it starts again at `offset`. Blocks on disk.
    pub fn mirror_truncate_fully_and_start_at(&self, offset: i64) -> Result<(), ReplicaError> {
        self.as_mirror(|| self.log().truncate_fully_and_start_at(offset))?;
        self.advance_high_watermark();
        self.watchers().signal();
        Ok(())
    }

    /// Follows the source's log start offset; gives the resulting one. Never beyond the high
    /// watermark. Blocks on disk when it moves.
    pub fn mirror_advance_log_start(&self, offset: i64) -> Result<i64, ReplicaError> {
        if offset <= self.log().log_start_offset() {
            return Ok(self.log().log_start_offset());
        }
        let start = self.as_mirror(|| self.log().advance_log_start(offset))?;
        self.shared().note_log_start(self.log());
        self.watchers().signal();
        Ok(start)
    }
}

impl PartitionMirrorAppend {
    /// Takes no batch beyond what its sender claims.
    pub fn set_bounds(&mut self, bounds: MirrorBounds) {
        if let Some(append) = &mut self.append {
            append.set_bounds(bounds);
        }
    }

    /// Takes the next bytes, cut anywhere. On error the batches before the bad one stay, and this
    /// append is over.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ReplicaError> {
        let Some(append) = &mut self.append else {
            return Err(self.partition.not_mirroring());
        };
        let partition = &self.partition;
        let result = disk::run(partition.log(), || {
            append.push(piece).map_err(|error| partition.failed(error))
        });
        self.partition.shared().note_bytes(piece.len() as u64);
        self.show_progress();
        result
    }

    /// What was appended so far, whole batches only.
    pub fn progress(&self) -> Option<MirrorAppendInfo> {
        self.append.as_ref().map(|append| append.progress().clone())
    }

    /// Ends the append; a cut-off last batch is dropped.
    pub fn finish(mut self) -> Result<MirrorAppendInfo, ReplicaError> {
        let Some(append) = self.append.take() else {
            return Err(self.partition.not_mirroring());
        };
        let result = append.finish();
        self.show_progress();
        result.map_err(|error| self.partition.failed(error))
    }

    fn show_progress(&mut self) {
        let end = self.partition.log().log_end_offset();
        if end != self.end_offset {
            self.end_offset = end;
            self.partition.mirrored();
        }
    }
}

impl Drop for PartitionMirrorAppend {
    fn drop(&mut self) {
        drop(self.append.take());
        self.partition.count_mirror_append(-1);
    }
}
