//! Adding a topic again after it was removed never cuts what nobody agreed to lose.

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::segments;

use crate::fixture::{SOON, assert_same_bytes, batches, mirrored, sample_topic};

/// The reset of producer ids behind the mirrored log is our own and may go; the mirrored batches
/// may not be fetched twice.
#[test]
fn an_unchanged_log_is_taken_up_where_it_ended() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "readd", 1, 20);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    source.cluster().produce_many(&topic, 1, 10, 100, json!({}));
    tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic, "--wait"]);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
    assert!(
        !tarn.process().output().contains("to offset 0"),
        "the log was cut to its start"
    );
}

#[test]
fn own_writes_are_not_cut_without_the_opt_in() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "readd-own", 1, 20);
    let tarn = mirrored(source, &[(&topic, 1)]);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    tarn.cluster().produce_many(&topic, 1, 5, 100, json!({}));
    let before = segments::batches(&tarn.partition_dir(&topic, 0)).unwrap();
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", &topic]);
    if added.code == 0 {
        tarn.await_state("m", "FAILED", SOON, |r| r["topic"] == topic.as_str());
    }
    let told = format!("{}{:?}", added.stderr, tarn.describe("m"));
    assert!(
        told.contains("20") && told.contains("25"),
        "the text names the range that would be lost: {told}"
    );
    assert!(
        told.contains("mirror.allow.full.truncation") || told.contains("truncation"),
        "the text names the opt-in: {told}"
    );
    assert_eq!(
        segments::batches(&tarn.partition_dir(&topic, 0)).unwrap(),
        before,
        "nothing was cut"
    );
    // With the opt-in the topic follows its source again.
    tarn.mirrors_ok(&[
        "--alter",
        "--mirror",
        "m",
        "--add-config",
        "mirror.allow.full.truncation=true",
    ]);
    tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic, "--wait"]);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
}

/// A re-start while the source cannot say what it knows must wait, not cut.
#[test]
fn nothing_is_cut_while_the_source_cannot_be_asked() {
    let source = Kafka::start();
    let topic = sample_topic(&source, "readd-dead", 1, 20);
    let tarn = mirrored(&source, &[(&topic, 1)]);
    tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
    let at_source = batches(&source, &topic, 0);
    source.process().freeze(true);
    let added = tarn.mirrors(&["--add", "--mirror", "m", "--topic", &topic]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    segments::prefix_of(
        &at_source,
        &segments::batches(&tarn.partition_dir(&topic, 0)).unwrap(),
    )
    .unwrap();
    source.process().freeze(false);
    if added.code != 0 {
        tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic]);
    }
    tarn.await_state("m", "MIRRORING", SOON, |_| true);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(&source, &tarn, &topic, 0);
}

#[test]
fn kills_during_the_preparation_end_aligned() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "readd-kill", 1, 200);
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    for round in 0..4_u64 {
        tarn.mirrors_ok(&["--remove", "--mirror", "m", "--topic", &topic, "--wait"]);
        source.cluster().produce_many(&topic, 1, 5, 100, json!({}));
        tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", &topic]);
        std::thread::sleep(std::time::Duration::from_millis(15 * round));
        tarn.kill();
        tarn.restart();
        tarn.await_state("m", "MIRRORING", SOON, |_| true);
    }
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    assert_same_bytes(source, &tarn, &topic, 0);
}
