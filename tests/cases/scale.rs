//! A thousand partitions over fifty topics with a live producer.

use std::time::Duration;

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{assert_same_bytes, unique};

const TOPICS: usize = 50;
const PARTITIONS: i32 = 20;

#[test]
fn a_thousand_partitions_mirror_beside_a_live_producer() {
    let source = Kafka::shared();
    let stem = unique("scale");
    let topics: Vec<String> = (0..TOPICS).map(|i| format!("{stem}-{i}")).collect();
    for topic in &topics {
        source.cluster().create_topic(topic, PARTITIONS, json!({}));
    }
    // The controller acknowledges topics before the broker knows them.
    wait::until(
        Duration::from_secs(60),
        "the source knows all topics",
        || {
            let listed = source.cluster().call("list_topics", json!({}))["topics"].clone();
            let known = listed.as_array().into_iter().flatten();
            match known
                .filter(|t| topics.iter().any(|topic| **t == topic.as_str()))
                .count()
            {
                TOPICS => Ok(()),
                known => Err(format!("{known} of {TOPICS}")),
            }
        },
    );
    source.cluster().call("load_start", json!({"name": stem, "topics": topics, "partitions": PARTITIONS, "rate": 2000, "size": 100}));
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let added = tarn.mirrors_ok(&[
        "--add",
        "--mirror",
        "m",
        "--topic",
        &format!("{stem}-.*"),
        "--wait",
        "--timeout-ms",
        "60000",
    ]);
    assert!(
        added.starts_with("Added 50 topic(s) to mirror m: ["),
        "{added}"
    );
    assert_eq!(tarn.describe("m").len(), TOPICS * PARTITIONS as usize);
    std::thread::sleep(Duration::from_secs(3));
    let stopped = source.cluster().call("load_stop", json!({"name": stem}));
    assert_eq!(stopped["failed"], 0);
    let written = stopped["acked"].as_i64().unwrap();
    wait::until(
        Duration::from_secs(60),
        "all records have arrived and the lag is 0",
        || {
            let rows = tarn.describe("m");
            let arrived: i64 = rows
                .iter()
                .filter_map(|r| r["destinationOffset"].as_i64())
                .sum();
            let behind = rows
                .iter()
                .filter(|r| r["lag"] != 0 || r["state"] != "MIRRORING")
                .count();
            if arrived == written && behind == 0 {
                Ok(())
            } else {
                Err(format!(
                    "{arrived} of {written} records, {behind} partitions behind"
                ))
            }
        },
    );
    for topic in &topics {
        for partition in 0..PARTITIONS {
            assert_same_bytes(source, &tarn, topic, partition);
        }
    }
}
