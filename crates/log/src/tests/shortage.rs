//! Descriptors run out: whoever asked is refused, nothing is lost, nothing goes offline; and the
//! budget that keeps it from happening.

use std::sync::atomic::Ordering;

use super::*;
use crate::open_files::OpenFiles;
use crate::roll::BURST;

const LAST_OFFSET_DELTA: std::ops::Range<usize> = 23..27;
const CRC: std::ops::Range<usize> = 17..21;

/// A batch that claims to end `delta` offsets behind its base.
fn claiming(base: i64, delta: i32) -> Vec<u8> {
    let mut bytes = batch(base, 0, 1, 0);
    bytes[LAST_OFFSET_DELTA].copy_from_slice(&delta.to_be_bytes());
    let mut crc = tarn_records::Crc32c::new();
    crc.update(&bytes[tarn_records::BatchHeader::CRC_FROM..]);
    bytes[CRC].copy_from_slice(&crc.value().to_be_bytes());
    bytes
}

fn no_descriptors(log: &PartitionLog, none: bool) {
    let faults = &log.dir_state().faults;
    faults.opens_fail.store(none, Ordering::SeqCst);
}

/// EMFILE is an answer to the one who appends, at every step that opens a file; afterwards
/// everything works.
#[test]
fn without_a_descriptor_an_append_is_refused_and_the_directory_stays_online() {
    let home = Home::new();
    let config = LogConfig {
        segment_bytes: 400,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    no_descriptors(&log, true);
    let refused = client(&log, batch(0, 0, 1, 100));
    assert!(
        matches!(refused, Err(LogError::Shortage { .. })),
        "{refused:?}"
    );
    no_descriptors(&log, false);
    client(&log, batch(0, 0, 1, 100)).unwrap();
    client(&log, batch(0, 0, 1, 100)).unwrap();
    no_descriptors(&log, true);
    // The third needs a new segment.
    let refused = client(&log, batch(0, 0, 1, 100));
    assert!(
        matches!(refused, Err(LogError::Shortage { .. })),
        "{refused:?}"
    );
    let flushed = log.flush();
    assert!(
        matches!(flushed, Err(LogError::Shortage { .. })),
        "{flushed:?}"
    );
    assert_eq!((log.recovery_point(), log.log_end_offset()), (0, 2));
    assert!(log.dir_state().offline_reason().is_none());
    no_descriptors(&log, false);
    client(&log, batch(0, 0, 1, 100)).unwrap();
    assert_eq!(log.flush().unwrap(), 3);
    assert_eq!(all_bytes(&log).len(), 3 * batch(0, 0, 1, 100).len());
    log.close_clean().unwrap();
    assert_eq!(home.open(&config).log_end_offset(), 3);
}

/// What a flush could not sync for want of a descriptor is synced by the next one.
#[test]
fn a_flush_without_descriptors_forgets_nothing() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    client(&log, idempotent(7, 0, 0, 1, false)).unwrap();
    no_descriptors(&log, true);
    assert!(log.flush().unwrap_err().is_shortage());
    no_descriptors(&log, false);
    log.dir_state()
        .faults
        .sync_fails
        .store(true, Ordering::SeqCst);
    // The second flush does sync: it meets the broken disk.
    assert!(matches!(log.flush(), Err(LogError::Offline { .. })));
}

/// A snapshot that cannot be opened at the moment is not taken for a bad one and removed.
#[test]
fn opening_a_log_under_a_shortage_removes_nothing() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    client(&log, idempotent(7, 0, 0, 1, false)).unwrap();
    log.close_clean().unwrap();
    let snapshot = home.segment(1, "snapshot");
    assert!(snapshot.exists());
    let before = std::fs::read(&snapshot).unwrap();
    // A directory in its place answers EISDIR, another error than a shortage: that one is dropped.
    assert_eq!(home.open(&LogConfig::default()).active_producers().len(), 1);
    assert_eq!(std::fs::read(&snapshot).unwrap(), before);
}

/// With many more logs than files that may be open, all are written, none stays open above the
/// budget, the bytes of a file that was closed are synced, and finding a file to close costs the
/// same however many there are.
#[test]
fn files_are_closed_at_the_budget_and_finding_them_stays_cheap() {
    const LOGS: i32 = 120;
    const BUDGET: usize = 24;
    const ROUNDS: usize = 6;
    let root = tempfile::tempdir().unwrap();
    let files = OpenFiles::new(BUDGET);
    let state = LogDirState::with_open_files(root.path(), Arc::clone(&files));
    let open = |p: i32, clean, point| {
        let options = OpenOptions {
            dir_state: Arc::clone(&state),
            ..options(root.path(), clean, point)
        };
        let dir = root.path().join(format!("t-{p}"));
        PartitionLog::open(&dir, LogConfig::default(), options).unwrap()
    };
    let logs: Vec<_> = (0..LOGS).map(|p| open(p, true, Some(0))).collect();
    for _ in 0..ROUNDS {
        for log in &logs {
            client(log, batch(0, 0, 1, 50)).unwrap();
            assert!(files.count() <= BUDGET, "{}", files.count());
        }
    }
    let opens = LOGS as usize * ROUNDS;
    let looks = files.looks.load(Ordering::Relaxed);
    assert!(looks < opens * 6, "{looks} looks for {opens} opens");
    for log in &logs {
        assert_eq!(log.flush().unwrap(), ROUNDS as i64);
        // Files with unsynced bytes may hold every place that readers may take.
        log.make_room();
        assert!(all_bytes(log).len() > ROUNDS * 50);
        assert!(files.count() <= BUDGET, "{}", files.count());
    }
    drop(logs);
    for p in 0..LOGS {
        assert_eq!(open(p, false, Some(0)).log_end_offset(), ROUNDS as i64);
    }
}

/// 61-byte batches that each claim 2^31 offsets need a segment each; after a burst they come no
/// faster than the interval.
#[test]
fn segments_forced_by_offsets_are_limited_in_rate() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let mut end = 0;
    let mut push = |now_ms| {
        let appended = log.append_verbatim(end, &claiming(end, i32::MAX - 1), now_ms);
        end = log.log_end_offset();
        appended
    };
    for _ in 0..=BURST {
        push(NOW).unwrap();
    }
    let refused = push(NOW);
    assert!(
        matches!(refused, Err(LogError::RollsTooFast { .. })),
        "{refused:?}"
    );
    push(NOW + 1_000).unwrap();
    push(NOW + 1_500).unwrap_err();
    assert!(log.segment_count() <= BURST as usize + 2);
    assert!(log.dir_state().offline_reason().is_none());
}

/// With `segment.ms=1` and with the smallest index, appends go on without a segment each.
#[test]
fn segments_that_are_only_due_wait_for_their_time() {
    for config in [
        LogConfig {
            segment_ms: 1,
            ..LogConfig::default()
        },
        LogConfig {
            segment_index_bytes: 4,
            ..LogConfig::default()
        },
    ] {
        let home = Home::new();
        let log = home.open(&config);
        for i in 0..500 {
            let now = NOW + i * 10;
            let mut bytes = BatchBuilder::new()
                .add(now, Some(b"k"), Some(&[0; 10]), &[])
                .build()
                .unwrap();
            log.append_as_leader(&mut bytes, 1, AppendOrigin::Client, now)
                .unwrap();
        }
        // Five seconds passed: the burst, and one for each of them.
        assert!(
            log.segment_count() <= BURST as usize + 6,
            "{}",
            log.segment_count()
        );
        assert!(log.segment_count() > BURST as usize);
    }
}
