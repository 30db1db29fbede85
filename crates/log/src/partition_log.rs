//! One partition's log: offsets, epochs, producers, transactions and limits over the segments
//! below.
//!
//! Implements Kafka's rules for leaders (KIP-98, KIP-101, KIP-107) and readers (KIP-74). Does not
//! know replicas, leadership or who may write: the replica room decides that before calling. This
//! file holds the state, its getters and the watermarks; `append`, `read`, `recover` and `maintain`
//! hold the operations.

mod aborted;
mod append;
mod clean;
mod flush;
mod maintain;
mod produce;
mod read;
mod recover;
mod salvage;
mod scrub;
mod side_files;

pub use scrub::{Damage, ScrubStep};

pub(crate) use flush::TOGETHER_MIN;
pub use flush::flush_all;
pub(crate) use maintain::remove_folder;
pub use produce::{CheckedBatch, PRODUCED_BYTES_MAX};

pub(crate) use append::{Fit, Incoming, Span};
pub(crate) use recover::{CONTROL_BATCH_BYTES_MAX, control_or_unknown};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::checkpoint;
use crate::config::LogConfig;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::names;
use crate::producers::Producers;
use crate::roll::RollBudget;
use crate::segment::Segment;
use crate::stall::{self, Pace, WaitPlace};
use crate::state::LogDirState;
use crate::types::{ActiveProducer, EpochEndOffset, EpochEntry, OpenTransaction};

const NO_EPOCH: i32 = -1;

/// What is called when more of a log is on disk.
#[derive(Clone)]
struct DurableNews(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for DurableNews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DurableNews")
    }
}

/// One partition's log. Share it in an `Arc`; every method takes `&self`. One writer at a time (an
/// inner lock); readers never wait for it. Clamp and order rules are the invariants in the crate
/// documentation.
#[derive(Debug)]
pub struct PartitionLog {
    dir: PathBuf,
    topic: String,
    partition: i32,
    state: Arc<LogDirState>,
    config: ArcSwap<LogConfig>,
    segments: ArcSwap<Vec<Arc<Segment>>>,
    end: ArcSwap<LogEnd>,
    log_start: AtomicI64,
    high_watermark: AtomicI64,
    recovery_point: AtomicI64,
    /// Never below the recovery point; above it while a full disk has no room for the epoch
    /// checkpoint.
    durable_end: AtomicI64,
    /// The cleaner has seen everything below.
    cleaned_to: AtomicI64,
    /// First offset of an undecided transaction, `i64::MAX` for none.
    first_unstable: AtomicI64,
    latest_epoch: AtomicI32,
    unflushed_bytes: AtomicU64,
    /// The syncer's: the last round it was in, and whether its age is watched.
    sync_round: AtomicU64,
    aging: AtomicBool,
    epochs: RwLock<EpochCache>,
    producers: Mutex<Producers>,
    writer: Mutex<Writer>,
    /// One flush at a time: a second one must not report what the first has not synced yet.
    flushing: Mutex<()>,
    /// One rebuilding of transaction indexes at a time.
    rebuilding: Mutex<()>,
    /// Held while the epoch checkpoint is written: writer and flush both do.
    epochs_file: Mutex<()>,
    /// Itself, for who must find it later.
    me: OnceLock<Weak<PartitionLog>>,
    /// Called when the recovery point moved.
    durable_news: RwLock<Option<DurableNews>>,
    /// `partition.metadata`; locked behind `writer` where both are.
    metadata: Mutex<side_files::Metadata>,
}

/// The log end as readers see it: an offset and the place that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogEnd {
    offset: i64,
    segment_base: i64,
    position: u64,
}

/// State only the writer touches.
#[derive(Debug)]
pub(crate) struct Writer {
    closed: bool,
    deleted: bool,
    /// Token of the live verbatim append; 0 for none.
    mirror_token: u64,
    tokens_given: u64,
    /// Where bytes written to the active segment end, when that may be behind its published size; 0
    /// = nowhere.
    written_to: u64,
    /// Number of truncations so far: a flush that spans one must not raise the recovery point.
    truncations: u64,
    /// Segments with unsynced bytes.
    dirty: Vec<Arc<Segment>>,
    /// The directory was made, with a metadata file in it, and neither is synced yet.
    new_dir: bool,
    /// Files were made in the directory since it was last synced.
    new_files: bool,
    /// The epoch checkpoint on disk is not synced (or not written).
    epochs_unsynced: bool,
    snapshots: BTreeSet<i64>,
    /// Early segments that may be made.
    rolls: RollBudget,
}

impl PartitionLog {
    /// Directory of this log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Topic name, from the directory name.
    pub fn topic(&self) -> &str {
        &self.topic
    }
    /// Partition index, from the directory name.
    pub fn partition(&self) -> i32 {
        self.partition
    }
    /// Offset after the last record.
    pub fn log_end_offset(&self) -> i64 {
        self.end.load().offset
    }
    /// First offset that can be read.
    pub fn log_start_offset(&self) -> i64 {
        self.log_start.load(Ordering::Acquire)
    }
    /// The high watermark.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }
    /// Sets the high watermark, clamped into the log; gives the value set and whether it moved.
    pub fn set_high_watermark(&self, offset: i64) -> (i64, bool) {
        let start = self.log_start_offset();
        let value = offset.clamp(start, self.log_end_offset().max(start));
        let before = self.high_watermark.swap(value, Ordering::AcqRel);
        // A truncation may have moved the end meanwhile; it lowers the watermark only once.
        self.high_watermark
            .fetch_min(self.log_end_offset().max(start), Ordering::AcqRel);
        if before != value {
            let mut producers = self.producers.lock();
            if producers.high_watermark_moved(value) {
                self.note_first_unstable(&producers);
            }
        }
        (value, before != value)
    }
    /// min(high watermark, first offset of an undecided transaction).
    pub fn last_stable_offset(&self) -> i64 {
        let unstable = self
            .first_unstable
            .load(Ordering::Acquire)
            .max(self.log_start_offset());
        self.high_watermark().min(unstable)
    }
    fn note_first_unstable(&self, producers: &Producers) {
        self.first_unstable.store(
            producers.first_unstable().unwrap_or(i64::MAX),
            Ordering::Release,
        );
    }
    /// Latest leader epoch in the epoch cache (an atomic load).
    pub fn latest_epoch(&self) -> Option<i32> {
        Some(self.latest_epoch.load(Ordering::Acquire)).filter(|e| *e != NO_EPOCH)
    }
    /// Whole epoch cache, ascending.
    pub fn epochs(&self) -> Vec<EpochEntry> {
        self.epochs.read().entries().to_vec()
    }
    /// Epoch under which `offset` was written.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.epochs.read().epoch_for_offset(offset)
    }
    /// OffsetForLeaderEpoch: the largest known epoch ≤ `epoch` and where it ends (for an epoch
    /// below the first known one: that epoch, ending where the first known one starts); `None` =
    /// unknown (above the latest, or the cache is empty).
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<EpochEndOffset> {
        self.epochs
            .read()
            .end_offset_for(epoch, self.log_end_offset())
    }
    /// Notes in the epoch cache that `epoch` starts at the log end (a leader taking over an
    /// ordinary topic). Not for mirrored partitions. Older epochs are ignored. Costs no file while
    /// the log has none.
    pub fn assign_leader_epoch(&self, epoch: i32) -> Result<(), LogError> {
        let mut w = self.lock_writer();
        self.check_writable(&w)?;
        self.change_epochs(&mut w, |c| c.assign(epoch, self.log_end_offset()))
    }
    /// Changes the epoch cache and writes its checkpoint when anything changed. A full disk leaves
    /// the file for the next flush: the cache can be rebuilt from the batches.
    fn change_epochs(
        &self,
        w: &mut Writer,
        change: impl FnOnce(&mut EpochCache) -> bool,
    ) -> Result<(), LogError> {
        {
            let mut cache = self.epochs.write();
            if !change(&mut cache) {
                return Ok(());
            }
            self.latest_epoch
                .store(cache.latest().unwrap_or(NO_EPOCH), Ordering::Release);
        }
        w.epochs_unsynced = true;
        match self.write_epochs(false) {
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    fn write_epochs(&self, durable: bool) -> Result<(), LogError> {
        if self.segments.load().is_empty() {
            return Ok(());
        }
        let _one_at_a_time = self.epochs_file.lock();
        let content = checkpoint::format_epochs(self.epochs.read().entries());
        self.state
            .replace_file(&self.dir.join(checkpoint::LEADER_EPOCHS), &content, durable)
    }

    /// Replaces the settings.
    pub fn update_config(&self, config: LogConfig) {
        self.config.store(Arc::new(config));
    }
    /// Current settings.
    pub fn config(&self) -> Arc<LogConfig> {
        self.config.load_full()
    }
    /// Everything below is on disk, and so is what is derived from it: a recovery begins here.
    pub fn recovery_point(&self) -> i64 {
        self.recovery_point.load(Ordering::Acquire)
    }
    /// Every batch below is on disk: what may be acknowledged and shown. What is derived from them
    /// may still have to be rebuilt.
    pub fn durable_end(&self) -> i64 {
        self.durable_end.load(Ordering::Acquire)
    }
    /// Has `news` called whenever the durable end moved, on the thread that synced; the last call
    /// counts.
    pub fn on_durable(&self, news: impl Fn() + Send + Sync + 'static) {
        *self.durable_news.write() = Some(DurableNews(Arc::new(news)));
    }
    /// Bytes appended since the last flush.
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes.load(Ordering::Acquire)
    }
    pub(crate) fn sync_round(&self) -> u64 {
        self.sync_round.load(Ordering::Relaxed)
    }
    pub(crate) fn set_sync_round(&self, round: u64) {
        self.sync_round.store(round, Ordering::Relaxed);
    }
    /// Whether a sync by age is to come that covers everything appended before this call.
    pub(crate) fn is_aging(&self) -> bool {
        // Pairs with the fence below: either the syncer sees the bytes, or this sees that it has
        // looked already.
        fence(Ordering::SeqCst);
        self.aging.load(Ordering::Relaxed)
    }
    /// Set to false before the unsynced bytes are looked at.
    pub(crate) fn set_aging(&self, aging: bool) {
        self.aging.store(aging, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
    /// Producers known, by id.
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        self.producers.lock().active()
    }
    /// Transactions without a marker, by first offset.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.producers.lock().open_transactions()
    }
    /// Forgets producers idle for `producer.id.expiration.ms`; those in a transaction stay. Gives
    /// the number removed.
    pub fn expire_producers(&self, now_ms: i64) -> usize {
        let oldest = now_ms.saturating_sub(self.config.load().producer_id_expiration_ms);
        self.producers.lock().expire(oldest)
    }
    /// Bytes of all `.log` files.
    pub fn size_bytes(&self) -> u64 {
        self.segments.load().iter().map(|s| s.size()).sum()
    }
    /// Number of segments (0 until the first append).
    pub fn segment_count(&self) -> usize {
        self.segments.load().len()
    }
    /// First offset kept on disk, also below the log start: base of the first segment. `None`
    /// without segments.
    pub(crate) fn first_segment_base(&self) -> Option<i64> {
        self.segments.load().first().map(|s| s.base_offset)
    }

    /// The directory of the log, whose health all its logs share.
    pub fn dir_state(&self) -> &Arc<LogDirState> {
        &self.state
    }
    /// Whether work on the log may have to wait: its disk is late, or another file has to be synced
    /// and closed first.
    pub fn may_wait(&self) -> bool {
        self.state.pace() != Pace::Quick || self.state.open_files.is_short()
    }
    /// After a [`LogError::Shortage`]: syncs and closes files of logs, so that the same call may
    /// work now. Blocks on disk.
    pub fn make_room(&self) {
        self.state.open_files.make_room_for_reader();
    }
    /// A place among those who wait for a slow disk. Error: it is offline, or has not answered for
    /// long, or enough wait.
    pub fn wait_place(&self) -> Result<Option<WaitPlace>, LogError> {
        self.state.check_online()?;
        let stalled = || LogError::Stalled {
            dir: self.state.path().to_path_buf(),
        };
        match self.state.pace() {
            Pace::Quick => Ok(None),
            Pace::Slow => WaitPlace::take(&self.state).map(Some).ok_or_else(stalled),
            Pace::Stalled => Err(stalled()),
        }
    }
    /// Waits for `lock`, whose holder may be waiting for the disk of this log; the watchdog sees
    /// the wait.
    pub fn wait_for<'a, T>(&self, lock: &'a Mutex<T>) -> MutexGuard<'a, T> {
        if let Some(guard) = lock.try_lock() {
            return guard;
        }
        let _busy = stall::enter(&self.state);
        lock.lock()
    }
    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.wait_for(&self.writer)
    }
    pub(crate) fn check_writable(&self, w: &Writer) -> Result<(), LogError> {
        if w.closed {
            let topic_partition = names::partition_dir(&self.topic, self.partition);
            return Err(LogError::Closed { topic_partition });
        }
        self.state.check_online()
    }
    fn active(&self) -> Option<Arc<Segment>> {
        self.segments.load().last().cloned()
    }
    fn set_segments(&self, list: Vec<Arc<Segment>>) {
        self.segments.store(Arc::new(list));
    }
    /// Moves the log end, and gives the one before; readers see bytes and offset together.
    fn publish_end(&self, segment: &Segment, position: u64, offset: i64) -> i64 {
        segment.publish(position);
        let end = LogEnd {
            offset,
            segment_base: segment.base_offset,
            position,
        };
        self.end.swap(Arc::new(end)).offset
    }
}

impl Writer {
    fn mark_dirty(&mut self, segment: &Arc<Segment>) {
        if !self.dirty.iter().any(|s| Arc::ptr_eq(s, segment)) {
            segment.log.mark_unsynced();
            self.dirty.push(Arc::clone(segment));
        }
    }
}
