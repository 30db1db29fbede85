//! Opening: what is on disk, which part of it is checked, where it is cut. What stands beside the
//! segments is judged in `side_files.rs`.
//!
//! Segments wholly below the recovery point or the log start are believed (their headers are still
//! checked when they are read). Everything else is walked: batches at or above the recovery point
//! must pass their CRC, and the log is cut at the first that does not, whatever follows. A bad
//! batch below the recovery point was synced once: that is damage, and nobody cuts it silently.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tarn_records::{ControlRecord, ControlType, parse_control_record};

use super::append::Incoming;
use super::salvage;
use super::{LogEnd, NO_EPOCH, PartitionLog, Writer};
use crate::checkpoint;
use crate::cleaner;
use crate::config::{LogConfig, OpenOptions};
use crate::descriptors::is_shortage;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::names;
use crate::producers::Producers;
use crate::roll::RollBudget;
use crate::scan::{Found, Scanner, Stop};
use crate::segment::Segment;
use crate::txn_index::TxnFiles;

/// Control batches are tiny; a larger one is no marker of ours or Kafka's.
pub(crate) const CONTROL_BATCH_BYTES_MAX: usize = 64 * 1024;

/// After a crash the last bytes of a walked segment are checked although they were synced: cheap,
/// and a disk that lies about a sync lies about its last bytes.
const RECHECK_BYTES: u64 = 8 << 20;

/// What a directory listing gave.
#[derive(Debug, Default)]
struct Listing {
    bases: BTreeSet<i64>,
    snapshots: BTreeSet<i64>,
    /// By base offset, where there is any.
    txns: BTreeMap<i64, TxnFiles>,
    /// Index files without a log.
    orphans: Vec<(i64, PathBuf)>,
}

impl PartitionLog {
    /// Opens the log in `dir` (named `<topic>-<partition>`). A directory that does not exist is an
    /// empty log and stays non-existent until the first append or until a start offset must be
    /// remembered. Recovers as `options` say. Fails with [`LogError::Missing`] when the checkpoints
    /// or the files themselves prove that a part of the log is not there any more.
    pub fn open(
        dir: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Some((topic, partition)) = names::parse_partition_dir(name) else {
            let reason = "a log directory is called <topic>-<partition>".to_owned();
            return Err(LogError::BadFile {
                path: dir.to_path_buf(),
                reason,
            });
        };
        let log = PartitionLog {
            dir: dir.to_path_buf(),
            topic: topic.to_owned(),
            partition,
            state: Arc::clone(&options.dir_state),
            config: ArcSwap::from_pointee(config),
            segments: ArcSwap::default(),
            end: ArcSwap::from_pointee(LogEnd {
                offset: 0,
                segment_base: 0,
                position: 0,
            }),
            log_start: AtomicI64::new(0),
            high_watermark: AtomicI64::new(0),
            recovery_point: AtomicI64::new(0),
            durable_end: AtomicI64::new(0),
            cleaned_to: AtomicI64::new(0),
            first_unstable: AtomicI64::new(i64::MAX),
            latest_epoch: AtomicI32::new(NO_EPOCH),
            unflushed_bytes: AtomicU64::new(0),
            sync_round: AtomicU64::new(0),
            aging: AtomicBool::new(false),
            epochs: RwLock::default(),
            producers: Mutex::default(),
            writer: Mutex::new(Writer {
                closed: false,
                deleted: false,
                mirror_token: 0,
                tokens_given: 0,
                written_to: 0,
                truncations: 0,
                dirty: Vec::new(),
                new_dir: false,
                new_files: false,
                epochs_unsynced: false,
                snapshots: BTreeSet::new(),
                rolls: RollBudget::default(),
            }),
            flushing: Mutex::new(()),
            rebuilding: Mutex::new(()),
            epochs_file: Mutex::new(()),
            me: OnceLock::new(),
            durable_news: RwLock::new(None),
            metadata: Mutex::default(),
        };
        log.load(&options)?;
        let log = Arc::new(log);
        let _ = log.me.set(Arc::downgrade(&log));
        Ok(log)
    }

    fn load(&self, options: &OpenOptions) -> Result<(), LogError> {
        self.load_metadata(options.topic_id.as_ref())?;
        cleaner::finish_swaps(&self.dir, &self.state)?;
        let listing = list(&self.dir)?;
        self.judge_orphans(&listing.bases, &listing.orphans)?;
        if listing.bases.is_empty() {
            return self.refuse_empty(options);
        }
        let mut w = self.lock_writer();
        w.snapshots = listing.snapshots;
        let interval = u64::from(self.config.load().index_interval_bytes);
        let (mut segments, mut distrusted) = (Vec::new(), Vec::new());
        for base in listing.bases {
            let txns = listing.txns.get(&base).copied().unwrap_or_default();
            let (segment, good) =
                Segment::load(&self.dir, base, &self.state, options.now_ms, interval, txns)?;
            if !good {
                distrusted.push(segments.len());
            }
            segments.push(segment);
        }
        self.set_segments(segments.clone());
        let known_epochs = self.load_epochs()?;
        let epochs_from = self.epochs.read().entries().first().map(|e| e.start_offset);
        let clean = match options.clean_shutdown {
            true => self.open_clean(&mut w, &segments, &distrusted, options.recovery_point)?,
            false => None,
        };
        let end = match clean {
            Some(end) => {
                self.refuse_lost_front(epochs_from)?;
                end
            }
            None => self.open_unclean(&mut w, &segments, &distrusted, options.recovery_point)?,
        };
        if !known_epochs {
            self.rebuild_epochs(&mut w)?;
        }
        self.settle(&mut w, options, end, epochs_from)?;
        if known_epochs && !self.epochs_agree(self.log_start_offset(), end) {
            tracing::error!(
                log = names::partition_dir(&self.topic, self.partition),
                "{} contradicts the batches, epochs are read from them",
                checkpoint::LEADER_EPOCHS
            );
            self.rebuild_epochs(&mut w)?;
            let start = self.log_start_offset();
            self.change_epochs(&mut w, |c| c.truncate_from_start(start))?;
        }
        self.segments.load().iter().for_each(|s| s.release_files());
        Ok(())
    }

    /// Everything was synced: only what stands behind the last index entry is looked at. `None`
    /// when the log goes on behind its recovery point: then the marker of the clean stop is not
    /// about this state of it.
    fn open_clean(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        distrusted: &[usize],
        recovery_point: Option<i64>,
    ) -> Result<Option<i64>, LogError> {
        self.rebuild_distrusted(w, segments, distrusted)?;
        let Some(last) = segments.last() else {
            return Ok(Some(0));
        };
        // It is appended to.
        self.settle_txn_index(w, segments, last)?;
        let mut end = last.restore_tail()?;
        if last.index_is_wrong() {
            self.rebuild_indexes(last)?;
            end = last.restore_tail()?;
        }
        let closed_at = recovery_point.unwrap_or(end);
        self.refuse_short(last, end, closed_at)?;
        if end > closed_at {
            return Ok(None);
        }
        self.refuse_gaps(segments)?;
        *self.producers.lock() = self.replay_producers(w, segments, end)?;
        self.recovery_point.store(end, Ordering::Release);
        self.durable_end.store(end, Ordering::Release);
        Ok(Some(end))
    }

    fn open_unclean(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        distrusted: &[usize],
        recovery_point: Option<i64>,
    ) -> Result<i64, LogError> {
        let synced = recovery_point.unwrap_or(0);
        let start = self.kept_log_start().unwrap_or(0);
        let from = super::read::floor(segments, synced.max(start));
        self.refuse_gaps(&segments[..=from])?;
        let kept = distrusted.partition_point(|at| *at < from);
        self.rebuild_distrusted(w, segments, &distrusted[..kept])?;
        let first = &segments[from];
        self.epochs.write().truncate_from_end(first.base_offset);
        *self.producers.lock() = self.replay_producers(w, segments, first.base_offset)?;
        let mut next = first.base_offset;
        for at in from..segments.len() {
            let s = &segments[at];
            if at > from && self.is_gap(next, s) {
                if recovery_point.is_none() || next.max(start) < synced {
                    return self.refuse_gap(next, s).map(|()| next);
                }
                // Never synced: a power cut took what was in between.
                let before = &segments[at - 1];
                let reason = format!("offsets {next} to {} are missing", s.base_offset - 1);
                self.cut_behind(w, segments, at - 1, before.size(), next, &reason)?;
                break;
            }
            let cut = if s.base_offset < next {
                Some((0, format!("segment starts below offset {next}")))
            } else {
                next = s.base_offset;
                self.walk(w, s, synced, &mut next)?
            };
            w.mark_dirty(s);
            let Some((position, reason)) = cut else {
                continue;
            };
            let is_last = at + 1 == segments.len();
            // What lies below the log start is given up already.
            if next.max(start) < synced || (recovery_point.is_none() && !is_last) {
                return Err(s.damaged(Stop::Bad { position, reason }, next));
            }
            self.cut_behind(w, segments, at, position, next, &reason)?;
            break;
        }
        if let Some(last) = segments.last() {
            self.refuse_short(last, next.max(start), synced)?;
        }
        let point = synced.min(next);
        self.recovery_point.store(point, Ordering::Release);
        self.durable_end.store(point, Ordering::Release);
        Ok(next)
    }

    /// Walks one segment into indexes, epochs and producers; `Some` tells where it must be cut.
    fn walk(
        &self,
        w: &mut Writer,
        s: &Arc<Segment>,
        synced: i64,
        next: &mut i64,
    ) -> Result<Option<(u64, String)>, LogError> {
        s.reset_indexes()?;
        s.txns.reset()?;
        let mut scan = Scanner::new(&s.log, 0, s.size());
        let recheck_from = s.size().saturating_sub(RECHECK_BYTES);
        loop {
            let recheck = scan.position() >= recheck_from;
            let found = match scan.next(|h| recheck || h.last_offset() >= synced) {
                Ok(Some(found)) => found,
                // The file was removed above, and later starts believe that it is there.
                Ok(None) => return unless_short(s.txns.seal(s.size())).map(|()| None),
                Err(Stop::Failed(e)) => return Err(e),
                Err(Stop::Bad { position, reason }) => return Ok(Some((position, reason))),
            };
            let h = found.header;
            if h.base_offset < *next || !s.can_hold(h.last_offset()) {
                let reason = format!(
                    "batch at offset {} does not follow offset {next}",
                    h.base_offset
                );
                return Ok(Some((found.position, reason)));
            }
            let control = read_control(s, &found)?;
            self.take_in(w, s, &Incoming { header: h, control }, found.position)?;
            *next = h.next_offset();
        }
    }

    fn cut_behind(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        at: usize,
        position: u64,
        next: i64,
        reason: &str,
    ) -> Result<(), LogError> {
        let s = &segments[at];
        let later = &segments[at + 1..];
        let lost: u64 = s.size() - position + later.iter().map(|s| s.size()).sum::<u64>();
        let log = names::partition_dir(&self.topic, self.partition);
        if later.iter().any(|l| l.size() > 0) || salvage::good_batch_behind(s, position, next)? {
            // Not a torn tail: something whole stands behind the damage. It cannot stay in the log,
            // but it is not thrown away.
            salvage::set_aside(&self.state, &self.dir, s, position, later)?;
            tracing::error!(
                log,
                offset = next,
                position,
                bytes = lost,
                reason,
                "log is damaged: it ends at this offset now, the bytes behind are kept in *.damaged files beside it"
            );
        } else {
            tracing::warn!(
                log,
                offset = next,
                position,
                bytes = lost,
                reason,
                "unclean shutdown: torn end of log is cut"
            );
        }
        for l in later.iter().rev() {
            l.remove()?;
        }
        s.publish(position);
        s.cut_unpublished()?;
        s.sync(false)?;
        w.new_files = true;
        self.set_segments(segments[..=at].to_vec());
        Ok(())
    }

    /// Last steps of every opening: offsets, watermark, stray files, descriptors.
    fn settle(
        &self,
        w: &mut Writer,
        options: &OpenOptions,
        mut end: i64,
        epochs_from: Option<i64>,
    ) -> Result<(), LogError> {
        let segments = self.segments.load_full();
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Ok(());
        };
        self.publish_end(last, last.size(), end);
        let claim = options.log_start_offset;
        let start = self.judge_log_start(first.base_offset, end, claim, epochs_from);
        self.log_start.store(start, Ordering::Release);
        if start > end {
            tracing::warn!(
                log = names::partition_dir(&self.topic, self.partition),
                start,
                end,
                "log ends below its start offset, it goes on there"
            );
            self.end.store(Arc::new(LogEnd {
                offset: start,
                segment_base: last.base_offset,
                position: last.size(),
            }));
            self.roll(w, start, options.now_ms)?;
            end = start;
        }
        self.high_watermark
            .store(options.high_watermark.clamp(start, end), Ordering::Release);
        self.change_epochs(w, |c| {
            c.truncate_from_end(end) | (c.truncate_from_start(start))
        })?;
        self.latest_epoch.store(
            self.epochs.read().latest().unwrap_or(NO_EPOCH),
            Ordering::Release,
        );
        {
            let mut producers = self.producers.lock();
            producers.high_watermark_moved(self.high_watermark());
            self.note_first_unstable(&producers);
        }
        let bases: BTreeSet<i64> = segments.iter().map(|s| s.base_offset).collect();
        let newest = w.snapshots.range(..=end).next_back().copied();
        self.drop_snapshots(w, |offset| {
            offset > end || (!bases.contains(&offset) && Some(offset) != newest)
        });
        if !options.clean_shutdown {
            last.give_back_leftover()?;
        }
        Ok(())
    }

    /// Reads the epoch checkpoint; false when it is not there or not whole.
    fn load_epochs(&self) -> Result<bool, LogError> {
        let path = self.dir.join(checkpoint::LEADER_EPOCHS);
        let parsed = match fs::read_to_string(&path) {
            Ok(text) => checkpoint::parse_epochs(&text),
            Err(e) if is_shortage(&e) => return Err(LogError::shortage("read", &path, &e)),
            Err(e) => Err(e.to_string()),
        };
        Ok(match parsed {
            Ok(entries) => {
                *self.epochs.write() = EpochCache::new(entries);
                true
            }
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "epoch checkpoint is unusable, epochs are read from the batches");
                false
            }
        })
    }
    fn rebuild_epochs(&self, w: &mut Writer) -> Result<(), LogError> {
        let mut cache = EpochCache::default();
        for s in self.segments.load().iter() {
            let mut scan = Scanner::new(&s.log, 0, s.size());
            while let Some(b) = scan
                .next(|_| false)
                .map_err(|e| s.damaged(e, s.base_offset))?
            {
                cache.assign(b.header.leader_epoch, b.header.base_offset);
            }
        }
        self.change_epochs(w, |c| {
            *c = cache;
            true
        })
    }
    /// Rebuilds the indexes of segments that have none, or none that can be used.
    fn rebuild_distrusted(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        distrusted: &[usize],
    ) -> Result<(), LogError> {
        for &at in distrusted {
            // Before there is an offset index: without one, nobody takes a missing transaction
            // index for an empty one.
            self.settle_txn_index(w, segments, &segments[at])?;
            self.rebuild_indexes(&segments[at])?;
        }
        Ok(())
    }
    pub(super) fn rebuild_indexes(&self, s: &Segment) -> Result<(), LogError> {
        tracing::warn!(segment = %s.log.path().display(), "index is missing or wrong, it is rebuilt");
        s.reset_indexes()?;
        let interval = self.config.load().index_interval_bytes;
        let mut scan = Scanner::new(&s.log, 0, s.size());
        while let Some(b) = scan
            .next(|_| false)
            .map_err(|e| s.damaged(e, s.base_offset))?
        {
            s.note_batch(&b.header, b.position, interval)?;
        }
        s.index_is_right();
        s.seal()
    }

    /// Producer state as it was at offset `upto`: newest usable snapshot, then the batches behind
    /// it.
    pub(super) fn replay_producers(
        &self,
        w: &mut Writer,
        segments: &[Arc<Segment>],
        upto: i64,
    ) -> Result<Producers, LogError> {
        let (producers, unusable) = self.replay_from_snapshots(&w.snapshots, segments, upto)?;
        if !unusable.is_empty() {
            self.drop_snapshots(w, |o| unusable.contains(&o));
        }
        Ok(producers)
    }
    /// As [`Self::replay_producers`], without the writer; also gives the snapshots that cannot be
    /// used.
    pub(super) fn replay_from_snapshots(
        &self,
        snapshots: &BTreeSet<i64>,
        segments: &[Arc<Segment>],
        upto: i64,
    ) -> Result<(Producers, Vec<i64>), LogError> {
        let mut producers = Producers::default();
        let mut from = segments.first().map_or(0, |s| s.base_offset);
        let mut unusable = Vec::new();
        let newest_first = snapshots.range(..=upto).rev();
        for &offset in newest_first.take_while(|o| **o >= from) {
            let path = names::segment_file(&self.dir, offset, names::SNAPSHOT);
            let read = fs::read(&path);
            if let Err(e) = &read
                && is_shortage(e)
            {
                // It says nothing about the snapshot, which must not go for it.
                return Err(LogError::shortage("read", &path, e));
            }
            let read = read.map_err(|e| e.to_string());
            match read.and_then(|b| Producers::from_snapshot(&b).map_err(str::to_owned)) {
                Ok(p) => {
                    producers = p;
                    from = offset;
                    break;
                }
                Err(reason) => {
                    tracing::warn!(path = %path.display(), reason, "producer snapshot is unusable, an older one is taken");
                    unusable.push(offset);
                }
            }
        }
        for s in &segments[super::read::floor(segments, from).min(segments.len())..] {
            if s.base_offset >= upto || from >= upto {
                break;
            }
            let start = s.locate(from, s.size())?.map_or(s.size(), |b| b.position);
            let mut scan = Scanner::new(&s.log, start, s.size());
            while let Some(b) = scan.next(|_| false).map_err(|e| s.damaged(e, from))? {
                if b.header.base_offset >= upto {
                    break;
                }
                if b.header.base_offset >= from
                    && (b.header.has_producer_id() || b.header.is_control())
                {
                    producers.apply(&b.header, read_control(s, &b)?.as_ref());
                }
            }
        }
        Ok((producers, unusable))
    }

    /// Removes snapshots that `which` selects; failing to remove one is harmless.
    pub(super) fn drop_snapshots(&self, w: &mut Writer, which: impl Fn(i64) -> bool) {
        let gone: Vec<i64> = w.snapshots.iter().copied().filter(|o| which(*o)).collect();
        for offset in gone {
            w.snapshots.remove(&offset);
            let path = names::segment_file(&self.dir, offset, names::SNAPSHOT);
            if let Err(e) = fs::remove_file(&path) {
                tracing::debug!(path = %path.display(), error = %e, "cannot remove an old producer snapshot");
            }
        }
    }
}

/// A shortage leaves entries in memory, for the next flush.
fn unless_short(done: Result<(), LogError>) -> Result<(), LogError> {
    match done {
        Err(e) if e.is_shortage() => Ok(()),
        done => done,
    }
}

/// The control record of a batch in a file; malformed or oversized ones count as unknown: kept as
/// bytes, meaning nothing.
pub(super) fn read_control(s: &Segment, found: &Found) -> Result<Option<ControlRecord>, LogError> {
    if !found.header.is_control() {
        return Ok(None);
    }
    let mut bytes = vec![0u8; found.header.size().min(CONTROL_BATCH_BYTES_MAX)];
    s.log.read_at(&mut bytes, found.position)?;
    Ok(Some(control_or_unknown(&bytes)))
}

/// Reads a whole control batch leniently.
pub(crate) fn control_or_unknown(batch: &[u8]) -> ControlRecord {
    let record = tarn_records::BatchView::first(batch)
        .and_then(|v| v.records(CONTROL_BATCH_BYTES_MAX))
        .ok()
        .and_then(|mut r| r.next())
        .and_then(Result::ok);
    let unknown = ControlRecord {
        kind: ControlType::Unknown(-1),
        value: None,
    };
    record
        .and_then(|r| parse_control_record(&r).ok())
        .unwrap_or(unknown)
}

/// Lists a partition directory and clears what an interrupted run left: temp files, `.deleted`.
fn list(dir: &Path) -> Result<Listing, LogError> {
    let failed = |e: io::Error| LogError::reading("cannot list", dir, e);
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        other => other.map_err(failed)?,
    };
    let mut listing = Listing::default();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.ends_with(".tmp") || name.ends_with(".deleted") {
            fs::remove_file(entry.path()).map_err(failed)?;
            continue;
        }
        match names::parse_segment_file(name) {
            Some((base, names::LOG)) => _ = listing.bases.insert(base),
            Some((offset, names::SNAPSHOT)) => _ = listing.snapshots.insert(offset),
            Some((base, names::OFFSET_INDEX | names::TIME_INDEX)) => {
                listing.orphans.push((base, entry.path()))
            }
            Some((base, extension @ (names::TXN_INDEX | names::TXN_INDEX_CRC))) => {
                let files = listing.txns.entry(base).or_default();
                files.index |= extension == names::TXN_INDEX;
                files.crc |= extension == names::TXN_INDEX_CRC;
                listing.orphans.push((base, entry.path()))
            }
            _ => {}
        }
    }
    let bases = &listing.bases;
    listing.orphans.retain(|(base, _)| !bases.contains(base));
    Ok(listing)
}
