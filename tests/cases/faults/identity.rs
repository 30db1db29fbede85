//! Faults found from outside: what is on disk after crashes, lost directories and edited side
//! files: the log and the metadata decide.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest, ListOffsetsRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::process::Scratch;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::{not_run, wait};

use crate::damage::SmallDisk;

const SOON: Duration = Duration::from_secs(30);
const MEGABYTE: usize = 1 << 20;

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn create(client: &mut RawClient, topic: &str) {
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = client.call(7, &request).unwrap();
    assert_eq!(answer.topics[0].error_code, 0, "{answer:?}");
}

fn delete(client: &mut RawClient, topic: &str) -> i16 {
    let topic = DeleteTopicState::default().with_name(Some(name(topic)));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    client.call(6, &request).unwrap().responses[0].error_code
}

fn delete_records(client: &mut RawClient, topic: &str, offset: i64) {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(offset);
    let topic = DeleteRecordsTopic::default()
        .with_name(name(topic))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = client.call(2, &request).unwrap();
    assert_eq!(answer.topics[0].partitions[0].low_watermark, offset);
}

fn produce(client: &mut RawClient, topic: &str, values: &[&str]) -> i16 {
    let topic = Topic::Name(topic.to_owned());
    let batch = raw::batch(PLAIN, values);
    let done = raw::produce(client, &topic, 0, batch, -1, 9).unwrap();
    done.unwrap().code
}

/// First offset and log end.
fn bounds(tarn: &Tarn, topic: &str) -> (i64, i64) {
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let mut ask = |timestamp: i64| {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(0)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(name(topic))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_topics(vec![topic]);
        client.call(7, &request).unwrap().topics[0].partitions[0].offset
    };
    (ask(-2), ask(-1))
}

fn records(tarn: &Tarn, topic: &str) -> usize {
    let topic = Topic::Name(topic.to_owned());
    raw::consume(tarn.port(), &topic, 0, false).unwrap().len()
}

/// DeleteRecords to 900, the topic deleted and made again, 100 acknowledged records, kill -9: all
/// 100 are there. And where the topic stays, what was deleted stays deleted although the kill came
/// at once.
#[test]
fn deleted_records_neither_come_back_nor_take_those_of_the_next_topic_with_them() {
    let mut tarn = Tarn::start();
    let mut client = RawClient::connect(tarn.port()).unwrap();
    for topic in ["again", "kept"] {
        create(&mut client, topic);
        assert_eq!(produce(&mut client, topic, &["old"; 1000]), 0);
        delete_records(&mut client, topic, 900);
        // The checkpoint of the directory names the start by now, at the latest.
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(delete(&mut client, "again"), 0);
    create(&mut client, "again");
    assert_eq!(produce(&mut client, "again", &["new"; 100]), 0);
    assert_eq!(produce(&mut client, "kept", &["more"; 50]), 0);
    delete_records(&mut client, "kept", 950);
    tarn.kill();
    tarn.restart();
    assert_eq!(records(&tarn, "again"), 100);
    assert_eq!(bounds(&tarn, "kept"), (950, 1050));
    tarn.check_healthy();
}

/// One flipped bit in the last metadata batch, after a kill -9: the start is refused with a
/// sentence, nothing is cut, and no topic is set aside.
#[test]
fn a_flipped_bit_at_the_end_of_the_metadata_refuses_the_start() {
    let mut tarn = Tarn::start();
    let mut client = RawClient::connect(tarn.port()).unwrap();
    create(&mut client, "last");
    assert_eq!(produce(&mut client, "last", &["x"; 10]), 0);
    tarn.kill();
    let folder = tarn.dir().join("data/__cluster_metadata-0");
    let segment = folder.join("00000000000000000000.log");
    let whole = fs::read(&segment).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&segment, &flipped).unwrap();
    tarn.launch_again();
    let status = tarn.process().wait(SOON).unwrap();
    assert_eq!(status.code(), Some(2), "{}", tarn.process().tail(5));
    let told = tarn.process().output();
    assert!(
        told.contains("00000000000000000000.log") && told.contains("was on disk"),
        "{}",
        tarn.process().tail(5)
    );
    assert_eq!(fs::read(&segment).unwrap(), flipped);
    assert!(tarn.partition_dir("last", 0).is_dir());
    fs::write(&segment, &whole).unwrap();
    tarn.restart();
    assert_eq!(records(&tarn, "last"), 10);
}

/// Takes every byte that is left on the file system of `dir`.
fn fill_up(dir: &Path) {
    let mut filler = fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("filler"))
        .unwrap();
    for piece in [MEGABYTE, 4096, 1] {
        while filler.write_all(&vec![0xff; piece]).is_ok() {}
    }
}

/// On a disk without one free byte a topic is deleted, which frees its space, and made again; and
/// the broker starts there after a crash.
#[test]
fn deleting_frees_space_when_nothing_else_works_and_a_start_needs_none() {
    let scratch = Scratch::new("no-space");
    let Some(disk) = SmallDisk::mount(&scratch.path().join("disk"), 48) else {
        return not_run::note("device: no small file system can be mounted here");
    };
    let data = disk.0.join("data").display().to_string();
    let mut tarn = Tarn::start_with(&[("log.dirs", &data)]);
    let large = "x".repeat(900_000);
    for round in 0..3 {
        let mut client = RawClient::connect(tarn.port()).unwrap();
        if round == 0 {
            create(&mut client, "small");
            assert_eq!(produce(&mut client, "small", &["x"]), 0);
        }
        create(&mut client, "large");
        let mut taken = 0;
        while taken < 8 && produce(&mut client, "large", &[&large]) == 0 {
            taken += 1;
        }
        assert!(taken >= 5, "round {round}: {taken} records fit");
        fill_up(&disk.0);
        assert_ne!(produce(&mut client, "large", &[&large]), 0, "it is full");
        if round == 1 {
            tarn.kill();
            tarn.restart();
            client = RawClient::connect(tarn.port()).unwrap();
            assert_eq!(records(&tarn, "small"), 2);
        }
        assert_eq!(delete(&mut client, "large"), 0, "round {round}");
        wait::until(
            SOON,
            "the space of the deleted topic is free",
            || match produce(&mut client, "small", &["x"]) {
                0 => Ok(()),
                code => Err(format!("{code}")),
            },
        );
    }
    assert_eq!(records(&tarn, "small"), 4);
    tarn.check_healthy();
}
