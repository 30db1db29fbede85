//! Faults found from outside: the mirror and its source over time: verdicts expire, one bad item spoils only itself, reasons are on show.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tarn_tests::driver::Cluster;
use tarn_tests::jars::KAFKA_CURRENT;
use tarn_tests::kafka::Kafka;
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{SOON, unique};

/// 30 records of 30 days ago.
fn produce_old(cluster: &Cluster, topic: &str) {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let then = (now - MONTH).as_millis() as u64;
    let records: Vec<Value> = (0..30)
        .map(|n| json!({"value": format!("v{n}"), "timestamp": then + n}))
        .collect();
    cluster.produce(topic, json!(records), json!({}));
}

/// N02: the source's broker keeps for ever; the copy does so too, as a mirror and after failover, although this broker's own topics expire.
#[test]
fn records_that_only_the_sources_broker_keeps_are_kept_here_too() {
    let source = Kafka::start_with(KAFKA_CURRENT, &[("log.retention.ms", "-1")]);
    let topic = unique("kept");
    source.cluster().create_topic(&topic, 1, json!({}));
    produce_old(&source.cluster(), &topic);
    let tarn = Tarn::start_with(&[("log.retention.check.interval.ms", "200")]);
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    // Proof that retention is at work here: a topic of this broker's own with the same records is emptied.
    let expires = |name: &str| {
        tarn.cluster().create_topic(name, 1, json!({}));
        produce_old(&tarn.cluster(), name);
        wait::until(SOON, "retention empties a local topic", || {
            match tarn.cluster().start_offset(name, 0) {
                30 => Ok(()),
                other => Err(other.to_string()),
            }
        });
    };
    expires("local-before");
    assert_eq!(tarn.cluster().start_offset(&topic, 0), 0, "while a mirror");
    let deleted = tarn
        .cluster()
        .try_call("delete_records", json!({"topic": topic, "before": 10}));
    assert!(deleted.is_err(), "{deleted:?}");
    let shown = tarn.cluster().call("topic_config", json!({"topic": topic}));
    assert_eq!(shown["configs"]["retention.ms"], "-1", "{shown}");
    assert_eq!(shown["sources"]["retention.ms"], "DYNAMIC_TOPIC_CONFIG");
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    expires("local-after");
    assert_eq!(tarn.cluster().start_offset(&topic, 0), 0, "after failover");
    let read = tarn.cluster().consume(&topic, 0, false);
    assert_eq!(read, source.cluster().consume(&topic, 0, false));
}
