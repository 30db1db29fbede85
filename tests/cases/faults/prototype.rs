//! Faults found from outside: the public prototype's tools and brokers against this broker.

use bytes::Bytes;
use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::proxy;
use tarn_tests::raw::{RawClient, id_bytes};
use tarn_tests::tarn::Tarn;

use crate::fixture::{SOON, unique};

const START: i16 = 95;
const LIST: i16 = 98;
const DESCRIBE: i16 = 99;
const WRITE_STATES: i16 = 101;
const BUMP: i16 = 105;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

/// One command of a tool: a new connection.
fn command(tarn: &Tarn, key: i16, body: &[u8]) -> Bytes {
    let mut process = RawClient::connect(tarn.port()).expect("connects");
    process.call_body(key, 0, body, 2, 1).expect("an answer")
}

/// The error code behind the throttle time.
fn top_code(answer: &[u8]) -> i16 {
    i16::from_be_bytes([answer[4], answer[5]])
}

/// A compact string.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len() + 1).expect("short")];
    bytes.extend(text.as_bytes());
    bytes
}

/// The write without epochs that cut 50 records to 0 at the next start with the source dead, and a
/// bump of a topic of no mirror. The late list makes the next process a late one; a start that
/// excludes what is mirrored fails nothing over.
#[test]
fn one_request_from_a_client_cuts_nothing_and_stops_nothing() {
    let source = Kafka::shared();
    let topic = unique("prototype");
    source.cluster().create_topic(&topic, 1, json!({}));
    source.cluster().produce_many(&topic, 1, 50, 10, json!({}));
    let relay_port = free_port();
    let mut tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    tarn.add_topics("m", &topic);
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    let id = id_bytes(&tarn.cluster().topic_id(&topic));

    // ListClusterMirrors, then the ambiguous describe of a new process: a late answer holds the
    // authorised operations behind the name.
    command(&tarn, LIST, &hex("0000"));
    let described = command(&tarn, DESCRIBE, &hex("010000"));
    assert_eq!(
        &described[..15],
        &hex("000000000000000200 00026d 80 0000"
            .replace(' ', "")
            .as_str())[..]
    );
    let listed = command(&tarn, LIST, &hex("00"));
    assert_eq!(top_code(&listed), 0);

    // StartMirrorTopics with the topic in include and in exclude.
    let mut start = text("m");
    start.push(2);
    start.extend([0; 16]);
    start.extend(text(&topic));
    start.extend(hex("0000000000"));
    start.extend([0xff; 8]);
    for (tag, count) in [(0, 2_u8), (1, 0)] {
        if tag == 0 {
            start.push(count);
        }
        let mut list = vec![2];
        list.extend(text(&topic));
        start.push(tag);
        start.push(u8::try_from(list.len()).expect("short"));
        start.extend(list);
    }
    assert_eq!(top_code(&command(&tarn, START, &start)), 42);

    // Our own form of WriteMirrorStates: PREPARING, a cut to 0 (tag 103), the topic id (tag 100),
    // and no epoch at all.
    let mut write = text("m");
    write.push(2);
    write.extend(text(&topic));
    write.extend(hex("0200000000ffffffff00016708000000000000000001 6410"
        .replace(' ', "")
        .as_str()));
    write.extend(id);
    write.extend(hex("0100"));
    let answer = command(&tarn, WRITE_STATES, &write);
    assert_eq!(top_code(&answer), 0, "{answer:?}");
    // Behind code, text, one topic with its name and one partition: the partition's number and its
    // error code.
    let at = 4 + 2 + 1 + 1 + 1 + topic.len() + 1 + 4;
    assert_eq!(&answer[at..at + 2], 74_i16.to_be_bytes(), "{answer:?}");

    // BumpLeaderEpochs of an ordinary topic.
    let plain = unique("plain");
    tarn.cluster().create_topic(&plain, 1, json!({}));
    let mut bump = vec![2];
    bump.extend(id_bytes(&tarn.cluster().topic_id(&plain)));
    bump.extend(hex("020000000000000007000000"));
    assert_ne!(top_code(&command(&tarn, BUMP, &bump)), 0);

    // The source is dead for this node from here on.
    tarn.mirrors_ok(&[
        "--alter",
        "--mirror",
        "m",
        "--add-config",
        &format!("bootstrap.servers=127.0.0.1:{relay_port}"),
    ]);
    tarn.kill();
    tarn.restart();
    tarn.await_state("m", "MIRRORING", SOON, |_| true);
    let here = tarn.cluster().consume(&topic, 0, false);
    assert_eq!(here, source.cluster().consume(&topic, 0, false));
    assert_eq!(here.len(), 50);
    let _frames = proxy::relay(relay_port, source.port());
    source.cluster().produce_many(&topic, 1, 1, 10, json!({}));
    tarn.await_caught_up(&source.cluster(), &topic, 1, SOON);
    tarn.check_healthy();
}

/// Our own tool shows the configuration of a mirror, and says what is wrong with the state of a
/// topic.
#[test]
fn the_tool_shows_configurations_and_fitting_words() {
    let source = Kafka::shared();
    let topic = unique("words");
    source.cluster().create_topic(&topic, 1, json!({}));
    let tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[("mirror.fetch.min.bytes", "7")]);
    tarn.add_topics("m", &topic);
    let shown = tarn.mirrors_ok(&["--describe", "--config", "--mirror", "m", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&shown).expect("JSON");
    let of = |key: &str| rows.iter().find(|r| r["key"] == key).expect("the key");
    assert_eq!(of("mirror.fetch.min.bytes")["value"], "7");
    assert_eq!(of("mirror.fetch.min.bytes")["set"], true);
    assert_eq!(of("mirror.topics.exclude")["value"], "__.*");
    assert_eq!(of("mirror.topics.exclude")["set"], false);
    let resumed = tarn.mirrors(&["--resume", "--mirror", "m", "--topic", &topic]);
    assert_eq!(resumed.code, 1);
    assert_eq!(
        resumed.stderr,
        format!("Failed to resume topic {topic}: Topic '{topic}' is not paused\n")
    );
    let again = tarn.mirror_config("m", &source.bootstrap(), &[]);
    let created = tarn.cluster_mirrors(&["--create", "--mirror", "m", "--mirror-config", &again]);
    assert_eq!(
        created.stderr,
        "org.apache.kafka.common.errors.ClusterMirrorAlreadyExistsException: Mirror 'm' already exists\n"
    );
    let deleted = tarn.cluster_mirrors(&["--delete", "--mirror", "m"]);
    assert!(
        deleted.stderr.contains("ClusterMirrorNotEmptyException: "),
        "{deleted:?}"
    );
}
