//! The records of one partition in one answer, on their way into the local log.

use std::sync::Arc;

use tarn_fetch::Asked;
use tarn_log::{LogError, MirrorAppendInfo, MirrorBounds};
use tarn_records::{ArrivingHeader, HEADER_BYTES};
use tarn_replica::ReplicaError;
use tarn_wire::fetch_stream::FetchPartitionStart;
use tokio::time::Instant;

use super::partition_state::{PartitionFetchState, is_empty};
use super::proof;
use crate::claims;
use crate::source::now_ms;

/// Why the records of an answer were not all kept.
#[derive(Debug)]
pub(super) enum AppendError {
    /// The local log refused or failed.
    Local(ReplicaError),
    /// Message sets of format 0 or 1.
    OldFormat,
}

impl From<ReplicaError> for AppendError {
    fn from(e: ReplicaError) -> Self {
        match e {
            ReplicaError::Log(LogError::OldFormat { .. }) => AppendError::OldFormat,
            e => AppendError::Local(e),
        }
    }
}

/// A partition's part of an answer that was taken without an error.
#[derive(Debug)]
pub(super) struct PartitionOutcome {
    pub(super) high_watermark: i64,
    pub(super) log_start: i64,
    /// `None` = nothing was appended.
    pub(super) appended: Option<MirrorAppendInfo>,
    /// Size of a first batch that did not fit into the answer, 0 = none.
    pub(super) cut_batch_bytes: i32,
    /// It brought records, and nothing of them could be used although they were wanted.
    pub(super) moved_nothing: bool,
    /// Offsets of the first batch that reaches beyond the end which the source claims.
    pub(super) beyond: Option<(i64, i64)>,
    /// A proof was needed that its records follow ours: it was there, or it was not although
    /// records came.
    pub(super) proven: bool,
    pub(super) doubtful: bool,
    /// It was pipelined and begins after our log end; nothing of it was kept.
    pub(super) left_a_gap: bool,
}

/// From where a partition was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedFrom {
    /// Our log end.
    AtEnd(i64),
    /// An estimate of what our log end would be: batches that we have by now come first.
    Pipelined,
    /// Our last record, to prove that what follows its batch follows ours.
    AtTail,
}

/// What to do with a batch that begins.
enum Begin {
    /// It and all that follows are appended.
    Append,
    /// It is here already.
    PassOver,
    /// Nothing of this answer is wanted.
    Leave,
}

/// A partition's part of an answer that is being read. Dropping it drops an unfinished batch.
pub(super) struct PartitionResponse {
    pub(super) partition: Arc<PartitionFetchState>,
    pub(super) start: FetchPartitionStart,
    from: AskedFrom,
    /// When the response began.
    pub(super) begun: Instant,
    /// Nothing is kept before a batch came that is ours, and whether one did.
    needs_proof: bool,
    proven: bool,
    /// What its batches may carry.
    bounds: MirrorBounds,
    /// The header of the batch that begins.
    header: ArrivingHeader,
    /// Bytes of a batch to be passed over that are still to come, and whether one was.
    pass_over: u64,
    passed_over: bool,
    left_a_gap: bool,
    open: bool,
    /// Bytes so far, the bytes among them that were passed over, and our log end when the append
    /// was opened.
    taken: u64,
    passed_bytes: u64,
    opened_at: i64,
    /// Nothing more is wanted of this partition.
    over: bool,
    error: Option<AppendError>,
}

impl PartitionResponse {
    pub(super) fn new(
        partition: Arc<PartitionFetchState>,
        start: FetchPartitionStart,
        from: AskedFrom,
        asked: Asked,
    ) -> PartitionResponse {
        PartitionResponse {
            bounds: claims::bounds(asked.fenced_with, start.high_watermark),
            partition,
            start,
            needs_proof: from == AskedFrom::AtTail,
            proven: false,
            from,
            begun: asked.begun,
            header: ArrivingHeader::default(),
            pass_over: 0,
            passed_over: false,
            left_a_gap: false,
            open: false,
            taken: 0,
            passed_bytes: 0,
            opened_at: 0,
            over: false,
            error: None,
        }
    }

    /// Takes the next piece of records.
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.taken += piece.len() as u64;
        let mut rest = piece;
        while !self.open {
            let passed = usize::try_from(self.pass_over).map_or(rest.len(), |n| n.min(rest.len()));
            self.pass_over -= passed as u64;
            self.passed_bytes += passed as u64;
            rest = &rest[passed..];
            if self.over || rest.is_empty() {
                return;
            }
            let taken = self.header.fill(rest);
            rest = &rest[taken..];
            if !self.header.is_whole() {
                return;
            }
            match self.begin_append() {
                Ok(Begin::Append) => {
                    self.open = true;
                    let header = self.header;
                    self.push(header.bytes());
                }
                Ok(Begin::PassOver) => {
                    let bytes = self.header.batch_bytes().unwrap_or(0);
                    self.pass_over = bytes.saturating_sub(HEADER_BYTES) as u64;
                    self.passed_bytes += HEADER_BYTES as u64;
                    self.passed_over = true;
                    self.header.clear();
                }
                Ok(Begin::Leave) => self.over = true,
                Err(e) => self.fail(e),
            }
        }
        if !self.over && !rest.is_empty() {
            self.push(rest);
        }
    }

    /// The offset up to which this answer will surely bring whole batches, as far as can be told
    /// while it comes.
    pub(super) fn estimate(&self) -> Option<i64> {
        if !self.open || self.over {
            return None;
        }
        let end = self.partition.local.log().log_end_offset();
        let left = u64::from(self.start.records_len?).saturating_sub(self.taken);
        let bytes = self.taken - self.passed_bytes;
        tarn_fetch::estimate(end, end - self.opened_at, bytes, left)
            .filter(|&offset| offset < self.start.high_watermark)
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.partition.push(bytes) {
            Ok(true) => {}
            Ok(false) => self.over = true,
            Err(e) => self.fail(e),
        }
    }

    fn fail(&mut self, e: ReplicaError) {
        self.over = true;
        self.error = Some(e.into());
    }

    /// Looks at the batch that begins and opens the append at the first that we do not have.
    fn begin_append(&mut self) -> Result<Begin, ReplicaError> {
        let local = &self.partition.local;
        let mut end = local.log().log_end_offset();
        let (Some(base), Some(last)) = (self.header.base_offset(), self.header.last_offset())
        else {
            return Ok(Begin::Leave);
        };
        let is_current = self.header.is_current_format();
        match self.from {
            // The log moved since it was asked for.
            AskedFrom::AtEnd(asked) if asked != end => return Ok(Begin::Leave),
            AskedFrom::AtEnd(_) => {
                let is_claimed = base >= 0 && last < self.bounds.offset_end;
                if is_current && is_claimed && is_empty(local) && base < end && end <= last {
                    // The source's log starts inside this batch; a log can only start with a whole
                    // one.
                    local.mirror_truncate_fully_and_start_at(base)?;
                    end = base;
                }
            }
            AskedFrom::Pipelined | AskedFrom::AtTail if !is_current => return Ok(Begin::Leave),
            AskedFrom::Pipelined if base >= 0 && base <= last && last < end => {
                return Ok(Begin::PassOver);
            }
            AskedFrom::AtTail if !self.proven => {
                self.proven =
                    proof::local_header(local.log(), base).as_deref() == Some(self.header.bytes());
                return Ok(if self.proven {
                    Begin::PassOver
                } else {
                    Begin::Leave
                });
            }
            // After a batch of ours the next one follows, also where compaction left offsets out.
            AskedFrom::Pipelined | AskedFrom::AtTail
                if base != end && !(self.passed_over && base > end) =>
            {
                self.left_a_gap = base > end;
                return Ok(Begin::Leave);
            }
            AskedFrom::Pipelined | AskedFrom::AtTail => {}
        }
        self.opened_at = end;
        let is_open = self.partition.open_append(end, self.bounds, now_ms())?;
        Ok(if is_open { Begin::Append } else { Begin::Leave })
    }

    /// The partition is complete.
    pub(super) fn end(mut self) -> Result<PartitionOutcome, AppendError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let is_pipelined = self.from == AskedFrom::Pipelined;
        if !self.open && !is_pipelined && self.header.is_old_format() {
            return Err(AppendError::OldFormat);
        }
        let appended = match self.partition.take_append().filter(|_| self.open) {
            Some(append) => Some(append.finish().map_err(AppendError::from)?),
            None => None,
        };
        let nothing_came = appended.as_ref().is_none_or(|info| info.batches == 0);
        // Pipelined: the next Fetch from our log end tells.
        let may_tell = nothing_came && !self.over && !is_pipelined;
        let cut_batch = self.header.batch_bytes().filter(|_| may_tell);
        Ok(PartitionOutcome {
            high_watermark: self.start.high_watermark,
            log_start: self.start.log_start_offset,
            left_a_gap: self.left_a_gap,
            beyond: appended.as_ref().and_then(|info| info.beyond),
            proven: self.proven,
            doubtful: self.needs_proof && !self.proven && self.taken > 0,
            moved_nothing: may_tell && self.taken > self.passed_bytes,
            cut_batch_bytes: i32::try_from(cut_batch.unwrap_or(0)).unwrap_or(i32::MAX),
            appended: appended.filter(|info| info.batches > 0),
        })
    }
}

impl Drop for PartitionResponse {
    fn drop(&mut self) {
        if self.open {
            drop(self.partition.take_append());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetcher::testing::{LEADER, World, batch};

    /// A response of so many bytes of records that was asked for like this, from a source that ends
    /// at offset 40.
    fn response(world: &World, from: AskedFrom, bytes: usize) -> PartitionResponse {
        let start = FetchPartitionStart {
            topic: "t".into(),
            topic_id: tarn_wire::Uuid::ZERO,
            partition_index: 0,
            error_code: 0,
            high_watermark: 40,
            last_stable_offset: 40,
            log_start_offset: 0,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records_len: u32::try_from(bytes).ok(),
        };
        let asked = Asked {
            offset: None,
            fenced_with: Some(LEADER.epoch),
            begun: Instant::now(),
        };
        PartitionResponse::new(world.partition.clone(), start, from, asked)
    }

    fn take(world: &World, from: AskedFrom, bytes: &[u8]) -> Result<PartitionOutcome, AppendError> {
        let mut response = response(world, from, bytes.len());
        response.take(bytes);
        response.end()
    }

    #[tokio::test]
    async fn batches_are_kept_whole_however_the_pieces_are_cut() {
        let bytes = [batch(0), batch(10), batch(20)].concat();
        for piece_bytes in [1, 60, 61, 62, 100, bytes.len()] {
            let world = World::ready().await;
            let mut response = response(&world, AskedFrom::AtEnd(0), bytes.len());
            // The last batch is cut, as a source does.
            for piece in bytes[..bytes.len() - 1].chunks(piece_bytes) {
                response.take(piece);
            }
            let end = response.end().expect("is kept");
            assert_eq!((world.end(), end.high_watermark), (20, 40));
            assert_eq!(end.appended.map(|a| a.batches), Some(2));
            assert!(!end.moved_nothing && end.cut_batch_bytes == 0);
        }
    }

    #[tokio::test]
    async fn what_was_asked_for_before_the_log_moved_is_left() {
        let world = World::ready().await;
        take(&world, AskedFrom::AtEnd(0), &batch(0)).expect("is kept");
        let end = take(&world, AskedFrom::AtEnd(0), &batch(0)).expect("is left");
        assert!(end.appended.is_none() && !end.moved_nothing);
        assert_eq!(world.end(), 10);
    }

    #[tokio::test]
    async fn a_pipelined_response_passes_over_what_is_here_and_never_leaves_a_gap() {
        let world = World::ready().await;
        take(&world, AskedFrom::AtEnd(0), &batch(0)).expect("is kept");
        let again = [batch(0), batch(10)].concat();
        let end = take(&world, AskedFrom::Pipelined, &again).expect("is kept");
        assert_eq!(end.appended.map(|a| a.batches), Some(1));
        assert_eq!(world.end(), 20);
        let end = take(&world, AskedFrom::Pipelined, &batch(30)).expect("is left");
        assert!(end.left_a_gap && end.appended.is_none());
        assert_eq!(world.end(), 20);
    }

    #[tokio::test]
    async fn a_first_batch_that_does_not_fit_tells_its_size() {
        let world = World::ready().await;
        let whole = batch(0);
        let end = take(&world, AskedFrom::AtEnd(0), &whole[..70]).expect("is left");
        assert!(end.moved_nothing);
        assert_eq!(usize::try_from(end.cut_batch_bytes), Ok(whole.len()));
    }

    #[tokio::test]
    async fn message_sets_of_an_old_format_are_told_by_name() {
        let world = World::ready().await;
        let mut old = batch(0);
        old[tarn_records::MAGIC_OFFSET] = 1;
        let error = take(&world, AskedFrom::AtEnd(0), &old).expect_err("is refused");
        assert!(matches!(error, AppendError::OldFormat), "{error:?}");
        assert_eq!(world.end(), 0);
    }

    #[tokio::test]
    async fn a_response_that_is_dropped_drops_its_unfinished_batch() {
        let world = World::ready().await;
        let bytes = [batch(0), batch(10)].concat();
        let mut response = response(&world, AskedFrom::AtEnd(0), bytes.len());
        response.take(&bytes[..bytes.len() - 1]);
        drop(response);
        assert_eq!(world.end(), 10);
        take(&world, AskedFrom::AtEnd(10), &batch(10)).expect("the log goes on");
        assert_eq!(world.end(), 20);
    }

    #[tokio::test]
    async fn nothing_is_taken_of_a_partition_that_was_closed_meanwhile() {
        let world = World::ready().await;
        world.partition.close();
        let end = take(&world, AskedFrom::AtEnd(0), &batch(0)).expect("is left");
        assert!(end.appended.is_none());
        assert_eq!(world.end(), 0);
    }
}
