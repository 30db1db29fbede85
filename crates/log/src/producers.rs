//! Producer state of one log (KIP-98): last batches per producer for idempotence, open
//! transactions, what is undecided for the last stable offset; and the `.snapshot` format. Pure: no
//! file is touched here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tarn_records::{BatchHeader, ControlRecord, ControlType, NO_SEQUENCE, crc32c};

use crate::error::LogError;
use crate::types::{AbortedTxn, ActiveProducer, OpenTransaction};

/// Batches remembered per producer; a retry of an older one is out of order (Kafka's number, and
/// the most a client has in flight).
const BATCHES_PER_PRODUCER: usize = 5;
const NO_COORDINATOR_EPOCH: i32 = -1;
const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER_BYTES: usize = 10;
const SNAPSHOT_ENTRY_BYTES: usize = 46;

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchMeta {
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
    timestamp: i64,
}

impl BatchMeta {
    fn first_sequence(&self) -> i32 {
        if self.last_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        let first = i64::from(self.last_sequence) - i64::from(self.offset_delta);
        (if first < 0 {
            first + i64::from(i32::MAX) + 1
        } else {
            first
        }) as i32
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    epoch: i16,
    batches: VecDeque<BatchMeta>,
    coordinator_epoch: i32,
    last_timestamp: i64,
    txn_first: Option<i64>,
}

/// A duplicate found in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duplicate {
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
}

/// How strictly a batch is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// A client: epochs, sequences, transaction state.
    Producer,
    /// A coordinator or the broker itself: epochs only.
    Marker,
    /// Verbatim: the batch is a fact.
    Nothing,
}

/// All producers of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    entries: HashMap<i64, Entry>,
    /// Open transactions: first offset → producer.
    open: BTreeMap<i64, i64>,
    /// Decided, but the marker is not below the high watermark yet: first offset → marker offset.
    undecided: BTreeMap<i64, i64>,
}

impl Producers {
    /// The retry a client batch is, if it is one.
    pub(crate) fn duplicate(&self, h: &BatchHeader) -> Option<Duplicate> {
        let entry = self
            .entries
            .get(&h.producer_id)
            .filter(|e| h.has_producer_id() && e.epoch == h.producer_epoch)?;
        let b = entry.batches.iter().find(|b| {
            h.base_sequence != NO_SEQUENCE
                && b.first_sequence() == h.base_sequence
                && b.last_sequence == h.last_sequence()
        })?;
        let first_offset = b.last_offset - i64::from(b.offset_delta);
        Some(Duplicate {
            first_offset,
            last_offset: b.last_offset,
            timestamp: b.timestamp,
        })
    }

    /// Whether the batch may be appended.
    pub(crate) fn check(
        &self,
        h: &BatchHeader,
        control: Option<&ControlRecord>,
        how: Check,
    ) -> Result<(), LogError> {
        if how == Check::Nothing || !h.has_producer_id() {
            return Ok(());
        }
        let Some(entry) = self.entries.get(&h.producer_id) else {
            return Ok(());
        };
        if h.producer_epoch < entry.epoch {
            return Err(LogError::InvalidProducerEpoch {
                producer_id: h.producer_id,
                got: h.producer_epoch,
                current: entry.epoch,
            });
        }
        if let Some(control) = control {
            let marker = control.end_txn_marker()?;
            return match marker {
                Some(m) if m.coordinator_epoch < entry.coordinator_epoch => {
                    Err(LogError::CoordinatorFenced {
                        producer_id: h.producer_id,
                        got: m.coordinator_epoch,
                        current: entry.coordinator_epoch,
                    })
                }
                _ => Ok(()),
            };
        }
        if how == Check::Producer {
            entry.check_sequence(h)?;
        }
        if entry.txn_first.is_some() && !h.is_transactional() && h.producer_epoch == entry.epoch {
            let reason = "a transaction is open, the batch is not part of it".to_owned();
            return Err(LogError::InvalidTxnState {
                producer_id: h.producer_id,
                reason,
            });
        }
        Ok(())
    }

    /// Takes a batch in, as a fact. Gives the aborted transaction an ABORT marker ends.
    pub(crate) fn apply(
        &mut self,
        h: &BatchHeader,
        control: Option<&ControlRecord>,
    ) -> Option<AbortedTxn> {
        match control {
            Some(c) if c.kind == ControlType::MirrorPidReset => {
                self.forget_all();
                None
            }
            Some(c) if h.has_producer_id() => self.apply_marker(h, c),
            Some(_) => None,
            None => {
                if h.has_producer_id() {
                    self.apply_data(h);
                }
                None
            }
        }
    }

    fn apply_data(&mut self, h: &BatchHeader) {
        let entry = self
            .entries
            .entry(h.producer_id)
            .or_insert_with(|| Entry::new(h.producer_epoch));
        entry.set_epoch(h.producer_epoch);
        if h.base_sequence != NO_SEQUENCE {
            if entry.batches.len() == BATCHES_PER_PRODUCER {
                entry.batches.pop_front();
            }
            entry.batches.push_back(BatchMeta {
                last_sequence: h.last_sequence(),
                last_offset: h.last_offset(),
                offset_delta: h.last_offset_delta,
                timestamp: h.max_timestamp,
            });
        }
        entry.last_timestamp = h.max_timestamp;
        if h.is_transactional() && entry.txn_first.is_none() {
            entry.txn_first = Some(h.base_offset);
            self.open.insert(h.base_offset, h.producer_id);
        }
    }

    fn apply_marker(&mut self, h: &BatchHeader, control: &ControlRecord) -> Option<AbortedTxn> {
        // A malformed marker in a verbatim append is kept as bytes, but means nothing.
        let marker = control.end_txn_marker().ok().flatten()?;
        let entry = self
            .entries
            .entry(h.producer_id)
            .or_insert_with(|| Entry::new(h.producer_epoch));
        entry.set_epoch(h.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = h.max_timestamp;
        let first_offset = entry.txn_first.take()?;
        let last_offset = h.last_offset();
        self.open.remove(&first_offset);
        self.undecided.insert(first_offset, last_offset);
        let last_stable_offset = self.open.keys().next().copied().unwrap_or(last_offset + 1);
        (!marker.committed).then_some(AbortedTxn {
            producer_id: h.producer_id,
            first_offset,
            last_offset,
            last_stable_offset,
        })
    }

    /// Forgets every producer and open transaction; decided ones wait for the high watermark as
    /// before.
    pub(crate) fn forget_all(&mut self) {
        self.entries.clear();
        self.open.clear();
    }
    /// Lets go of transactions whose marker is below the high watermark; gives whether any went.
    pub(crate) fn high_watermark_moved(&mut self, high_watermark: i64) -> bool {
        let before = self.undecided.len();
        self.undecided.retain(|_, marker| *marker >= high_watermark);
        self.undecided.len() != before
    }
    /// First offset of a transaction that is open or not decided below the high watermark.
    pub(crate) fn first_unstable(&self) -> Option<i64> {
        let open = self.open.keys().next().copied();
        let undecided = self.undecided.keys().next().copied();
        open.into_iter().chain(undecided).min()
    }
    /// Removes producers idle since before `oldest`; those in a transaction stay.
    pub(crate) fn expire(&mut self, oldest: i64) -> usize {
        let before = self.entries.len();
        self.entries
            .retain(|_, e| e.txn_first.is_some() || e.last_timestamp >= oldest);
        before - self.entries.len()
    }
    /// Forgets the producers that are idle longest when there are more than `max`; those in a
    /// transaction stay. An eighth more than needed goes at once, so that a flood of new ids costs
    /// each of them little.
    pub(crate) fn bound(&mut self, max: usize) {
        if self.entries.len() <= max {
            return;
        }
        let surplus = self.entries.len() - max + max / 8;
        let mut idle: Vec<(i64, i64)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.txn_first.is_none())
            .map(|(id, entry)| (entry.last_timestamp, *id))
            .collect();
        if surplus < idle.len() {
            idle.select_nth_unstable(surplus);
            idle.truncate(surplus);
        }
        for (_, id) in idle {
            self.entries.remove(&id);
        }
    }
    /// Last offset of each producer's newest batch.
    pub(crate) fn last_offsets(&self) -> HashMap<i64, i64> {
        let newest = |e: &Entry| e.batches.back().map(|b| b.last_offset);
        self.entries
            .iter()
            .filter_map(|(id, e)| Some((*id, newest(e)?)))
            .collect()
    }
    pub(crate) fn active(&self) -> Vec<ActiveProducer> {
        let mut out: Vec<_> = self.entries.iter().map(|(&id, e)| e.describe(id)).collect();
        out.sort_by_key(|p| p.producer_id);
        out
    }
    pub(crate) fn open_transactions(&self) -> Vec<OpenTransaction> {
        let describe = |(&first_offset, &producer_id): (&i64, &i64)| {
            let e = self.entries.get(&producer_id)?;
            Some(OpenTransaction {
                producer_id,
                producer_epoch: e.epoch,
                coordinator_epoch: e.coordinator_epoch,
                first_offset,
                last_timestamp: e.last_timestamp,
            })
        };
        self.open.iter().filter_map(describe).collect()
    }

    /// Content of a `.snapshot`.
    pub(crate) fn to_snapshot(&self) -> Vec<u8> {
        let mut out = SNAPSHOT_VERSION.to_be_bytes().to_vec();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.entries.len() as i32).to_be_bytes());
        let mut ids: Vec<_> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let e = &self.entries[&id];
            let last = e.batches.back().copied();
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&e.epoch.to_be_bytes());
            out.extend_from_slice(&last.map_or(NO_SEQUENCE, |b| b.last_sequence).to_be_bytes());
            out.extend_from_slice(&last.map_or(-1, |b| b.last_offset).to_be_bytes());
            out.extend_from_slice(&last.map_or(0, |b| b.offset_delta).to_be_bytes());
            out.extend_from_slice(&e.last_timestamp.to_be_bytes());
            out.extend_from_slice(&e.coordinator_epoch.to_be_bytes());
            out.extend_from_slice(&e.txn_first.unwrap_or(-1).to_be_bytes());
        }
        let crc = crc32c(&out[6..]);
        out[2..6].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a `.snapshot`; `Err` says what is wrong with it.
    pub(crate) fn from_snapshot(bytes: &[u8]) -> Result<Producers, &'static str> {
        let header = bytes.get(..SNAPSHOT_HEADER_BYTES).ok_or("cut off")?;
        if i16::from_be_bytes([header[0], header[1]]) != SNAPSHOT_VERSION {
            return Err("unknown version");
        }
        if u32::from_be_bytes([header[2], header[3], header[4], header[5]]) != crc32c(&bytes[6..]) {
            return Err("wrong CRC");
        }
        let count = i32::from_be_bytes([header[6], header[7], header[8], header[9]]);
        let body = &bytes[SNAPSHOT_HEADER_BYTES..];
        if usize::try_from(count)
            .ok()
            .and_then(|n| n.checked_mul(SNAPSHOT_ENTRY_BYTES))
            != Some(body.len())
        {
            return Err("entry count does not fit the length");
        }
        let mut out = Producers::default();
        for e in body.chunks_exact(SNAPSHOT_ENTRY_BYTES) {
            out.read_entry(e);
        }
        Ok(out)
    }

    fn read_entry(&mut self, e: &[u8]) {
        let i64_at = |at: usize| {
            i64::from_be_bytes([
                e[at],
                e[at + 1],
                e[at + 2],
                e[at + 3],
                e[at + 4],
                e[at + 5],
                e[at + 6],
                e[at + 7],
            ])
        };
        let i32_at = |at: usize| i32::from_be_bytes([e[at], e[at + 1], e[at + 2], e[at + 3]]);
        let producer_id = i64_at(0);
        let mut entry = Entry::new(i16::from_be_bytes([e[8], e[9]]));
        let (last_sequence, last_offset) = (i32_at(10), i64_at(14));
        entry.last_timestamp = i64_at(26);
        if last_offset >= 0 && last_sequence != NO_SEQUENCE {
            let offset_delta = i32_at(22);
            entry.batches.push_back(BatchMeta {
                last_sequence,
                last_offset,
                offset_delta,
                timestamp: entry.last_timestamp,
            });
        }
        entry.coordinator_epoch = i32_at(34);
        let txn_first = i64_at(38);
        if txn_first >= 0 {
            entry.txn_first = Some(txn_first);
            self.open.insert(txn_first, producer_id);
        }
        self.entries.insert(producer_id, entry);
    }
}

impl Entry {
    fn new(epoch: i16) -> Entry {
        Entry {
            epoch,
            batches: VecDeque::new(),
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            last_timestamp: -1,
            txn_first: None,
        }
    }
    fn set_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.batches.clear();
        }
    }
    fn check_sequence(&self, h: &BatchHeader) -> Result<(), LogError> {
        let last = self.batches.back().map_or(NO_SEQUENCE, |b| b.last_sequence);
        let ok = if h.producer_epoch != self.epoch {
            h.base_sequence == 0
        } else {
            i64::from(h.base_sequence) == i64::from(last) + 1
                || (h.base_sequence == 0 && last == i32::MAX)
        };
        if ok {
            return Ok(());
        }
        Err(LogError::OutOfOrderSequence {
            producer_id: h.producer_id,
            epoch: h.producer_epoch,
            last,
            got: h.base_sequence,
        })
    }
    fn describe(&self, producer_id: i64) -> ActiveProducer {
        ActiveProducer {
            producer_id,
            producer_epoch: self.epoch,
            last_sequence: self.batches.back().map_or(NO_SEQUENCE, |b| b.last_sequence),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_start_offset: self.txn_first,
        }
    }
}
