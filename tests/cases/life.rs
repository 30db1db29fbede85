//! What an ordinary client may expect of the broker by itself: topics, settings, and the rules
//! around mirror topics that are no writes.

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw;
use tarn_tests::tarn::Tarn;

use crate::fixture::{mirrored, sample_topic};

#[test]
fn topics_are_created_grown_configured_and_deleted() {
    let mut tarn = Tarn::start();
    let here = tarn.cluster();
    let id = here.create_topic("t", 2, json!({"retention.ms": "123456"}));
    assert_eq!(here.topic_id("t"), id);
    assert_eq!(
        here.try_call("create_topic", json!({"topic": "t"}))
            .unwrap_err()
            .class,
        "TopicExistsException"
    );
    assert_eq!(
        here.try_call("create_topic", json!({"topic": "bad/name"}))
            .unwrap_err()
            .class,
        "InvalidTopicException"
    );
    assert_eq!(
        here.try_call("create_topic", json!({"topic": "x", "rf": 3}))
            .unwrap_err()
            .class,
        "InvalidReplicationFactorException"
    );
    assert_eq!(
        here.try_call(
            "create_topic",
            json!({"topic": "x", "configs": {"no.such": "1"}})
        )
        .unwrap_err()
        .class,
        "InvalidConfigurationException"
    );
    here.call("create_partitions", json!({"topic": "t", "count": 3}));
    here.call(
        "alter_topic",
        json!({"topic": "t", "set": {"retention.ms": "654321"}}),
    );
    tarn.kill();
    tarn.restart();
    assert_eq!(
        here.call("describe_topic", json!({"topic": "t"}))["partitions"],
        3
    );
    let config = here.call("topic_config", json!({"topic": "t"}));
    assert_eq!(
        (
            &config["configs"]["retention.ms"],
            &config["sources"]["retention.ms"]
        ),
        (&json!("654321"), &json!("DYNAMIC_TOPIC_CONFIG"))
    );
    assert!(
        config["configs"].as_object().unwrap().len() > 25,
        "every topic key of Kafka is shown"
    );
    here.call("delete_topic", json!({"topic": "t"}));
    assert_eq!(here.call("list_topics", json!({}))["topics"], json!([]));
}

#[test]
fn special_timestamps_are_answered_like_kafkas() {
    let source = Kafka::shared();
    let topic = crate::fixture::unique("times");
    // The records are old: the source's own retention must not cut them in the middle of the
    // comparison.
    source
        .cluster()
        .create_topic(&topic, 1, json!({"retention.ms": "-1"}));
    for at in [10, 20, 20, 30] {
        source.cluster().produce(
            &topic,
            json!([{"value": "x", "timestamp": 1_700_000_000_000_i64 + at}]),
            json!({}),
        );
    }
    let tarn = mirrored(source, &[(&topic, 1)]);
    let base = 1_700_000_000_000_i64;
    for at in [
        json!("earliest"),
        json!("latest"),
        json!("max"),
        json!(base + 15),
        json!(base + 20),
        json!(base + 31),
        json!(0),
    ] {
        let ask = |c: tarn_tests::driver::Cluster| {
            let answer = c.call("offset", json!({"topic": topic, "at": at}));
            (answer["offset"].clone(), answer["timestamp"].clone())
        };
        assert_eq!(ask(tarn.cluster()), ask(source.cluster()), "offset at {at}");
    }
}

#[test]
fn retention_by_size_and_delete_records_cut_an_own_topic() {
    let tarn = Tarn::start_with(&[("log.retention.check.interval.ms", "500")]);
    let here = tarn.cluster();
    here.create_topic(
        "t",
        1,
        json!({"segment.bytes": "1048576", "retention.bytes": "1048576"}),
    );
    here.produce_many("t", 1, 5000, 1000, json!({}));
    tarn_tests::wait::until(
        crate::fixture::SOON,
        "retention removes old segments",
        || match here.start_offset("t", 0) {
            0 => Err("log start 0".into()),
            _ => Ok(()),
        },
    );
    let answer = here.call("delete_records", json!({"topic": "t", "before": 4990}));
    assert_eq!(answer["lowWatermark"], 4990);
    assert_eq!(here.consume("t", 0, false).len(), 10);
}

/// docs/mirroring.md §3: deleting a mirror topic is the operator's will; it goes and stays gone.
#[test]
fn a_mirror_topic_can_be_deleted_and_does_not_come_back() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "delete-mirrored", 1, 3);
    let tarn = mirrored(source, &[(&topic, 1)]);
    tarn.cluster().call("delete_topic", json!({"topic": topic}));
    tarn_tests::wait::stays(std::time::Duration::from_secs(3), "stays deleted", || {
        let topics = tarn.cluster().call("list_topics", json!({}))["topics"].clone();
        if topics
            .as_array()
            .unwrap()
            .iter()
            .any(|t| *t == topic.as_str())
        {
            Err(topics.to_string())
        } else {
            Ok(())
        }
    });
    assert_eq!(
        tarn.mirrors_ok(&["--describe"]),
        "No mirror partitions found\n"
    );
}

/// Only what is there is announced, and everything that is announced is answered.
#[test]
fn mirror_keys_are_announced_and_the_numbers_are_kafkas() {
    let tarn = Tarn::start();
    let here = raw::api_versions_as(tarn.port(), "apache-kafka-java").unwrap();
    for key in [94, 95, 96, 98, 99, 102, 103, 104] {
        assert_eq!(here.get(&key), Some(&(0, 0)), "key {key}");
    }
    for (key, min, max) in [(0, 3, 12), (1, 4, 13), (3, 0, 12), (18, 0, 3)] {
        let range = here
            .get(&key)
            .unwrap_or_else(|| panic!("key {key} is missing"));
        assert!(range.0 <= min && range.1 >= max, "key {key}: {range:?}");
    }
    assert!(!here.contains_key(&97));
}
