//! Every kind of topic arrives byte for byte, with its id, and reads the same through every client.

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::tools;

use crate::fixture::{
    self, SOON, all_codecs, assert_same, compacted, headers_and_nulls, mirrored, sample_topic,
    three_transactions, unique,
};

#[test]
fn three_partitions_arrive_unchanged() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "three", 3, 3000);
    let tarn = mirrored(source, &[(&topic, 3)]);
    assert_same(source, &tarn, &topic, 3);
}

#[test]
fn an_idempotent_producers_batches_arrive_unchanged() {
    let source = Kafka::shared();
    let topic = unique("idempotent");
    source.cluster().create_topic(&topic, 1, json!({}));
    source.cluster().call("produce", json!({"topic": topic, "one_batch_each": true, "records": [{"value": "a"}, {"value": "b"}, {"value": "c"}],
        "props": {"enable.idempotence": "true"}}));
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
    let producers = |c: tarn_tests::driver::Cluster| {
        c.call("describe_producers", json!({"topic": topic}))["producers"].clone()
    };
    assert_eq!(
        producers(tarn.cluster()),
        producers(source.cluster()),
        "producer state is rebuilt from the batches"
    );
}

#[test]
fn transactions_arrive_with_their_markers() {
    let source = Kafka::shared();
    let topic = unique("txn");
    source.cluster().create_topic(&topic, 1, json!({}));
    three_transactions(&source.cluster(), &topic, &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
    assert_eq!(tarn.cluster().consume(&topic, 0, true).len(), 5);
    assert_eq!(tarn.cluster().consume(&topic, 0, false).len(), 7);
}

#[test]
fn a_compacted_topic_arrives_with_its_gaps() {
    let source = Kafka::shared();
    let topic = unique("compacted");
    compacted(source, &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
}

#[test]
fn headers_nulls_and_odd_timestamps_arrive_unchanged() {
    let source = Kafka::shared();
    let topic = unique("nulls");
    source.cluster().create_topic(&topic, 1, json!({}));
    headers_and_nulls(&source.cluster(), &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
}

#[test]
fn all_five_codecs_arrive_unchanged() {
    let source = Kafka::shared();
    let topic = unique("codecs");
    source.cluster().create_topic(&topic, 1, json!({}));
    all_codecs(
        &source.cluster(),
        &topic,
        &["none", "gzip", "snappy", "lz4", "zstd"],
    );
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
}

/// Limits of the produce path do not apply to the copy.
#[test]
fn a_record_of_eight_megabytes_arrives_at_a_destination_with_default_limits() {
    let source = Kafka::shared();
    let topic = unique("big");
    source
        .cluster()
        .create_topic(&topic, 1, json!({"max.message.bytes": "10485760"}));
    source.cluster().produce(
        &topic,
        json!([{"value": "before"}, {"size": 8_000_000}, {"value": "after"}]),
        json!({"max.request.size": "20000000"}),
    );
    let tarn = mirrored(source, &[(&topic, 1)]);
    assert_same(source, &tarn, &topic, 1);
}

#[test]
fn an_empty_topic_is_mirrored_and_takes_its_first_record() {
    let source = Kafka::shared();
    let topic = sample_topic(source, "empty", 2, 0);
    let tarn = mirrored(source, &[(&topic, 2)]);
    assert_same(source, &tarn, &topic, 2);
    source.cluster().produce_many(&topic, 2, 2, 10, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 2, SOON);
    assert_same(source, &tarn, &topic, 2);
}

#[test]
fn kafkas_console_consumer_reads_the_same() {
    let source = Kafka::shared();
    let topic = unique("console");
    source.cluster().create_topic(&topic, 1, json!({}));
    headers_and_nulls(&source.cluster(), &topic);
    three_transactions(&source.cluster(), &topic, &topic);
    let tarn = mirrored(source, &[(&topic, 1)]);
    let read = |bootstrap: &str| {
        let output = tools::run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            &[
                "--bootstrap-server",
                bootstrap,
                "--topic",
                &topic,
                "--from-beginning",
                "--max-messages",
                "11",
                "--timeout-ms",
                "30000",
                "--isolation-level",
                "read_committed",
                "--formatter-property",
                "print.offset=true",
                "--formatter-property",
                "print.key=true",
                "--formatter-property",
                "print.headers=true",
                "--formatter-property",
                "print.timestamp=true",
            ],
        );
        assert_eq!(output.code, 0, "{output:?}");
        let all = "Processed a total of 11 messages";
        assert!(
            output.stderr.contains(all) || output.stdout.contains(all),
            "{output:?}"
        );
        output.stdout
    };
    let want = read(&source.bootstrap());
    assert_eq!(read(&tarn.bootstrap()), want);
}

#[test]
fn kafkas_dump_tool_reads_every_file() {
    let source = Kafka::shared();
    let topic = unique("dump");
    source.cluster().create_topic(&topic, 1, json!({}));
    all_codecs(
        &source.cluster(),
        &topic,
        &["none", "gzip", "snappy", "lz4", "zstd"],
    );
    three_transactions(&source.cluster(), &topic, &topic);
    source
        .cluster()
        .produce_many(&topic, 1, 5000, 100, json!({}));
    let mut tarn = mirrored(source, &[(&topic, 1)]);
    tarn.stop();
    let dump = tools::dump_log(&tarn.partition_dir(&topic, 0), &[]);
    for sign in [
        "compresscodec: zstd",
        "endTxnMarker: COMMIT",
        "endTxnMarker: ABORT",
        "Dumping",
    ] {
        assert!(
            dump.contains(sign),
            "no {sign} in the dump:\n{}",
            dump.lines().take(40).collect::<Vec<_>>().join("\n")
        );
    }
    let metadata = tarn.dir().join("data/__cluster_metadata-0");
    let dump = tools::dump_log(
        &metadata,
        &["--cluster-metadata-decoder", "--skip-record-metadata"],
    );
    assert!(
        dump.contains("TOPIC_RECORD") && dump.contains(&topic),
        "{dump}"
    );
    fixture::assert_same_bytes(source, &tarn, &topic, 0);
}
