//! What many cases need: topics of every kind at a source, a mirror of them, and the comparison of
//! both sides through every reader.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tarn_tests::driver::Cluster;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::{self, Topic};
use tarn_tests::segments::{self, Batch};
use tarn_tests::tarn::Tarn;
use tarn_tests::{librdkafka, wait};

/// How long copying a handful of records may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A topic name that no other case of this process uses.
pub(crate) fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A destination with mirror `m` of `source` that holds `topics` (name, partitions), caught up.
pub(crate) fn mirrored(source: &Kafka, topics: &[(&str, i32)]) -> Tarn {
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    for (topic, partitions) in topics {
        tarn.add_topics("m", topic);
        tarn.await_caught_up(&source.cluster(), topic, *partitions, SOON);
    }
    tarn
}

/// A new topic with `records` generated records, at the shared source.
pub(crate) fn sample_topic(source: &Kafka, stem: &str, partitions: i32, records: u32) -> String {
    let topic = unique(stem);
    source.cluster().create_topic(&topic, partitions, json!({}));
    if records > 0 {
        source
            .cluster()
            .produce_many(&topic, partitions, records, 100, json!({}));
    }
    topic
}

/// Compares one topic on both sides: id, bytes, and what librdkafka, Kafka's consumer and a raw
/// client read, with both isolations.
pub(crate) fn assert_same(source: &Kafka, tarn: &Tarn, topic: &str, partitions: i32) {
    let (a, b) = (source.cluster(), tarn.cluster());
    let has_ids = source.version() >= "2.8";
    if has_ids {
        assert_eq!(b.topic_id(topic), a.topic_id(topic), "topic id of {topic}");
    }
    for partition in 0..partitions {
        assert_same_bytes(source, tarn, topic, partition);
        for committed in [false, true] {
            let want = a.consume(topic, partition, committed);
            assert_eq!(
                b.consume(topic, partition, committed),
                want,
                "{topic}-{partition} through Kafka's consumer, committed {committed}"
            );
            let read =
                librdkafka::consume(&tarn.bootstrap(), topic, partition, committed, SOON).unwrap();
            assert_eq!(
                read, want,
                "{topic}-{partition} through librdkafka, committed {committed}"
            );
            let id = Topic::Id(raw::id_bytes(&b.topic_id(topic)));
            for named in [Topic::Name(topic.to_owned()), id] {
                let read = raw::consume(tarn.port(), &named, partition, committed).unwrap();
                assert_eq!(
                    read, want,
                    "{topic}-{partition} through a raw client, {named:?}, committed {committed}"
                );
            }
        }
    }
}

/// The segments of both sides hold the same batches. Appends become visible before the file shows
/// them to others: a few tries.
pub(crate) fn assert_same_bytes(source: &Kafka, tarn: &Tarn, topic: &str, partition: i32) {
    wait::until(
        Duration::from_secs(5),
        &format!("{topic}-{partition} is the same on both sides"),
        || {
            let mirror = tarn.partition_dir(topic, partition);
            if !mirror.exists() && batches(source, topic, partition).is_empty() {
                return Ok(()); // an empty partition needs no files
            }
            segments::same(&source.partition_dir(topic, partition), &mirror)
                .map_err(|e| format!("{e:#}"))
        },
    );
}

/// The source's batches of one partition.
pub(crate) fn batches(source: &Kafka, topic: &str, partition: i32) -> Vec<Batch> {
    segments::batches(&source.partition_dir(topic, partition)).unwrap()
}

/// Writes three transactions through a transactional producer called `name`: committed, aborted,
/// committed.
pub(crate) fn three_transactions(cluster: &Cluster, topic: &str, name: &str) {
    open_transactional(cluster, name);
    for (end, count) in [("txn_commit", 3), ("txn_abort", 2), ("txn_commit", 2)] {
        cluster.call("txn_begin", json!({"name": name}));
        cluster.call(
            "produce",
            json!({"topic": topic, "name": name, "count": count, "size": 50}),
        );
        cluster.call(end, json!({"name": name}));
    }
    cluster.call("producer_close", json!({"name": name}));
    // The last marker is written after the end of its transaction was acknowledged.
    let end = |committed: bool| {
        cluster.call("offset", json!({"topic": topic, "committed": committed}))["offset"].clone()
    };
    wait::until(SOON, "no transaction is open", || {
        match (end(true), end(false)) {
            (stable, all) if stable == all => Ok(()),
            differ => Err(format!("{differ:?}")),
        }
    });
}

/// Opens a transactional producer in the driver; it stays until `producer_close` or the end of the
/// tests.
pub(crate) fn open_transactional(cluster: &Cluster, name: &str) {
    cluster.call("producer_open", json!({"name": name, "props": {"transactional.id": name, "transaction.timeout.ms": "600000"}}));
}

/// Leaves a transaction with `count` records open.
pub(crate) fn leave_open(cluster: &Cluster, topic: &str, name: &str, count: u32) {
    open_transactional(cluster, name);
    cluster.call("txn_begin", json!({"name": name}));
    cluster.call(
        "produce",
        json!({"topic": topic, "name": name, "count": count, "size": 50}),
    );
}

/// One batch per codec, several records each.
pub(crate) fn all_codecs(cluster: &Cluster, topic: &str, codecs: &[&str]) {
    for codec in codecs {
        let props = json!({"compression.type": codec, "linger.ms": "20"});
        let text = "compressible ".repeat(40);
        let records: Vec<_> = (0..20)
            .map(|i| json!({"key": format!("{codec}-{i}"), "value": format!("{text}{i}")}))
            .collect();
        cluster.produce(topic, json!(records), props);
    }
}

/// Records with headers, null keys, null values, empty values, and odd timestamps.
pub(crate) fn headers_and_nulls(cluster: &Cluster, topic: &str) {
    let records = json!([
        {"key": "a", "value": "1", "headers": [["h1", "x"], ["h2", null], ["h3", ""]]},
        {"key": null, "value": "no key"},
        {"key": "tombstone", "value": null},
        {"key": null, "value": null, "timestamp": 1000},
        {"key": "", "value": ""},
        {"key": "späť", "value": "ünïcode ✓", "headers": [["kľúč", "☃"]]},
    ]);
    cluster.produce(topic, records, json!({}));
}

/// A compacted topic whose closed segments have been cleaned: gaps in the offsets, and a batch
/// without records that an idempotent producer left.
pub(crate) fn compacted(source: &Kafka, topic: &str) {
    let cluster = source.cluster();
    let configs = json!({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "600000", "segment.bytes": "1048576",
        "min.compaction.lag.ms": "0", "delete.retention.ms": "600000"});
    cluster.create_topic(topic, 1, configs);
    let keys = |from: u32, to: u32| -> serde_json::Value {
        (from..to)
            .map(|k| json!({"key": format!("k{k}"), "value": format!("v{k}")}))
            .collect()
    };
    let one_batch = json!({"linger.ms": "50"});
    cluster.call("producer_open", json!({"name": topic, "props": one_batch}));
    for (from, to) in [(0, 10), (10, 20)] {
        cluster.call(
            "produce",
            json!({"topic": topic, "name": topic, "records": keys(from, to)}),
        );
    }
    cluster.call("producer_close", json!({"name": topic}));
    // Another producer writes the tail of the first batch and the whole second one again.
    cluster.produce(topic, keys(5, 20), one_batch.clone());
    // A full segment closes it; then only cleaning is missing.
    cluster.call(
        "alter_topic",
        json!({"topic": topic, "set": {"segment.ms": "500"}}),
    );
    std::thread::sleep(Duration::from_millis(700));
    cluster.produce(topic, keys(100, 101), one_batch);
    cluster.call(
        "alter_topic",
        json!({"topic": topic, "set": {"segment.ms": "600000"}}),
    );
    let cleaned = |b: &Batch| b.record_count() == 0;
    wait::until(
        Duration::from_secs(60),
        "the source compacts its log",
        || {
            let all = batches(source, topic, 0);
            if all.iter().any(cleaned) {
                Ok(())
            } else {
                Err(format!("{all:?}"))
            }
        },
    );
}
