//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers of one partition.

use tarn_log::{ActiveProducer, TimestampAndOffset};
use tarn_records::StreamPace;

use crate::error::ReplicaError;
use crate::fetch::Isolation;
use crate::guard::MirrorGuard;
use crate::partition::Partition;

/// ListOffsets: the end, by isolation.
pub const LATEST_TIMESTAMP: i64 = -1;
/// ListOffsets: the log start.
pub const EARLIEST_TIMESTAMP: i64 = -2;
/// ListOffsets: the record with the largest timestamp.
pub const MAX_TIMESTAMP: i64 = -3;
/// ListOffsets: the first offset on local disk.
pub const EARLIEST_LOCAL_TIMESTAMP: i64 = -4;
/// ListOffsets: the last tiered offset (nothing is tiered here).
pub const LATEST_TIERED_TIMESTAMP: i64 = -5;
/// ListOffsets: the first offset not yet uploaded (nothing is tiered here).
pub const EARLIEST_PENDING_UPLOAD_TIMESTAMP: i64 = -6;

/// Whether [`Partition::list_offset`] looks into the log for this timestamp, and so belongs on a
/// thread that may block.
pub fn must_look_up(timestamp: i64) -> bool {
    timestamp >= 0 || timestamp == MAX_TIMESTAMP
}

/// An answer of ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// Timestamp of the record; −1 = none.
    pub timestamp: i64,
    /// Its offset; −1 = no such record.
    pub offset: i64,
    /// Leader epoch of its batch; −1 = none.
    pub leader_epoch: i32,
}

impl ListedOffset {
    /// No record answers the question.
    pub const NONE: ListedOffset = ListedOffset {
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    };
}

/// Where an epoch ends here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch here that is not above the one asked for.
    pub epoch: i32,
    /// Offset after its last record.
    pub end_offset: i64,
}

impl Partition {
    /// ListOffsets for one timestamp (or one of the constants of this module). For what
    /// [`must_look_up`] it blocks on disk and reads compressed records, at this `pace`.
    pub fn list_offset(
        &self,
        timestamp: i64,
        isolation: Isolation,
        current_leader_epoch: i32,
        pace: &mut dyn StreamPace,
    ) -> Result<ListedOffset, ReplicaError> {
        self.check_leader()?;
        self.check_epoch(current_leader_epoch)?;
        let log = self.log();
        let visible_end = match isolation {
            Isolation::ReadUncommitted => log.high_watermark(),
            Isolation::ReadCommitted => log.last_stable_offset(),
        };
        let found = match timestamp {
            LATEST_TIMESTAMP => {
                return Ok(ListedOffset {
                    timestamp: -1,
                    offset: visible_end,
                    leader_epoch: self.epoch_at_end(),
                });
            }
            EARLIEST_TIMESTAMP | EARLIEST_LOCAL_TIMESTAMP => {
                let offset = log.log_start_offset();
                let leader_epoch = self.epoch_at_start(offset);
                return Ok(ListedOffset {
                    timestamp: -1,
                    offset,
                    leader_epoch,
                });
            }
            LATEST_TIERED_TIMESTAMP | EARLIEST_PENDING_UPLOAD_TIMESTAMP => {
                return Ok(ListedOffset::NONE);
            }
            MAX_TIMESTAMP => log.max_timestamp(pace),
            timestamp => log.offset_for_timestamp(timestamp, pace),
        };
        let found: Option<TimestampAndOffset> = found.map_err(|error| self.failed(error))?;
        Ok(found
            .filter(|found| found.offset < visible_end)
            .map_or(ListedOffset::NONE, |found| ListedOffset {
                timestamp: found.timestamp,
                offset: found.offset,
                leader_epoch: found.leader_epoch,
            }))
    }

    /// The epoch to hand out with the log start. An empty log begins with the present leadership,
    /// as Kafka says from the moment a leader is chosen; not so on a mirror, whose records come
    /// with epochs of their own.
    fn epoch_at_start(&self, offset: i64) -> i32 {
        let log = self.log();
        log.epoch_for_offset(offset).unwrap_or_else(|| {
            let begins_here = offset == log.log_end_offset();
            match self.guard() {
                MirrorGuard::Writable if begins_here => self.leader_epoch(),
                _ => -1,
            }
        })
    }

    /// The epoch to hand out with the log end. On a mirror it is the last batch's, not the (higher)
    /// local one: a consumer that takes it back to the source must find it there.
    fn epoch_at_end(&self) -> i32 {
        match self.guard() {
            MirrorGuard::Writable => self.leader_epoch(),
            _ => self
                .log()
                .latest_epoch()
                .unwrap_or_else(|| self.leader_epoch()),
        }
    }

    /// OffsetForLeaderEpoch. `None` = the epoch is not known here.
    pub fn offset_for_leader_epoch(
        &self,
        epoch: i32,
        current_leader_epoch: i32,
    ) -> Result<Option<EpochEnd>, ReplicaError> {
        self.check_leader()?;
        self.check_epoch(current_leader_epoch)?;
        Ok(self.end_of_epoch(epoch))
    }

    /// Where `epoch` ends. An epoch above the log's latest one, but not above the published one,
    /// starts (and ends) at the log end: this leadership has written nothing yet, and a mirrored
    /// log does not get the local epochs.
    pub(crate) fn end_of_epoch(&self, epoch: i32) -> Option<EpochEnd> {
        let log = self.log();
        if epoch >= 0
            && epoch <= self.leader_epoch()
            && log.latest_epoch().is_none_or(|latest| epoch > latest)
        {
            return Some(EpochEnd {
                epoch,
                end_offset: log.log_end_offset(),
            });
        }
        log.end_offset_for_epoch(epoch).map(|end| EpochEnd {
            epoch: end.epoch,
            end_offset: end.end_offset,
        })
    }

    /// DeleteRecords: raises the log start offset to `offset` (−1 = the high watermark) and gives
    /// it. On disk when it returns. Blocks on disk.
    pub fn delete_records(&self, offset: i64) -> Result<i64, ReplicaError> {
        self.check_leader()?;
        self.check_writable()?;
        let log = self.log();
        if !log.config().delete {
            return Err(ReplicaError::Policy(format!(
                "records of {}-{} cannot be deleted: its cleanup.policy has no delete",
                self.topic(),
                self.index()
            )));
        }
        let high_watermark = log.high_watermark();
        let target = if offset == -1 { high_watermark } else { offset };
        if target < 0 || target > high_watermark {
            return Err(ReplicaError::OffsetOutOfRange {
                offset,
                log_start: log.log_start_offset(),
                high_watermark,
            });
        }
        let start = log
            .advance_log_start(target)
            .map_err(|error| self.failed(error))?;
        self.shared().note_log_start(log);
        self.watchers().signal();
        // Files went first: on a full disk that is what makes room for this.
        log.keep_log_start(true)
            .map_err(|error| self.failed(error))?;
        Ok(start)
    }

    /// DescribeProducers.
    pub fn producers(&self) -> Result<Vec<ActiveProducer>, ReplicaError> {
        self.check_leader()?;
        Ok(self.log().active_producers())
    }
}
