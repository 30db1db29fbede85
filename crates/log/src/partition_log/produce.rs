//! A producer's batch: checked before anything is locked, then appended. What is refused and what
//! is corrected is Kafka's choice; the checks themselves are in `tarn_records`. Not here: writing
//! (`append`), and which request may write.

use tarn_records::{
    BatchHeader, BatchView, Compressor, RecordRules, RecordsError, StreamPace, one_batch,
};

use super::PartitionLog;
use super::append::{Incoming, Time};
use crate::config::{LogConfig, TimestampType};
use crate::error::LogError;
use crate::types::{AppendInfo, AppendOrigin};

/// What may come out of one compressed batch while it is checked. Nothing of it is kept, so this
/// bounds time, not memory.
pub const PRODUCED_BYTES_MAX: usize = 1 << 30;

/// A producer's batch that was checked: only sequences, epochs and transactions can still refuse
/// it.
#[derive(Debug, Clone, Copy)]
pub struct CheckedBatch {
    header: BatchHeader,
    time: Time,
}

impl PartitionLog {
    /// Checks the one batch in `bytes` as Kafka does before it appends, against the settings as
    /// they are now. Takes no lock. Compressed records are read at this `pace`; more than `limit`
    /// bytes of them are refused.
    pub fn check_produced(
        &self,
        bytes: &[u8],
        now_ms: i64,
        limit: usize,
        pace: &mut dyn StreamPace,
    ) -> Result<CheckedBatch, LogError> {
        let config = self.config();
        let batch = one_batch(bytes).map_err(refusal)?;
        check_size(&batch, &config)?;
        let create_time = config.timestamp_type == TimestampType::CreateTime;
        let rules = RecordRules {
            keys_required: config.compact,
            create_time,
            before_max_ms: config.timestamp_before_max_ms,
            after_max_ms: config.timestamp_after_max_ms,
            now_ms,
        };
        let max_timestamp = batch.check_produced(&rules, limit, pace).map_err(refusal)?;
        let h = batch.header;
        let time = match create_time {
            false => Time::Append(now_ms),
            true if h.max_timestamp != max_timestamp || h.is_log_append_time() => {
                Time::Largest(max_timestamp)
            }
            true => Time::Kept,
        };
        Ok(CheckedBatch { header: h, time })
    }

    /// The codec that producers' batches are brought into before they are appended, when one is
    /// set.
    pub fn target_compression(&self) -> Option<Compressor> {
        self.config.load().compression
    }

    /// The checked batch in the codec `to`, and what goes with it to [`Self::append_produced`]. Its
    /// records are read at this `pace`.
    pub fn recompress(
        &self,
        bytes: &[u8],
        checked: &CheckedBatch,
        to: Compressor,
        pace: &mut dyn StreamPace,
    ) -> Result<(Vec<u8>, CheckedBatch), LogError> {
        let max = self.config.load().max_message_bytes as usize;
        let batch = one_batch(bytes).map_err(refusal)?;
        let recompressed = batch.recompressed(to, max, PRODUCED_BYTES_MAX, pace);
        let bytes = recompressed.map_err(|error| match error {
            RecordsError::TooLarge { limit } => LogError::BatchTooLarge {
                size: limit.saturating_add(1),
                max: limit,
            },
            error => refusal(error),
        })?;
        let header = BatchHeader::parse(&bytes)?;
        let time = checked.time;
        Ok((bytes, CheckedBatch { header, time }))
    }

    /// Appends the batch at the start of `bytes`, for which `checked` was given. As
    /// [`Self::append_as_leader`] otherwise; a largest timestamp that the header had wrong is
    /// corrected, bytes behind the batch are left out.
    pub fn append_produced(
        &self,
        bytes: &mut [u8],
        checked: &CheckedBatch,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<AppendInfo, LogError> {
        let Some(batch) = bytes.get_mut(..checked.header.size()) else {
            return Err(LogError::InvalidRecord("no whole batch".to_owned()));
        };
        let incoming = Incoming {
            header: checked.header,
            control: None,
        };
        self.append_incoming(
            batch,
            vec![incoming],
            leader_epoch,
            AppendOrigin::Client,
            checked.time,
            now_ms,
        )
    }
}

/// Kafka looks at the size behind the base offset and in front of everything else.
fn check_size(batch: &BatchView<'_>, config: &LogConfig) -> Result<(), LogError> {
    let (size, max) = (batch.bytes.len(), config.max_message_bytes as usize);
    if size > max && batch.header.base_offset == 0 {
        return Err(LogError::BatchTooLarge { size, max });
    }
    let max = (config.segment_bytes as usize).max(max);
    if size > max {
        return Err(LogError::AppendTooLarge { size, max });
    }
    Ok(())
}

/// Kafka's kind of refusal: damage may be sent again, a breach of rules may not.
fn refusal(error: RecordsError) -> LogError {
    match error {
        RecordsError::InvalidLength { .. }
        | RecordsError::UnknownMagic { .. }
        | RecordsError::CrcMismatch { .. } => LogError::BadBatch(error),
        RecordsError::ProducerAppendTime | RecordsError::TimestampOutOfRange { .. } => {
            LogError::InvalidTimestamp(error.to_string())
        }
        error => LogError::InvalidRecord(error.to_string()),
    }
}
