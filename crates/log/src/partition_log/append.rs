//! Appending: the leader's path with all its checks, and the steps both paths share (first files,
//! roll, taking batches in).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_records::{
    BatchHeader, BatchView, ControlRecord, DECOMPRESSED_BYTES_MAX_DEFAULT, Unpaced, batches,
    parse_control_record, patch_base_offset_and_leader_epoch, patch_create_time,
    patch_log_append_time,
};

use super::produce::PRODUCED_BYTES_MAX;
use super::{PartitionLog, Writer};
use crate::config::{LogConfig, TimestampType};
use crate::error::LogError;
use crate::names;
use crate::private;
use crate::producers::Check;
use crate::roll;
use crate::segment::{SEGMENT_BYTES_MAX, Segment};
use crate::stall;
use crate::types::{AppendInfo, AppendOrigin};

/// One checked batch of an append, not written yet or just written.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) header: BatchHeader,
    pub(crate) control: Option<ControlRecord>,
}

/// What happens to the timestamps of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// They stay.
    Kept,
    /// The header's largest timestamp is set to the records', and the type is CreateTime.
    Largest(i64),
    /// The batch is stamped with this time, and the type is LogAppendTime.
    Append(i64),
}

impl PartitionLog {
    /// Appends whole batches: assigns offsets and `leader_epoch` (and the time, for LogAppendTime)
    /// in place in `bytes`, then one write. Duplicates of an idempotent producer answer with their
    /// old offsets and write nothing. Nothing is synced: wait with [`crate::Syncer::sync_upto`]. On
    /// any error nothing was appended.
    pub fn append_as_leader(
        &self,
        bytes: &mut [u8],
        leader_epoch: i32,
        origin: AppendOrigin,
        now_ms: i64,
    ) -> Result<AppendInfo, LogError> {
        if origin == AppendOrigin::Client {
            let checked = self.check_produced(bytes, now_ms, PRODUCED_BYTES_MAX, &mut Unpaced)?;
            return self.append_produced(bytes, &checked, leader_epoch, now_ms);
        }
        let config = self.config();
        let incoming = check_batches(bytes, &config, origin)?;
        let time = match config.timestamp_type {
            TimestampType::LogAppendTime => Time::Append(now_ms),
            TimestampType::CreateTime => Time::Kept,
        };
        self.append_incoming(bytes, incoming, leader_epoch, origin, time, now_ms)
    }

    /// Appends checked batches that fill `bytes`.
    pub(super) fn append_incoming(
        &self,
        bytes: &mut [u8],
        mut incoming: Vec<Incoming>,
        leader_epoch: i32,
        origin: AppendOrigin,
        time: Time,
        now_ms: i64,
    ) -> Result<AppendInfo, LogError> {
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        self.supersede_mirror(&mut w)?;
        if let Some(answer) = self.check_producers(&incoming, origin)? {
            return Ok(answer);
        }
        let first_offset = self.log_end_offset();
        let next_offset = stamp(bytes, &mut incoming, first_offset, leader_epoch, time)?;
        let max_timestamp = incoming
            .iter()
            .map(|i| i.header.max_timestamp)
            .max()
            .unwrap_or(-1);
        let span = Span {
            bytes: bytes.len() as u64,
            first_offset,
            last_offset: next_offset - 1,
            max_timestamp,
        };
        let segment = self.segment_for(&mut w, span, now_ms)?;
        let start = segment.size();
        self.mark_unpublished(&mut w, &segment, start + span.bytes);
        if let Err(e) = segment.write(bytes, start) {
            self.cut_unpublished(&mut w)?;
            return Err(e);
        }
        let mut position = start;
        for i in &incoming {
            self.take_in(&mut w, &segment, i, position)?;
            position += i.header.size() as u64;
        }
        self.publish_appended(&segment, position, next_offset, span.bytes);
        Ok(AppendInfo {
            first_offset,
            last_offset: next_offset - 1,
            max_timestamp,
            log_append_time: match time {
                Time::Append(now) => Some(now),
                Time::Kept | Time::Largest(_) => None,
            },
            log_start_offset: self.log_start_offset(),
            duplicate: false,
            bytes: span.bytes,
        })
    }

    /// Sequence, epoch and transaction rules; `Some` for a retry that is in the log already.
    fn check_producers(
        &self,
        incoming: &[Incoming],
        origin: AppendOrigin,
    ) -> Result<Option<AppendInfo>, LogError> {
        let how = if origin == AppendOrigin::Client {
            Check::Producer
        } else {
            Check::Marker
        };
        let producers = self.producers.lock();
        for i in incoming {
            if let Some(d) = producers
                .duplicate(&i.header)
                .filter(|_| how == Check::Producer)
            {
                return Ok(Some(AppendInfo {
                    first_offset: d.first_offset,
                    last_offset: d.last_offset,
                    max_timestamp: d.timestamp,
                    log_append_time: None,
                    log_start_offset: self.log_start_offset(),
                    duplicate: true,
                    bytes: 0,
                }));
            }
            producers.check(&i.header, i.control.as_ref(), how)?;
        }
        Ok(None)
    }

    /// Ends a live verbatim append, so that another writer can work at the log end.
    pub(crate) fn supersede_mirror(&self, w: &mut Writer) -> Result<(), LogError> {
        w.mirror_token = 0;
        self.cut_unpublished(w)
    }
    pub(crate) fn cut_unpublished(&self, w: &mut Writer) -> Result<(), LogError> {
        // Only when there is something to cut: cutting takes the blocks reserved ahead with it.
        if let Some(active) = self.active().filter(|a| w.written_to > a.size()) {
            active.cut_unpublished()?;
        }
        w.written_to = 0;
        Ok(())
    }
    pub(crate) fn begin_mirror(&self, w: &mut Writer) -> Result<u64, LogError> {
        self.supersede_mirror(w)?;
        w.tokens_given += 1;
        w.mirror_token = w.tokens_given;
        Ok(w.mirror_token)
    }
    pub(crate) fn mirror_is_live(&self, w: &Writer, token: u64) -> bool {
        w.mirror_token == token
    }

    /// The segment these batches go to: made, rolled or simply the active one.
    pub(crate) fn segment_for(
        &self,
        w: &mut Writer,
        span: Span,
        now_ms: i64,
    ) -> Result<Arc<Segment>, LogError> {
        let active = match self.active() {
            Some(a) => a,
            None => self.make_first_segment(w, self.log_end_offset(), now_ms)?,
        };
        match self.fits(w, &active, active.size(), span, now_ms)? {
            Fit::Here => Ok(active),
            Fit::Full => {
                let base = self.base_for(span)?;
                self.roll(w, base, now_ms)
            }
            Fit::Early => {
                let base = self.base_for(span)?;
                let segment = self.roll(w, base, now_ms)?;
                w.rolls.take();
                Ok(segment)
            }
        }
    }
    /// Base offset of a new segment for `span`: the log end, so that segments follow each other
    /// without a gap, unless the gap in front of the span is too wide for one segment.
    fn base_for(&self, span: Span) -> Result<i64, LogError> {
        let end = self.log_end_offset();
        if span.last_offset - end <= i64::from(i32::MAX) {
            return Ok(end);
        }
        self.allow_gaps(false)?;
        Ok(span.first_offset)
    }
    /// Whether the active segment takes `span` behind `occupied` bytes, or why a new one is needed.
    /// Error: it is needed although it would not be full, and there were too many of those lately.
    pub(crate) fn fits(
        &self,
        w: &mut Writer,
        active: &Segment,
        occupied: u64,
        span: Span,
        now_ms: i64,
    ) -> Result<Fit, LogError> {
        let config = self.config.load();
        let after = occupied + span.bytes;
        if occupied > 0 && (after > u64::from(config.segment_bytes) || after > SEGMENT_BYTES_MAX) {
            return Ok(Fit::Full);
        }
        let interval_ms = config.roll_interval_ms;
        if !active.can_hold(span.last_offset) {
            if w.rolls.may_roll(now_ms, interval_ms) {
                return Ok(Fit::Early);
            }
            return Err(LogError::RollsTooFast {
                offset: span.first_offset,
                burst: roll::BURST,
                wait_ms: w.rolls.wait_ms(now_ms, interval_ms),
            });
        }
        let due = occupied > 0
            && (active.index_is_full(config.segment_index_bytes)
                || active.age_at_append_ms(span.max_timestamp, now_ms)? > config.segment_ms);
        // When it is not time yet, the segment simply goes on.
        Ok(if due && w.rolls.may_roll(now_ms, interval_ms) {
            Fit::Early
        } else {
            Fit::Here
        })
    }
    pub(crate) fn active_segment(&self) -> Option<Arc<Segment>> {
        self.active()
    }

    /// Makes the directory and what stands in it before any record does. The first flush brings all
    /// of it to the disk.
    pub(crate) fn make_first_segment(
        &self,
        w: &mut Writer,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>, LogError> {
        self.state.check_online()?;
        let made = !self.dir.exists();
        if made {
            self.state.begin_log(&self.topic, self.partition)?;
        }
        let _busy = stall::enter(&self.state);
        private::create_dir_all(&self.dir)
            .map_err(|e| self.state.write_failed("create", &self.dir, &e))?;
        self.write_first_metadata()?;
        let segment = Segment::create(&self.dir, base_offset, &self.state, now_ms)?;
        w.new_dir |= made;
        w.new_files = true;
        w.mark_dirty(&segment);
        self.set_segments(vec![Arc::clone(&segment)]);
        self.publish_end(&segment, 0, self.log_end_offset());
        if !self.epochs.read().entries().is_empty() {
            w.epochs_unsynced = true;
            self.write_epochs(false)?;
        }
        Ok(segment)
    }

    /// Seals the active segment and starts one at `base_offset`.
    pub(crate) fn roll(
        &self,
        w: &mut Writer,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>, LogError> {
        self.cut_unpublished(w)?;
        if let Some(active) = self.active() {
            active.seal()?;
            active.give_back()?;
            // Its indexes are synced with the next flush: recovery will not rebuild them any more.
            w.mark_dirty(&active);
        }
        self.write_snapshot(w, base_offset, false)?;
        let segment = Segment::create(&self.dir, base_offset, &self.state, now_ms)?;
        w.new_files = true;
        w.mark_dirty(&segment);
        let mut list = Vec::clone(&self.segments.load());
        list.push(Arc::clone(&segment));
        self.set_segments(list);
        self.publish_end(&segment, 0, self.log_end_offset());
        Ok(segment)
    }

    pub(crate) fn write_snapshot(
        &self,
        w: &mut Writer,
        offset: i64,
        durable: bool,
    ) -> Result<(), LogError> {
        let content = self.producers.lock().to_snapshot();
        let path = names::segment_file(&self.dir, offset, names::SNAPSHOT);
        self.state.replace_file(&path, &content, durable)?;
        w.snapshots.insert(offset);
        Ok(())
    }

    /// Takes a written batch into indexes, epochs and producer state. What fails here has a full
    /// log behind it, so it takes the directory offline (a full disk does not fail here, see the
    /// indexes).
    pub(crate) fn take_in(
        &self,
        w: &mut Writer,
        segment: &Segment,
        batch: &Incoming,
        position: u64,
    ) -> Result<(), LogError> {
        let h = &batch.header;
        segment.note_batch(h, position, self.config.load().index_interval_bytes)?;
        let latest = self.latest_epoch();
        crate::invariant!(
            "L-7",
            h.leader_epoch < 0 || latest.is_none_or(|latest| h.leader_epoch >= latest),
            "a batch of leader epoch {} follows one of {latest:?}",
            h.leader_epoch
        );
        if latest.is_none_or(|e| h.leader_epoch > e) {
            self.change_epochs(w, |c| c.assign(h.leader_epoch, h.base_offset))?;
        }
        if !h.has_producer_id() && batch.control.is_none() {
            return Ok(());
        }
        let aborted = {
            let mut producers = self.producers.lock();
            let aborted = producers.apply(h, batch.control.as_ref());
            producers.bound(self.config.load().producer_ids_max);
            self.note_first_unstable(&producers);
            aborted
        };
        aborted.map_or(Ok(()), |t| segment.txns.push(t))
    }
    pub(crate) fn publish_appended(
        &self,
        segment: &Segment,
        position: u64,
        next_offset: i64,
        bytes: u64,
    ) {
        let end = self.publish_end(segment, position, next_offset);
        crate::invariant!(
            "L-1",
            next_offset > end,
            "an append moved the log end from {end} to {next_offset}"
        );
        self.unflushed_bytes.fetch_add(bytes, Ordering::AcqRel);
        if segment.take_reserved()
            && let Some(me) = self.me.get()
        {
            self.state.note_reserving(me);
        }
    }
    /// Bytes up to `end` are about to be written to the active segment.
    pub(crate) fn mark_unpublished(&self, w: &mut Writer, segment: &Arc<Segment>, end: u64) {
        w.mark_dirty(segment);
        w.written_to = w.written_to.max(end);
    }

    /// A log without any record may start again below its log start: the source's log start can
    /// stand inside a batch (DeleteRecords), and that batch arrives whole. Gives whether it did.
    pub(crate) fn restart_below(
        &self,
        w: &mut Writer,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        if self.segments.load().iter().any(|s| s.size() > 0) {
            return Ok(false);
        }
        self.forget_synced_above(w, 0)?;
        for s in self.segments.load().iter().rev() {
            s.remove()?;
        }
        w.dirty.clear();
        self.make_first_segment(w, base_offset, now_ms)?;
        Ok(true)
    }
}

/// Where an append goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// To the active segment.
    Here,
    /// To a new one: the active one has no room.
    Full,
    /// To a new one, although the active one has room.
    Early,
}

/// What a write needs to know of the batches to find its segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) bytes: u64,
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) max_timestamp: i64,
}

/// All checks of the broker's own appends that need no state of the log.
fn check_batches(
    bytes: &[u8],
    config: &LogConfig,
    origin: AppendOrigin,
) -> Result<Vec<Incoming>, LogError> {
    let mut out = Vec::new();
    let mut walk = batches(bytes);
    for batch in walk.by_ref() {
        let batch = batch?;
        let h = batch.header;
        if origin != AppendOrigin::Internal && h.size() > config.max_message_bytes as usize {
            return Err(LogError::BatchTooLarge {
                size: h.size(),
                max: config.max_message_bytes as usize,
            });
        }
        batch.check_crc()?;
        out.push(Incoming {
            header: h,
            control: control_of(&batch)?,
        });
    }
    if walk.rest() > 0 {
        return Err(LogError::InvalidRecord(format!(
            "{} bytes of a cut-off batch at the end",
            walk.rest()
        )));
    }
    if out.is_empty() {
        return Err(LogError::InvalidRecord("no batch".to_owned()));
    }
    if bytes.len() > (config.segment_bytes as usize).max(config.max_message_bytes as usize) {
        return Err(LogError::AppendTooLarge {
            size: bytes.len(),
            max: config.segment_bytes as usize,
        });
    }
    Ok(out)
}

/// The control record of a batch, when it is a control batch.
fn control_of(batch: &BatchView<'_>) -> Result<Option<ControlRecord>, LogError> {
    if !batch.header.is_control() {
        return Ok(None);
    }
    let record = batch.records(DECOMPRESSED_BYTES_MAX_DEFAULT)?.next();
    let record = record
        .ok_or_else(|| LogError::InvalidRecord("control batch without record".to_owned()))??;
    Ok(Some(parse_control_record(&record)?))
}

/// Assigns offsets, epoch and time in place; gives the offset after the last batch.
fn stamp(
    bytes: &mut [u8],
    incoming: &mut [Incoming],
    first_offset: i64,
    leader_epoch: i32,
    time: Time,
) -> Result<i64, LogError> {
    let (mut at, mut next) = (0, first_offset);
    for i in incoming {
        let size = i.header.size();
        let batch = &mut bytes[at..at + size];
        patch_base_offset_and_leader_epoch(batch, next, leader_epoch)?;
        match time {
            Time::Kept => {}
            Time::Largest(timestamp) => patch_create_time(batch, timestamp)?,
            Time::Append(now) => patch_log_append_time(batch, now)?,
        }
        i.header = BatchHeader::parse(batch)?;
        next = i.header.next_offset();
        at += size;
    }
    Ok(next)
}
