//! The log directory: lock, marker, checkpoints, deletion; and the syncer.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use super::*;

fn ten(log: &Arc<PartitionLog>) {
    client(log, batch(0, 0, 10, 10)).unwrap();
    log.set_high_watermark(10);
}

#[test]
fn a_directory_is_held_by_one() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    assert!(matches!(
        LogDir::open(home.root()),
        Err(LogError::Locked { .. })
    ));
    drop(dir);
    LogDir::open(home.root()).unwrap();
}

#[test]
fn the_clean_marker_is_used_once() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    assert!(!dir.was_clean());
    let log = dir
        .open_log("t", 0, Some("id"), LogConfig::default(), NOW)
        .unwrap();
    ten(&log);
    dir.close_clean(42).unwrap();
    assert!(matches!(
        client(&log, batch(0, 0, 1, 1)),
        Err(LogError::Closed { .. })
    ));
    drop((dir, log));
    assert_eq!(
        fs::read_to_string(home.root().join("recovery-point-offset-checkpoint")).unwrap(),
        "0\n1\nt 0 10\n"
    );
    let dir = LogDir::open(home.root()).unwrap();
    assert_eq!(
        (dir.was_clean(), dir.clean_shutdown_broker_epoch()),
        (true, Some(42))
    );
    assert!(!home.root().join(".kafka_cleanshutdown").exists());
    let log = dir
        .open_log("t", 0, Some("id"), LogConfig::default(), NOW)
        .unwrap();
    assert_eq!(
        (
            log.log_end_offset(),
            log.high_watermark(),
            log.recovery_point()
        ),
        (10, 10, 10)
    );
    let found = dir.scan().unwrap();
    assert_eq!((found.len(), found[0].topic_id.as_deref()), (1, Some("id")));
    drop((dir, log));
    assert!(!LogDir::open(home.root()).unwrap().was_clean());
}

#[test]
fn a_topic_id_that_a_power_cut_took_is_written_again() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let open = |dir: &LogDir, id| dir.open_log("t", 0, Some(id), LogConfig::default(), NOW);
    ten(&open(&dir, "id").unwrap());
    drop(dir);
    let file = home.root().join("t-0/partition.metadata");
    for left in [None, Some(""), Some("\0\0\0\0")] {
        fs::remove_file(&file).unwrap();
        if let Some(left) = left {
            fs::write(&file, left).unwrap();
        }
        let dir = LogDir::open(home.root()).unwrap();
        assert_eq!(open(&dir, "id").unwrap().log_end_offset(), 10);
        drop(dir);
        let dir = LogDir::open(home.root()).unwrap();
        assert!(matches!(
            open(&dir, "another"),
            Err(LogError::BadFile { .. })
        ));
    }
    // What no power cut leaves is not ours to replace.
    fs::write(&file, "something else").unwrap();
    let dir = LogDir::open(home.root()).unwrap();
    open(&dir, "id").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "something else");
}

#[test]
fn a_partition_without_records_leaves_nothing_on_disk() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    dir.open_log("t", 0, Some("id"), LogConfig::default(), NOW)
        .unwrap();
    assert!(!home.root().join("t-0").exists());
}

#[test]
fn checkpoints_carry_watermark_and_log_start_over_a_crash() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    ten(&log);
    assert_eq!(log.advance_log_start(7).unwrap(), 7);
    assert_eq!(log.advance_log_start(3).unwrap(), 7);
    assert_eq!(log.advance_log_start(99).unwrap(), 10);
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    dir.write_checkpoints().unwrap();
    drop((dir, log));
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    assert_eq!(
        (
            log.log_start_offset(),
            log.high_watermark(),
            log.log_end_offset()
        ),
        (10, 10, 10)
    );
}

#[test]
fn unusable_checkpoints_lose_nothing() {
    for content in [
        "",
        "0\n2\nt 0 10\n",
        "0\n1\nt 0 10",
        "garbage",
        "0\n1\nt 0 ten\n",
        "7\n0\n",
    ] {
        let home = Home::new();
        let dir = LogDir::open(home.root()).unwrap();
        let log = dir
            .open_log(
                "t",
                0,
                None,
                LogConfig {
                    segment_bytes: 200,
                    ..LogConfig::default()
                },
                NOW,
            )
            .unwrap();
        (0..5).for_each(|_| _ = client(&log, batch(0, 0, 2, 30)).unwrap());
        let bytes = all_bytes(&log);
        drop((dir, log));
        for file in [
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
        ] {
            fs::write(home.root().join(file), content).unwrap();
        }
        let dir = LogDir::open(home.root()).unwrap();
        let log = dir
            .open_log("t", 0, None, LogConfig::default(), NOW)
            .unwrap();
        assert_eq!(all_bytes(&log), bytes);
        dir.write_checkpoints().unwrap();
    }
}

#[test]
fn truncation_lowers_the_recovery_point_on_disk_first() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    (0..5).for_each(|_| _ = client(&log, batch(0, 0, 2, 30)).unwrap());
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    assert_eq!(log.truncate_to(5).unwrap(), 4);
    let text = fs::read_to_string(home.root().join("recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(text, "0\n1\nt 0 4\n");
    (0..3).for_each(|_| _ = client(&log, batch(0, 0, 2, 30)).unwrap());
    // Power fails: what was written after the truncation is garbage on disk.
    let path = dir.path().join("t-0").join(format!("{:020}.log", 0));
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 5..].fill(0xaa);
    fs::write(&path, bytes).unwrap();
    drop((dir, log));
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    assert_eq!(log.log_end_offset(), 8);
    all_bytes(&log);
}

#[test]
fn a_deleted_partition_leaves_nothing_and_readers_keep_their_bytes() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, Some("one"), LogConfig::default(), NOW)
        .unwrap();
    ten(&log);
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    let slice = log.read(0, 1 << 20, 10, true).unwrap().unwrap();
    dir.delete_log("t", 0).unwrap();
    assert_eq!(slice.read().unwrap().len() as u64, slice.len);
    assert!(dir.get("t", 0).is_none() && dir.scan().unwrap().is_empty());
    assert!(
        !fs::read_dir(home.root()).unwrap().any(|e| e
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .starts_with("t-0"))
    );
    let log = dir
        .open_log("t", 0, Some("two"), LogConfig::default(), NOW)
        .unwrap();
    assert_eq!((log.log_end_offset(), log.recovery_point()), (0, 0));
    ten(&log);
    drop((log, dir));
    let dir = LogDir::open(home.root()).unwrap();
    assert!(matches!(
        dir.open_log("t", 0, Some("one"), LogConfig::default(), NOW),
        Err(LogError::BadFile { .. })
    ));
    dir.delete_log("t", 0).unwrap();
    dir.delete_log("never", 3).unwrap();
    assert!(dir.scan().unwrap().is_empty());
}

/// The log of a mirror loses what lies below its log start and nothing else, however old or large
/// it is.
#[test]
fn retention_by_log_start_ignores_age_and_size() {
    let config = LogConfig {
        segment_bytes: 200,
        retention_ms: 1,
        retention_bytes: 1,
        ..LogConfig::default()
    };
    let home = Home::new();
    let log = home.open(&config);
    for n in 0..6 {
        let mut b = BatchBuilder::new()
            .add(NOW + n, None, Some(&[0; 100]), &[])
            .build()
            .unwrap();
        log.append_as_leader(&mut b, 1, AppendOrigin::Client, NOW)
            .unwrap();
    }
    log.set_high_watermark(6);
    let by_start = |now| log.retention_by(RetentionRule::LogStart, now).unwrap();
    assert_eq!(by_start(NOW + 99_999), RetentionOutcome::default());
    assert_eq!((log.log_start_offset(), log.segment_count()), (0, 6));
    log.advance_log_start(3).unwrap();
    by_start(NOW + 99_999);
    assert_eq!((log.log_start_offset(), log.segment_count()), (3, 3));
    assert!(log.retention(NOW + 99_999).unwrap().segments > 0);
}

#[test]
fn retention_goes_by_time_size_and_log_start() {
    let config = LogConfig {
        segment_bytes: 200,
        retention_ms: 1000,
        ..LogConfig::default()
    };
    let home = Home::new();
    let log = home.open(&config);
    for n in 0..10 {
        let mut b = BatchBuilder::new()
            .add(NOW + n * 100, None, Some(&[0; 100]), &[])
            .build()
            .unwrap();
        log.append_as_leader(&mut b, 1, AppendOrigin::Client, NOW + n * 100)
            .unwrap();
    }
    assert_eq!(log.segment_count(), 10);
    assert_eq!(
        log.retention(NOW + 99_999).unwrap(),
        RetentionOutcome::default(),
        "nothing above the high watermark"
    );
    log.set_high_watermark(10);
    let outcome = log.retention(NOW + 1301).unwrap();
    assert_eq!((outcome.segments, log.log_start_offset()), (4, 4));
    assert!(!home.segment(3, "log").exists() && home.segment(4, "log").exists());
    assert!(matches!(
        log.read(3, 1, 10, true),
        Err(LogError::OffsetOutOfRange { log_start: 4, .. })
    ));
    log.update_config(LogConfig {
        retention_bytes: (log.size_bytes() - 1) as i64,
        retention_ms: -1,
        ..config.clone()
    });
    assert_eq!(
        log.retention(NOW).unwrap().segments,
        0,
        "only a whole excess segment goes"
    );
    log.update_config(LogConfig {
        retention_bytes: 0,
        retention_ms: -1,
        ..config.clone()
    });
    assert_eq!(log.retention(NOW).unwrap().segments, 6);
    assert_eq!(
        (
            log.log_start_offset(),
            log.log_end_offset(),
            log.size_bytes()
        ),
        (10, 10, 0)
    );
    assert_eq!(log.retention(NOW).unwrap().segments, 0);
    assert_eq!(client(&log, batch(0, 0, 1, 1)).unwrap().first_offset, 10);
    drop(log);
    assert_eq!(
        home.open_with(&config, false, Some(0))
            .unwrap()
            .log_start_offset(),
        10
    );
}

#[test]
fn one_flush_serves_all_waiters() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let syncer = Syncer::start(2, SyncPolicy::default());
    let (tx, rx) = mpsc::channel();
    for n in 1..=50 {
        client(&log, batch(0, 0, 1, 10)).unwrap();
        let tx = tx.clone();
        syncer.sync_upto(&log, n, Box::new(move |r| tx.send((n, r)).unwrap()));
    }
    for _ in 0..50 {
        let (n, point) = rx.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(point.unwrap() >= n);
    }
    assert_eq!(log.recovery_point(), 50);
    assert_eq!(syncer.sync_upto_blocking(&log, 50).unwrap(), 50);
    // A waiter for an offset that was truncated away is let go.
    client(&log, batch(0, 0, 5, 10)).unwrap();
    log.truncate_to(50).unwrap();
    syncer.sync_upto_blocking(&log, 55).unwrap();
}

#[test]
fn appends_nobody_waits_for_are_synced_by_size_and_age() {
    let home = Home::new();
    let log = home.open(&LogConfig::default());
    let policy = SyncPolicy {
        dirty_bytes_max: 500,
        dirty_age_max: Duration::from_millis(30),
    };
    let syncer = Syncer::start(1, policy);
    let until = |offset: i64| {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while log.recovery_point() < offset && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(log.recovery_point(), offset);
    };
    client(&log, batch(0, 0, 1, 10)).unwrap();
    syncer.note_append(&log);
    until(1);
    client(&log, batch(0, 0, 1, 600)).unwrap();
    syncer.note_append(&log);
    until(2);
    client(&log, batch(0, 0, 1, 10)).unwrap();
    syncer.note_append(&log);
    drop(syncer);
    assert_eq!(log.recovery_point(), 3, "dropping syncs what is dirty");
}

/// `count` logs of one directory with a record each.
fn many(home: &Home, count: i32) -> (Arc<LogDir>, Vec<Arc<PartitionLog>>) {
    let dir = LogDir::open(home.root()).unwrap();
    let logs = (0..count).map(|p| {
        let log = dir
            .open_log("t", p, None, LogConfig::default(), NOW)
            .unwrap();
        client(&log, batch(0, 0, 1, 10)).unwrap();
        log
    });
    let logs = logs.collect();
    (dir, logs)
}

#[test]
fn many_dirty_logs_are_swept_together_and_those_that_are_waited_for_too() {
    let home = Home::new();
    let (_dir, logs) = many(&home, 300);
    let policy = SyncPolicy {
        dirty_age_max: Duration::from_millis(20),
        ..SyncPolicy::default()
    };
    let syncer = Syncer::start(2, policy);
    logs.iter().for_each(|log| syncer.note_append(log));
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while logs.iter().any(|log| log.recovery_point() < 1) {
        assert!(std::time::Instant::now() < deadline, "they are synced");
        std::thread::sleep(Duration::from_millis(2));
    }
    let (tx, rx) = mpsc::channel();
    for log in &logs {
        client(log, batch(0, 0, 1, 10)).unwrap();
        syncer.note_append(log);
        let tx = tx.clone();
        syncer.sync_upto(log, 2, Box::new(move |r| tx.send(r).unwrap()));
    }
    for _ in &logs {
        let point = rx.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(point.unwrap(), 2);
    }
}

#[test]
fn what_is_flushed_together_fails_together_and_stays_dirty() {
    let home = Home::new();
    let (dir, logs) = many(&home, 100);
    logs[0].delete().unwrap();
    dir.state()
        .faults
        .sync_fails
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let outcomes = flush_all(&logs);
    assert!(outcomes[0].is_ok(), "nothing is left of a deleted log");
    for (log, outcome) in logs.iter().zip(&outcomes).skip(1) {
        assert!(matches!(outcome, Err(LogError::Offline { .. })));
        assert_eq!(log.recovery_point(), 0);
    }
}

#[test]
fn an_offline_directory_answers_its_waiters() {
    let home = Home::new();
    let opts = options(home.root(), true, Some(0));
    let state = Arc::clone(&opts.dir_state);
    let log = PartitionLog::open(&home.dir(), LogConfig::default(), opts).unwrap();
    client(&log, batch(0, 0, 1, 10)).unwrap();
    state.take_offline("test");
    let syncer = Syncer::start(1, SyncPolicy::default());
    assert!(matches!(
        syncer.sync_upto_blocking(&log, 1),
        Err(LogError::Offline { .. })
    ));
}

#[test]
fn meta_properties_read_back() {
    let home = Home::new();
    assert_eq!(MetaProperties::read(home.root()).unwrap(), None);
    let meta = MetaProperties {
        cluster_id: "c".into(),
        node_id: Some(3),
        directory_id: Some("d".into()),
    };
    meta.write(home.root()).unwrap();
    assert_eq!(MetaProperties::read(home.root()).unwrap(), Some(meta));
    fs::write(
        home.root().join("meta.properties"),
        "version=0\nbroker.id=1\n",
    )
    .unwrap();
    assert!(MetaProperties::read(home.root()).is_err());
}

#[test]
fn no_marker_while_a_partition_was_never_recovered() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    for p in 0..2 {
        ten(&dir
            .open_log("t", p, None, LogConfig::default(), NOW)
            .unwrap());
    }
    drop(dir);
    let dir = LogDir::open(home.root()).unwrap();
    dir.open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    dir.close_clean(1).unwrap();
    drop(dir);
    let dir = LogDir::open(home.root()).unwrap();
    assert!(!dir.was_clean());
    (0..2).for_each(|p| {
        _ = dir
            .open_log("t", p, None, LogConfig::default(), NOW)
            .unwrap()
    });
    dir.close_clean(1).unwrap();
    drop(dir);
    assert!(LogDir::open(home.root()).unwrap().was_clean());
}

#[test]
fn readers_are_never_disturbed_by_appends_rolls_retention_and_flushes() {
    let home = Home::new();
    let config = LogConfig {
        segment_bytes: 2000,
        index_interval_bytes: 200,
        retention_ms: -1,
        ..LogConfig::default()
    };
    let log = home.open(&LogConfig {
        retention_bytes: 20_000,
        ..config
    });
    let syncer = Syncer::start(
        1,
        SyncPolicy {
            dirty_bytes_max: 3000,
            ..SyncPolicy::default()
        },
    );
    let done = std::sync::atomic::AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        let log = &log;
        for _ in 0..2 {
            scope.spawn(move || {
                let mut offset = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let end = log.log_end_offset();
                    match log.read(offset, 5000, end, true) {
                        Ok(None) => offset = log.log_start_offset(),
                        Ok(Some(slice)) => {
                            let bytes = slice.read().unwrap();
                            for b in tarn_records::batches(&bytes).map(Result::unwrap) {
                                b.check_crc().unwrap();
                                assert!(
                                    b.header.last_offset() >= offset
                                        && b.header.last_offset() < end
                                );
                                offset = b.header.next_offset();
                            }
                        }
                        Err(LogError::OffsetOutOfRange { log_start, .. }) => offset = log_start,
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for n in 0..sized(3_000, 300) as i32 {
                client(log, batch(0, 0, 1 + (n % 3), 150)).unwrap();
                log.set_high_watermark(i64::MAX);
                syncer.note_append(log);
                if n % 20 == 0 {
                    log.retention(NOW).unwrap();
                }
            }
        }));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        written.unwrap();
    });
    assert!(log.segment_count() < 20 && log.log_start_offset() > 0);
}

#[test]
fn a_flush_after_the_deletion_of_a_topic_harms_nobody() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    ten(&log);
    dir.delete_log("t", 0).unwrap();
    assert_eq!(log.flush().unwrap(), 10);
    assert!(log.append_verbatim(10, &batch(10, 1, 1, 1), NOW).is_err());
    assert_eq!(dir.state().offline_reason(), None);
}
