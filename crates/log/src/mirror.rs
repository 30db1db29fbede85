//! Verbatim append by pieces (mirror path, followers): bytes go to the file as they arrive, the log
//! end moves only on whole batches whose header and CRC are good. No size, timestamp or sequence
//! limits of the produce path apply here.
//!
//! Between two pushes nothing is locked: the unfinished batch stands behind the published size, and
//! a token tells whether another writer has cut it meanwhile.

use std::ops::Range;
use std::sync::Arc;

use tarn_records::{BatchHeader, Crc32c, HEADER_BYTES, RecordsError};

use crate::error::LogError;
use crate::partition_log::{
    CONTROL_BATCH_BYTES_MAX, Fit, Incoming, PartitionLog, Span, Writer, control_or_unknown,
};
use crate::segment::Segment;

/// What one verbatim append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorAppendInfo {
    /// Base offset of the first batch, `None` when no whole batch arrived.
    pub first_offset: Option<i64>,
    /// Log end offset after the append.
    pub end_offset: i64,
    /// Whole batches appended.
    pub batches: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Records in them, by header.
    pub records: u64,
    /// Largest timestamp, −1 when none.
    pub max_timestamp: i64,
    /// Leader epoch of the last batch, −1 when none.
    pub last_leader_epoch: i32,
    /// Bytes of a cut-off last batch that were received and dropped (normal at the end of a Fetch
    /// answer).
    pub partial_tail_bytes: u64,
    /// First and last offset of a batch that reaches beyond [`MirrorBounds::offset_end`]: it and
    /// what followed were left out.
    pub beyond: Option<(i64, i64)>,
}

/// What the sender of batches has claimed elsewhere, for the two fields that no checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorBounds {
    /// Highest leader epoch a batch may carry; one above it is an error.
    pub leader_epoch_max: i32,
    /// Every offset is below this (the sender's high watermark); the append ends in front of the
    /// first batch that is not. No error: a Kafka takes the high watermark of its answer a moment
    /// before it reads the records.
    pub offset_end: i64,
}

impl MirrorBounds {
    /// For senders that are believed.
    pub const NONE: MirrorBounds = MirrorBounds {
        leader_epoch_max: i32::MAX,
        offset_end: i64::MAX,
    };

    fn check_epoch(&self, h: &BatchHeader) -> Result<(), LogError> {
        if h.leader_epoch > self.leader_epoch_max {
            return Err(LogError::EpochBeyondClaim {
                offset: h.base_offset,
                epoch: h.leader_epoch,
                claimed: self.leader_epoch_max,
            });
        }
        Ok(())
    }
}

/// A verbatim append under way. `Send + 'static`; holds no lock between pushes, so it may live
/// across awaits. Dropping it (or an error) cuts the unfinished batch; whole batches pushed before
/// stay, and are visible (`log_end_offset`) at once.
#[derive(Debug)]
pub struct MirrorAppend {
    log: Arc<PartitionLog>,
    token: u64,
    now_ms: i64,
    over: bool,
    bounds: MirrorBounds,
    /// Header bytes of a batch whose header is not whole yet.
    head: Vec<u8>,
    batch: Option<Partial>,
    info: MirrorAppendInfo,
}

/// The batch that is arriving.
#[derive(Debug)]
struct Partial {
    header: BatchHeader,
    /// Where it starts in the segment.
    position: u64,
    crc: Crc32c,
    missing: usize,
    /// Bytes of a control batch, to read its record once it is whole.
    control: Option<Vec<u8>>,
}

/// The part of a push that goes to one segment: bytes not written yet and batches not taken in yet.
#[derive(Debug)]
struct Run {
    segment: Arc<Segment>,
    /// Where the unwritten bytes go.
    position: u64,
    /// Range of the pushed piece that is not written yet.
    unwritten: Range<usize>,
    done: Vec<(Incoming, u64)>,
    next_offset: i64,
    latest_epoch: i32,
}

impl PartitionLog {
    /// Begins a verbatim append (mirror, follower) at the log end, which must be `expected_offset`.
    /// Bytes are pushed in pieces of any cut; see [`MirrorAppend`]. Only one is alive: a newer one,
    /// a leader append, a truncation or a close supersedes it.
    pub fn mirror_append(
        self: &Arc<Self>,
        expected_offset: i64,
        now_ms: i64,
    ) -> Result<MirrorAppend, LogError> {
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        let end_offset = self.log_end_offset();
        if end_offset != expected_offset {
            return Err(LogError::UnexpectedLogEnd {
                expected: expected_offset,
                log_end: end_offset,
            });
        }
        let token = self.begin_mirror(&mut w)?;
        let info = MirrorAppendInfo {
            first_offset: None,
            end_offset,
            batches: 0,
            bytes: 0,
            records: 0,
            max_timestamp: -1,
            last_leader_epoch: -1,
            partial_tail_bytes: 0,
            beyond: None,
        };
        drop(w);
        Ok(MirrorAppend {
            log: Arc::clone(self),
            token,
            now_ms,
            over: false,
            bounds: MirrorBounds::NONE,
            head: Vec::with_capacity(HEADER_BYTES),
            batch: None,
            info,
        })
    }
    /// [`Self::mirror_append`] + one push + finish, for whole answers in memory (followers, tests).
    pub fn append_verbatim(
        self: &Arc<Self>,
        expected_offset: i64,
        batches: &[u8],
        now_ms: i64,
    ) -> Result<MirrorAppendInfo, LogError> {
        let mut append = self.mirror_append(expected_offset, now_ms)?;
        append.push(batches)?;
        append.finish()
    }
}

impl MirrorAppend {
    /// Takes no batch beyond what its sender claims.
    pub fn set_bounds(&mut self, bounds: MirrorBounds) {
        self.bounds = bounds;
    }

    /// Takes the next bytes, cut anywhere. On error nothing of the bad batch is kept, the batches
    /// before it are, and this append is over. Writes to the page cache on the calling thread.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), LogError> {
        let log = Arc::clone(&self.log);
        let mut w = log.lock_writer();
        let done = self.push_locked(&mut w, piece);
        if done.is_err() {
            self.over = true;
            if log.mirror_is_live(&w, self.token) {
                log.supersede_mirror(&mut w)?;
            }
        }
        done
    }

    fn push_locked(&mut self, w: &mut Writer, piece: &[u8]) -> Result<(), LogError> {
        let log = Arc::clone(&self.log);
        log.check_writable(w)?;
        if self.over || !log.mirror_is_live(w, self.token) {
            return Err(LogError::Superseded);
        }
        let mut at = if self.info.beyond.is_some() {
            piece.len()
        } else {
            0
        };
        let mut run: Option<Run> = None;
        while at < piece.len() {
            if self.batch.is_none() {
                match self.begin_batch(w, &mut run, piece, at) {
                    Ok(used) => at += used,
                    Err(e) => {
                        // The good batches in front of a bad one stay.
                        self.write(w, run, piece)?;
                        return Err(e);
                    }
                }
            }
            let Some(batch) = &mut self.batch else {
                continue;
            };
            let current = match &mut run {
                Some(r) => r,
                None => run.insert(Run::resume(&log, batch)?),
            };
            let n = batch.missing.min(piece.len() - at);
            batch.take(&piece[at..at + n]);
            current.extend(at..at + n);
            at += n;
            if batch.missing > 0 {
                continue;
            }
            let batch_start = batch.position;
            if let Err(e) = self.end_batch(current) {
                current.drop_from(batch_start);
                self.write(w, run, piece)?;
                return Err(e);
            }
        }
        self.write(w, run, piece)
    }

    /// Collects a header from `piece[at..]` and opens its batch once it is whole; gives the number
    /// of bytes used.
    fn begin_batch(
        &mut self,
        w: &mut Writer,
        run: &mut Option<Run>,
        piece: &[u8],
        at: usize,
    ) -> Result<usize, LogError> {
        let held_back = !self.head.is_empty();
        let used = (HEADER_BYTES - self.head.len()).min(piece.len() - at);
        self.head.extend_from_slice(&piece[at..at + used]);
        let header = match BatchHeader::parse(&self.head) {
            Ok(h) => h,
            Err(RecordsError::Truncated { .. }) => return Ok(used),
            Err(RecordsError::OldFormat { magic, offset }) => {
                return Err(LogError::OldFormat { offset, magic });
            }
            Err(e) => return Err(e.into()),
        };
        if header.last_offset() >= self.bounds.offset_end {
            self.info.beyond = Some((header.base_offset, header.last_offset()));
            self.head.clear();
            return Ok(piece.len() - at);
        }
        let head = std::mem::take(&mut self.head);
        let run = self.place(w, run, &header, piece)?;
        let position = run.end();
        let mut batch = Partial {
            header,
            position,
            crc: Crc32c::new(),
            missing: header.size() - HEADER_BYTES,
            control: header.is_control().then(Vec::new),
        };
        batch.crc.update(&head[BatchHeader::CRC_FROM..]);
        batch.keep_control(&head);
        if held_back {
            // Its first bytes came with an earlier piece and were held back until the segment was
            // known.
            run.write_out(&self.log, w, piece)?;
            let end = run.position + head.len() as u64;
            self.log.mark_unpublished(w, &run.segment, end);
            run.segment.write(&head, run.position)?;
            run.position += head.len() as u64;
        } else {
            run.extend(at..at + used);
        }
        let whole = batch.missing == 0;
        self.batch = Some(batch);
        if whole && let Err(e) = self.end_batch(run) {
            run.drop_from(position);
            return Err(e);
        }
        Ok(used)
    }

    /// Checks that the batch may follow, and finds its segment: the run's, or a rolled one.
    fn place<'r>(
        &mut self,
        w: &mut Writer,
        run: &'r mut Option<Run>,
        h: &BatchHeader,
        piece: &[u8],
    ) -> Result<&'r mut Run, LogError> {
        self.bounds.check_epoch(h)?;
        let log = Arc::clone(&self.log);
        let (next_offset, latest) = match run {
            Some(r) => (r.next_offset, r.latest_epoch),
            None => (log.log_end_offset(), log.latest_epoch().unwrap_or(-1)),
        };
        if h.base_offset < next_offset {
            let straddles = h.last_offset() >= next_offset && run.is_none();
            if !straddles || !log.restart_below(w, h.base_offset, self.now_ms)? {
                return Err(LogError::NotContinuous {
                    base_offset: h.base_offset,
                    log_end: next_offset,
                });
            }
        }
        if h.leader_epoch >= 0 && h.leader_epoch < latest {
            return Err(LogError::EpochBackwards {
                offset: h.base_offset,
                epoch: h.leader_epoch,
                latest,
            });
        }
        let span = Span {
            bytes: h.size() as u64,
            first_offset: h.base_offset,
            last_offset: h.last_offset(),
            max_timestamp: h.max_timestamp,
        };
        let full = match run {
            Some(r) => log.fits(w, &r.segment, r.end(), span, self.now_ms)? != Fit::Here,
            None => false,
        };
        if full {
            self.write(w, run.take(), piece)?;
        }
        if run.is_none() {
            let segment = log.segment_for(w, span, self.now_ms)?;
            let position = segment.size();
            *run = Some(Run {
                segment,
                position,
                unwritten: 0..0,
                done: Vec::new(),
                next_offset: log.log_end_offset(),
                latest_epoch: latest,
            });
        }
        run.as_mut().ok_or(LogError::Superseded)
    }

    fn end_batch(&mut self, run: &mut Run) -> Result<(), LogError> {
        let Some(batch) = self.batch.take() else {
            return Ok(());
        };
        let h = batch.header;
        let computed = batch.crc.value();
        if computed != h.crc {
            return Err(RecordsError::CrcMismatch {
                base_offset: h.base_offset,
                stored: h.crc,
                computed,
            }
            .into());
        }
        let control = batch.control.map(|bytes| control_or_unknown(&bytes));
        run.done
            .push((Incoming { header: h, control }, batch.position));
        run.next_offset = h.next_offset();
        run.latest_epoch = run.latest_epoch.max(h.leader_epoch);
        Ok(())
    }

    /// Writes a run and takes its whole batches into the log; the log end moves.
    fn write(&mut self, w: &mut Writer, run: Option<Run>, piece: &[u8]) -> Result<(), LogError> {
        let Some(mut run) = run else { return Ok(()) };
        run.write_out(&self.log, w, piece)?;
        let Some((last, position)) = run.done.last() else {
            return Ok(());
        };
        let (end_position, end_offset) = (
            position + last.header.size() as u64,
            last.header.next_offset(),
        );
        let mut bytes = 0;
        for (incoming, position) in &run.done {
            self.log.take_in(w, &run.segment, incoming, *position)?;
            bytes += incoming.header.size() as u64;
            self.count(&incoming.header);
        }
        self.log
            .publish_appended(&run.segment, end_position, end_offset, bytes);
        self.info.end_offset = end_offset;
        Ok(())
    }

    fn count(&mut self, h: &BatchHeader) {
        let i = &mut self.info;
        i.first_offset.get_or_insert(h.base_offset);
        i.batches += 1;
        i.bytes += h.size() as u64;
        i.records += h.record_count.max(0) as u64;
        i.max_timestamp = i.max_timestamp.max(h.max_timestamp);
        i.last_leader_epoch = h.leader_epoch;
    }

    /// The log this appends to.
    pub fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }
    /// What was appended so far (whole batches).
    pub fn progress(&self) -> &MirrorAppendInfo {
        &self.info
    }
    /// Ends the append; a cut-off last batch is dropped and counted. Error `Superseded` when
    /// another writer came in between.
    pub fn finish(mut self) -> Result<MirrorAppendInfo, LogError> {
        let log = Arc::clone(&self.log);
        let mut w = log.lock_writer();
        if self.over || !log.mirror_is_live(&w, self.token) {
            return Err(LogError::Superseded);
        }
        self.over = true;
        let partial = self
            .batch
            .as_ref()
            .map_or(0, |b| b.header.size() - b.missing);
        self.info.partial_tail_bytes = (partial + self.head.len()) as u64;
        log.supersede_mirror(&mut w)?;
        Ok(self.info.clone())
    }
}

impl Drop for MirrorAppend {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut w = self.log.lock_writer();
        if self.log.mirror_is_live(&w, self.token) && self.log.check_writable(&w).is_ok() {
            // A failure here has taken the directory offline already.
            let _ = self.log.supersede_mirror(&mut w);
        }
    }
}

impl Partial {
    fn take(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.keep_control(bytes);
        self.missing -= bytes.len();
    }
    fn keep_control(&mut self, bytes: &[u8]) {
        if let Some(kept) = &mut self.control {
            let room = CONTROL_BATCH_BYTES_MAX.saturating_sub(kept.len());
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

impl Run {
    /// Goes on with a batch that began in an earlier push.
    fn resume(log: &PartitionLog, batch: &Partial) -> Result<Run, LogError> {
        let segment = log.active_segment().ok_or(LogError::Superseded)?;
        Ok(Run {
            segment,
            position: batch.position + (batch.header.size() - batch.missing) as u64,
            unwritten: 0..0,
            done: Vec::new(),
            next_offset: log.log_end_offset(),
            latest_epoch: log.latest_epoch().unwrap_or(-1),
        })
    }
    /// Where the run ends in the file once everything is written.
    fn end(&self) -> u64 {
        self.position + self.unwritten.len() as u64
    }
    /// Adds bytes of the piece, which follow the unwritten ones.
    fn extend(&mut self, bytes: Range<usize>) {
        if self.unwritten.is_empty() {
            self.unwritten = bytes;
        } else {
            self.unwritten.end = bytes.end;
        }
    }
    /// Leaves out unwritten bytes at or behind `position` (a bad batch); written ones are cut by
    /// the caller's error path.
    fn drop_from(&mut self, position: u64) {
        let keep = (position.saturating_sub(self.position) as usize).min(self.unwritten.len());
        self.unwritten.end = self.unwritten.start + keep;
    }
    fn write_out(
        &mut self,
        log: &PartitionLog,
        w: &mut Writer,
        piece: &[u8],
    ) -> Result<(), LogError> {
        let bytes = &piece[self.unwritten.clone()];
        if !bytes.is_empty() {
            log.mark_unpublished(w, &self.segment, self.position + bytes.len() as u64);
            self.segment.write(bytes, self.position)?;
            self.position += bytes.len() as u64;
            self.unwritten = 0..0;
        }
        Ok(())
    }
}
