//! Blocks reserved ahead of a large segment: the file size is the log end at all times, and nothing
//! stays behind a seal, a close or a crash.

use std::os::unix::fs::MetadataExt;

use super::*;

const MIB: u64 = 1 << 20;

/// Length and allocated bytes of a segment's file.
fn sizes(home: &Home, base: i64) -> (u64, u64) {
    let m = std::fs::metadata(home.segment(base, "log")).unwrap();
    (m.len(), m.blocks() * 512)
}

/// Appends batches of about a MiB until the log holds `bytes`.
fn fill(log: &PartitionLog, bytes: u64) {
    let one = batch(0, 0, 1, (MIB - 200) as usize);
    while log.size_bytes() < bytes {
        client(log, one.clone()).unwrap();
    }
}

/// Whether the file system of the test can reserve at all.
fn can_reserve(home: &Home) -> bool {
    let file = std::fs::File::create(home.root().join("probe")).unwrap();
    let keep_size = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, keep_size, 0, MIB).is_ok()
}

#[test]
fn a_large_segment_has_blocks_ahead_and_its_length_is_the_log_end() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    fill(&log, 4 * MIB);
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes());
    assert!(allocated < len + MIB, "small logs reserve nothing");
    fill(&log, 18 * MIB);
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes());
    if can_reserve(&home) {
        assert!(allocated > len + 4 * MIB, "{allocated} for {len}");
    }
}

#[test]
fn a_roll_and_a_close_give_the_blocks_back() {
    let home = Home::new();
    let config = LogConfig {
        segment_bytes: (20 * MIB) as u32,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    fill(&log, 39 * MIB);
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert!(allocated < len + MIB, "sealed: {allocated} for {len}");
    let active = log.active_segment().unwrap().base_offset;
    log.close_clean().unwrap();
    let (len, allocated) = sizes(&home, active);
    assert!(allocated < len + MIB, "closed: {allocated} for {len}");
}

#[test]
fn a_crash_leaves_no_reservation_and_loses_nothing() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    fill(&log, 18 * MIB);
    log.flush().unwrap();
    let end = log.log_end_offset();
    drop(log);
    let log = home
        .open_with(&LogConfig::default(), false, Some(0))
        .unwrap();
    assert_eq!(log.log_end_offset(), end);
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes());
    assert!(allocated < len + MIB, "{allocated} for {len}");
    fill(&log, 20 * MIB);
}

#[test]
fn a_mirror_append_keeps_the_reservation_unless_it_leaves_a_cut_off_batch() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let mut base = 0;
    let mut push = |bytes_cut: usize| {
        let whole = batch(base, 0, 1, (MIB - 200) as usize);
        let torn = batch(base + 1, 0, 1, 5_000);
        let mut append = log.mirror_append(base, NOW).unwrap();
        append.push(&whole).unwrap();
        append.push(&torn[..bytes_cut]).unwrap();
        append.finish().unwrap();
        base += 1;
    };
    (0..18).for_each(|_| push(0));
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes());
    if can_reserve(&home) {
        assert!(allocated > len + 4 * MIB, "{allocated} for {len}");
    }
    push(1_000);
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes(), "the torn batch is gone");
    assert!(allocated < len + MIB, "{allocated} for {len}");
}

#[test]
fn a_disk_too_full_to_reserve_still_takes_what_fits() {
    let home = Home::new();
    let mut options = options(home.root(), true, Some(0));
    let state = LogDirState::detached(home.root());
    options.dir_state = Arc::clone(&state);
    let log = PartitionLog::open(&home.dir(), LogConfig::default(), options).unwrap();
    fill(&log, 10 * MIB);
    *state.faults.space.lock() = Some(10 * MIB);
    fill(&log, 18 * MIB);
    log.flush().unwrap();
    let (len, allocated) = sizes(&home, 0);
    assert_eq!(len, log.size_bytes());
    assert!(allocated < len + MIB, "{allocated} for {len}");
    assert!(state.offline_reason().is_none());
}

/// A log that is idle gives its reserved blocks back.
#[test]
fn an_idle_log_gives_its_reservation_back_and_a_busy_one_keeps_it() {
    let (idle, busy) = (Home::new(), Home::new());
    if !can_reserve(&idle) {
        return;
    }
    let (log, other) = (
        idle.open(&LogConfig::default()),
        busy.open(&LogConfig::default()),
    );
    fill(&log, 18 * MIB);
    fill(&other, 18 * MIB);
    for state in [log.dir_state(), other.dir_state()] {
        state.give_back_idle();
    }
    let ahead = |home: &Home| {
        let (len, allocated) = sizes(home, 0);
        allocated > len + MIB
    };
    assert!(ahead(&idle), "perhaps it was written to just now");
    client(&other, batch(0, 0, 1, 10)).unwrap();
    for state in [log.dir_state(), other.dir_state()] {
        state.give_back_idle();
    }
    assert!(!ahead(&idle) && ahead(&busy));
    assert_eq!(sizes(&idle, 0).0, log.size_bytes());
    client(&log, batch(0, 0, 1, 10)).unwrap();
    log.flush().unwrap();
}

/// On a full disk the reservations of all other logs of the directory go at once, and the write is
/// tried again.
#[test]
fn a_full_disk_takes_the_reservations_back_at_once() {
    let home = Home::new();
    if !can_reserve(&home) {
        return;
    }
    let state = LogDirState::detached(home.root());
    let open = |name: &str| {
        let options = OpenOptions {
            dir_state: Arc::clone(&state),
            ..options(home.root(), true, Some(0))
        };
        PartitionLog::open(&home.root().join(name), LogConfig::default(), options).unwrap()
    };
    let (large, small) = (open("t-0"), open("t-1"));
    fill(&large, 18 * MIB);
    let (len, allocated) = sizes(&home, 0);
    assert!(allocated > len + 4 * MIB);
    *state.faults.space.lock() = Some(0);
    client(&small, batch(0, 0, 1, 10)).unwrap_err();
    let (len, allocated) = sizes(&home, 0);
    assert!(allocated < len + MIB, "{allocated} for {len}");
    *state.faults.space.lock() = None;
    // The metadata log of the directory has a state of its own.
    fill(&large, 40 * MIB);
    let (len, allocated) = sizes(&home, 0);
    assert!(allocated > len + 4 * MIB);
    assert!(LogDirState::detached(home.root()).give_back_all());
    let (len, allocated) = sizes(&home, 0);
    assert!(allocated < len + MIB, "{allocated} for {len}");
    client(&small, batch(0, 0, 1, 10)).unwrap();
    client(&large, batch(0, 0, 1, 10)).unwrap();
}
