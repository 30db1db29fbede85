//! Bits that flip on the disk: an index is never believed against its batches, and a scrub finds
//! what no reader has asked for.

use std::fs;

use super::*;

/// One index entry for nearly every batch.
fn config() -> LogConfig {
    LogConfig {
        index_interval_bytes: 100,
        segment_bytes: 1_500,
        ..LogConfig::default()
    }
}

/// A log of several segments, closed cleanly. Timestamps rise by one with each offset.
fn written(home: &Home) -> i64 {
    let log = home.open(&config());
    for i in 0..40 {
        let mut bytes = batch(i * 2, 0, 2, 40);
        bytes[..8].fill(0);
        client(&log, bytes).unwrap();
    }
    assert!(log.segment_count() > 3);
    let end = log.log_end_offset();
    log.close_clean().unwrap();
    end
}

/// Every answer that goes through an index: by offset and by time.
fn answers(log: &PartitionLog, end: i64) -> Vec<(i64, i64)> {
    let by_offset = (0..end).map(|o| first_of(&log.read(o, 1, end, true).unwrap().unwrap()));
    let mut all: Vec<_> = by_offset.collect();
    for t in (0..end).step_by(3) {
        let found = log
            .offset_for_timestamp(NOW + t, &mut tarn_records::Unpaced)
            .unwrap();
        all.push((t, found.map_or(-1, |f| f.offset)));
    }
    all.push((
        -3,
        log.max_timestamp(&mut tarn_records::Unpaced)
            .unwrap()
            .map_or(-1, |f| f.offset),
    ));
    all
}

fn flip(file: &std::path::Path, bit: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(file, bytes).unwrap();
}

/// One flipped bit anywhere in an offset or time index, of a sealed or the last segment, after a
/// clean stop: every answer is the right one, the log is not refused, and the index is rebuilt as
/// it was.
#[test]
fn a_flipped_bit_in_an_index_changes_no_answer_and_is_repaired() {
    let home = Home::new();
    let end = written(&home);
    let right = answers(&home.open(&config()), end);
    let mut indexes: Vec<_> = fs::read_dir(home.dir())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| {
            p.extension()
                .is_some_and(|e| e == "index" || e == "timeindex")
        })
        .filter(|p| fs::metadata(p).unwrap().len() > 0)
        .collect();
    indexes.sort();
    // The first, which is sealed, and the last of each kind.
    let chosen = [0, 1, indexes.len() - 2, indexes.len() - 1].map(|i| indexes[i].clone());
    let mut noticed = 0;
    for file in chosen {
        let before = fs::read(&file).unwrap();
        for bit in (0..before.len() * 8).step_by(sized(11, 29)) {
            flip(&file, bit);
            let log = home.open(&config());
            assert_eq!(answers(&log, end), right, "{} bit {bit}", file.display());
            if log.dir_state().take_repair() {
                noticed += 1;
                log.repair_indexes().unwrap();
                assert_eq!(answers(&log, end), right);
                assert!(!log.dir_state().take_repair());
            }
            drop(log);
            fs::write(&file, &before).unwrap();
        }
    }
    assert!(noticed > sized(20, 7), "{noticed}");
}

/// A time index that says that everything is old removes nothing.
#[test]
fn retention_does_not_go_by_a_flipped_time_index() {
    let home = Home::new();
    let end = written(&home);
    for entry in fs::read_dir(home.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "timeindex") {
            let mut bytes = fs::read(&path).unwrap();
            bytes.chunks_mut(12).for_each(|e| e[..7].fill(0));
            fs::write(&path, bytes).unwrap();
        }
    }
    let log = home.open(&LogConfig {
        retention_ms: 3_600_000,
        ..config()
    });
    assert_eq!(log.retention(NOW + 1_000).unwrap().segments, 0);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (0, end));
}

/// The scrub walks a whole log in bounded steps, and names the place of one flipped bit and goes on
/// behind it.
#[test]
fn the_scrub_finds_a_flipped_bit_and_says_where() {
    let home = Home::new();
    let end = written(&home);
    let scrub = |log: &PartitionLog| {
        let (mut next, mut bytes, mut found) = (Some(0), 0, Vec::new());
        while let Some(from) = next {
            let step = log.scrub(from, 300).unwrap();
            assert!(step.bytes <= 600);
            bytes += step.bytes;
            found.extend(step.damage);
            next = step.next_offset;
        }
        (bytes, found)
    };
    let log = home.open(&config());
    assert_eq!(scrub(&log), (log.size_bytes(), Vec::new()));
    drop(log);
    let file = home.segment(0, "log");
    // In the body of the third batch.
    let batch_bytes = batch(0, 0, 2, 40).len();
    flip(&file, (2 * batch_bytes + batch_bytes - 10) * 8);
    let log = home.open(&config());
    let (bytes, found) = scrub(&log);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].offset, found[0].position),
        (4, 2 * batch_bytes as u64)
    );
    assert_eq!(found[0].file, file);
    assert!(bytes < log.size_bytes() && log.log_end_offset() == end);
}

/// An index that no reader uses is looked at by the scrub.
#[test]
fn the_scrub_finds_a_wrong_index() {
    let home = Home::new();
    written(&home);
    let file = home.segment(0, "index");
    let before = fs::read(&file).unwrap();
    flip(&file, 7 * 8);
    let log = home.open(&config());
    assert_eq!(log.scrub(0, 1 << 20).unwrap().damage, None);
    assert!(log.dir_state().take_repair());
    assert_eq!(log.repair_indexes().unwrap(), 1);
    log.flush().unwrap();
    assert_eq!(fs::read(&file).unwrap(), before);
}

/// A reader gets the aborted transactions of the bytes that it gets, not those of the whole log
/// behind them.
#[test]
fn a_small_fetch_carries_only_the_aborted_transactions_in_it() {
    let transactions = sized(3_000, 700);
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    for pid in 0..transactions as i64 {
        client(&log, idempotent(pid, 0, 0, 1, true)).unwrap();
        coordinator(&log, marker(pid, 0, false, 0)).unwrap();
    }
    let end = log.log_end_offset();
    for from in [0, 1_000, end - 40] {
        let slice = log.read(from, 1_000, end, true).unwrap().unwrap();
        let sent = slice.read().unwrap();
        let last = tarn_records::batches(&sent)
            .filter_map(Result::ok)
            .last()
            .unwrap()
            .header
            .last_offset();
        let got = log.aborted_in(from, &slice, end).unwrap();
        let needed = log.aborted_transactions(from, last + 1).unwrap();
        assert!(got.starts_with(&needed) && !needed.is_empty());
        assert!(got.len() <= 120, "{} for {} bytes", got.len(), sent.len());
    }
    // Those that only begin before what is sent are among them.
    let all = log.aborted_transactions(0, end).unwrap();
    assert_eq!(all.len(), transactions);
    drop(log);
    let again = home
        .open_with(&LogConfig::default(), false, Some(0))
        .unwrap();
    assert_eq!(again.aborted_transactions(0, end).unwrap(), all);
    again.close_clean().unwrap();
    assert_eq!(
        home.open(&LogConfig::default())
            .aborted_transactions(0, end)
            .unwrap(),
        all
    );
}
