//! Kill -9 of either side under load, and a pause that survives restarts.

use std::time::Duration;

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::{segments, wait};

use crate::fixture::{SOON, assert_same, assert_same_bytes, mirrored, sample_topic};

fn is_paused(tarn: &tarn_tests::tarn::Tarn, topic: &str) -> Result<(), String> {
    let rows: Vec<_> = tarn
        .describe("m")
        .into_iter()
        .filter(|r| r["topic"] == topic)
        .collect();
    if !rows.is_empty() && rows.iter().all(|r| r["state"] == "PAUSED") {
        Ok(())
    } else {
        Err(format!("{rows:?}"))
    }
}

#[test]
fn ten_kills_of_the_destination_and_three_of_the_source_lose_and_double_nothing() {
    let mut source = Kafka::start();
    let cluster = source.cluster();
    cluster.create_topic("live", 3, json!({}));
    let held = sample_topic(&source, "held", 1, 10);
    let mut tarn = mirrored(&source, &[("live", 3), (&held, 1)]);
    tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", &held, "--wait"]);
    cluster.produce_many(&held, 1, 5, 100, json!({}));
    cluster.call(
        "load_start",
        json!({"name": "crash", "topics": ["live"], "partitions": 3, "rate": 3000, "size": 300}),
    );
    for round in 0..10 {
        std::thread::sleep(Duration::from_millis(400));
        tarn.kill();
        if round % 4 == 1 {
            source.kill();
            source.restart();
        }
        tarn.restart();
    }
    std::thread::sleep(Duration::from_secs(1));
    cluster.call("load_stop", json!({"name": "crash"}));
    tarn.await_caught_up(&cluster, "live", 3, Duration::from_secs(60));
    assert_same(&source, &tarn, "live", 3);
    is_paused(&tarn, &held).unwrap();
    assert_eq!(
        tarn.cluster().end_offset(&held, 0),
        10,
        "the paused topic has not moved"
    );
    tarn.check_healthy();
}

#[test]
fn a_pause_survives_restarts_and_refreshes_and_resume_catches_up() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "pause", 1, 50);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    let said = tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", &topic, "--wait"]);
    assert_eq!(
        said,
        format!("Paused mirroring for 1 topic(s) in mirror m: [{topic}]\n")
    );
    source.cluster().produce_many(&topic, 1, 50, 100, json!({}));
    tarn.stop();
    tarn.restart();
    wait::until(SOON, "the state is back after the restart", || {
        is_paused(&tarn, &topic)
    });
    wait::stays(
        Duration::from_secs(4),
        "stays paused over several refreshes",
        || is_paused(&tarn, &topic),
    );
    tarn.kill();
    tarn.restart();
    wait::until(SOON, "the state is back after the kill", || {
        is_paused(&tarn, &topic)
    });
    assert_eq!(
        segments::batches(&tarn.partition_dir(&topic, 0))
            .unwrap()
            .last()
            .unwrap()
            .next_offset(),
        50
    );
    tarn.mirrors_ok(&["--resume", "--mirror", "m", "--topic", &topic, "--wait"]);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
}

#[test]
fn a_clean_restart_goes_on_where_it_stopped() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "restart", 2, 100);
    let mut tarn = mirrored(source, &[(&topic, 2)]);
    assert!(
        tarn.stop() < Duration::from_secs(5),
        "a clean shutdown is quick"
    );
    source
        .cluster()
        .produce_many(&topic, 2, 100, 100, json!({}));
    tarn.restart();
    tarn.await_caught_up(&source.cluster(), &topic, 2, SOON);
    assert_same(source, &tarn, &topic, 2);
}
