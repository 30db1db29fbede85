//! Leader appends: offsets, limits, idempotence, transactions, faults of the disk.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn an_idle_log_has_no_file() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    assert_eq!(
        (
            log.log_start_offset(),
            log.log_end_offset(),
            log.segment_count()
        ),
        (0, 0, 0)
    );
    log.assign_leader_epoch(3).unwrap();
    assert_eq!(log.read(0, 100, 10, true).unwrap().map(|_| ()), None);
    log.flush().unwrap();
    log.close_clean().unwrap();
    assert!(!home.dir().exists());
}

#[test]
fn offsets_and_epoch_are_assigned_in_place() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    for (n, count) in [3, 1, 5].into_iter().enumerate() {
        let before = log.log_end_offset();
        let info = coordinator(&log, batch(777, 0, count, 50)).unwrap();
        assert_eq!(
            (info.first_offset, info.last_offset),
            (before, before + i64::from(count) - 1),
            "append {n}"
        );
    }
    assert_eq!(
        log.epochs(),
        vec![EpochEntry {
            epoch: 1,
            start_offset: 0
        }]
    );
    let bytes = all_bytes(&log);
    let epochs: Vec<i32> = tarn_records::batches(&bytes)
        .map(|b| b.unwrap().header.leader_epoch)
        .collect();
    assert_eq!(epochs, [1, 1, 1]);
    assert_eq!(std::fs::read(home.segment(0, "log")).unwrap(), bytes);
    assert_eq!(
        std::fs::read_to_string(home.dir().join("partition.metadata")).unwrap(),
        "version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg\ncontiguous: true\nchecksum: ad168d69\n"
    );
}

#[test]
fn reads_start_at_the_batch_that_holds_the_offset() {
    let home = Home::new();
    let log = home.open(&LogConfig {
        segment_bytes: 300,
        ..LogConfig::default()
    });
    for _ in 0..6 {
        client(&log, batch(0, 0, 2, 40)).unwrap();
    }
    assert!(log.segment_count() > 1);
    for offset in 0..12 {
        let slice = log.read(offset, 1, 12, true).unwrap().unwrap();
        assert_eq!(first_of(&slice), (offset / 2 * 2, offset / 2 * 2 + 1));
        assert_eq!(slice.len, slice.first_batch_size);
        assert!(log.read(offset, 1, 12, false).unwrap().is_none());
    }
    assert!(log.read(12, 1, 99, true).unwrap().is_none());
    assert!(matches!(
        log.read(13, 1, 99, true),
        Err(LogError::OffsetOutOfRange { log_end: 12, .. })
    ));
    assert!(matches!(
        log.read(-1, 1, 99, true),
        Err(LogError::OffsetOutOfRange { .. })
    ));
    // The upper bound is exact, also inside a batch.
    for upper in 1..12 {
        let slice = log.read(0, 1 << 20, upper, true).unwrap();
        let end = slice.map_or(0, |s| {
            let bytes = s.read().unwrap();
            tarn_records::batches(&bytes)
                .map(|b| b.unwrap().header.next_offset())
                .last()
                .unwrap()
        });
        assert!(end <= upper, "{end} above {upper}");
    }
}

#[test]
fn produce_limits_apply_to_clients_only() {
    let home = Home::new();
    let log = home.open(&LogConfig {
        max_message_bytes: 200,
        segment_bytes: 1000,
        ..LogConfig::default()
    });
    assert!(matches!(
        client(&log, batch(0, 0, 1, 300)),
        Err(LogError::BatchTooLarge { max: 200, .. })
    ));
    let mut big = batch(0, 0, 1, 300);
    log.append_as_leader(&mut big, 1, AppendOrigin::Internal, NOW)
        .unwrap();
    let two = [batch(0, 0, 1, 1), batch(0, 0, 1, 1)].concat();
    assert!(matches!(
        client(&log, two.clone()),
        Err(LogError::InvalidRecord(_))
    ));
    assert_eq!(coordinator(&log, two).unwrap().last_offset, 2);
    assert!(matches!(
        client(&log, marker(1, 0, true, 0)),
        Err(LogError::InvalidRecord(_))
    ));
    let mut damaged = batch(0, 0, 1, 10);
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(client(&log, damaged), Err(LogError::BadBatch(_))));
    let mut cut = batch(0, 0, 1, 10);
    cut.pop();
    assert!(client(&log, cut).is_err());
    assert!(client(&log, Vec::new()).is_err());
    let far = BatchBuilder::new()
        .add(NOW + 3_600_001, None, Some(b"v"), &[])
        .build()
        .unwrap();
    assert!(matches!(
        client(&log, far),
        Err(LogError::InvalidTimestamp(_))
    ));
    let gaps = BatchBuilder::new()
        .last_offset_delta(3)
        .add_at(2, NOW, None, None, &[])
        .build()
        .unwrap();
    assert!(matches!(
        client(&log, gaps),
        Err(LogError::InvalidRecord(_))
    ));
    assert_eq!(log.log_end_offset(), 3);
}

#[test]
fn compacted_topics_need_keys_and_append_time_is_stamped() {
    let home = Home::new();
    let config = LogConfig {
        compact: true,
        timestamp_type: TimestampType::LogAppendTime,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    assert!(matches!(
        client(&log, idempotent(1, 0, 0, 1, false)),
        Err(LogError::InvalidRecord(_))
    ));
    let info = log
        .append_as_leader(&mut batch(0, 0, 2, 5), 1, AppendOrigin::Client, NOW + 9)
        .unwrap();
    assert_eq!(
        (info.log_append_time, info.max_timestamp),
        (Some(NOW + 9), NOW + 9)
    );
    assert_eq!(
        log.offset_for_timestamp(NOW + 9, &mut tarn_records::Unpaced)
            .unwrap()
            .unwrap()
            .offset,
        0
    );
    all_bytes(&log);
}

#[test]
fn retries_are_answered_with_their_old_offsets() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    for n in 0..7 {
        assert_eq!(
            client(&log, idempotent(5, 0, n * 2, 2, false))
                .unwrap()
                .first_offset,
            i64::from(n) * 2
        );
    }
    for n in 2..7 {
        let info = client(&log, idempotent(5, 0, n * 2, 2, false)).unwrap();
        assert_eq!(
            (info.first_offset, info.duplicate),
            (i64::from(n) * 2, true)
        );
    }
    for n in [0, 1, 9] {
        let refused = client(&log, idempotent(5, 0, n * 2, 2, false));
        assert!(
            matches!(
                refused,
                Err(LogError::OutOfOrderSequence {
                    producer_id: 5,
                    last: 13,
                    ..
                })
            ),
            "{refused:?}"
        );
    }
    assert!(matches!(
        client(&log, idempotent(5, 1, 3, 1, false)),
        Err(LogError::OutOfOrderSequence { .. })
    ));
    client(&log, idempotent(5, 1, 0, 1, false)).unwrap();
    assert!(matches!(
        client(&log, idempotent(5, 0, 14, 1, false)),
        Err(LogError::InvalidProducerEpoch { .. })
    ));
    // Nobody knows this one: any sequence goes, as with Kafka.
    client(&log, idempotent(6, 0, 40, 1, false)).unwrap();
    assert_eq!(log.log_end_offset(), 16);
    assert_eq!(log.expire_producers(NOW + 86_400_001), 2);
    client(&log, idempotent(5, 0, 99, 1, false)).unwrap();
}

/// A flood of producer ids costs a bounded memory; the newest are still known.
#[test]
fn producer_ids_are_bounded_and_the_oldest_go() {
    let home = Home::new();
    let config = LogConfig {
        producer_ids_max: 100,
        ..LogConfig::default()
    };
    let log = home.open(&config);
    for id in 0..1_000 {
        client(&log, idempotent(id, 0, 0, 1, false)).unwrap();
        assert!(log.active_producers().len() <= 100);
    }
    assert!(
        client(&log, idempotent(999, 0, 0, 1, false))
            .unwrap()
            .duplicate
    );
}

#[test]
fn the_last_stable_offset_waits_for_markers_and_the_high_watermark() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    client(&log, batch(0, 0, 10, 5)).unwrap();
    client(&log, idempotent(7, 0, 0, 2, true)).unwrap();
    client(&log, idempotent(8, 0, 0, 1, true)).unwrap();
    client(&log, batch(0, 0, 1, 5)).unwrap();
    log.set_high_watermark(i64::MAX);
    assert_eq!((log.high_watermark(), log.last_stable_offset()), (14, 10));
    assert!(matches!(
        client(&log, idempotent(7, 0, 2, 1, false)),
        Err(LogError::InvalidTxnState { .. })
    ));
    assert_eq!(
        log.open_transactions()
            .iter()
            .map(|t| (t.producer_id, t.first_offset))
            .collect::<Vec<_>>(),
        [(7, 10), (8, 12)]
    );
    coordinator(&log, marker(7, 0, false, 4)).unwrap();
    assert_eq!(
        log.last_stable_offset(),
        10,
        "the marker is not below the high watermark yet"
    );
    log.set_high_watermark(15);
    assert_eq!(log.last_stable_offset(), 12);
    assert!(matches!(
        coordinator(&log, marker(7, 0, true, 3)),
        Err(LogError::CoordinatorFenced { current: 4, .. })
    ));
    coordinator(&log, marker(8, 0, true, 4)).unwrap();
    log.set_high_watermark(16);
    assert_eq!(log.last_stable_offset(), 16);
    let aborted = vec![AbortedTxn {
        producer_id: 7,
        first_offset: 10,
        last_offset: 14,
        last_stable_offset: 12,
    }];
    assert_eq!(log.aborted_transactions(0, 16).unwrap(), aborted);
    assert_eq!(log.aborted_transactions(14, 16).unwrap(), aborted);
    assert_eq!(log.aborted_transactions(15, 16).unwrap(), []);
    assert_eq!(log.aborted_transactions(0, 10).unwrap(), []);
    log.close_clean().unwrap();
    assert_eq!(
        std::fs::metadata(home.segment(0, "txnindex"))
            .unwrap()
            .len(),
        34
    );
    let log = home.open(&LogConfig::default());
    assert_eq!(log.aborted_transactions(0, 16).unwrap(), aborted);
    assert_eq!(log.active_producers().len(), 2);
    assert_eq!(log.last_stable_offset(), 16);
}

#[test]
fn timestamps_are_found_in_every_segment_and_codec() {
    let home = Home::new();
    let log = home.open(&LogConfig {
        segment_bytes: 400,
        index_interval_bytes: 100,
        ..LogConfig::default()
    });
    for n in 0..20 {
        let mut b = BatchBuilder::new().compression(tarn_records::Compression::Zstd);
        for i in 0..3 {
            b.add(1000 + n * 30 + i * 10, None, Some(&[7; 30]), &[]);
        }
        client(&log, b.build().unwrap()).unwrap();
    }
    assert!(log.segment_count() > 3);
    for offset in 0..60 {
        for ts in [1000 + offset * 10, 1000 + offset * 10 - 9] {
            let found = log
                .offset_for_timestamp(ts, &mut tarn_records::Unpaced)
                .unwrap()
                .unwrap();
            assert_eq!(
                (found.offset, found.timestamp),
                (offset, 1000 + offset * 10)
            );
        }
    }
    assert_eq!(
        log.offset_for_timestamp(1591, &mut tarn_records::Unpaced)
            .unwrap(),
        None
    );
    assert_eq!(
        log.max_timestamp(&mut tarn_records::Unpaced)
            .unwrap()
            .unwrap()
            .offset,
        59
    );
}

#[test]
fn a_full_disk_refuses_one_append_and_no_more() {
    let home = Home::new();
    let opts = options(home.root(), true, Some(0));
    let state = Arc::clone(&opts.dir_state);
    let log = PartitionLog::open(&home.dir(), LogConfig::default(), opts).unwrap();
    client(&log, batch(0, 0, 2, 100)).unwrap();
    let good = all_bytes(&log);
    *state.faults.space.lock() = Some(10);
    assert!(matches!(
        client(&log, batch(0, 0, 2, 100)),
        Err(LogError::NoSpace { .. })
    ));
    assert!(matches!(
        log.append_verbatim(2, &batch(2, 1, 2, 100), NOW),
        Err(LogError::NoSpace { .. })
    ));
    assert_eq!(log.log_end_offset(), 2);
    assert_eq!(std::fs::read(home.segment(0, "log")).unwrap(), good);
    *state.faults.space.lock() = None;
    assert_eq!(client(&log, batch(0, 0, 1, 100)).unwrap().first_offset, 2);
    assert_eq!(state.offline_reason(), None);
}

#[test]
fn a_failed_write_or_sync_is_final() {
    for sync in [false, true] {
        let home = Home::new();
        let opts = options(home.root(), true, Some(0));
        let state = Arc::clone(&opts.dir_state);
        let log = PartitionLog::open(&home.dir(), LogConfig::default(), opts).unwrap();
        client(&log, batch(0, 0, 2, 100)).unwrap();
        if sync {
            state.faults.sync_fails.store(true, Ordering::SeqCst);
            assert!(matches!(log.flush(), Err(LogError::Offline { .. })));
        } else {
            state.faults.write_fails.store(true, Ordering::SeqCst);
            assert!(matches!(
                client(&log, batch(0, 0, 1, 1)),
                Err(LogError::Offline { .. })
            ));
        }
        state.faults.sync_fails.store(false, Ordering::SeqCst);
        state.faults.write_fails.store(false, Ordering::SeqCst);
        assert!(matches!(log.flush(), Err(LogError::Offline { .. })));
        assert!(matches!(
            client(&log, batch(0, 0, 1, 1)),
            Err(LogError::Offline { .. })
        ));
        assert_eq!(log.recovery_point(), 0);
        assert!(
            log.read(0, 1, 2, true).unwrap().is_some(),
            "reading goes on"
        );
    }
}

/// A header without a largest timestamp (−1 or 0, as old sarama writes it), or with a lie, gets
/// that of the records: time look-ups find them, and retention does not take fresh records for old
/// ones.
#[test]
fn a_wrong_largest_timestamp_in_the_header_is_corrected() {
    for (claimed, bit) in [(-1, 0), (0, 0), (NOW + (1 << 40), 0), (NOW + 7, 8)] {
        let home = Home::new();
        let log = home.open(&LogConfig {
            retention_ms: 60_000,
            ..LogConfig::default()
        });
        let mut bytes = BatchBuilder::new()
            .add(NOW - 5, None, Some(b"a"), &[])
            .add(NOW - 9, None, Some(b"b"), &[])
            .build()
            .unwrap();
        bytes[22] |= bit;
        bytes[35..43].copy_from_slice(&i64::to_be_bytes(claimed));
        let crc = tarn_records::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        // With the bit the records have the header's time.
        let largest = if bit == 0 { NOW - 5 } else { claimed };
        assert_eq!(client(&log, bytes).unwrap().max_timestamp, largest);
        let stored = all_bytes(&log);
        let view = tarn_records::BatchView::first(&stored).unwrap();
        view.check_crc().unwrap();
        assert_eq!(view.header.max_timestamp, largest);
        assert!(!view.header.is_log_append_time());
        let found = log
            .offset_for_timestamp(NOW - 6, &mut tarn_records::Unpaced)
            .unwrap();
        assert_eq!(found.map(|f| f.offset), Some(0));
        log.set_high_watermark(2);
        assert_eq!(log.retention(NOW).unwrap().segments, 0);
    }
}
