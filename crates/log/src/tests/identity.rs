//! Side files that belong to another log, are edited, stale or missing; and parts of a log that are
//! missing. The log decides.

use std::fs;
use std::path::Path;

use super::*;

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";

fn open(dir: &LogDir, id: &str) -> Result<Arc<PartitionLog>, LogError> {
    let config = LogConfig {
        segment_bytes: 300,
        index_interval_bytes: 64,
        ..LogConfig::default()
    };
    dir.open_log("t", 0, Some(id), config, NOW)
}
/// `batches` of two records each.
fn fill(log: &PartitionLog, batches: i32) {
    (0..batches).for_each(|_| _ = client(log, batch(0, 0, 2, 60)).unwrap());
    log.set_high_watermark(i64::MAX);
}
fn delete_records(log: &PartitionLog, offset: i64) {
    assert_eq!(log.advance_log_start(offset).unwrap(), offset);
    log.keep_log_start(true).unwrap();
}
fn bounds(log: &PartitionLog) -> (i64, i64) {
    (log.log_start_offset(), log.log_end_offset())
}
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// What DeleteRecords did to a topic must not be done to the next topic of that name, whether the
/// id is another one or, as on a mirror, the same.
#[test]
fn a_log_start_dies_with_its_log() {
    for next in ["two", "one"] {
        let home = Home::new();
        let dir = LogDir::open(home.root()).unwrap();
        let log = open(&dir, "one").unwrap();
        fill(&log, 10);
        delete_records(&log, 18);
        dir.write_checkpoints().unwrap();
        dir.delete_log("t", 0).unwrap();
        let log = open(&dir, next).unwrap();
        assert_eq!(bounds(&log), (0, 0));
        fill(&log, 3);
        let bytes = all_bytes(&log);
        drop((log, dir));
        let dir = LogDir::open(home.root()).unwrap();
        let log = open(&dir, next).unwrap();
        assert_eq!((bounds(&log), all_bytes(&log)), ((0, 6), bytes));
    }
}

/// A checkpoint that is being written while a partition is deleted must not bring its lines back.
#[test]
fn a_checkpoint_under_way_brings_no_line_back() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                dir.write_checkpoints().unwrap();
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..sized(25, 5) {
                let log = open(&dir, "one").unwrap();
                assert_eq!((bounds(&log), log.recovery_point()), ((0, 0), 0));
                fill(&log, 5);
                log.flush().unwrap();
                assert_eq!(log.advance_log_start(9).unwrap(), 9);
                dir.delete_log("t", 0).unwrap();
            }
        }));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.unwrap();
    });
    dir.write_checkpoints().unwrap();
    for file in [RECOVERY_POINTS, LOG_STARTS, "replication-offset-checkpoint"] {
        assert_eq!(
            fs::read_to_string(home.root().join(file)).unwrap(),
            "0\n0\n"
        );
    }
}

/// An acknowledged DeleteRecords holds after a crash at once, without any checkpoint.
#[test]
fn deleted_records_stay_deleted_after_a_crash() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    delete_records(&log, 7);
    drop((log, dir));
    let dir = LogDir::open(home.root()).unwrap();
    assert_eq!(bounds(&open(&dir, "one").unwrap()), (7, 20));
}

/// A line that was edited, or belongs to another log, removes nothing: the start is what the log
/// says.
#[test]
fn a_claimed_log_start_that_the_log_does_not_bear_out_is_ignored() {
    for clean in [true, false] {
        for (line, claimed) in [("t 0 7", "t 0 17"), ("t 0 7", "t 0 7000")] {
            let home = Home::new();
            let dir = LogDir::open(home.root()).unwrap();
            let log = open(&dir, "one").unwrap();
            fill(&log, 10);
            delete_records(&log, 7);
            let bytes = all_bytes(&log);
            match clean {
                true => dir.close_clean(1).unwrap(),
                false => dir.write_checkpoints().unwrap(),
            }
            drop((log, dir));
            edit(&home.root().join(LOG_STARTS), line, claimed);
            let dir = LogDir::open(home.root()).unwrap();
            let log = open(&dir, "one").unwrap();
            assert_eq!((bounds(&log), all_bytes(&log)), ((7, 20), bytes));
        }
    }
    // Edited where it is believed: the checksum tells, and the log begins with its first segment.
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    delete_records(&log, 7);
    let base = log.first_segment_base().unwrap();
    drop((log, dir));
    let file = home.dir().join("partition.metadata");
    edit(&file, "log_start_offset: 7", "log_start_offset: 17");
    let dir = LogDir::open(home.root()).unwrap();
    assert_eq!(bounds(&open(&dir, "one").unwrap()), (base, 20));
}

/// A copy that begins anew below its old start is not cut at that start by the next opening.
#[test]
fn a_log_that_begins_anew_forgets_its_old_start() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    log.flush().unwrap();
    delete_records(&log, 18);
    dir.write_checkpoints().unwrap();
    log.truncate_fully_and_start_at(0).unwrap();
    fill(&log, 10);
    let bytes = all_bytes(&log);
    drop((log, dir));
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    assert_eq!((bounds(&log), all_bytes(&log)), ((0, 20), bytes));
}

/// Epochs that the batches contradict are read from the batches.
#[test]
fn an_edited_epoch_checkpoint_does_not_overrule_the_batches() {
    for edited in [
        "0\n1\n1 0\n",
        "0\n2\n1 0\n2 12\n",
        "0\n2\n1 0\n3 10\n",
        "0\n0\n",
    ] {
        let home = Home::new();
        let dir = LogDir::open(home.root()).unwrap();
        let log = open(&dir, "one").unwrap();
        for epoch in [1, 2] {
            let mut all: Vec<u8> = (0..5).flat_map(|_| batch(0, 0, 2, 60)).collect();
            let internal = AppendOrigin::Internal;
            for one in all.chunks_mut(batch(0, 0, 2, 60).len()) {
                log.append_as_leader(one, epoch, internal, NOW).unwrap();
            }
        }
        let epochs = log.epochs();
        assert_eq!(epochs.len(), 2);
        dir.close_clean(1).unwrap();
        drop((log, dir));
        fs::write(home.dir().join("leader-epoch-checkpoint"), edited).unwrap();
        let dir = LogDir::open(home.root()).unwrap();
        assert_eq!(open(&dir, "one").unwrap().epochs(), epochs, "{edited}");
    }
}

/// The marker of a clean stop counts for the state of the log it was written for.
#[test]
fn a_stale_clean_marker_is_not_believed() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    fill(&open(&dir, "one").unwrap(), 10);
    dir.close_clean(1).unwrap();
    drop(dir);
    let newest = names(&home.dir())
        .into_iter()
        .rfind(|n| n.ends_with(".log"));
    let newest = home.dir().join(newest.unwrap());
    let mut bytes = fs::read(&newest).unwrap();
    let mut torn = batch(20, 1, 2, 60);
    *torn.last_mut().unwrap() ^= 1;
    bytes.extend(torn);
    fs::write(&newest, bytes).unwrap();
    let dir = LogDir::open(home.root()).unwrap();
    assert_eq!(bounds(&open(&dir, "one").unwrap()), (0, 20));
}

/// What the checkpoints or the other files prove to have been there is missed, and nothing that
/// proves it is touched.
#[test]
fn a_missing_part_of_a_log_is_told_and_nothing_is_touched() {
    for clean in [true, false] {
        for missing in 0..8 {
            let home = Home::new();
            let dir = LogDir::open(home.root()).unwrap();
            let log = open(&dir, "one").unwrap();
            fill(&log, 10);
            assert!(log.segment_count() >= 4);
            log.flush().unwrap();
            match clean {
                true => dir.close_clean(1).unwrap(),
                false => dir.write_checkpoints().unwrap(),
            }
            drop((log, dir));
            let logs: Vec<String> = names(&home.dir())
                .into_iter()
                .filter(|n| n.ends_with(".log"))
                .collect();
            let (second, last) = (&logs[1], &logs[logs.len() - 1]);
            let remove_all = |log: &str| {
                for name in names(&home.dir()) {
                    if name.starts_with(log.strip_suffix("log").unwrap()) {
                        fs::remove_file(home.dir().join(name)).unwrap();
                    }
                }
            };
            match missing {
                0 => fs::remove_dir_all(home.dir()).unwrap(),
                1 => fs::remove_file(home.dir().join(second)).unwrap(),
                2 => remove_all(second),
                3 => fs::remove_file(home.dir().join(last)).unwrap(),
                4 => remove_all(last),
                5 => logs.iter().for_each(|log| remove_all(log)),
                6 => fs::remove_file(home.dir().join(&logs[0])).unwrap(),
                _ if !clean => continue,
                _ => remove_all(&logs[0]),
            }
            let before = home.dir().is_dir().then(|| names(&home.dir()));
            for _ in 0..2 {
                let dir = LogDir::open(home.root()).unwrap();
                let refused = open(&dir, "one");
                assert!(
                    matches!(refused, Err(LogError::Missing { .. })),
                    "clean {clean}, case {missing}: {refused:?}"
                );
                let after = home.dir().is_dir().then(|| names(&home.dir()));
                assert_eq!(before, after, "clean {clean}, case {missing}");
                if clean {
                    // The marker is used up, the proof is not.
                    fs::write(home.root().join(".kafka_cleanshutdown"), "").unwrap();
                }
            }
        }
    }
}

/// A directory that lost its recovery points knows none; a new one has a file from the start.
#[test]
fn recovery_points_that_are_missing_are_unknown() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    assert!(dir.is_without_recovery_points());
    dir.begin_recovery_points().unwrap();
    drop(dir);
    let file = home.root().join(RECOVERY_POINTS);
    assert_eq!(fs::read_to_string(&file).unwrap(), "0\n0\n");
    let dir = LogDir::open(home.root()).unwrap();
    assert!(!dir.is_without_recovery_points());
    fill(&open(&dir, "one").unwrap(), 10);
    drop(dir);
    fs::remove_file(&file).unwrap();
    // A sealed segment may have been synced: it is not cut when nobody knows.
    let path = home.segment(0, "log");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let dir = LogDir::open(home.root()).unwrap();
    let refused = open(&dir, "one");
    assert!(
        matches!(refused, Err(LogError::Damaged { .. })),
        "{refused:?}"
    );
}

/// A power cut may take a segment that nobody synced; what stands behind it is set aside, as behind
/// any other damage.
#[test]
fn a_gap_above_the_recovery_point_is_a_torn_end() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    dir.begin_recovery_points().unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    let second = log.first_segment_base().unwrap();
    assert_eq!(second, 0);
    drop((log, dir));
    let logs: Vec<String> = names(&home.dir())
        .into_iter()
        .filter(|n| n.ends_with(".log"))
        .collect();
    for name in names(&home.dir()) {
        if name.starts_with(logs[1].strip_suffix("log").unwrap()) {
            fs::remove_file(home.dir().join(name)).unwrap();
        }
    }
    let end: i64 = logs[1][..20].parse().unwrap();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    assert_eq!(bounds(&log), (0, end));
    assert!(names(&home.dir()).iter().any(|n| n.ends_with(".damaged")));
    fill(&log, 2);
    assert_eq!(all_bytes(&log).len(), log.size_bytes() as usize);
}

/// A recovery point is what was synced, wherever the log starts; and what is torn below the start
/// is no damage.
#[test]
fn a_log_start_says_nothing_of_what_is_synced_and_needs_nothing_below_it() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 3);
    delete_records(&log, 6);
    assert_eq!(log.recovery_point(), 0, "nothing was synced");
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    let active = log.active_segment().unwrap().base_offset;
    drop((log, dir));
    let path = home.segment(active, "log");
    let len = fs::metadata(&path).unwrap().len();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(len - 5).unwrap();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    assert_eq!(bounds(&log), (6, 6));
    fill(&log, 2);
    let bytes = all_bytes(&log);
    drop((log, dir));
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    assert_eq!((bounds(&log), all_bytes(&log)), ((6, 10), bytes));
}

/// Where a log without records begins again lower, its recovery point is lowered in memory too, not
/// only on disk.
#[test]
fn a_restart_lower_down_lowers_both_recovery_points() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    log.truncate_fully_and_start_at(15).unwrap();
    assert_eq!(log.recovery_point(), 0);
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    log.append_verbatim(15, &batch(10, 1, 10, 9), NOW).unwrap();
    assert!(log.recovery_point() <= 10, "{}", log.recovery_point());
    let line = fs::read_to_string(home.root().join(RECOVERY_POINTS)).unwrap();
    assert_eq!(line, "0\n1\nt 0 0\n");
}

/// Deleting works on a full disk, and a topic of that name can be made again there.
#[test]
fn deleting_needs_no_space() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    log.flush().unwrap();
    dir.write_checkpoints().unwrap();
    drop(log);
    *dir.state().faults.space.lock() = Some(0);
    dir.delete_log("t", 0).unwrap();
    assert!(!home.dir().exists());
    let log = open(&dir, "two").unwrap();
    assert_eq!(bounds(&log), (0, 0));
    let refused = client(&log, batch(0, 0, 2, 60));
    assert!(
        matches!(refused, Err(LogError::NoSpace { .. })),
        "{refused:?}"
    );
    *dir.state().faults.space.lock() = None;
    fill(&log, 3);
    assert_eq!(
        fs::read_to_string(home.root().join(RECOVERY_POINTS)).unwrap(),
        "0\n0\n",
        "the line of the deleted log is gone before the new one has a file"
    );
    assert_eq!(dir.state().offline_reason(), None);
}

/// The name under which a folder is set aside fits the file system, whatever the topic is called.
#[test]
fn a_partition_with_the_longest_name_can_be_set_aside() {
    let home = Home::new();
    let dir = LogDir::open(home.root()).unwrap();
    let topic = "t".repeat(249);
    let log = dir
        .open_log(&topic, 0, Some("one"), LogConfig::default(), NOW)
        .unwrap();
    fill(&log, 1);
    drop(log);
    let found = dir.scan().unwrap();
    let away = dir.set_aside(&found[0]).unwrap();
    assert!(away.is_dir() && dir.scan().unwrap().is_empty());
}

/// Records are nobody else's to read.
#[test]
fn files_and_folders_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let root = home.root().join("made");
    let dir = LogDir::open(&root).unwrap();
    let log = open(&dir, "one").unwrap();
    fill(&log, 10);
    dir.write_checkpoints().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = root.join("t-0");
    assert_eq!((mode(&root), mode(&folder)), (0o700, 0o700));
    for dir in [&root, &folder] {
        for name in names(dir) {
            let path = dir.join(name);
            if path.is_file() {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
}
