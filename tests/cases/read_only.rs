//! A mirror topic takes nothing from anybody but its mirror, in every state and at every moment.

use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::librdkafka;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic, Writer};
use tarn_tests::segments;
use tarn_tests::tarn::Tarn;
use tarn_tests::tools;

use crate::fixture::{SOON, assert_same_bytes, mirrored, sample_topic, unique};

const POLICY_VIOLATION: i16 = 44;

fn writers() -> [Writer; 3] {
    [
        PLAIN,
        Writer {
            producer_id: 77,
            epoch: 0,
            sequence: 0,
            transactional: false,
        },
        Writer {
            producer_id: 78,
            epoch: 0,
            sequence: 0,
            transactional: true,
        },
    ]
}

/// Tries to write in every way and checks the refusal; `state` is what the text must show.
fn refuses_every_write(tarn: &Tarn, topic: &str, state: &str) {
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let (name, id) = (
        Topic::Name(topic.to_owned()),
        Topic::Id(raw::id_bytes(&tarn.cluster().topic_id(topic))),
    );
    let text = format!("topic {topic} is a read-only mirror of m ({state})");
    for writer in writers() {
        for (topic, version) in [(&name, 3), (&name, 9), (&name, 12), (&id, 13)] {
            for acks in [1, -1, 0] {
                let mut own = RawClient::connect(tarn.port()).unwrap();
                // A refused produce with acks 0 costs the connection: nothing else can tell the
                // client.
                let client = if acks == 0 { &mut own } else { &mut client };
                let produced = raw::produce(
                    client,
                    topic,
                    0,
                    raw::batch(writer, &["intruder"]),
                    acks,
                    version,
                )
                .unwrap();
                let Some(produced) = produced else { continue };
                assert_eq!(
                    produced.code, POLICY_VIOLATION,
                    "{writer:?} version {version} acks {acks}: {produced:?}"
                );
                assert!(
                    version < 8 || produced.text.as_deref() == Some(&text),
                    "{produced:?} instead of {text}"
                );
            }
        }
    }
    let cluster = tarn.cluster();
    let refused = |op: &str, fields| {
        let error = cluster.try_call(op, fields).expect_err(op);
        assert_eq!(error.class, "PolicyViolationException", "{op}: {error}");
    };
    refused("delete_records", json!({"topic": topic, "before": 1}));
    refused("create_partitions", json!({"topic": topic, "count": 9}));
}

#[test]
fn every_write_is_refused_while_mirroring_paused_and_failed() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "ro", 1, 10);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    refuses_every_write(&tarn, &topic, "MIRRORING");
    tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", &topic, "--wait"]);
    refuses_every_write(&tarn, &topic, "PAUSED");
    tarn.mirrors_ok(&["--resume", "--mirror", "m", "--topic", &topic, "--wait"]);
    assert_same_bytes(source, &tarn, &topic, 0);
    source
        .cluster()
        .call("delete_topic", json!({"topic": topic}));
    tarn.await_state("m", "FAILED", SOON, |_| true);
    refuses_every_write(&tarn, &topic, "FAILED");
    let log = segments::batches(&tarn.partition_dir(&topic, 0)).unwrap();
    assert_eq!(log.last().unwrap().next_offset(), 10, "nothing was stored");
    tarn.check_healthy();
}

#[test]
fn no_write_slips_in_during_restarts() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "ro-restart", 1, 10);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    let port = tarn.port();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let intruder = scope.spawn(|| {
            let (named, mut refused) = (Topic::Name(topic.clone()), 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(mut client) = RawClient::connect(port) else {
                    continue;
                };
                while let Ok(produced) = raw::produce(
                    &mut client,
                    &named,
                    0,
                    raw::batch(PLAIN, &["intruder"]),
                    1,
                    9,
                ) {
                    let produced = produced.unwrap();
                    assert_ne!(produced.code, 0, "accepted: {produced:?}");
                    refused += 1;
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            }
            refused
        });
        for round in 0..6 {
            if round % 2 == 0 {
                tarn.kill();
            } else {
                tarn.stop();
            }
            tarn.restart();
            std::thread::sleep(Duration::from_millis(200));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(intruder.join().unwrap() > 10);
    });
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
}

/// A topic is read-only from the moment it exists, before its first byte is mirrored.
#[test]
fn a_new_mirror_topic_is_never_writable() {
    let source = Kafka::shared();
    let stem = unique("ro-new");
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let topics: Vec<String> = (0..10).map(|i| format!("{stem}-{i}")).collect();
    for topic in &topics {
        source.cluster().create_topic(topic, 1, json!({}));
    }
    std::thread::scope(|scope| {
        let intruder = scope.spawn(|| {
            let mut client = RawClient::connect(tarn.port()).unwrap();
            let end = Instant::now() + Duration::from_secs(3);
            while Instant::now() < end {
                for topic in &topics {
                    let produced = raw::produce(
                        &mut client,
                        &Topic::Name(topic.clone()),
                        0,
                        raw::batch(PLAIN, &["x"]),
                        1,
                        9,
                    )
                    .unwrap()
                    .unwrap();
                    assert_ne!(produced.code, 0, "{topic} took a record");
                }
            }
        });
        tarn.add_topics("m", &format!("{stem}-.*"));
        intruder.join().unwrap();
    });
    for topic in &topics {
        assert_eq!(tarn.cluster().end_offset(topic, 0), 0);
    }
}

/// The refusal is one that old clients understand: an error at once, no endless retry.
#[test]
fn standard_clients_get_a_clear_error_at_once() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "ro-clients", 1, 3);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let started = Instant::now();
    let outcome = librdkafka::produce(
        &tarn.bootstrap(),
        &topic,
        0,
        &[b"intruder"],
        &[("message.timeout.ms", "15000")],
    )
    .unwrap();
    let error = outcome[0]
        .as_ref()
        .expect_err("librdkafka's record was accepted");
    assert!(error.to_lowercase().contains("policy"), "{error}");
    for props in [
        json!({}),
        json!({"enable.idempotence": "false", "acks": "1"}),
    ] {
        let error = tarn
            .cluster()
            .try_call(
                "produce",
                json!({"topic": topic, "records": [{"value": "intruder"}], "props": props}),
            )
            .unwrap_err();
        assert_eq!(error.class, "PolicyViolationException", "{error}");
        assert!(error.message.contains("read-only mirror of m"), "{error}");
    }
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "no endless retry: {:?}",
        started.elapsed()
    );
    assert_same_bytes(source, &tarn, &topic, 0);
}

/// Producers of older Kafkas, whose tables of errors end earlier, fail at once with an error that
/// they can name.
#[test]
fn producers_of_older_kafkas_get_an_error_they_know() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "ro-old", 1, 3);
    let tarn = mirrored(source, &[(&topic, 1)]);
    for version in ["2.1.1", "2.8.2", "3.9.1"] {
        let started = Instant::now();
        let output = tools::console_producer(version, &tarn.bootstrap(), &topic, "intruder\n");
        assert!(
            output.stderr.contains("PolicyViolationException"),
            "{version}: {}",
            output.stderr
        );
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{version} retries: {:?}",
            started.elapsed()
        );
    }
    assert_same_bytes(source, &tarn, &topic, 0);
}
