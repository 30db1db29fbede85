//! F-7 for `.txnindex`: whatever becomes of the file or of its checksum, the aborted transactions
//! that a reader is told are those that the batches say.

use std::fs;
use std::path::PathBuf;

use super::*;

fn config() -> LogConfig {
    LogConfig {
        index_interval_bytes: 100,
        segment_bytes: 900,
        ..LogConfig::default()
    }
}

/// A log of several segments, closed cleanly: of two transactions that overlap one is aborted each
/// time, so many begin in one segment and end in the next. Gives its end.
fn written(home: &Home) -> i64 {
    let log = home.open(&config());
    client(&log, idempotent(1, 0, 0, 1, true)).unwrap();
    for n in 0..24 {
        let (now, before) = (1 + (n + 1) % 2, 1 + n % 2);
        client(&log, idempotent(i64::from(now), 0, (n + 1) / 2, 1, true)).unwrap();
        coordinator(&log, marker(i64::from(before), 0, n % 3 == 0, 0)).unwrap();
    }
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    assert!(log.segment_count() > 3);
    log.close_clean().unwrap();
    end
}

/// What readers from every offset are told.
fn answers(log: &PartitionLog, end: i64) -> Vec<Vec<AbortedTxn>> {
    (0..end)
        .map(|from| log.aborted_transactions(from, end).unwrap())
        .collect()
}

fn files(home: &Home, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.dir()).unwrap();
    let mut all: Vec<PathBuf> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_str().unwrap().ends_with(kind))
        .collect();
    all.sort();
    all
}
fn contents(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = files(home, ".txnindex");
    all.extend(files(home, ".crc"));
    all.into_iter()
        .map(|p| (p.clone(), fs::read(&p).unwrap()))
        .collect()
}
/// Every answer is right after `spoil`, and the files are what they were once the log is closed.
fn is_right_after(home: &Home, end: i64, right: &[Vec<AbortedTxn>], what: &str, spoil: impl Fn()) {
    let saved = contents(home);
    spoil();
    let log = home.open(&config());
    assert_eq!(answers(&log, end), right, "{what}");
    log.close_clean().unwrap();
    drop(log);
    assert_eq!(contents(home), saved, "{what}");
    let again = home.open(&config());
    assert_eq!(answers(&again, end), right, "{what}, opened again");
    assert!(!again.dir_state().take_repair(), "{what}");
}

/// One flipped bit in each byte of the index of a finished and of the last segment, and of their
/// checksums.
#[test]
fn a_flipped_bit_in_a_transaction_index_changes_no_answer() {
    let home = Home::new();
    let end = written(&home);
    let right = answers(&home.open(&config()), end);
    assert!(right[0].len() >= 10);
    for kind in [".txnindex", ".crc"] {
        let all = files(&home, kind);
        for file in [&all[0], &all[all.len() - 1]] {
            let bytes = fs::read(file).unwrap();
            for at in (0..bytes.len()).step_by(sized(1, 13)) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                let what = format!("{} byte {at}", file.display());
                is_right_after(&home, end, &right, &what, || {
                    fs::write(file, &flipped).unwrap()
                });
            }
        }
    }
}

#[test]
fn a_cut_or_missing_transaction_index_is_not_an_empty_one() {
    let home = Home::new();
    let end = written(&home);
    let right = answers(&home.open(&config()), end);
    for kind in [".txnindex", ".crc"] {
        let all = files(&home, kind);
        for file in [&all[0], &all[all.len() - 1]] {
            let bytes = fs::read(file).unwrap();
            for len in (0..bytes.len()).step_by(17) {
                let what = format!("{} cut to {len} bytes", file.display());
                is_right_after(&home, end, &right, &what, || {
                    fs::write(file, &bytes[..len]).unwrap()
                });
            }
            let what = format!("{} removed", file.display());
            is_right_after(&home, end, &right, &what, || fs::remove_file(file).unwrap());
        }
        let what = format!("all {kind} removed");
        is_right_after(&home, end, &right, &what, || {
            all.iter().for_each(|f| fs::remove_file(f).unwrap())
        });
    }
}

/// A removal that ended half-way leaves a segment that is read again.
#[test]
fn a_segment_whose_removal_was_cut_short_has_its_aborted_transactions() {
    let home = Home::new();
    let end = written(&home);
    let right = answers(&home.open(&config()), end);
    for gone in 1..=4 {
        let what = format!("{gone} files removed");
        is_right_after(&home, end, &right, &what, || {
            let order = ["index", "timeindex", "txnindex", "txnindex.crc"];
            for extension in &order[..gone] {
                fs::remove_file(home.segment(0, extension)).unwrap();
            }
        });
    }
}

/// The order that the test above stands on: the offset index first, then all but the log.
#[test]
fn the_offset_index_of_a_segment_is_removed_first() {
    let home = Home::new();
    let end = written(&home);
    let log = home.open(&config());
    log.set_high_watermark(end);
    // Cannot be removed as a file.
    fs::remove_file(home.segment(0, "timeindex")).unwrap();
    fs::create_dir(home.segment(0, "timeindex")).unwrap();
    assert!(log.advance_log_start(end).is_err());
    let there = |extension| home.segment(0, extension).exists();
    assert!(!there("index") && there("txnindex") && there("txnindex.crc") && there("log"));
}

#[test]
fn a_log_without_aborted_transactions_has_no_file_for_them() {
    let home = Home::new();
    let log = home.open(&config());
    for i in 0..40 {
        client(&log, idempotent(1, 0, i, 1, true)).unwrap();
        coordinator(&log, marker(1, 0, true, 0)).unwrap();
    }
    assert!(log.segment_count() > 3);
    log.close_clean().unwrap();
    let log = home.open(&config());
    assert_eq!(log.aborted_transactions(0, 80).unwrap(), []);
    assert!(contents(&home).is_empty() && !log.dir_state().take_repair());
}

/// A reader on an async worker is told that the index has to be rebuilt: the rebuilding is not done
/// in its call.
#[test]
fn a_reader_rebuilds_no_index_by_itself() {
    let home = Home::new();
    let end = written(&home);
    let right = answers(&home.open(&config()), end);
    let index = home.segment(0, "txnindex");
    let before = fs::read(&index).unwrap();
    fs::write(&index, [0; 34]).unwrap();
    let log = home.open(&config());
    let slice = log.read(0, 400, end, true).unwrap().unwrap();
    let refused = log.aborted_in(0, &slice, end).unwrap_err();
    assert!(matches!(refused, LogError::WrongIndex { path } if path == index));
    assert_eq!(fs::read(&index).unwrap(), [0; 34]);
    assert!(log.dir_state().take_repair());
    assert_eq!(log.repair_indexes().unwrap(), 1);
    assert_eq!(fs::read(&index).unwrap(), before);
    assert_eq!(log.aborted_in(0, &slice, end).unwrap(), right[0][..2]);
}

/// Also one that was read before it rotted, and one that nobody has asked for.
#[test]
fn the_scrub_finds_a_wrong_transaction_index() {
    let home = Home::new();
    let end = written(&home);
    let saved = contents(&home);
    let scrub = |log: &PartitionLog| {
        let mut next = Some(0);
        while let Some(from) = next {
            let step = log.scrub(from, 300).unwrap();
            assert_eq!(step.damage, None);
            next = step.next_offset;
        }
        log.dir_state().take_repair()
    };
    for read_before in [true, false] {
        let log = home.open(&config());
        let right = read_before.then(|| answers(&log, end));
        assert!(!scrub(&log));
        let mut bytes = saved[0].1.clone();
        bytes[20] ^= 4;
        fs::write(&saved[0].0, bytes).unwrap();
        assert!(scrub(&log));
        assert_eq!(log.repair_indexes().unwrap(), 1);
        assert!(!scrub(&log));
        if let Some(right) = right {
            assert_eq!(answers(&log, end), right);
        }
        log.close_clean().unwrap();
        assert_eq!(contents(&home), saved);
    }
}

/// A segment that is cut is appended to again: what its index says must be right before.
#[test]
fn a_cut_log_goes_on_with_the_right_aborted_transactions() {
    let home = Home::new();
    written(&home);
    let log = home.open(&config());
    let cut = log.truncate_to(9).unwrap();
    let right = log.aborted_transactions(0, 99).unwrap();
    log.close_dirty();
    drop(log);
    let home = Home::new();
    written(&home);
    fs::write(home.segment(0, "txnindex"), [9; 68]).unwrap();
    let log = home.open(&config());
    assert_eq!(log.truncate_to(9).unwrap(), cut);
    assert_eq!(log.aborted_transactions(0, 99).unwrap(), right);
    let first = client(&log, idempotent(50, 0, 0, 1, true)).unwrap();
    coordinator(&log, marker(50, 0, false, 0)).unwrap();
    log.close_clean().unwrap();
    let log = home.open(&config());
    let now = log.aborted_transactions(0, 99).unwrap();
    assert_eq!(now[..right.len()], right);
    assert_eq!(now[right.len()].first_offset, first.first_offset);
    assert_eq!(now.len(), right.len() + 1);
}

/// Kill -9 at each step of the cleaner's swap, where records of an aborted transaction stay because
/// the map of keys was full.
#[test]
fn a_crash_in_the_cleaners_swap_loses_no_aborted_transaction() {
    let config = LogConfig {
        compact: true,
        delete: false,
        segment_bytes: 5_000,
        roll_interval_ms: 0,
        ..LogConfig::default()
    };
    for step in 0..=5 {
        let home = Home::new();
        let log = home.open(&config);
        let mut aborted_at = Vec::new();
        for n in 0..100 {
            let mut b = tarn_records::BatchBuilder::new()
                .producer(n % 3, 0, (n / 3) as i32)
                .transactional();
            b.add(
                NOW,
                Some(format!("key {n}").as_bytes()),
                Some(b"value"),
                &[],
            );
            let info = client(&log, b.build().unwrap()).unwrap();
            coordinator(&log, marker(n % 3, 0, n % 2 == 0, 0)).unwrap();
            aborted_at.extend((n % 2 == 1).then_some(info.first_offset));
        }
        let end = log.log_end_offset();
        log.set_high_watermark(end);
        log.flush().unwrap();
        *log.dir_state().faults.swap_ends_at.lock() = Some(step);
        assert!(log.clean(1, NOW, &mut |_| true).is_err());
        drop(log);
        let log = home.open_with(&config, false, Some(end)).unwrap();
        let told = log.aborted_transactions(0, end).unwrap();
        let covers = |t: &AbortedTxn, pid: i64, offset: i64| {
            t.producer_id == pid && (t.first_offset..=t.last_offset).contains(&offset)
        };
        let mut left = 0;
        for b in tarn_records::batches(&all_bytes(&log)) {
            let h = b.unwrap().header;
            if h.is_control() || h.record_count == 0 {
                continue;
            }
            let aborted = aborted_at.contains(&h.base_offset);
            let is_told = told.iter().any(|t| covers(t, h.producer_id, h.base_offset));
            assert_eq!(is_told, aborted, "step {step}, offset {}", h.base_offset);
            left += usize::from(aborted);
        }
        assert!(left > 3);
    }
}
