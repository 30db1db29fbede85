//! The records of one partition in one answer, on their way into the local log.

use std::sync::Arc;

use tarn_log::{LogError, MirrorAppendInfo};
use tarn_replica::ReplicaError;
use tarn_wire::fetch_stream::FetchPartitionStart;

use super::slot::{Slot, is_empty};
use crate::source::now_ms;

/// Bytes of a batch that say what it is.
const HEADER_BYTES: usize = 61;
/// Position of the format version in a batch and in the older message sets.
const MAGIC_AT: usize = 16;
/// The format with leader epochs.
const MAGIC: u8 = 2;
/// Bytes in front of what a batch's length field counts.
const LENGTH_OVERHEAD: i32 = 12;

/// Why the records of an answer were not all kept.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The local log refused or failed.
    Local(ReplicaError),
    /// Message sets of format 0 or 1.
    OldFormat,
}

impl From<ReplicaError> for Trouble {
    fn from(e: ReplicaError) -> Self {
        match e {
            ReplicaError::Log(LogError::OldFormat { .. }) => Trouble::OldFormat,
            e => Trouble::Local(e),
        }
    }
}

/// A partition's part of an answer that was taken without an error.
#[derive(Debug)]
pub(super) struct ReadingEnd {
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
    /// `None` = nothing was appended.
    pub(super) appended: Option<MirrorAppendInfo>,
    /// Size of a first batch that did not fit into the answer, 0 = none.
    pub(super) cut_batch_bytes: i32,
}

/// A partition's part of an answer that is being read. Dropping it drops an unfinished batch.
pub(super) struct Reading {
    pub(super) index: usize,
    pub(super) slot: Arc<Slot>,
    pub(super) start: FetchPartitionStart,
    asked_offset: i64,
    head: Vec<u8>,
    open: bool,
    /// Nothing more is wanted of this partition.
    over: bool,
    trouble: Option<Trouble>,
}

impl Reading {
    pub(super) fn new(
        index: usize,
        slot: Arc<Slot>,
        start: FetchPartitionStart,
        asked_offset: i64,
    ) -> Reading {
        Reading {
            index,
            slot,
            start,
            asked_offset,
            head: Vec::new(),
            open: false,
            over: false,
            trouble: None,
        }
    }

    /// Takes the next piece of records.
    pub(super) fn take(&mut self, piece: &[u8]) {
        if self.over {
            return;
        }
        let mut rest = piece;
        if !self.open {
            let missing = HEADER_BYTES
                .saturating_sub(self.head.len())
                .min(piece.len());
            self.head.extend_from_slice(&piece[..missing]);
            rest = &piece[missing..];
            if self.head.len() < HEADER_BYTES {
                return;
            }
            match self.begin_append() {
                Ok(true) => self.open = true,
                Ok(false) => self.over = true,
                Err(e) => self.fail(e),
            }
            if self.open {
                let head = std::mem::take(&mut self.head);
                self.push(&head);
                self.head = head;
            }
        }
        if !self.over && !rest.is_empty() {
            self.push(rest);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.slot.push(bytes) {
            Ok(true) => {}
            Ok(false) => self.over = true,
            Err(e) => self.fail(e),
        }
    }

    fn fail(&mut self, e: ReplicaError) {
        self.over = true;
        self.trouble = Some(e.into());
    }

    /// Opens the append; `Ok(false)` when the log moved since it was asked for or the assignment is over.
    fn begin_append(&self) -> Result<bool, ReplicaError> {
        let local = &self.slot.local;
        let mut end = local.log().log_end_offset();
        if end != self.asked_offset {
            return Ok(false);
        }
        let (base, last) = (self.base_offset(), self.last_offset());
        if self.head.get(MAGIC_AT) == Some(&MAGIC)
            && is_empty(local)
            && base >= 0
            && base < end
            && end <= last
        {
            // The source's log starts inside this batch; a log can only start with a whole one.
            local.mirror_truncate_fully_and_start_at(base)?;
            end = base;
        }
        self.slot.open_append(end, now_ms())
    }

    fn base_offset(&self) -> i64 {
        self.head
            .first_chunk::<8>()
            .map_or(-1, |b| i64::from_be_bytes(*b))
    }

    fn last_offset(&self) -> i64 {
        let delta = self
            .head
            .get(23..27)
            .and_then(|b| b.first_chunk::<4>())
            .map_or(0, |b| i32::from_be_bytes(*b));
        self.base_offset().saturating_add(i64::from(delta))
    }

    fn batch_bytes(&self) -> i32 {
        let length = self
            .head
            .get(8..12)
            .and_then(|b| b.first_chunk::<4>())
            .map_or(0, |b| i32::from_be_bytes(*b));
        length.saturating_add(LENGTH_OVERHEAD).max(0)
    }

    /// The partition is complete.
    pub(super) fn end(mut self) -> Result<ReadingEnd, Trouble> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        if !self.open && self.head.get(MAGIC_AT).is_some_and(|&magic| magic < MAGIC) {
            return Err(Trouble::OldFormat);
        }
        let appended = match self.slot.take_append().filter(|_| self.open) {
            Some(append) => Some(append.finish().map_err(Trouble::from)?),
            None => None,
        };
        let nothing_fit =
            appended.as_ref().is_none_or(|info| info.batches == 0) && self.head.len() >= 12;
        Ok(ReadingEnd {
            high_watermark: self.start.high_watermark,
            log_start: self.start.log_start_offset,
            cut_batch_bytes: if nothing_fit && !self.over {
                self.batch_bytes()
            } else {
                0
            },
            appended: appended.filter(|info| info.batches > 0),
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.open {
            drop(self.slot.take_append());
        }
    }
}
