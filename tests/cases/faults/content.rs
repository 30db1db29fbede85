//! Faults found from outside: the copy is the source: content decides between two histories.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::segments::{self, Batch};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{SOON, mirrored};

/// The batches of one partition here.
fn copied(tarn: &Tarn, topic: &str) -> Vec<Batch> {
    segments::batches(&tarn.partition_dir(topic, 0)).unwrap()
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .expect("cp runs");
    assert!(status.success());
}

/// The source comes back from a copy of its disks while the topic is paused: same cluster id, topic
/// id and epochs, other records.
#[test]
fn a_source_restored_from_a_copy_of_its_disks_is_not_spliced_to_what_is_here() {
    let mut source = Kafka::start();
    let cluster = source.cluster();
    cluster.create_topic("t", 1, json!({}));
    cluster.produce_many("t", 1, 20, 100, json!({}));
    source.stop();
    let backup = tempfile::tempdir().expect("a directory");
    copy(&source.data_dir(), &backup.path().join("data"));
    source.restart();
    cluster.produce_many("t", 1, 20, 100, json!({}));
    let tarn = mirrored(&source, &[("t", 1)]);
    tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", "t", "--wait"]);
    let before = copied(&tarn, "t");
    source.kill();
    std::fs::remove_dir_all(source.data_dir()).expect("the disks are lost");
    copy(&backup.path().join("data"), &source.data_dir());
    source.restart();
    cluster.produce_many("t", 1, 40, 100, json!({}));
    tarn.mirrors_ok(&["--resume", "--mirror", "m", "--topic", "t"]);
    tarn.await_state("m", "FAILED", SOON, |_| true);
    let rows = tarn.describe("m");
    let text = rows[0]["errorMessage"].as_str().unwrap_or_default();
    assert!(
        text.contains("t-0") && text.contains("another history"),
        "{text}"
    );
    assert_eq!(copied(&tarn, "t"), before, "nothing was cut or added");
}

/// A source without topic ids, whose topics are deleted and made anew at once: as long as before,
/// shorter, and longer.
#[test]
fn topics_made_anew_at_a_source_without_topic_ids_fail_and_keep_the_old_data() {
    let source = Kafka::start_with("2.1.1", &[]);
    let cluster = source.cluster();
    let topics = [("same", 20), ("shorter", 5), ("longer", 30)];
    for (topic, _) in topics {
        cluster.create_topic(topic, 1, json!({}));
        cluster.produce_many(topic, 1, 20, 100, json!({}));
    }
    let names: Vec<(&str, i32)> = topics.iter().map(|&(topic, _)| (topic, 1)).collect();
    let tarn = mirrored(&source, &names);
    let before: Vec<Vec<Batch>> = topics.iter().map(|(t, _)| copied(&tarn, t)).collect();
    for (topic, records) in topics {
        cluster.call("delete_topic", json!({"topic": topic}));
        wait::until(SOON, "the topic is made anew", || {
            let made = cluster.try_call("create_topic", json!({"topic": topic, "partitions": 1}));
            made.map(|_| ()).map_err(|e| e.to_string())
        });
        cluster.produce_many(topic, 1, records, 100, json!({}));
    }
    // What is as long as before shows nothing of it until something more comes.
    for (topic, _) in topics {
        cluster.produce_many(topic, 1, 10, 100, json!({}));
        tarn.await_state("m", "FAILED", SOON, |row| row["topic"] == topic);
    }
    wait::stays(
        Duration::from_secs(2),
        "the old data, and nothing else",
        || {
            for ((topic, _), before) in topics.iter().zip(&before) {
                if copied(&tarn, topic) != *before {
                    return Err(format!("{topic} changed"));
                }
            }
            Ok(())
        },
    );
}
