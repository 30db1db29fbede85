//! The cleaner keeps the newest record of each key at its offset, whatever interrupts it and
//! whoever reads meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_records::{BatchBuilder, BatchView, Compression, batches};

use super::*;

type Found = BTreeMap<i64, (Vec<u8>, Option<Vec<u8>>)>;

const MAP_BYTES: usize = 1 << 20;
const DELETE_RETENTION_MS: i64 = 1_000;

fn config() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        segment_bytes: 4_000,
        index_interval_bytes: 500,
        delete_retention_ms: DELETE_RETENTION_MS,
        roll_interval_ms: 0,
        ..LogConfig::default()
    }
}

/// Small numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// Appends `count` batches of one to four records with few keys, some of them tombstones.
fn fill(log: &PartitionLog, dice: &mut Dice, count: usize) {
    for _ in 0..count {
        let codec = [Compression::None, Compression::Zstd, Compression::Gzip];
        let mut b = BatchBuilder::new().compression(codec[dice.roll(3) as usize]);
        for _ in 0..=dice.roll(4) {
            let key = format!("key {}", dice.roll(12));
            let value = vec![dice.roll(256) as u8; 10 + dice.roll(200) as usize];
            let value = (dice.roll(5) > 0).then_some(value);
            b.add(
                NOW + dice.roll(50) as i64,
                Some(key.as_bytes()),
                value.as_deref(),
                &[],
            );
        }
        client(log, b.build().unwrap()).unwrap();
    }
    log.set_high_watermark(log.log_end_offset());
    log.flush().unwrap();
}

fn read(log: &PartitionLog) -> Found {
    let mut out = Found::new();
    for batch in batches(&all_bytes(log)) {
        for r in batch.unwrap().records(1 << 20).unwrap() {
            let r = r.unwrap();
            let key = r.key.map(|k| k.to_vec()).unwrap_or_default();
            let before = out.insert(r.offset, (key, r.value.map(|v| v.to_vec())));
            assert!(before.is_none(), "offset {} twice", r.offset);
        }
    }
    out
}

/// The newest record of each key.
fn newest(records: &Found) -> BTreeMap<&[u8], (i64, &Option<Vec<u8>>)> {
    let all = records
        .iter()
        .map(|(offset, (key, value))| (&key[..], (*offset, value)));
    all.collect()
}

/// As [`newest`], without those that are tombstones.
fn living(records: &Found) -> BTreeMap<&[u8], (i64, &Option<Vec<u8>>)> {
    let mut all = newest(records);
    all.retain(|_, (_, value)| value.is_some());
    all
}

fn clean(log: &PartitionLog, now_ms: i64) -> CleanOutcome {
    log.clean(MAP_BYTES, now_ms, &mut |_| true).unwrap()
}

fn reopen(home: &Home, log: &PartitionLog) -> Arc<PartitionLog> {
    let (synced, high_watermark) = (log.recovery_point(), log.high_watermark());
    PartitionLog::open(
        &home.dir(),
        config(),
        OpenOptions {
            recovery_point: Some(synced),
            high_watermark,
            ..options(home.root(), false, None)
        },
    )
    .unwrap()
}

#[test]
fn the_newest_of_each_key_stays_at_its_offset() {
    let home = Home::new();
    let log = home.open(&config());
    let mut dice = Dice(7);
    fill(&log, &mut dice, 300);
    let (before, bytes, end) = (read(&log), log.size_bytes(), log.log_end_offset());
    assert!(log.segment_count() > 10);
    assert_eq!(log.dirty_ppm(NOW).unwrap(), Some(1_000_000));
    let outcome = clean(&log, NOW);
    assert_eq!(log.dirty_ppm(NOW).unwrap(), None);
    let after = read(&log);
    assert_eq!(newest(&before), newest(&after));
    assert!(
        after
            .iter()
            .all(|(offset, record)| before.get(offset) == Some(record))
    );
    assert_eq!(log.log_end_offset(), end);
    assert!(log.size_bytes() < bytes / 4, "{outcome:?}");
    log.verify(0, end).unwrap();
    // Every offset can be asked for, and answers the first record at or behind it.
    for offset in 0..end {
        let slice = log.read(offset, 1, end, true).unwrap().unwrap();
        assert!(first_of(&slice).1 >= offset);
    }
    let reopened = reopen(&home, &log);
    assert_eq!(read(&reopened), after);
    assert_eq!(reopened.log_end_offset(), end);
    // Another run has nothing to do until something new is closed; then what has become small is
    // put together.
    assert_eq!(clean(&log, NOW), CleanOutcome::default());
    fill(&log, &mut dice, 50);
    let outcome = clean(&log, NOW);
    assert!(
        outcome.segments_after * 2 < outcome.segments_before,
        "{outcome:?}"
    );
}

#[test]
fn nothing_undecided_unsynced_or_active_is_touched() {
    let home = Home::new();
    let log = home.open(&config());
    let mut dice = Dice(3);
    fill(&log, &mut dice, 100);
    let active: Vec<u8> = std::fs::read(last_segment(&home)).unwrap();
    log.set_high_watermark(0);
    assert_eq!(log.dirty_ppm(NOW).unwrap(), None);
    log.set_high_watermark(log.log_end_offset());
    let lag = LogConfig {
        min_compaction_lag_ms: 60_000,
        ..config()
    };
    log.update_config(lag);
    assert_eq!(log.dirty_ppm(NOW + 60_000).unwrap(), None);
    log.update_config(config());
    clean(&log, NOW);
    assert_eq!(std::fs::read(last_segment(&home)).unwrap(), active);
}

fn last_segment(home: &Home) -> std::path::PathBuf {
    let mut logs: Vec<_> = std::fs::read_dir(home.dir())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    logs.pop().unwrap()
}

#[test]
fn a_tombstone_goes_when_its_time_is_over() {
    let home = Home::new();
    let log = home.open(&config());
    let mut b = BatchBuilder::new();
    b.add(NOW, Some(b"gone"), None, &[]);
    b.add(NOW, Some(b"there"), Some(b"x"), &[]);
    client(&log, b.build().unwrap()).unwrap();
    let mut b = BatchBuilder::new().compression(Compression::Zstd);
    b.add(NOW + 3, Some(b"gone too"), None, &[]);
    client(&log, b.build().unwrap()).unwrap();
    fill(&log, &mut Dice(11), 200);
    clean(&log, NOW);
    let first = read(&log);
    let closed_end = |log: &PartitionLog| {
        let name = last_segment(&home);
        let stem = name.file_stem().unwrap().to_str().unwrap();
        assert!(log.segment_count() > 1);
        stem.parse::<i64>().unwrap()
    };
    let seen = closed_end(&log);
    let marked: Vec<i64> = newest(&first)
        .values()
        .filter(|(offset, value)| value.is_none() && *offset < seen)
        .map(|(offset, _)| *offset)
        .collect();
    assert!(marked.starts_with(&[0, 2]));
    // Not yet over, then over.
    for (later, stays) in [
        (DELETE_RETENTION_MS - 1, true),
        (DELETE_RETENTION_MS, false),
    ] {
        // Something new that touches none of these keys.
        for _ in 0..100 {
            let mut b = BatchBuilder::new();
            b.add(NOW, Some(b"other"), Some(&[1; 100]), &[]);
            client(&log, b.build().unwrap()).unwrap();
        }
        log.set_high_watermark(log.log_end_offset());
        log.flush().unwrap();
        clean(&log, NOW + later);
        let now = read(&log);
        assert!(
            marked
                .iter()
                .all(|offset| now.contains_key(offset) == stays)
        );
        for (key, kept) in living(&first) {
            assert_eq!(living(&now).get(key), Some(&kept));
        }
    }
}

#[test]
fn aborted_records_go_markers_and_the_producers_last_batch_stay() {
    let home = Home::new();
    let log = home.open(&LogConfig {
        segment_bytes: 600,
        ..config()
    });
    let keyed = |pid, sequence, key: &str, value: &str| {
        let mut b = BatchBuilder::new()
            .producer(pid, 0, sequence)
            .transactional();
        b.add(NOW, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
        b.build().unwrap()
    };
    client(&log, keyed(1, 0, "a", "kept")).unwrap();
    coordinator(&log, marker(1, 0, true, 0)).unwrap();
    client(&log, keyed(2, 0, "a", "aborted")).unwrap();
    coordinator(&log, marker(2, 0, false, 0)).unwrap();
    for i in 0..30 {
        client(&log, keyed(3, i, "b", "again")).unwrap();
        coordinator(&log, marker(3, 0, true, 0)).unwrap();
    }
    let open = client(&log, keyed(4, 0, "a", "undecided"))
        .unwrap()
        .first_offset;
    for i in 0..30 {
        client(&log, keyed(5, i, "c", "behind")).unwrap();
    }
    log.set_high_watermark(log.log_end_offset());
    log.flush().unwrap();
    let (producers, aborted) = (
        log.active_producers(),
        log.aborted_transactions(0, open).unwrap(),
    );
    let records_behind = read(&log).range(open..).count();
    clean(&log, NOW);
    let after = read(&log);
    let value_of = |offset: i64| after.get(&offset).and_then(|(_, v)| v.as_deref());
    assert_eq!(value_of(0), Some(&b"kept"[..]));
    assert_eq!(value_of(2), None, "the aborted one");
    assert_eq!(after.range(open..).count(), records_behind, "undecided");
    assert_eq!(log.aborted_transactions(0, open).unwrap(), aborted);
    let markers = batches(&all_bytes(&log))
        .filter(|b| b.as_ref().unwrap().header.is_control())
        .count();
    assert_eq!(markers, 32);
    let reopened = reopen(&home, &log);
    assert_eq!(reopened.active_producers(), producers);
    assert_eq!(reopened.last_stable_offset(), open);
}

/// Kill -9 at each step of the swap: what is found at the next start is the log before or after,
/// with the same newest records.
#[test]
fn a_crash_at_any_step_of_the_swap_loses_and_doubles_nothing() {
    for step in 0..=5 {
        for tries in 0..sized(3, 1) {
            let home = Home::new();
            let mut log = home.open(&config());
            fill(&log, &mut Dice(tries as u64), sized(150, 60));
            let (before, end) = (read(&log), log.log_end_offset());
            *log.dir_state().faults.swap_ends_at.lock() = Some(step);
            let ended = log.clean(MAP_BYTES, NOW, &mut |_| true);
            assert!(matches!(ended, Err(LogError::Superseded)), "{ended:?}");
            log = reopen(&home, &log);
            *log.dir_state().faults.swap_ends_at.lock() = None;
            let found = read(&log);
            assert_eq!(newest(&before), newest(&found), "step {step}");
            assert_eq!(log.log_end_offset(), end);
            log.verify(0, end).unwrap();
            let left = std::fs::read_dir(home.dir()).unwrap().filter(|e| {
                let name = e.as_ref().unwrap().file_name();
                name.to_str()
                    .is_some_and(|n| n.ends_with("cleaned") || n.ends_with("swap"))
            });
            assert_eq!(left.count(), 0, "step {step}");
            // It goes on where it was.
            clean(&log, NOW);
            assert_eq!(newest(&before), newest(&read(&log)));
            log = reopen(&home, &log);
            assert_eq!(newest(&before), newest(&read(&log)));
        }
    }
}

#[test]
fn readers_see_the_old_or_the_new_and_nothing_else() {
    let home = Home::new();
    let log = home.open(&config());
    let mut dice = Dice(5);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut offset = 0;
                while !over.load(Ordering::Relaxed) {
                    let end = log.high_watermark();
                    if offset >= end {
                        offset = 0;
                        std::thread::yield_now();
                        continue;
                    }
                    let slice = log.read(offset, 3_000, end, true).unwrap().unwrap();
                    let bytes = slice.read().unwrap();
                    let mut next = offset;
                    for b in batches(&bytes).map(Result::unwrap) {
                        b.check_crc().unwrap();
                        assert!(b.header.last_offset() >= next && b.header.last_offset() >= offset);
                        next = b.header.next_offset();
                    }
                    assert!(next > offset);
                    offset = next;
                    log.offset_for_timestamp(NOW + 20, &mut tarn_records::Unpaced)
                        .unwrap();
                    log.aborted_transactions(0, end).unwrap();
                }
            });
        }
        for _ in 0..sized(30, 4) {
            fill(&log, &mut dice, 40);
            let before = read(&log);
            clean(&log, NOW);
            assert_eq!(newest(&before), newest(&read(&log)));
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_small_map_takes_several_runs_and_damage_is_named() {
    let home = Home::new();
    let log = home.open(&config());
    let mut dice = Dice(9);
    for i in 0..400 {
        let mut b = BatchBuilder::new();
        b.add(
            NOW,
            Some(format!("key {}", i % 100).as_bytes()),
            Some(&[7; 40]),
            &[],
        );
        client(&log, b.build().unwrap()).unwrap();
    }
    fill(&log, &mut dice, 5);
    let before = read(&log);
    let mut runs = 0;
    while log.dirty_ppm(NOW).unwrap().is_some() {
        // Room for thirty keys.
        log.clean(24 * 34, NOW, &mut |_| true).unwrap();
        assert_eq!(newest(&before), newest(&read(&log)));
        runs += 1;
        assert!(runs < 50);
    }
    assert!(runs > 3, "{runs} runs");
    fill(&log, &mut dice, 100);
    let path = home.segment(log.first_segment_base().unwrap(), "log");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = log.clean(MAP_BYTES, NOW, &mut |_| true);
    assert!(
        matches!(damaged, Err(LogError::Damaged { .. })),
        "{damaged:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert!(!home.segment(0, "log.cleaned").exists());
}

/// One key that is set again and again takes bounded space.
#[test]
fn a_log_of_few_keys_does_not_grow() {
    let home = Home::new();
    let log = home.open(&config());
    let mut dice = Dice(1);
    let mut largest = 0;
    for _ in 0..sized(20, 5) {
        fill(&log, &mut dice, sized(200, 100));
        clean(&log, NOW);
        largest = largest.max(log.size_bytes());
    }
    assert!(largest < 20_000, "{largest} bytes");
    let view = all_bytes(&log);
    assert!(BatchView::first(&view).is_ok());
}
