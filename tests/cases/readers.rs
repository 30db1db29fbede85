//! Reading.

use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::librdkafka;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;

use crate::fixture::{
    SOON, assert_same, assert_same_bytes, batches, compacted, leave_open, mirrored, sample_topic,
    unique,
};

/// Progress is counted in batches; clients get over a batch without records.
#[test]
fn batches_without_records_are_mirrored_and_read_over() {
    let source = Kafka::shared();
    let topic = unique("gaps");
    compacted(source, &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same_bytes(source, &tarn, &topic, 0);
    let all = batches(source, &topic, 0);
    assert!(all.iter().any(|b| b.record_count() == 0));
    let want = source.cluster().consume(&topic, 0, false);
    assert_eq!(tarn.cluster().consume(&topic, 0, false), want);
    assert_eq!(
        librdkafka::consume(&tarn.bootstrap(), &topic, 0, false, SOON).unwrap(),
        want
    );
    assert!(tarn.describe("m").iter().all(|r| r["lag"] == 0));
}

/// A limit that cuts a batch in two never leaves half a batch behind, and everybody gets on.
#[test]
fn a_limit_inside_a_batch_stops_nobody() {
    let source = Kafka::shared();
    let topic = unique("cut");
    source.cluster().create_topic(&topic, 1, json!({}));
    for seed in 0..20 {
        source
            .cluster()
            .produce(&topic, json!([{"size": 10_000, "seed": seed}]), json!({}));
    }
    let tarn = Tarn::start();
    tarn.create_mirror(
        "m",
        &source.bootstrap(),
        &[
            ("mirror.fetch.max.bytes", "15000"),
            ("mirror.fetch.response.max.bytes", "15000"),
        ],
    );
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let data = raw::fetch_once(
        &mut client,
        &Topic::Name(topic.clone()),
        0,
        3,
        15_000,
        false,
        100,
    )
    .unwrap();
    assert_eq!(
        i64::from_be_bytes(data.records.unwrap()[..8].try_into().unwrap()),
        3
    );
    let want = source.cluster().consume(&topic, 0, false);
    let tight = json!({"topic": topic, "props": {"max.partition.fetch.bytes": "15000", "fetch.max.bytes": "15000"}});
    let read = tarn.cluster().call("consume", tight)["records"].clone();
    assert_eq!(read, json!(want));
}

/// A fetch from inside a batch begins with that batch.
#[test]
fn a_fetch_from_inside_a_batch_begins_with_it() {
    let source = Kafka::shared();
    let topic = unique("inside");
    source.cluster().create_topic(&topic, 1, json!({}));
    for _ in 0..2 {
        source.cluster().produce(
            &topic,
            json!([{"value": "a"}, {"value": "b"}]),
            json!({"linger.ms": "50"}),
        );
    }
    assert_eq!(batches(source, &topic, 0).len(), 2);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    for (offset, base) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        let data = raw::fetch_once(
            &mut client,
            &Topic::Name(topic.clone()),
            0,
            offset,
            1 << 20,
            false,
            100,
        )
        .unwrap();
        let records = data.records.unwrap();
        assert_eq!(
            i64::from_be_bytes(records[..8].try_into().unwrap()),
            base,
            "fetch at {offset}"
        );
    }
    let tail = tarn
        .cluster()
        .call("consume", json!({"topic": topic, "from": 3}))["records"]
        .clone();
    assert_eq!(tail.as_array().unwrap().len(), 1);
}

/// An empty answer comes when the wait is over, and a mirrored append ends the wait at once.
#[test]
fn a_mirrored_append_wakes_the_fetches_that_wait() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "wake", 1, 1);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let named = Topic::Name(topic.clone());
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let started = Instant::now();
    let data = raw::fetch_once(&mut client, &named, 0, 1, 1 << 20, false, 500).unwrap();
    assert!(data.records.unwrap_or_default().is_empty());
    let waited = started.elapsed();
    assert!(
        (Duration::from_millis(450)..Duration::from_millis(1500)).contains(&waited),
        "an empty fetch waited {waited:?}"
    );
    // The producer is warm before the clock runs.
    source
        .cluster()
        .call("producer_open", json!({"name": topic}));
    let mut delays = Vec::new();
    for round in 0..7 {
        let cluster = source.cluster();
        let (name, started) = (topic.clone(), Instant::now());
        let producer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            let started = Instant::now();
            cluster.call(
                "produce",
                json!({"topic": name, "name": name, "records": [{"value": "x"}]}),
            );
            started
        });
        let data =
            raw::fetch_once(&mut client, &named, 0, 1 + round, 1 << 20, false, 10_000).unwrap();
        let arrived = Instant::now();
        assert!(
            !data.records.unwrap_or_default().is_empty(),
            "round {round} after {:?}",
            started.elapsed()
        );
        delays.push(arrived.saturating_duration_since(producer.join().unwrap()));
    }
    delays.sort();
    assert!(
        delays[3] < Duration::from_millis(150),
        "from produce at the source to the waiting reader: {delays:?}"
    );
}

/// The first batch comes even when it is larger than every limit.
#[test]
fn a_record_larger_than_the_fetch_limit_arrives() {
    let source = Kafka::shared();
    let topic = unique("large");
    source
        .cluster()
        .create_topic(&topic, 1, json!({"max.message.bytes": "4000000"}));
    source.cluster().produce(
        &topic,
        json!([{"value": "a"}, {"size": 2_000_000}, {"value": "b"}]),
        json!({"batch.size": "1"}),
    );
    let tarn = mirrored(source, &[(&topic, 1)]);
    let tight = json!({"topic": topic, "props": {"max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"}});
    assert_eq!(
        tarn.cluster().call("consume", tight)["records"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

/// The end of a log that closes with a marker can be reached.
#[test]
fn the_end_behind_a_marker_is_reached() {
    let source = Kafka::shared();
    let topic = unique("marker-end");
    source.cluster().create_topic(&topic, 1, json!({}));
    crate::fixture::three_transactions(&source.cluster(), &topic, &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    for committed in [false, true] {
        let end = tarn.cluster().call(
            "seek_to_end",
            json!({"topic": topic, "committed": committed}),
        )["position"]
            .clone();
        assert_eq!(end, 10, "7 records and 3 markers");
        assert_eq!(
            tarn.cluster().consume(&topic, 0, committed).len(),
            if committed { 5 } else { 7 }
        );
    }
}

/// The last stable offset bounds committed readers, and ListOffsets says so.
#[test]
fn committed_readers_stop_before_an_open_transaction_and_go_on_after_its_end() {
    let source = Kafka::shared();
    let topic = unique("open");
    source.cluster().create_topic(&topic, 1, json!({}));
    source.cluster().produce_many(&topic, 1, 10, 50, json!({}));
    leave_open(&source.cluster(), &topic, &topic, 3);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let here = tarn.cluster();
    let latest = |committed: bool| {
        here.call("offset", json!({"topic": topic, "committed": committed}))["offset"]
            .as_i64()
            .unwrap()
    };
    assert_eq!((latest(false), latest(true)), (13, 10));
    assert_eq!(
        (
            here.consume(&topic, 0, false).len(),
            here.consume(&topic, 0, true).len()
        ),
        (13, 10)
    );
    source.cluster().call("txn_abort", json!({"name": topic}));
    await_end(source, &topic, 14);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_eq!((latest(false), latest(true)), (14, 14));
    assert_eq!(
        here.consume(&topic, 0, true).len(),
        10,
        "aborted records are filtered"
    );
    source.cluster().call("txn_begin", json!({"name": topic}));
    source.cluster().call(
        "produce",
        json!({"topic": topic, "name": topic, "count": 2, "size": 50}),
    );
    source.cluster().call("txn_commit", json!({"name": topic}));
    await_end(source, &topic, 17);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_eq!(here.consume(&topic, 0, true).len(), 12);
    assert_same(source, &tarn, &topic, 1);
}

/// A transaction's marker is written after its end was acknowledged.
fn await_end(source: &Kafka, topic: &str, end: i64) {
    tarn_tests::wait::until(SOON, "the marker is written", || {
        match source.cluster().end_offset(topic, 0) {
            now if now == end => Ok(()),
            now => Err(format!("the log ends at {now}")),
        }
    });
}

#[test]
fn groups_of_librdkafka_and_of_kafkas_consumer_read_a_mirror() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "groups", 3, 30);
    let tarn = mirrored(source, &[(&topic, 3)]);
    let mut read = librdkafka::subscribe(
        &tarn.bootstrap(),
        "g-c",
        &topic,
        30,
        Duration::from_secs(60),
    )
    .unwrap();
    read.sort();
    let mut want: Vec<String> = (0..3)
        .flat_map(|p| source.cluster().consume(&topic, p, false))
        .collect();
    want.sort();
    assert_eq!(read, want);
    let by_java = tarn.cluster().call(
        "subscribe",
        json!({"topic": topic, "count": 30, "props": {"group.id": "g-java"}}),
    );
    assert_eq!(by_java["records"].as_array().unwrap().len(), 30);
    let committed = tarn.cluster().call(
        "group_offset",
        json!({"group": "g-java", "topic": topic, "partition": 1}),
    );
    assert_eq!(committed["offset"], 10);
}
