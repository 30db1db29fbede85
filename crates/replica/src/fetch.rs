//! Reading for Fetch: epoch and offset checks, KIP-74 limits, isolation, and the long poll.
//!
//! Does not know sessions, topic names or response versions (the server does). A read finds file
//! ranges only; bytes go from the file to the socket later.

use std::sync::Arc;
use std::time::Duration;

use tarn_log::{AbortedTxn, LogError, Slice};
use tarn_wire::{ErrorCode, FileRange, Records};
use tokio::time::Instant;

use crate::disk;
use crate::error::ReplicaError;
use crate::offsets::EpochEnd;
use crate::partition::Partition;
use crate::purgatory::Waiter;

/// Up to where a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Below the high watermark.
    ReadUncommitted,
    /// Below the last stable offset.
    ReadCommitted,
}

impl Isolation {
    /// From the wire: 1 is read_committed, everything else read_uncommitted.
    pub fn from_wire(level: i8) -> Self {
        if level == 1 {
            Isolation::ReadCommitted
        } else {
            Isolation::ReadUncommitted
        }
    }
}

/// Limits of one Fetch request.
#[derive(Clone, Copy, Debug)]
pub struct FetchParams {
    /// How long to wait for `min_bytes`, ms; ≤ 0 = answer at once.
    pub max_wait_ms: i32,
    /// Answer when this many bytes are there.
    pub min_bytes: i32,
    /// Limit over all partitions; the first batch of the answer comes whole even when it is larger
    /// (KIP-74).
    pub max_bytes: i32,
    /// Up to where to read.
    pub isolation: Isolation,
}

/// One partition to read.
#[derive(Clone, Debug)]
pub struct FetchRead {
    /// Which.
    pub partition: Arc<Partition>,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Limit for this partition.
    pub max_bytes: i32,
    /// Leader epoch the caller knows; −1 = none.
    pub current_leader_epoch: i32,
    /// Epoch of the last record the caller has (KIP-595); −1 = none.
    pub last_fetched_epoch: i32,
}

/// The answer for one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchData {
    /// What went wrong; the offsets are −1 then.
    pub error: ErrorCode,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start offset.
    pub log_start_offset: i64,
    /// Where the caller's log leaves ours: largest common epoch and its end offset here.
    pub diverging_epoch: Option<EpochEnd>,
    /// Leader and leader epoch, with errors that a look at newer metadata would solve.
    pub current_leader: Option<(i32, i32)>,
    /// Aborted transactions in the range, for read_committed only.
    pub aborted: Option<Vec<AbortedTxn>>,
    /// The record bytes, possibly none.
    pub records: Records,
}

impl FetchData {
    /// Size of the records in bytes.
    pub fn len(&self) -> u64 {
        self.records.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn refused(partition: &Partition, error: &ReplicaError) -> Self {
        let code = error.code();
        let current_leader = matches!(
            code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER
                | ErrorCode::FENCED_LEADER_EPOCH
                | ErrorCode::UNKNOWN_LEADER_EPOCH
        )
        .then(|| (partition.leader(), partition.leader_epoch()));
        FetchData {
            error: code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader,
            aborted: None,
            records: Records::EMPTY,
        }
    }

    /// Whether the caller must hear of this now, however few bytes there are.
    fn is_urgent(&self) -> bool {
        !self.error.is_none() || self.diverging_epoch.is_some()
    }
}

/// Reads all partitions, in order, as one Fetch answer: waits up to `max_wait_ms` for `min_bytes`
/// unless something urgent (an error, a divergence) is there. The answers are in the order of
/// `reads`. Dropping the future ends the wait.
pub async fn fetch(params: &FetchParams, reads: &[FetchRead]) -> Vec<FetchData> {
    let answer = read_all(params, reads).await;
    if params.max_wait_ms <= 0 || reads.is_empty() || is_enough(params, &answer) {
        return answer;
    }
    drop(answer);
    let deadline = Instant::now() + Duration::from_millis(params.max_wait_ms as u64);
    let watch = Watch::new(reads);
    for read in reads {
        read.partition.sync_for_readers();
    }
    // What is there after registering: from here on nothing is missed.
    let mut available: Vec<u64> = Vec::with_capacity(reads.len());
    for (at, read) in reads.iter().enumerate() {
        let_others_run(at).await;
        match look(params, read) {
            Some(bytes) => available.push(bytes),
            None => return read_all(params, reads).await,
        }
    }
    let mut total: u64 = available.iter().sum();
    let mut moved = Vec::with_capacity(reads.len());
    while total < params.min_bytes.max(0) as u64 {
        if tokio::time::timeout_at(deadline, watch.waiter.moved(&mut moved))
            .await
            .is_err()
        {
            break;
        }
        for (at, &index) in moved.iter().enumerate() {
            let_others_run(at).await;
            let index = index as usize;
            let Some(bytes) = look(params, &reads[index]) else {
                return read_all(params, reads).await;
            };
            total = total - available[index] + bytes;
            available[index] = bytes;
        }
    }
    read_all(params, reads).await
}

/// Partitions after which a fetch lets the other tasks of its worker run: about half a millisecond
/// of look-ups.
const PARTITIONS_PER_TURN: usize = 512;

async fn let_others_run(at: usize) {
    if at % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1 {
        tokio::task::yield_now().await;
    }
}

/// Entries of one waiting fetch in the watch lists of its partitions, taken out on drop.
struct Watch<'a> {
    waiter: Arc<Waiter>,
    entries: Vec<(&'a Partition, u32)>,
}

impl<'a> Watch<'a> {
    fn new(reads: &'a [FetchRead]) -> Self {
        let waiter = Waiter::new(reads.len());
        let mut entries = Vec::with_capacity(reads.len());
        for (index, read) in reads.iter().enumerate() {
            let key = read.partition.watchers().register(&waiter, index as u32);
            entries.push((&*read.partition, key));
        }
        Watch { waiter, entries }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for (partition, key) in &self.entries {
            partition.watchers().remove(*key);
        }
    }
}

fn is_enough(params: &FetchParams, answer: &[FetchData]) -> bool {
    let mut bytes = 0;
    for data in answer {
        if data.is_urgent() {
            return true;
        }
        bytes += data.len();
    }
    bytes >= params.min_bytes.max(0) as u64
}

/// Bytes a read of this partition would give; `None` = answer now, whatever there is.
fn look(params: &FetchParams, read: &FetchRead) -> Option<u64> {
    let data = read_one(params.isolation, read, u64::MAX, true);
    let len = data.len();
    let urgent = data.is_urgent()
        || (len > 0 && len < params.min_bytes.max(0) as u64 && goes_on_elsewhere(&data, read));
    (!urgent).then_some(len)
}

/// Whether the readable log goes on in another segment: a read ends with its segment, so more would
/// never be counted.
fn goes_on_elsewhere(data: &FetchData, read: &FetchRead) -> bool {
    let Records::File(range) = &data.records else {
        return false;
    };
    let upper = if data.aborted.is_some() {
        data.last_stable_offset
    } else {
        data.high_watermark
    };
    match read.partition.log().read(upper - 1, 1, upper, true) {
        Ok(Some(last)) => !Arc::ptr_eq(&last.file, &range.file),
        _ => false,
    }
}

/// One pass over all partitions with the limits of the request.
async fn read_all(params: &FetchParams, reads: &[FetchRead]) -> Vec<FetchData> {
    let mut left = params.max_bytes.max(0) as u64;
    let mut nothing_yet = true;
    let mut answer = Vec::with_capacity(reads.len());
    for (at, read) in reads.iter().enumerate() {
        let_others_run(at).await;
        let data = read_one(params.isolation, read, left, nothing_yet);
        let len = data.len();
        left = left.saturating_sub(len);
        nothing_yet &= len == 0;
        answer.push(data);
    }
    answer
}

/// Reads one partition. `left` is what the request's limit still allows; `min_one` gives a first
/// batch larger than the limits.
fn read_one(isolation: Isolation, read: &FetchRead, left: u64, min_one: bool) -> FetchData {
    match try_read(isolation, read, left, min_one) {
        Ok(data) => data,
        Err(error) => FetchData::refused(&read.partition, &error),
    }
}

fn try_read(
    isolation: Isolation,
    read: &FetchRead,
    left: u64,
    min_one: bool,
) -> Result<FetchData, ReplicaError> {
    let partition = &read.partition;
    partition.check_leader()?;
    partition.check_epoch(read.current_leader_epoch)?;
    let log = partition.log();
    let log_start_offset = log.log_start_offset();
    // The stable offset first: it may lag behind the high watermark that is read after it, never
    // run ahead.
    let last_stable_offset = log.last_stable_offset();
    let high_watermark = log.high_watermark();
    let mut data = FetchData {
        high_watermark,
        last_stable_offset,
        log_start_offset,
        ..FetchData::default()
    };
    if isolation == Isolation::ReadCommitted {
        data.aborted = Some(Vec::new());
    }
    if read.last_fetched_epoch >= 0 {
        let end = partition.end_of_epoch(read.last_fetched_epoch);
        let out_of_range = || ReplicaError::OffsetOutOfRange {
            offset: read.fetch_offset,
            log_start: log_start_offset,
            high_watermark,
        };
        let end = end.ok_or_else(out_of_range)?;
        if read.fetch_offset < log_start_offset {
            return Err(out_of_range());
        }
        if end.epoch < read.last_fetched_epoch || end.end_offset < read.fetch_offset {
            data.diverging_epoch = Some(end);
            return Ok(data);
        }
    }
    let upper = match isolation {
        Isolation::ReadUncommitted => high_watermark,
        Isolation::ReadCommitted => last_stable_offset,
    };
    let max_bytes = (read.max_bytes.max(0) as u64).min(left);
    let found = || {
        log.read(read.fetch_offset, max_bytes, upper, min_one)
            .map_err(|error| partition.failed(error))
    };
    let found = match disk::run_again(log, found) {
        // Others hold the descriptors; what is in the answer already is worth sending.
        Err(ReplicaError::Log(LogError::Shortage { .. })) if !min_one => None,
        found => found?,
    };
    let Some(slice) = found else {
        return Ok(data);
    };
    if isolation == Isolation::ReadCommitted {
        data.aborted = Some(
            disk::look_up(log, || log.aborted_in(read.fetch_offset, &slice, upper))
                .map_err(|error: LogError| partition.failed(error))?,
        );
    }
    data.records = records(slice);
    Ok(data)
}

fn records(slice: Slice) -> Records {
    Records::File(FileRange {
        file: slice.file,
        offset: slice.position,
        len: slice.len,
    })
}
