//! Sources of other versions, case 1 in small.

use serde_json::json;
use tarn_tests::kafka::Kafka;

use crate::fixture::{all_codecs, assert_same, headers_and_nulls, mirrored, three_transactions};

fn mirrors_from(version: &str) {
    let source = Kafka::start_with(version, &[]);
    let cluster = source.cluster();
    for topic in ["many", "nulls", "codecs", "txn", "empty"] {
        cluster.create_topic(topic, if topic == "many" { 3 } else { 1 }, json!({}));
    }
    cluster.produce_many("many", 3, 1000, 100, json!({}));
    headers_and_nulls(&cluster, "nulls");
    all_codecs(
        &cluster,
        "codecs",
        &["none", "gzip", "snappy", "lz4", "zstd"],
    );
    three_transactions(&cluster, "txn", "txn");
    let topics = [
        ("many", 3),
        ("nulls", 1),
        ("codecs", 1),
        ("txn", 1),
        ("empty", 1),
    ];
    let tarn = mirrored(&source, &topics);
    for (topic, partitions) in topics {
        assert_same(&source, &tarn, topic, partitions);
    }
}

#[test]
fn kafka_2_1_1_is_a_source() {
    mirrors_from("2.1.1");
}

#[test]
fn kafka_2_8_2_is_a_source() {
    mirrors_from("2.8.2");
}

#[test]
fn kafka_3_9_1_is_a_source() {
    mirrors_from("3.9.1");
}

#[test]
fn kafka_4_4_0_is_a_source() {
    mirrors_from("4.4.0");
}

/// A topic in the message format of 0.10 cannot be copied byte for byte into a Kafka 4 log: it says
/// so and harms no neighbour.
#[test]
fn old_message_formats_fail_with_a_text_and_alone() {
    let source = Kafka::start_with("2.1.1", &[]);
    let cluster = source.cluster();
    cluster.create_topic("old", 1, json!({"message.format.version": "0.10.0"}));
    cluster.create_topic("new", 1, json!({}));
    for topic in ["old", "new"] {
        cluster.produce(
            topic,
            json!([{"value": "x"}]),
            json!({"enable.idempotence": "false"}),
        );
    }
    let tarn = mirrored(&source, &[("new", 1)]);
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", "old"]);
    assert_eq!(added.code, 0, "{added:?}");
    tarn.await_state("m", "FAILED", crate::fixture::SOON, |r| r["topic"] == "old");
    let rows = tarn.describe("m");
    let row = rows.iter().find(|r| r["topic"] == "old").unwrap();
    assert!(
        row["errorMessage"]
            .as_str()
            .unwrap_or_default()
            .contains("format"),
        "{row}"
    );
    cluster.produce("new", json!([{"value": "y"}]), json!({}));
    tarn.await_caught_up(&cluster, "new", 1, crate::fixture::SOON);
}
