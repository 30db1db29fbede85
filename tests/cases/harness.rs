//! The harness itself: every Kafka version that the cases use starts here, takes a record, survives a kill -9, and gives the record back.

use serde_json::json;
use std::time::Duration;
use tarn_tests::kafka::Kafka;
use tarn_tests::librdkafka;
use tarn_tests::raw::{self, Topic};
use tarn_tests::segments;

fn survives_a_kill(version: &str) {
    let mut kafka = Kafka::start_with(version, &[]);
    let cluster = kafka.cluster();
    let id = cluster.create_topic("t", 1, json!({}));
    cluster.produce("t", json!([{"key": "a", "value": "1", "headers": [["h", "x"], ["n", null]]}, {"key": null, "value": null}]), json!({}));
    kafka.kill();
    kafka.restart();
    let by_java = cluster.consume("t", 0, false);
    assert_eq!(by_java.len(), 2);
    assert_eq!(
        librdkafka::consume(&kafka.bootstrap(), "t", 0, false, Duration::from_secs(20)).unwrap(),
        by_java
    );
    if version >= "2.8" {
        assert_eq!(cluster.topic_id("t"), id);
        if version >= "3" {
            assert_eq!(
                raw::consume(kafka.port(), &Topic::Id(raw::id_bytes(&id)), 0, true).unwrap(),
                by_java
            );
        }
    }
    assert_eq!(
        segments::batches(&kafka.partition_dir("t", 0))
            .unwrap()
            .last()
            .map(segments::Batch::next_offset),
        Some(2)
    );
}

#[test]
fn kafka_4_3_1_runs() {
    survives_a_kill("4.3.1");
}

#[test]
fn kafka_4_4_0_runs() {
    survives_a_kill("4.4.0");
}

#[test]
fn kafka_3_9_1_runs() {
    survives_a_kill("3.9.1");
}

#[test]
fn kafka_2_8_2_runs() {
    survives_a_kill("2.8.2");
}

#[test]
fn kafka_2_1_1_runs() {
    survives_a_kill("2.1.1");
}
