//! Removing a topic from its mirror makes it an ordinary topic, whatever the source does.

use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::{self, RawClient, Topic, Writer};
use tarn_tests::segments::{self, Batch};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use crate::fixture::{
    SOON, batches, leave_open, mirrored, sample_topic, three_transactions, unique,
};

const ABORT: i16 = 0;
const PID_RESET: i16 = 7;

/// The batches that Tarn holds behind those of the source.
fn own_batches(source: &[Batch], tarn: &Tarn, topic: &str) -> Vec<Batch> {
    let all = segments::batches(&tarn.partition_dir(topic, 0)).unwrap();
    segments::prefix_of(source, &all).unwrap();
    all[source.len()..].to_vec()
}

fn control_types(batches: &[Batch]) -> Vec<Option<i16>> {
    batches.iter().map(Batch::control_type).collect()
}

#[test]
fn failover_works_with_the_source_dead_and_a_transaction_open() {
    let mut source = Kafka::start();
    let cluster = source.cluster();
    for topic in ["data", "open", "empty"] {
        cluster.create_topic(topic, 1, json!({}));
    }
    cluster.produce_many("data", 1, 20, 100, json!({}));
    three_transactions(&cluster, "open", "closed");
    leave_open(&cluster, "open", "hanging", 3);
    let mut tarn = mirrored(&source, &[("data", 1), ("open", 1), ("empty", 1)]);
    let at_source: Vec<Vec<Batch>> = ["data", "open"].map(|t| batches(&source, t, 0)).to_vec();
    source.kill();
    let started = Instant::now();
    let said = tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", ".*"]);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "remove took {:?}",
        started.elapsed()
    );
    assert_eq!(
        said,
        "Removed 3 topic(s) from mirror m: [data, empty, open]\n"
    );
    tarn.await_state("m", "STOPPED", SOON, |_| true);

    assert_eq!(
        control_types(&own_batches(&at_source[0], &tarn, "data")),
        [Some(PID_RESET)]
    );
    let own = own_batches(&at_source[1], &tarn, "open");
    assert_eq!(
        control_types(&own),
        [Some(ABORT), Some(PID_RESET)],
        "{own:?}"
    );
    assert_eq!(
        control_types(&own_batches(&[], &tarn, "empty")),
        [Some(PID_RESET)]
    );

    let here = tarn.cluster();
    assert_eq!(
        here.consume("open", 0, true).len(),
        5,
        "the open transaction's records stay invisible"
    );
    for topic in ["data", "open", "empty"] {
        let before = here.end_offset(topic, 0);
        let said = here.produce(
            topic,
            json!([{"value": "mine"}]),
            json!({"enable.idempotence": "true"}),
        );
        assert_eq!(said["last"], before);
    }
    tarn.kill();
    tarn.restart();
    for topic in ["data", "open", "empty"] {
        here.produce(topic, json!([{"value": "still mine"}]), json!({}));
    }
    tarn.check_healthy();
}

/// The first idempotent producer after a failover may get a producer id that the mirrored log
/// already knows.
#[test]
fn a_colliding_producer_id_loses_no_record() {
    let source = Kafka::shared();
    let topic = unique("collide");
    source.cluster().create_topic(&topic, 1, json!({}));
    source.cluster().call("produce", json!({"topic": topic, "one_batch_each": true, "props": {"enable.idempotence": "true"},
        "records": [{"value": "s0"}, {"value": "s1"}, {"value": "s2"}, {"value": "s3"}, {"value": "s4"}]}));
    let mirrored_id = batches(source, &topic, 0)[0].producer_id();
    assert!(mirrored_id >= 0);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let log_end = tarn.cluster().end_offset(&topic, 0);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic]);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let mut offsets = Vec::new();
    for sequence in 0..5 {
        let writer = Writer {
            producer_id: mirrored_id,
            epoch: 0,
            sequence,
            transactional: false,
        };
        offsets.push(produce_when_writable(
            &mut client,
            &topic,
            writer,
            &format!("d{sequence}"),
        ));
    }
    assert!(
        offsets[0] >= log_end,
        "acknowledged at {offsets:?}, the mirrored log ended at {log_end}"
    );
    assert!(offsets.windows(2).all(|w| w[1] == w[0] + 1), "{offsets:?}");
    assert_eq!(tarn.cluster().consume(&topic, 0, false).len(), 10);
}

/// Produces until the partition is writable; every refusal before that must be the read-only error.
fn produce_when_writable(client: &mut RawClient, topic: &str, writer: Writer, value: &str) -> i64 {
    let named = Topic::Name(topic.to_owned());
    wait::until(SOON, &format!("{topic} takes a record"), || {
        let produced = raw::produce(client, &named, 0, raw::batch(writer, &[value]), -1, 9)
            .unwrap()
            .unwrap();
        match produced.code {
            0 => Ok(produced.offset),
            44 => Err(format!("{produced:?}")),
            _ => panic!("{topic}: {produced:?}"),
        }
    })
}

/// Stop and produce race, fifty times.
#[test]
fn fifty_races_of_stop_and_produce_lose_no_record() {
    const RACES: usize = 50;
    let source = Kafka::shared();
    let stem = unique("race");
    let topics: Vec<String> = (0..RACES).map(|i| format!("{stem}-{i}")).collect();
    let props = json!({"enable.idempotence": "true"});
    for topic in &topics {
        source.cluster().create_topic(topic, 1, json!({}));
        source.cluster().call("produce", json!({"topic": topic, "one_batch_each": true, "records": [{"value": "s0"}, {"value": "s1"}], "props": props}));
    }
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &format!("{stem}-.*"));
    for topic in &topics {
        tarn.await_caught_up(&source.cluster(), topic, 1, SOON);
    }
    std::thread::scope(|scope| {
        for part in topics.chunks(RACES / 5) {
            let (tarn, part) = (&tarn, part);
            scope.spawn(move || {
                let mut client = RawClient::connect(tarn.port()).unwrap();
                for topic in part {
                    let id = batches(source, topic, 0)[0].producer_id();
                    for sequence in 0..3 {
                        let writer = Writer {
                            producer_id: id,
                            epoch: 0,
                            sequence,
                            transactional: false,
                        };
                        let offset = produce_when_writable(
                            &mut client,
                            topic,
                            writer,
                            &format!("d{sequence}"),
                        );
                        assert!(
                            offset >= 2,
                            "{topic}: acknowledged at {offset}, inside the mirrored log"
                        );
                    }
                }
            });
        }
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            tarn.mirrors_ok(&["--remove", "--mirror", "m", "--all-topics"]);
        });
    });
    for topic in &topics {
        assert_eq!(tarn.cluster().consume(topic, 0, false).len(), 5, "{topic}");
    }
}

#[test]
fn a_paused_topic_and_a_failed_one_can_be_removed() {
    let source = Kafka::shared();
    let (paused, failed) = (
        sample_topic(source, "rm-paused", 1, 5),
        sample_topic(source, "rm-failed", 1, 5),
    );
    let tarn = mirrored(source, &[(&paused, 1), (&failed, 1)]);
    tarn.mirrors_ok(&["--pause", "--mirror", "m", "--topic", &paused, "--wait"]);
    source
        .cluster()
        .call("delete_topic", json!({"topic": failed}));
    tarn.await_state("m", "FAILED", SOON, |r| r["topic"] == failed.as_str());
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--all-topics", "--wait"]);
    for topic in [&paused, &failed] {
        let said = tarn
            .cluster()
            .produce(topic, json!([{"value": "mine"}]), json!({}));
        assert_eq!(
            said["last"], 6,
            "5 records and the reset of producer ids come before"
        );
    }
}

#[test]
fn a_topic_that_is_still_preparing_can_be_removed() {
    let mut source = Kafka::start();
    let topic = sample_topic(&source, "rm-preparing", 1, 5);
    let tarn = mirrored(&source, &[(&topic, 1)]);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    source.process().freeze(true);
    // The broker cannot ask the source now: whatever the add says, remove must work afterwards.
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", &topic]);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    source.process().freeze(false);
    source.kill();
    tarn.cluster()
        .produce(&topic, json!([{"value": "mine"}]), json!({}));
    assert!(
        added.code == 0
            || added
                .stderr
                .contains("Cannot reach the source of mirror 'm'"),
        "{added:?}"
    );
}

/// Writable stays writable after the mirror is gone.
#[test]
fn topics_stay_writable_after_the_mirror_is_deleted() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "deleted-mirror", 1, 5);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    let refused = tarn.mirrors(&["--delete", "--mirror", "m"]);
    assert_eq!(
        refused.code, 1,
        "a mirror with an active topic is not deleted: {refused:?}"
    );
    assert!(refused.stderr.contains(&topic), "{refused:?}");
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    assert_eq!(
        tarn.mirrors_ok(&["--delete", "--mirror", "m"]),
        "Deleted mirror m\n"
    );
    assert_eq!(tarn.mirrors_ok(&["--list"]), "No mirrors found\n");
    for _ in 0..2 {
        tarn.cluster()
            .produce(&topic, json!([{"value": "mine"}]), json!({}));
        tarn.kill();
        tarn.restart();
    }
    assert_eq!(tarn.cluster().consume(&topic, 0, false).len(), 7);
}

/// The consumer carries the source's leader epoch, which the destination must not fall behind.
#[test]
fn a_consumer_with_a_source_epoch_goes_on_after_its_restart() {
    let mut source = Kafka::start();
    let cluster = source.cluster();
    let topic = sample_topic(&source, "epoch", 1, 5);
    for _ in 0..4 {
        source.kill();
        source.restart();
        cluster.produce_many(&topic, 1, 5, 50, json!({}));
    }
    let epoch = batches(&source, &topic, 0).last().unwrap().leader_epoch();
    assert!(epoch >= 4, "every restart raises the epoch, now {epoch}");
    let tarn = mirrored(&source, &[(&topic, 1)]);
    let group = |count: u32| {
        tarn.cluster().call("subscribe", json!({"topic": topic, "count": count, "props": {"group.id": "g"}, "timeout_ms": 20000}))
    };
    assert_eq!(group(25)["records"].as_array().unwrap().len(), 25);
    cluster.produce_many(&topic, 1, 5, 50, json!({}));
    tarn.await_caught_up(&cluster, &topic, 1, SOON);
    let again = group(5);
    assert_eq!(again["records"].as_array().unwrap().len(), 5);
    assert!(
        again["took_ms"].as_u64().unwrap() < 10_000,
        "{}",
        again["took_ms"]
    );
}
