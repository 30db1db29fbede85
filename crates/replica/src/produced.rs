//! A producer's batch on its way into a partition: checked, brought into the topic's codec,
//! appended. The first two take no lock and may take long when records are compressed; who runs
//! them sets the pace.

use tarn_log::{AppendInfo, CheckedBatch};
use tarn_records::{Compressor, StreamPace};

use crate::error::ReplicaError;
use crate::guard::AppendSource;
use crate::partition::Partition;

impl Partition {
    /// Checks the one batch in `bytes` as Kafka does, see
    /// [`tarn_log::PartitionLog::check_produced`]. Where clients may not write at all, that is the
    /// reason given for a bad batch too.
    pub fn check_produced(
        &self,
        bytes: &[u8],
        now_ms: i64,
        limit: usize,
        pace: &mut dyn StreamPace,
    ) -> Result<CheckedBatch, ReplicaError> {
        let checked = self.log().check_produced(bytes, now_ms, limit, pace);
        checked.map_err(|error| {
            let may_write = self.check_leader().and_then(|()| self.check_writable());
            may_write.err().unwrap_or_else(|| self.failed(error))
        })
    }

    /// The checked batch in the codec `to`, see [`tarn_log::PartitionLog::recompress`].
    pub fn recompress(
        &self,
        bytes: &[u8],
        checked: &CheckedBatch,
        to: Compressor,
        pace: &mut dyn StreamPace,
    ) -> Result<(Vec<u8>, CheckedBatch), ReplicaError> {
        let recompressed = self.log().recompress(bytes, checked, to, pace);
        recompressed.map_err(|error| self.failed(error))
    }

    /// Appends a checked batch as the leader, as [`Partition::append`] does.
    pub fn append_produced(
        &self,
        bytes: &mut [u8],
        checked: &CheckedBatch,
        now_ms: i64,
    ) -> Result<AppendInfo, ReplicaError> {
        self.append_by(AppendSource::Client, |log, epoch| {
            log.append_produced(bytes, checked, epoch, now_ms)
        })
    }
}
