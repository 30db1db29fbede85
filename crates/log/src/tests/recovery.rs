//! Opening after a crash: every cut, holes, damage, unusable side files.

use std::fs;
use std::os::unix::fs::FileExt;

use super::mirroring::source_bytes;
use super::*;

/// Ends of the whole batches in `bytes`, with the offsets after them; starts with (0, 0).
fn ends(bytes: &[u8]) -> Vec<(usize, i64)> {
    let batches = tarn_records::batches(bytes).map(Result::unwrap);
    std::iter::once((0, 0))
        .chain(batches.map(|b| (b.position + b.bytes.len(), b.header.next_offset())))
        .collect()
}

fn written(home: &Home, config: &LogConfig, bytes: &[u8]) {
    let log = home.open(config);
    log.append_verbatim(0, bytes, NOW).unwrap();
    // Dropped without a close: the process died.
}

#[test]
fn the_last_segment_cut_at_any_byte_keeps_the_whole_batches() {
    let bytes = source_bytes();
    let config = LogConfig {
        index_interval_bytes: 64,
        ..LogConfig::default()
    };
    for cut in (0..=bytes.len()).step_by(sized(1, 5)) {
        let home = Home::new();
        written(&home, &config, &bytes);
        fs::File::options()
            .write(true)
            .open(home.segment(0, "log"))
            .unwrap()
            .set_len(cut as u64)
            .unwrap();
        let log = home.open_with(&config, false, Some(0)).unwrap();
        let (kept, end) = ends(&bytes).into_iter().rfind(|(e, _)| *e <= cut).unwrap();
        assert_eq!(log.log_end_offset(), end, "cut at {cut}");
        assert_eq!(all_bytes(&log), bytes[..kept], "cut at {cut}");
        assert_eq!(
            fs::metadata(home.segment(0, "log")).unwrap().len(),
            kept as u64
        );
        assert!(log.epochs().iter().all(|e| e.start_offset < end));
        assert_eq!(log.open_transactions().len(), usize::from(end == 41));
        log.append_verbatim(end, &batch(100, 9, 1, 3), NOW).unwrap();
        assert_eq!(log.log_end_offset(), 101);
    }
}

#[test]
fn a_zero_hole_cuts_even_when_good_batches_follow() {
    let bytes = source_bytes();
    for (start, end) in ends(&bytes).windows(2).map(|w| (w[0], w[1].0)) {
        for hole in [start.0, start.0 + 61, end - 1] {
            let home = Home::new();
            written(&home, &LogConfig::default(), &bytes);
            let zeros = vec![0u8; end - hole.min(end - 1)];
            let file = fs::File::options()
                .write(true)
                .open(home.segment(0, "log"))
                .unwrap();
            if bytes[hole.min(end - 1)..end].iter().all(|b| *b == 0) {
                continue;
            }
            file.write_all_at(&zeros, hole.min(end - 1) as u64).unwrap();
            let log = home
                .open_with(&LogConfig::default(), false, Some(0))
                .unwrap();
            assert_eq!(log.log_end_offset(), start.1, "hole at {hole}");
            assert_eq!(all_bytes(&log), bytes[..start.0]);
        }
    }
}

#[test]
fn a_hole_in_a_sealed_segment_above_the_recovery_point_cuts_there() {
    let config = LogConfig {
        segment_bytes: 300,
        ..LogConfig::default()
    };
    let bytes: Vec<u8> = (0..8).flat_map(|n| batch(n * 2, 0, 2, 60)).collect();
    let open = |recovery_point: Option<i64>| {
        let home = Home::new();
        written(&home, &config, &bytes);
        let bases = [0, 2, 4, 6, 8, 10, 12, 14];
        let second = bases
            .iter()
            .map(|b| home.segment(*b, "log"))
            .filter(|p| p.exists())
            .nth(1)
            .unwrap();
        let at = fs::metadata(&second).unwrap().len() - 10;
        fs::File::options()
            .write(true)
            .open(&second)
            .unwrap()
            .write_all_at(&[0xee; 5], at)
            .unwrap();
        let opened = home.open_with(&config, false, recovery_point);
        (home, opened)
    };
    let (home, log) = open(Some(1));
    let log = log.unwrap();
    assert!(log.log_end_offset() > 0 && log.log_end_offset() < 16);
    assert_eq!(all_bytes(&log), bytes[..all_bytes(&log).len()]);
    assert_eq!(log.segment_count(), 2);
    drop((home, log));
    // Unknown recovery point: a sealed segment may have been synced, so nobody cuts it silently.
    let (home, refused) = open(None);
    assert!(
        matches!(refused, Err(LogError::Damaged { .. })),
        "{refused:?}"
    );
    drop(home);
    // Below the recovery point nothing is checked at opening and nothing is cut; the scrubber finds
    // it.
    let (_home, log) = open(Some(15));
    let log = log.unwrap();
    assert_eq!(log.log_end_offset(), 16);
    assert!(matches!(log.verify(0, 16), Err(LogError::Damaged { .. })));
    log.verify(15, 16).unwrap();
}

#[test]
fn damage_below_the_recovery_point_is_reported_not_cut() {
    let bytes = source_bytes();
    let home = Home::new();
    written(&home, &LogConfig::default(), &bytes);
    let second = ends(&bytes)[1].0 as u64;
    fs::File::options()
        .write(true)
        .open(home.segment(0, "log"))
        .unwrap()
        .write_all_at(&[0; 61], second)
        .unwrap();
    for clean in [false, true] {
        let refused = home.open_with(&LogConfig::default(), clean, Some(64));
        assert!(
            matches!(refused, Err(LogError::Damaged { .. })),
            "{refused:?}"
        );
        assert_eq!(
            fs::metadata(home.segment(0, "log")).unwrap().len(),
            bytes.len() as u64
        );
    }
}

#[test]
fn indexes_snapshots_and_epochs_are_made_again_when_they_are_unusable() {
    let config = LogConfig {
        segment_bytes: 500,
        index_interval_bytes: 64,
        ..LogConfig::default()
    };
    let bytes = source_bytes();
    for clean in [true, false] {
        let home = Home::new();
        let log = home.open(&config);
        log.append_verbatim(0, &bytes, NOW).unwrap();
        let (epochs, producers) = (log.epochs(), log.active_producers());
        log.close_clean().unwrap();
        drop(log);
        for entry in fs::read_dir(home.dir()).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|e| e.to_str()) {
                Some("index") => fs::write(&path, [0; 16]).unwrap(),
                Some("timeindex") => fs::write(&path, [7; 13]).unwrap(),
                Some("snapshot") => fs::write(&path, [1; 30]).unwrap(),
                _ if path.ends_with("leader-epoch-checkpoint") => {
                    fs::write(&path, "0\n3\n1 0\n").unwrap()
                }
                _ => {}
            }
        }
        let log = home.open_with(&config, clean, Some(64)).unwrap();
        assert_eq!(all_bytes(&log), bytes);
        assert_eq!((log.epochs(), log.active_producers()), (epochs, producers));
        assert_eq!(
            log.offset_for_timestamp(NOW, &mut tarn_records::Unpaced)
                .unwrap()
                .unwrap()
                .offset,
            0
        );
        assert_eq!(log.aborted_transactions(0, 64).unwrap().len(), 1);
    }
}

#[test]
fn producers_and_open_transactions_survive_a_crash() {
    let config = LogConfig {
        segment_bytes: 250,
        ..LogConfig::default()
    };
    let home = Home::new();
    let log = home.open(&config);
    for n in 0..10 {
        client(&log, idempotent(5, 0, n, 1, false)).unwrap();
        client(&log, idempotent(6, 1, n, 1, true)).unwrap();
    }
    coordinator(&log, marker(6, 1, false, 3)).unwrap();
    client(&log, idempotent(6, 1, 10, 1, true)).unwrap();
    let (producers, open) = (log.active_producers(), log.open_transactions());
    assert!(log.segment_count() > 4);
    drop(log);
    for recovery_point in [0, 7, 21, 22] {
        let log = home
            .open_with(&config, false, Some(recovery_point))
            .unwrap();
        assert_eq!(
            (log.active_producers(), log.open_transactions()),
            (producers.clone(), open.clone())
        );
        assert_eq!(log.last_stable_offset(), 21);
        assert_eq!(log.aborted_transactions(0, 22).unwrap().len(), 1);
        assert!(
            client(&log, idempotent(5, 0, 9, 1, false))
                .unwrap()
                .duplicate
        );
    }
}

#[test]
fn truncation_rolls_back_epochs_producers_and_transactions() {
    let home = Home::new();
    let config = LogConfig {
        segment_bytes: 400,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    let mut states = Vec::new();
    for n in 0..6 {
        log.append_as_leader(
            &mut idempotent(5, 0, n * 2, 2, true),
            n,
            AppendOrigin::Client,
            NOW,
        )
        .unwrap();
        log.append_as_leader(
            &mut marker(5, 0, n % 2 == 0, 1),
            n,
            AppendOrigin::Coordinator,
            NOW,
        )
        .unwrap();
        log.set_high_watermark(i64::MAX);
        states.push((
            log.log_end_offset(),
            log.epochs(),
            log.active_producers(),
            log.aborted_transactions(0, 99).unwrap(),
        ));
    }
    while let Some((end, epochs, producers, aborted)) = states.pop() {
        assert_eq!(log.truncate_to(end).unwrap(), end);
        assert_eq!(log.epochs(), epochs);
        assert_eq!(log.active_producers(), producers);
        assert_eq!(log.aborted_transactions(0, 99).unwrap(), aborted);
        assert_eq!(log.high_watermark(), end);
        // Into the data batch of the transaction: it goes whole, with its marker.
        if let Some((before, ..)) = states.last() {
            assert_eq!(log.truncate_to(before + 1).unwrap(), *before);
            assert_eq!(log.open_transactions(), []);
        }
    }
    assert_eq!(log.truncate_to(0).unwrap(), 0);
    assert_eq!(
        (log.log_end_offset(), log.epochs(), log.active_producers()),
        (0, vec![], vec![])
    );
    client(&log, batch(0, 0, 1, 1)).unwrap();
}

#[test]
fn a_start_offset_survives_although_the_log_is_empty() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    log.truncate_fully_and_start_at(1_000).unwrap();
    drop(log);
    for clean in [false, true] {
        let log = home
            .open_with(&LogConfig::default(), clean, Some(0))
            .unwrap();
        assert_eq!(
            (log.log_start_offset(), log.log_end_offset()),
            (1_000, 1_000)
        );
    }
}
