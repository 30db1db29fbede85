//! The metadata log as the event loop sees it: encoded decisions go in, batches come out for
//! replay.
//!
//! Owns the form of decisions in the log: inside one batch, or, when one is too small, a KIP-868
//! transaction over several. Segments, indexes and recovery are `tarn_log`'s.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tarn_log::{AppendOrigin, LogConfig, LogDirState, LogError, OpenOptions, PartitionLog};
use tarn_metadata::{Record, Replay};
use tarn_raft::{EpochHistory, LogEnd};
use tarn_records::{BatchBuilder, batches, records};
use tarn_wire::Uuid;
use tarn_wire::messages::{BeginTransactionRecord, EndTransactionRecord};

use crate::ballast::Ballast;
use crate::synced_end::SyncedEnd;
use crate::{ControllerError, Settings, tail_check};

/// Directory of the metadata log inside the metadata directory.
pub(crate) const LOG_DIR_NAME: &str = "__cluster_metadata-0";
/// Largest uncompressed batch this controller writes (Kafka's own limit).
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Largest decompressed batch it reads.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes read at once during replay.
const READ_BYTES: u64 = 8 << 20;

/// Upper bound of what a batch adds around a record's value.
const RECORD_OVERHEAD_BYTES: usize = 24;

/// A decision's records, encoded.
#[derive(Debug)]
pub(crate) struct EncodedDecision {
    values: Vec<Bytes>,
    bytes: usize,
    /// Whether it is too large for one batch and is bracketed as a transaction.
    transaction: bool,
}

impl EncodedDecision {
    /// Encodes one decision.
    pub(crate) fn new(name: &'static str, records: &[Record]) -> Result<Self, ControllerError> {
        let mut values = Vec::with_capacity(records.len() + 2);
        let mut bytes = 0;
        for record in records {
            let value = record.encode()?;
            bytes += value.len() + RECORD_OVERHEAD_BYTES;
            values.push(value);
        }
        let transaction = bytes > BATCH_BYTES_MAX;
        if transaction {
            let begin = BeginTransactionRecord {
                name: Some(name.into()),
                ..Default::default()
            };
            values.insert(0, Record::from(begin).encode()?);
            values.push(Record::from(EndTransactionRecord::default()).encode()?);
        }
        Ok(Self {
            values,
            bytes,
            transaction,
        })
    }

    /// Offsets it takes.
    pub(crate) fn offsets(&self) -> i64 {
        self.values.len() as i64
    }
}

/// Decisions gathered into as few batches as hold them. Each batch gets its own write and its own
/// sync, so that a whole batch behind a broken one proves that the broken one was once whole (see
/// `tail_check.rs`).
#[derive(Debug, Default)]
pub(crate) struct Batches {
    batches: Vec<Vec<Bytes>>,
    open_bytes: usize,
    offsets: i64,
    bytes: usize,
}

impl Batches {
    /// Adds a decision behind those already there.
    pub(crate) fn add(&mut self, decision: EncodedDecision) {
        self.offsets += decision.offsets();
        self.bytes += decision.bytes;
        if self.batches.is_empty() || self.open_bytes + decision.bytes > BATCH_BYTES_MAX {
            self.open();
        }
        for value in decision.values {
            let bytes = value.len() + RECORD_OVERHEAD_BYTES;
            if self.open_bytes + bytes > BATCH_BYTES_MAX && self.open_bytes > 0 {
                self.open();
            }
            self.open_bytes += bytes;
            if let Some(open) = self.batches.last_mut() {
                open.push(value);
            }
        }
        if decision.transaction {
            // Nothing may follow an EndTransaction in its batch.
            self.open_bytes = BATCH_BYTES_MAX;
        }
    }

    /// Offsets all of it takes.
    pub(crate) fn offsets(&self) -> i64 {
        self.offsets
    }

    /// About how many bytes all of it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batches, offsets not assigned yet.
    pub(crate) fn build(&self, now_ms: i64) -> Result<Vec<Vec<u8>>, ControllerError> {
        let build = |values: &Vec<Bytes>| {
            let mut batch = BatchBuilder::new();
            for value in values {
                batch.add(now_ms, None, Some(value), &[]);
            }
            Ok(batch.build()?)
        };
        self.batches.iter().map(build).collect()
    }

    fn open(&mut self) {
        self.batches.push(Vec::new());
        self.open_bytes = 0;
    }
}

/// The open metadata log.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Arc<PartitionLog>,
    dir: PathBuf,
    synced: SyncedEnd,
    /// Space kept back for it.
    pub(crate) ballast: Ballast,
}

impl Journal {
    /// Opens, and recovers, the log.
    pub(crate) fn open(settings: &Settings, now_ms: i64) -> Result<Self, ControllerError> {
        let dir = settings.metadata_dir.join(LOG_DIR_NAME);
        // It holds the passwords of mirrors, also where an older version made it for everybody to
        // read.
        tarn_log::private::create_dir_all(&dir)
            .and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)))
            .map_err(|error| ControllerError::file("create", &dir, error))?;
        tail_check::refuse_damage(&dir, SyncedEnd::read(&dir)?.unwrap_or(0))?;
        let config = LogConfig {
            segment_bytes: settings.segment_bytes,
            segment_ms: i64::MAX,
            retention_ms: -1,
            retention_bytes: -1,
            ..LogConfig::default()
        };
        let options = OpenOptions {
            clean_shutdown: false,
            // Every commit was synced, so damage below the last segment is never a torn write and
            // must not be cut.
            recovery_point: None,
            log_start_offset: 0,
            high_watermark: 0,
            topic_id: Some(Uuid::METADATA_TOPIC.to_string()),
            now_ms,
            dir_state: LogDirState::detached(&settings.metadata_dir),
        };
        let mut ballast = Ballast::open(&dir);
        let open = || {
            let log = PartitionLog::open(&dir, config.clone(), options.clone())?;
            // What recovery left was walked and, where it cut, synced; anything else is synced now.
            let end = log.flush()?;
            Ok::<_, LogError>((log, end))
        };
        let (log, end) = loop {
            match open() {
                Err(LogError::NoSpace { .. }) if ballast.release() => {}
                opened => break opened?,
            }
        };
        let synced = SyncedEnd::open(&dir, end)?;
        Ok(Self {
            log,
            dir,
            synced,
            ballast,
        })
    }

    /// Directory of the log, where its companions live too.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Offset after the last record.
    pub(crate) fn end_offset(&self) -> i64 {
        self.log.log_end_offset()
    }

    /// First offset there is.
    pub(crate) fn start_offset(&self) -> i64 {
        self.log.log_start_offset()
    }

    /// Epochs and ends of the log, for the quorum core.
    pub(crate) fn history(&self) -> EpochHistory {
        let starts = self
            .log
            .epochs()
            .into_iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect();
        EpochHistory::new(self.start_offset(), self.end_offset(), starts)
    }

    /// Appends batches in this epoch; nothing is synced yet. Gives the new end.
    pub(crate) fn append(
        &self,
        mut bytes: Vec<u8>,
        epoch: i32,
        now_ms: i64,
    ) -> Result<i64, ControllerError> {
        let info = self
            .log
            .append_as_leader(&mut bytes, epoch, AppendOrigin::Internal, now_ms)?;
        Ok(info.last_offset + 1)
    }

    /// Syncs everything appended; gives the end of what is on disk.
    pub(crate) fn sync(&mut self) -> Result<i64, ControllerError> {
        let end = self.log.flush()?;
        self.synced.reached(end)?;
        Ok(end)
    }

    /// Whether [`Journal::keep_synced_end`] has something to do.
    pub(crate) fn synced_end_is_unkept(&self) -> bool {
        self.synced.is_unsynced()
    }

    /// Makes what is known of the synced end durable.
    pub(crate) fn keep_synced_end(&mut self) -> Result<(), ControllerError> {
        self.synced.sync()
    }

    /// Tells readers of the log what is committed.
    pub(crate) fn commit(&self, high_watermark: i64) {
        self.log.set_high_watermark(high_watermark);
    }

    /// Feeds the batches from `from` to `to` into a replay.
    pub(crate) fn replay(
        &self,
        mut from: i64,
        to: i64,
        replay: &mut Replay,
    ) -> Result<(), ControllerError> {
        while from < to {
            let Some(slice) = self.log.read(from, READ_BYTES, to, true)? else {
                return Err(self.bad(format!(
                    "nothing can be read at offset {from}, although the log ends at {to}"
                )));
            };
            let bytes = slice.read()?;
            let mut walked = 0;
            for view in batches(&bytes) {
                let view = view?;
                view.check_crc()?;
                let whole = bytes.slice(walked..walked + view.header.size());
                walked += view.header.size();
                if view.header.next_offset() <= from {
                    continue;
                }
                if view.header.base_offset > from {
                    return Err(self.bad(format!(
                        "offsets {from} to {} are missing: restore the segment that held them from a copy",
                        view.header.base_offset - 1
                    )));
                }
                if !view.header.is_control() {
                    replay.batch(
                        decode_records(&whole)?,
                        view.header.last_offset(),
                        view.header.leader_epoch,
                    )?;
                }
                from = view.header.next_offset();
            }
            if walked == 0 {
                return Err(self.bad(format!("the batch at offset {from} cannot be read")));
            }
        }
        Ok(())
    }

    /// Deletes whole segments below this offset, which a snapshot covers.
    pub(crate) fn delete_below(&self, offset: i64) -> Result<(), ControllerError> {
        self.log.advance_log_start(offset)?;
        Ok(())
    }

    /// Replaces a log that ends before a snapshot does: everything in it is in the snapshot.
    pub(crate) fn start_at(&self, end: LogEnd) -> Result<(), ControllerError> {
        Ok(self.log.truncate_fully_and_start_at(end.offset)?)
    }

    /// Closes the log for good.
    pub(crate) fn close(&mut self) -> Result<(), ControllerError> {
        self.log.close_clean()?;
        self.synced.reached(self.log.log_end_offset())?;
        self.synced.sync()
    }

    pub(crate) fn bad(&self, reason: String) -> ControllerError {
        ControllerError::BadFile {
            path: self.dir.clone(),
            reason,
        }
    }
}

/// The metadata records of one batch.
pub(crate) fn decode_records(batch: &Bytes) -> Result<Vec<Record>, ControllerError> {
    let mut decoded = Vec::new();
    for record in records(batch, RECORD_BYTES_MAX)? {
        let value = record?.value.unwrap_or_default();
        decoded.push(Record::decode(value)?);
    }
    Ok(decoded)
}
