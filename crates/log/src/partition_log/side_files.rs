//! What stands beside the segments of one log, held against them. A side file never overrules the
//! log: what the log does not bear out is named and ignored. What proves that a part of the log is
//! missing makes the opening fail, and nothing of it is touched.
//!
//! Guards F-1: a side file never overrules a log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PartitionLog;
use crate::checkpoint;
use crate::config::OpenOptions;
use crate::descriptors::is_shortage;
use crate::error::LogError;
use crate::names;
use crate::partition_metadata::{self, PartitionMetadata};
use crate::segment::Segment;
use crate::types::EpochEntry;

/// Newest entries of an epoch checkpoint that are compared with the batches at each opening.
const EPOCHS_CHECKED_MAX: usize = 64;

/// `partition.metadata` as it is on disk (or about to be, while the log has no folder).
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub(super) content: PartitionMetadata,
    /// The folder is not this log's any more.
    pub(super) gone: bool,
}

impl PartitionLog {
    /// Makes the log start offset outlive a crash, on disk when this returns if `durable`. Does not
    /// hold up appends.
    pub fn keep_log_start(&self, durable: bool) -> Result<(), LogError> {
        let mut metadata = self.metadata.lock();
        let start = self.log_start_offset();
        let known = metadata.content.log_start.is_some_and(|s| s >= start);
        if metadata.gone || known || start == 0 || self.segments.load().is_empty() {
            return Ok(());
        }
        let content = PartitionMetadata {
            log_start: Some(start),
            ..metadata.content.clone()
        };
        self.write_metadata(&content, durable)?;
        metadata.content = content;
        Ok(())
    }
    /// Whether [`Self::keep_log_start`] has anything to write beyond what the first segment says.
    pub(crate) fn log_start_is_unkept(&self) -> bool {
        let start = self.log_start_offset();
        let above = self.first_segment_base().is_some_and(|base| start > base);
        above && self.metadata.lock().content.log_start != Some(start)
    }
    /// Before the log begins anew at `offset`: what was kept of its old start would cut into what
    /// is written next.
    pub(super) fn begin_at(&self, offset: i64) -> Result<(), LogError> {
        let mut metadata = self.metadata.lock();
        if metadata.content.log_start.take().is_some() {
            match self.write_metadata(&metadata.content, true) {
                // Without the file the topic id is missing, which is harmless; it comes back with
                // the first segment.
                Err(e) if e.is_shortage() => {
                    let path = self.dir.join(partition_metadata::FILE);
                    std::fs::remove_file(&path)
                        .map_err(|e| self.state.fatal("remove", &path, &e))?;
                    self.state.sync_dir(&self.dir)?;
                }
                done => done?,
            }
        }
        self.log_start.store(offset, Ordering::Release);
        Ok(())
    }
    /// The file of a log whose first segment is about to be made: all segments to come will be
    /// contiguous.
    pub(super) fn write_first_metadata(&self) -> Result<(), LogError> {
        let mut metadata = self.metadata.lock();
        metadata.content.contiguous = true;
        self.write_metadata(&metadata.content, false)
    }
    /// Offsets are about to be left out between two segments (a source's gap too wide for one
    /// segment, or a cleaner's work), so that a missing segment can no longer be told from a gap.
    pub(crate) fn allow_gaps(&self, durable: bool) -> Result<(), LogError> {
        let mut metadata = self.metadata.lock();
        if metadata.content.contiguous {
            let content = PartitionMetadata {
                contiguous: false,
                ..metadata.content.clone()
            };
            self.write_metadata(&content, durable)?;
            metadata.content = content;
        }
        Ok(())
    }
    fn write_metadata(&self, content: &PartitionMetadata, durable: bool) -> Result<(), LogError> {
        let Some(bytes) = content.format() else {
            return Ok(());
        };
        let path = self.dir.join(partition_metadata::FILE);
        self.state.replace_file(&path, &bytes, durable)
    }
    /// Reads the file of a folder that is there; writes an id again that a power cut took before
    /// the first flush of a new log.
    pub(super) fn load_metadata(&self, wanted: Option<&String>) -> Result<(), LogError> {
        let mut metadata = self.metadata.lock();
        let path = self.dir.join(partition_metadata::FILE);
        let (text, there) = match std::fs::read_to_string(&path) {
            Ok(text) => (text, true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                (String::new(), self.dir.is_dir())
            }
            Err(e) if is_shortage(&e) => return Err(LogError::shortage("read", &path, &e)),
            Err(e) => (e.to_string(), true),
        };
        // What a power cut leaves: missing or blank. One that says something else is left as it is.
        let blank = text.bytes().all(|b| b == 0 || b.is_ascii_whitespace());
        let found = PartitionMetadata::parse(&text);
        if let Some(complaint) = found.complaint(&text).filter(|_| !blank) {
            tracing::error!(path = %path.display(), complaint, "partition.metadata is unusable");
        }
        let lost = blank && there && wanted.is_some();
        metadata.content = PartitionMetadata {
            topic_id: wanted.cloned().or(found.topic_id),
            ..found
        };
        if !lost {
            return Ok(());
        }
        match self.write_metadata(&metadata.content, true) {
            Err(e) if e.is_shortage() => Ok(()),
            done => done,
        }
    }
    /// Log start kept with the log itself.
    pub(super) fn kept_log_start(&self) -> Option<i64> {
        self.metadata.lock().content.log_start
    }
    fn is_contiguous(&self) -> bool {
        // A cleaner leaves offsets out.
        self.metadata.lock().content.contiguous && !self.config.load().compact
    }

    /// Fails when a log without any segment is known to have had some.
    pub(super) fn refuse_empty(&self, options: &OpenOptions) -> Result<(), LogError> {
        let had = options.recovery_point.unwrap_or(0);
        let had = had.max(self.kept_log_start().unwrap_or(0));
        if had <= 0 {
            return Ok(());
        }
        let reason = format!(
            "the checkpoints say that offsets below {had} were on disk, but the folder or its segments are not there: bring them back, \
             or delete the topic, or, to begin again without them, take the line of {} out of {} while the broker is down",
            names::partition_dir(&self.topic, self.partition),
            checkpoint::RECOVERY_POINTS
        );
        Err(self.missing(self.dir.clone(), reason))
    }
    /// Fails when the log ends below what was once synced.
    pub(super) fn refuse_short(
        &self,
        last: &Segment,
        end: i64,
        synced: i64,
    ) -> Result<(), LogError> {
        if end >= synced {
            return Ok(());
        }
        let reason = format!(
            "the log ends at offset {end}, but the checkpoints say that everything below {synced} was on disk: bring the missing files \
             back, or, to give up what is missing, take the line of {} out of {} while the broker is down",
            names::partition_dir(&self.topic, self.partition),
            checkpoint::RECOVERY_POINTS
        );
        Err(self.missing(last.log.path().to_path_buf(), reason))
    }
    /// Whether offsets that could still be read are missing in front of `next`, behind a segment
    /// that ends at `end`.
    pub(super) fn is_gap(&self, end: i64, next: &Segment) -> bool {
        let start = self.kept_log_start().unwrap_or(0);
        next.base_offset > end.max(start) && self.is_contiguous()
    }
    /// Fails at such a gap.
    pub(super) fn refuse_gap(&self, end: i64, next: &Segment) -> Result<(), LogError> {
        if !self.is_gap(end, next) {
            return Ok(());
        }
        let reason = format!(
            "offsets {end} to {} are missing in front of this segment: bring the segment that held them back, or, to give them up, delete \
             the line `contiguous` of {} while the broker is down",
            next.base_offset - 1,
            partition_metadata::FILE
        );
        Err(self.missing(next.log.path().to_path_buf(), reason))
    }
    /// [`Self::refuse_gap`] for neighbours that are not walked.
    pub(super) fn refuse_gaps(&self, segments: &[Arc<Segment>]) -> Result<(), LogError> {
        if !self.is_contiguous() {
            return Ok(());
        }
        segments
            .windows(2)
            .try_for_each(|pair| match pair[0].end_by_headers() {
                Some(end) => self.refuse_gap(end, &pair[1]),
                // Damage there is told when it is read.
                None => Ok(()),
            })
    }
    /// Indexes without a log: leftovers of a removal that a crash cut short, or proof that a log is
    /// missing.
    pub(super) fn judge_orphans(
        &self,
        bases: &std::collections::BTreeSet<i64>,
        orphans: &[(i64, std::path::PathBuf)],
    ) -> Result<(), LogError> {
        for (base, path) in orphans {
            let between = bases.range(..base).next().is_some()
                && bases.range(base..).next().is_some()
                && !self.config.load().compact;
            if between || self.is_contiguous() {
                let reason = format!(
                    "the segment is missing, its index {} is still there: bring the segment back, or, to give up what it held, remove the \
                     other files of that name while the broker is down",
                    path.display()
                );
                let log = names::segment_file(&self.dir, *base, names::LOG);
                return Err(self.missing(log, reason));
            }
            std::fs::remove_file(path).map_err(|e| LogError::Io {
                context: "cannot remove",
                path: path.clone(),
                source: Arc::new(e),
            })?;
        }
        Ok(())
    }
    /// After a clean stop the epoch checkpoint begins where the log does, or above.
    pub(super) fn refuse_lost_front(&self, epochs_from: Option<i64>) -> Result<(), LogError> {
        let (Some(from), Some(base)) = (epochs_from, self.first_segment_base()) else {
            return Ok(());
        };
        if from >= base || !self.is_contiguous() {
            return Ok(());
        }
        let reason = format!(
            "the log began at offset {from} or below when it was closed, but its first segment begins at {base}: bring the segments in front \
             back, or, to give them up, delete the line `contiguous` of {} while the broker is down",
            partition_metadata::FILE
        );
        Err(self.missing(self.dir.clone(), reason))
    }
    fn missing(&self, path: std::path::PathBuf, reason: String) -> LogError {
        LogError::Missing { path, reason }
    }

    /// The log start offset: where the first segment begins, or what was kept with the log, or what
    /// the checkpoint of the directory claims as far as the log bears it out.
    pub(super) fn judge_log_start(
        &self,
        base: i64,
        end: i64,
        claim: i64,
        epochs_from: Option<i64>,
    ) -> i64 {
        let own = self.kept_log_start().map_or(base, |kept| kept.max(base));
        if claim <= own {
            return own;
        }
        // The epoch checkpoint follows the log start, and stands in the folder of the log.
        if claim <= end && epochs_from.is_some_and(|from| from >= claim) {
            return claim;
        }
        tracing::error!(
            log = names::partition_dir(&self.topic, self.partition),
            claim,
            start = own,
            end,
            "{} names a start offset that the log does not bear out: the line is ignored, nothing is removed",
            checkpoint::LOG_STARTS
        );
        own
    }

    /// Whether the epoch cache says of the batches at its borders what they say themselves. What
    /// cannot be read agrees: damage is told elsewhere.
    pub(super) fn epochs_agree(&self, start: i64, end: i64) -> bool {
        let entries = self.epochs();
        let newest = &entries[entries.len().saturating_sub(EPOCHS_CHECKED_MAX)..];
        (end <= start || self.epoch_agrees_at(end - 1, &entries))
            && newest.iter().all(|e| {
                let from = e.start_offset;
                from >= end
                    || (self.epoch_agrees_at(from, &entries)
                        && (from <= start || self.epoch_agrees_at(from - 1, &entries)))
            })
    }
    fn epoch_agrees_at(&self, offset: i64, entries: &[EpochEntry]) -> bool {
        let segments = self.segments.load();
        let Some(s) = segments.get(super::read::floor(&segments, offset)) else {
            return true;
        };
        let Ok(Some(found)) = s.locate(offset, s.size()) else {
            return true;
        };
        let h = found.header;
        // The first entry can start inside a batch, where the log does.
        let at = h.base_offset.max(entries.first().map_or(0, |e| {
            if e.start_offset <= h.last_offset() {
                e.start_offset
            } else {
                0
            }
        }));
        let in_force = entries.iter().rfind(|e| e.start_offset <= at);
        h.leader_epoch < 0 || in_force.map(|e| e.epoch) == Some(h.leader_epoch)
    }
}
