//! The harness itself: a Kafka of each kind (KRaft, ZooKeeper) starts, takes a record, survives a
//! kill -9, and gives the record back.

use std::time::Duration;

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::librdkafka;
use tarn_tests::raw::{self, Topic};
use tarn_tests::segments;

use crate::fixture::{
    SOON, all_codecs, batches, compacted, headers_and_nulls, leave_open, three_transactions,
};

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
    kafka.stop();
}

#[test]
fn kafka_4_3_1_runs() {
    survives_a_kill("4.3.1");
}

#[test]
fn kafka_2_1_1_runs() {
    survives_a_kill("2.1.1");
}

/// The fixtures make what they promise, and the three readers agree where nothing was mirrored.
#[test]
fn readers_agree_at_the_source() {
    let source = Kafka::shared();
    let cluster = source.cluster();
    let topics = [
        "kinds-nulls",
        "kinds-codecs",
        "kinds-txn",
        "kinds-open",
        "kinds-compacted",
    ];
    for topic in &topics[..4] {
        cluster.create_topic(topic, 1, json!({}));
    }
    headers_and_nulls(&cluster, "kinds-nulls");
    all_codecs(
        &cluster,
        "kinds-codecs",
        &["none", "gzip", "snappy", "lz4", "zstd"],
    );
    three_transactions(&cluster, "kinds-txn", "kinds-txn");
    cluster.produce_many("kinds-open", 1, 2, 10, json!({}));
    leave_open(&cluster, "kinds-open", "kinds-open", 3);
    compacted(source, "kinds-compacted");
    for topic in topics {
        for committed in [false, true] {
            let want = cluster.consume(topic, 0, committed);
            let c = librdkafka::consume(&source.bootstrap(), topic, 0, committed, SOON).unwrap();
            assert_eq!(c, want, "{topic} through librdkafka, committed {committed}");
            let id = raw::id_bytes(&cluster.topic_id(topic));
            let r = raw::consume(source.port(), &Topic::Id(id), 0, committed).unwrap();
            assert_eq!(
                r, want,
                "{topic} through a raw client, committed {committed}"
            );
        }
    }
    let markers: Vec<Option<i16>> = batches(source, "kinds-txn", 0)
        .iter()
        .map(segments::Batch::control_type)
        .filter(Option::is_some)
        .collect();
    assert_eq!(
        markers,
        [Some(1), Some(0), Some(1)],
        "commit, abort, commit"
    );
    assert_eq!(cluster.consume("kinds-open", 0, true).len(), 2);
}
