//! Bringing appended bytes to the disk: one log with fdatasync, or many logs of a directory with
//! one syncfs. Owns the order in which files, directories and the epoch checkpoint become durable
//! before a recovery point moves; where a full disk has no room for the checkpoint, the durable end
//! moves alone. When to flush is for the [`crate::Syncer`] and others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PartitionLog;
use crate::error::LogError;
use crate::partition_metadata;
use crate::segment::Segment;
use crate::state::LogDirState;

/// From so many logs on, one sync of their whole file system is cheaper: each fdatasync of a file
/// that grew writes that file's metadata, and the journal where there is one, and flushes the
/// disk's cache by itself, which holds up everybody who writes.
pub(crate) const TOGETHER_MIN: usize = 64;

/// With more unsynced bytes than this, logs are flushed one after the other: all of them at once
/// would keep the disk busy for so long that everybody who waits for a small sync feels it.
const TOGETHER_BYTES_MAX: u64 = 32 << 20;

/// What a flush is about to bring to the disk.
struct Flushing {
    dirty: Vec<Arc<Segment>>,
    end: i64,
    truncations: u64,
    /// The epoch checkpoint is older than the log.
    epochs: bool,
    new_dir: bool,
    new_files: bool,
}

/// Flushes all of `logs`, which should differ from each other, and gives the new durable end of
/// each in order. Many logs of one directory with few bytes are flushed together by one sync of its
/// file system, where the kernel tells what failed in it (Linux 5.8).
pub fn flush_all(logs: &[Arc<PartitionLog>]) -> Vec<Result<i64, LogError>> {
    let mut by_dir: HashMap<*const LogDirState, Vec<usize>> = HashMap::new();
    for (index, log) in logs.iter().enumerate() {
        by_dir
            .entry(Arc::as_ptr(&log.state))
            .or_default()
            .push(index);
    }
    let mut outcomes: Vec<Option<Result<i64, LogError>>> = vec![None; logs.len()];
    for indices in by_dir.into_values() {
        let of_dir: Vec<&PartitionLog> = indices.iter().map(|&i| &*logs[i]).collect();
        let state = &of_dir[0].state;
        let bytes: u64 = of_dir.iter().map(|log| log.unflushed_bytes()).sum();
        let together = of_dir.len() >= TOGETHER_MIN && bytes <= TOGETHER_BYTES_MAX;
        let done = if together && state.can_sync_file_system() {
            flush_together(state, &of_dir)
        } else {
            of_dir.iter().map(|log| log.flush()).collect()
        };
        for (index, outcome) in indices.into_iter().zip(done) {
            outcomes[index] = Some(outcome);
        }
    }
    let outcomes = logs.iter().zip(outcomes);
    outcomes
        .map(|(log, outcome)| outcome.unwrap_or_else(|| log.flush()))
        .collect()
}

fn flush_together(state: &LogDirState, logs: &[&PartitionLog]) -> Vec<Result<i64, LogError>> {
    // Nobody else holds one log's flush while waiting for another's.
    let _one_at_a_time = state.flushing_many.lock();
    let _flushes: Vec<_> = logs.iter().map(|log| log.flushing.lock()).collect();
    let begun: Vec<Result<Option<Flushing>, LogError>> = logs
        .iter()
        .map(|log| {
            let mut flushing = log.begin_flush()?;
            if let Some(flushing) = &mut flushing
                && let Err(e) = log.write_behind(flushing)
            {
                log.keep_dirty(flushing);
                return Err(e);
            }
            Ok(flushing)
        })
        .collect();
    let synced = state.sync_file_system();
    let ended = logs.iter().zip(begun).map(|(log, begun)| {
        let Some(flushing) = begun? else {
            return Ok(log.log_end_offset());
        };
        if let Err(e) = &synced {
            log.keep_dirty(&flushing);
            return Err(e.clone());
        }
        Ok(log.end_flush(&flushing))
    });
    ended.collect()
}

impl PartitionLog {
    /// fdatasync of everything up to the log end at the time of the call; gives the new durable
    /// end. A failure takes the directory offline. Does not hold the writer lock while it waits for
    /// the disk.
    pub fn flush(&self) -> Result<i64, LogError> {
        let _one_at_a_time = self.flushing.lock();
        let Some(mut flushing) = self.begin_flush()? else {
            // Nothing is left to be durable; whoever waits is let go.
            return Ok(self.log_end_offset());
        };
        if let Err(e) = self.sync_all(&mut flushing) {
            // After a shortage the next flush begins where this one began.
            self.keep_dirty(&flushing);
            return Err(e);
        }
        Ok(self.end_flush(&flushing))
    }
    fn sync_all(&self, flushing: &mut Flushing) -> Result<(), LogError> {
        let active = self.active();
        for s in &flushing.dirty {
            let sealed = !active.as_ref().is_some_and(|a| Arc::ptr_eq(a, s));
            if let Err(e) = s.sync(sealed) {
                self.unless_removed(e, s)?;
            }
        }
        if flushing.new_dir {
            self.state
                .sync_file(&self.dir.join(partition_metadata::FILE))?;
        }
        if flushing.new_files {
            self.state.sync_dir(&self.dir)?;
        }
        if let Some(parent) = self.dir.parent().filter(|_| flushing.new_dir) {
            self.state.sync_dir(parent)?;
        }
        self.write_epochs_of(flushing, true)
    }
    /// Writes the epoch checkpoint if it is due. On a full disk it stays due: what was synced is
    /// durable without it, and a recovery makes it from the batches above the recovery point.
    fn write_epochs_of(&self, flushing: &mut Flushing, durable: bool) -> Result<(), LogError> {
        if !flushing.epochs {
            return Ok(());
        }
        match self.write_epochs(durable) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                flushing.epochs = false;
                Ok(())
            }
        }
    }
    /// Takes over what is unsynced; `None` when the log is deleted.
    fn begin_flush(&self) -> Result<Option<Flushing>, LogError> {
        let mut w = self.lock_writer();
        self.state.check_online()?;
        if w.deleted {
            return Ok(None);
        }
        self.unflushed_bytes.store(0, Ordering::Release);
        Ok(Some(Flushing {
            dirty: std::mem::take(&mut w.dirty),
            end: self.log_end_offset(),
            truncations: w.truncations,
            epochs: std::mem::take(&mut w.epochs_unsynced),
            new_dir: std::mem::take(&mut w.new_dir),
            new_files: std::mem::take(&mut w.new_files),
        }))
    }
    /// Hands everything to the file system, for a sync of all of it.
    fn write_behind(&self, flushing: &mut Flushing) -> Result<(), LogError> {
        let active = self.active();
        for s in &flushing.dirty {
            let sealed = !active.as_ref().is_some_and(|a| Arc::ptr_eq(a, s));
            s.synced_with_others(sealed);
        }
        self.write_epochs_of(flushing, false)
    }
    /// Everything taken over is on disk, the epoch checkpoint perhaps not: moves the durable end,
    /// and gives it.
    fn end_flush(&self, flushing: &Flushing) -> i64 {
        let before = {
            let mut w = self.lock_writer();
            w.epochs_unsynced |= flushing.epochs;
            if w.truncations != flushing.truncations {
                return self.durable_end();
            }
            let log_end = self.log_end_offset();
            crate::invariant!(
                "L-5",
                flushing.end <= log_end,
                "offsets to {} are synced, the log ends at {log_end}",
                flushing.end
            );
            if !flushing.epochs {
                self.recovery_point
                    .fetch_max(flushing.end, Ordering::AcqRel);
            }
            self.durable_end.fetch_max(flushing.end, Ordering::AcqRel)
        };
        let news = self.durable_news.read().clone();
        if before < flushing.end
            && let Some(news) = news
        {
            (news.0)();
        }
        self.durable_end()
    }
    /// A segment that retention removed meanwhile needs no sync; any other error is told.
    fn unless_removed(&self, e: LogError, s: &Arc<Segment>) -> Result<(), LogError> {
        if self.segments.load().iter().any(|x| Arc::ptr_eq(x, s)) {
            return Err(e);
        }
        Ok(())
    }
    fn keep_dirty(&self, flushing: &Flushing) {
        let mut w = self.lock_writer();
        flushing.dirty.iter().for_each(|d| w.mark_dirty(d));
        w.epochs_unsynced |= flushing.epochs;
        w.new_dir |= flushing.new_dir;
        w.new_files |= flushing.new_files;
    }
}
