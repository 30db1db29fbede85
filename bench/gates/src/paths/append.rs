//! Prepares `append`: batches of a client appended by a leader to a log on disk, without a sync.
//! Makes the logs of the other paths too.

use std::sync::Arc;

use tarn_log::{AppendOrigin, LogConfig, LogDirState, OpenOptions, PartitionLog};
use tempfile::TempDir;

use super::{NOW_MS, Prepared, Shape, batch};

const BATCHES: usize = 200;
/// Appended before counting, so that files, indexes and caches are there.
const BATCHES_BEFORE: usize = 20;

/// An empty log in a folder of its own.
pub(super) fn empty_log() -> (Arc<PartitionLog>, TempDir) {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let options = OpenOptions {
        clean_shutdown: true,
        recovery_point: Some(0),
        log_start_offset: 0,
        high_watermark: 0,
        topic_id: None,
        now_ms: NOW_MS,
        dir_state: LogDirState::detached(scratch.path()),
    };
    let log = PartitionLog::open(
        &scratch.path().join("gate-0"),
        LogConfig::default(),
        options,
    );
    (log.expect("an empty log"), scratch)
}

/// Appends one batch as a leader does; it arrives as a producer sends it, with base offset 0.
pub(super) fn append(log: &PartitionLog, bytes: &mut [u8]) {
    bytes[..8].fill(0);
    let done = log.append_as_leader(bytes, 0, AppendOrigin::Client, NOW_MS);
    std::hint::black_box(done.expect("a good batch"));
}

pub(super) fn prepare(shape: Shape) -> Prepared {
    let (log, scratch) = empty_log();
    let mut bytes = batch(0, shape).0;
    for _ in 0..BATCHES_BEFORE {
        append(&log, &mut bytes);
    }
    let work = move || {
        for _ in 0..BATCHES {
            append(&log, &mut bytes);
        }
    };
    Prepared {
        work: Box::new(work),
        units: BATCHES as u64,
        _scratch: Some(scratch),
    }
}
