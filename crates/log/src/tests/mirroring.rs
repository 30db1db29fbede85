//! Verbatim appends: any cut, gaps, empty batches, refusals, limits that do not apply.

use tarn_records::mirror_pid_reset;

use super::*;

/// Data, gap, emptied batch, transaction with abort, compressed batch, epoch change.
pub(crate) fn source_bytes() -> Vec<u8> {
    let mut zstd = BatchBuilder::new()
        .base_offset(60)
        .leader_epoch(4)
        .compression(tarn_records::Compression::Zstd);
    for _ in 0..4 {
        zstd.add(NOW, None, Some(&[1; 200]), &[]);
    }
    let mut txn = BatchBuilder::new()
        .base_offset(40)
        .leader_epoch(3)
        .producer(9, 2, 0)
        .transactional();
    txn.add(NOW, Some(b"a"), Some(b"b"), &[]);
    let mut abort = marker(9, 2, false, 5);
    tarn_records::patch_base_offset_and_leader_epoch(&mut abort, 41, 3).unwrap();
    [
        batch(0, 2, 5, 60),
        BatchBuilder::new()
            .base_offset(5)
            .leader_epoch(2)
            .last_offset_delta(9)
            .build()
            .unwrap(),
        batch(20, 3, 1, 10),
        txn.build().unwrap(),
        abort,
        zstd.build().unwrap(),
    ]
    .concat()
}

#[test]
fn every_cut_gives_the_same_log() {
    let bytes = source_bytes();
    let config = LogConfig {
        segment_bytes: 500,
        index_interval_bytes: 64,
        ..LogConfig::default()
    };
    let look = |home: &Home, log: &PartitionLog| {
        log.set_high_watermark(i64::MAX);
        assert_eq!(all_bytes(log), bytes);
        assert_eq!(log.log_end_offset(), 64);
        let epochs: Vec<_> = log
            .epochs()
            .iter()
            .map(|e| (e.epoch, e.start_offset))
            .collect();
        assert_eq!(epochs, [(2, 0), (3, 20), (4, 60)]);
        assert_eq!(log.aborted_transactions(0, 64).unwrap().len(), 1);
        assert_eq!(
            (log.last_stable_offset(), log.open_transactions().len()),
            (64, 0)
        );
        let mut files: Vec<_> = std::fs::read_dir(home.dir())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        files.sort();
        files
    };
    let whole = Home::new();
    let log = whole.open(&config);
    let info = log.append_verbatim(0, &bytes, NOW).unwrap();
    assert_eq!(
        (
            info.first_offset,
            info.end_offset,
            info.batches,
            info.records
        ),
        (Some(0), 64, 6, 12)
    );
    let files = look(&whole, &log);
    for cut in (1..bytes.len()).step_by(sized(1, 5)) {
        let home = Home::new();
        let log = home.open(&config);
        let mut append = log.mirror_append(0, NOW).unwrap();
        append.push(&bytes[..cut]).unwrap();
        append.push(&bytes[cut..]).unwrap();
        assert_eq!(append.finish().unwrap(), info, "cut at {cut}");
        assert_eq!(look(&home, &log), files);
    }
    for step in [1, 7, 60, 61, 62] {
        let home = Home::new();
        let log = home.open(&config);
        let mut append = log.mirror_append(0, NOW).unwrap();
        bytes
            .chunks(step)
            .for_each(|piece| append.push(piece).unwrap());
        assert_eq!(append.finish().unwrap(), info, "steps of {step}");
        assert_eq!(look(&home, &log), files);
    }
}

#[test]
fn a_cut_off_tail_is_dropped_and_the_end_moves_by_whole_batches() {
    let (a, b) = (batch(0, 1, 2, 100), batch(2, 1, 2, 100));
    let both = [a.clone(), b].concat();
    for cut in (a.len()..both.len()).step_by(sized(1, 3)) {
        let home = Home::new();
        let log = home.open(&LogConfig::default());
        let mut append = log.mirror_append(0, NOW).unwrap();
        append.push(&both[..a.len() - 1]).unwrap();
        assert_eq!(log.log_end_offset(), 0);
        append.push(&both[a.len() - 1..cut]).unwrap();
        assert_eq!(log.log_end_offset(), 2);
        let info = append.finish().unwrap();
        assert_eq!(
            (info.end_offset, info.partial_tail_bytes),
            (2, (cut - a.len()) as u64)
        );
        assert_eq!(std::fs::read(home.segment(0, "log")).unwrap(), a);
        assert_eq!(
            log.append_verbatim(2, &both[a.len()..], NOW)
                .unwrap()
                .end_offset,
            4
        );
        assert_eq!(all_bytes(&log), both);
    }
}

#[test]
fn a_bad_batch_leaves_nothing_and_spoils_nothing_before_it() {
    let good = batch(10, 2, 3, 50);
    let next = batch(13, 2, 3, 50);
    let with = |at: usize, v: &[u8]| {
        let mut b = next.clone();
        b[at..at + v.len()].copy_from_slice(v);
        b
    };
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("crc", with(80, &[99])),
        ("zero", vec![0; 200]),
        ("magic 0", with(16, &[0])),
        ("magic 1", with(16, &[1])),
        ("magic 9", with(16, &[9])),
        ("negative length", with(8, &(-1i32).to_be_bytes())),
        ("backwards", with(0, &12i64.to_be_bytes())),
        ("negative offset", with(0, &(-4i64).to_be_bytes())),
        ("overflow", with(0, &(i64::MAX - 1).to_be_bytes())),
        ("negative delta", with(23, &(-3i32).to_be_bytes())),
        ("older epoch", with(12, &1i32.to_be_bytes())),
        ("absurd epoch", with(12, &(-7i32).to_be_bytes())),
        // Above the epoch that the sender leads with.
        ("epoch beyond", with(12, &3i32.to_be_bytes())),
    ];
    let bounds = MirrorBounds {
        leader_epoch_max: 2,
        ..MirrorBounds::NONE
    };
    for (what, bad) in bad {
        for step in [1usize, 37, 100_000] {
            let home = Home::new();
            let log = home.open(&LogConfig::default());
            let mut append = log.mirror_append(0, NOW).unwrap();
            append.set_bounds(bounds);
            let all = [good.clone(), bad.clone(), batch(16, 2, 1, 1)].concat();
            let failed = all.chunks(step).find_map(|piece| append.push(piece).err());
            let failed = failed.unwrap_or_else(|| panic!("{what} was taken in steps of {step}"));
            let typed = match what {
                "magic 0" | "magic 1" => matches!(failed, LogError::OldFormat { .. }),
                "backwards" => matches!(
                    failed,
                    LogError::NotContinuous {
                        base_offset: 12,
                        log_end: 13
                    }
                ),
                "epoch beyond" => matches!(failed, LogError::EpochBeyondClaim { epoch: 3, .. }),
                "older epoch" => matches!(failed, LogError::EpochBackwards { latest: 2, .. }),
                _ => matches!(failed, LogError::BadBatch(_)),
            };
            assert!(typed, "{what}: {failed:?}");
            assert!(matches!(append.push(&next), Err(LogError::Superseded)));
            assert!(append.finish().is_err());
            assert_eq!(log.log_end_offset(), 13, "{what}");
            assert_eq!(
                std::fs::read(home.segment(0, "log")).unwrap(),
                good,
                "{what}"
            );
            log.append_verbatim(13, &next, NOW).unwrap();
            assert_eq!(all_bytes(&log), [good.clone(), next.clone()].concat());
        }
    }
}

/// An append ends in front of the first batch that reaches to its sender's high watermark, and says
/// so.
#[test]
fn what_reaches_beyond_the_claimed_end_is_left_out_with_all_that_follows() {
    let (good, beyond) = (batch(10, 2, 3, 50), batch(13, 2, 3, 50));
    let all = [good.clone(), beyond, batch(16, 2, 1, 1)].concat();
    for step in [1usize, 37, 100_000] {
        let home = Home::new();
        let log = home.open(&LogConfig::default());
        let mut append = log.mirror_append(0, NOW).unwrap();
        append.set_bounds(MirrorBounds {
            offset_end: 15,
            ..MirrorBounds::NONE
        });
        for piece in all.chunks(step) {
            append.push(piece).unwrap();
        }
        let info = append.finish().unwrap();
        assert_eq!((info.batches, info.beyond), (1, Some((13, 15))));
        assert_eq!(all_bytes(&log), good);
    }
}

#[test]
fn limits_of_the_produce_path_do_not_apply() {
    let home = Home::new();
    let config = LogConfig {
        max_message_bytes: 1000,
        segment_bytes: 1 << 20,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    let far = BatchBuilder::new()
        .leader_epoch(0)
        .add(NOW * 3, None, Some(&vec![3; 8 << 20]), &[])
        .build()
        .unwrap();
    let mut append = log.mirror_append(0, NOW).unwrap();
    far.chunks(256 << 10).for_each(|p| append.push(p).unwrap());
    append.finish().unwrap();
    log.append_verbatim(1, &batch(1, 0, 1, 10), NOW).unwrap();
    assert_eq!(log.segment_count(), 2);
    let slice = log.read(0, 1, 2, true).unwrap().unwrap();
    assert_eq!(slice.read().unwrap(), far);
    assert_eq!(first_of(&log.read(1, 1, 2, true).unwrap().unwrap()), (1, 1));
    let held_up = log.retention(NOW + 1).unwrap();
    assert_eq!(
        held_up.blocked_by_future_timestamp, None,
        "above the high watermark nothing is looked at"
    );
    log.set_high_watermark(2);
    assert_eq!(
        log.retention(NOW + 1).unwrap().blocked_by_future_timestamp,
        Some(NOW * 3)
    );
    log.update_config(LogConfig {
        retention_bytes: 50,
        ..config
    });
    assert_eq!(
        log.retention(NOW + 1).unwrap().segments,
        1,
        "size retention works all the same"
    );
    assert_eq!(log.log_start_offset(), 1);
}

#[test]
fn an_offset_gap_above_two_billion_rolls() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let bytes = [
        batch(0, 0, 1, 10),
        batch(3_000_000_000, 0, 2, 10),
        batch(9_000_000_000, 0, 1, 10),
    ]
    .concat();
    log.append_verbatim(0, &bytes, NOW).unwrap();
    assert_eq!(
        (log.segment_count(), log.log_end_offset()),
        (3, 9_000_000_001)
    );
    for offset in [
        0,
        1,
        5,
        2_999_999_999,
        3_000_000_001,
        3_000_000_002,
        9_000_000_000,
    ] {
        let (_, last) = first_of(&log.read(offset, 1, i64::MAX, true).unwrap().unwrap());
        assert!(last >= offset);
    }
    log.close_clean().unwrap();
    let log = home.open(&LogConfig::default());
    assert_eq!(log.log_end_offset(), 9_000_000_001);
    assert_eq!(all_bytes(&log), bytes);
    // The very first batch may lie that far out too; the log start stays where it was.
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    log.append_verbatim(0, &bytes[batch(0, 0, 1, 10).len()..], NOW)
        .unwrap();
    assert_eq!(log.log_start_offset(), 0);
    assert_eq!(
        first_of(&log.read(0, 1, i64::MAX, true).unwrap().unwrap()),
        (3_000_000_000, 3_000_000_001)
    );
}

#[test]
fn other_writers_overtake_an_unfinished_append() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let bytes = batch(0, 0, 2, 100);
    let mut first = log.mirror_append(0, NOW).unwrap();
    first.push(&bytes[..90]).unwrap();
    let mut second = log.mirror_append(0, NOW).unwrap();
    assert!(matches!(
        first.push(&bytes[90..]),
        Err(LogError::Superseded)
    ));
    second.push(&bytes[..90]).unwrap();
    drop(first);
    client(&log, batch(0, 0, 1, 5)).unwrap();
    assert!(matches!(
        second.push(&bytes[90..]),
        Err(LogError::Superseded)
    ));
    drop(second);
    let mut third = log.mirror_append(1, NOW).unwrap();
    third.push(&batch(1, 1, 1, 5)[..70]).unwrap();
    drop(third);
    assert_eq!(log.log_end_offset(), 1);
    assert_eq!(
        std::fs::metadata(home.segment(0, "log")).unwrap().len(),
        log.size_bytes()
    );
    assert!(matches!(
        log.mirror_append(7, NOW),
        Err(LogError::UnexpectedLogEnd { log_end: 1, .. })
    ));
}

#[test]
fn a_source_log_start_inside_a_batch_is_followed() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    log.truncate_fully_and_start_at(5).unwrap();
    let b = batch(0, 0, 10, 10);
    log.append_verbatim(5, &b, NOW).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (5, 10));
    assert_eq!(
        first_of(&log.read(5, 1, 10, true).unwrap().unwrap()),
        (0, 9)
    );
    assert!(matches!(
        log.append_verbatim(10, &batch(9, 0, 2, 1), NOW),
        Err(LogError::NotContinuous { .. })
    ));
}

#[test]
fn a_pid_reset_forgets_all_producers() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    client(&log, idempotent(5, 3, 0, 2, true)).unwrap();
    log.append_as_leader(&mut marker(5, 3, false, 0), 1, AppendOrigin::Internal, NOW)
        .unwrap();
    let mut reset = mirror_pid_reset("MkU3OEVBNTcwNTJENDM2Qg", NOW).unwrap();
    log.append_as_leader(&mut reset, 1, AppendOrigin::Internal, NOW)
        .unwrap();
    assert_eq!(log.active_producers(), []);
    client(&log, idempotent(5, 0, 17, 1, false)).unwrap();
    // The same by copying and by recovery.
    let copy = Home::new();
    let copied = copy.open(&LogConfig::default());
    copied.append_verbatim(0, &all_bytes(&log), NOW).unwrap();
    assert_eq!(copied.active_producers(), log.active_producers());
    drop(copied);
    let again = copy
        .open_with(&LogConfig::default(), false, Some(0))
        .unwrap();
    assert_eq!(again.active_producers(), log.active_producers());
    assert_eq!(again.active_producers().len(), 1);
}
