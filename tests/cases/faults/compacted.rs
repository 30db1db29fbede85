//! Faults found from outside: what compacted topics keep, the broker's own and those of users.

use std::time::Duration;

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, OffsetCommitRequest, OffsetFetchRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::json;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use super::records::forged::{Forged, now_ms, record};

fn group_topic() -> TopicName {
    TopicName(StrBytes::from_static_str("t"))
}

/// Commits `offset` for this many partitions, and again while the broker is not ready.
fn commit(port: u16, partitions: i32, offset: i64) {
    let partitions = (0..partitions).map(|p| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(p)
            .with_committed_offset(offset)
    });
    let topic = OffsetCommitRequestTopic::default()
        .with_name(group_topic())
        .with_partitions(partitions.collect());
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    wait::until(Duration::from_secs(60), "a commit", || {
        let answer = RawClient::connect(port)
            .and_then(|mut client| client.call(7, &request))
            .map_err(|e| e.to_string())?;
        let bad = answer.topics[0]
            .partitions
            .iter()
            .find(|p| p.error_code != 0);
        bad.map_or(Ok(()), |p| Err(format!("error {}", p.error_code)))
    });
}

/// Error code and offset of the group's commit.
fn committed(port: u16) -> (i16, i64) {
    let topic = OffsetFetchRequestTopic::default()
        .with_name(group_topic())
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(Some(vec![topic]));
    let answer = RawClient::connect(port).unwrap().call(7, &request).unwrap();
    match answer.error_code {
        0 => (0, answer.topics[0].partitions[0].committed_offset),
        code => (code, -1),
    }
}

fn make_offsets_topic(port: u16) {
    let request = FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("g"));
    wait::until(Duration::from_secs(30), "a coordinator", || {
        let answer = RawClient::connect(port)
            .and_then(|mut client| client.call(3, &request))
            .map_err(|e| e.to_string())?;
        match answer.error_code {
            0 => Ok(()),
            code => Err(format!("error {code}")),
        }
    });
}

/// A bit flipped in `__consumer_offsets` after a clean stop, inside the value of a commit. No wrong
/// offset is answered: the coordinator says that it is loading, and the log names topic, partition
/// and offset.
#[test]
fn a_rotten_offsets_partition_gives_no_wrong_offset() {
    const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    let mut tarn = Tarn::start_with(&[("offsets.topic.num.partitions", "1")]);
    tarn.cluster().create_topic("t", 1, json!({}));
    make_offsets_topic(tarn.port());
    commit(tarn.port(), 1, 5);
    commit(tarn.port(), 1, 0x1234_5678);
    assert_eq!(committed(tarn.port()), (0, 0x1234_5678));
    tarn.stop();
    let file = tarn
        .partition_dir("__consumer_offsets", 0)
        .join("00000000000000000000.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let wanted = 0x1234_5678_i64.to_be_bytes();
    let at = bytes
        .windows(8)
        .position(|w| w == wanted)
        .expect("the commit");
    bytes[at + 7] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    tarn.restart();
    wait::until(Duration::from_secs(30), "a word about it", || {
        match committed(tarn.port()).0 {
            // For a moment, right after the start.
            COORDINATOR_NOT_AVAILABLE => return Err("no coordinator yet".into()),
            code => assert_eq!(code, COORDINATOR_LOAD_IN_PROGRESS),
        }
        let said = tarn.process().output();
        let line = said.lines().find(|l| l.contains("fails its CRC"));
        let line = line.ok_or("nothing said yet")?;
        let named = line.contains("__consumer_offsets") && line.contains("partition=0");
        assert!(named && line.contains("at offset 1"), "{line}");
        Ok(())
    });
}

fn log_bytes(dir: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().flatten();
    let logs = files.filter(|f| f.path().extension().is_some_and(|e| e == "log"));
    logs.filter_map(|f| f.metadata().ok())
        .map(|m| m.len())
        .sum()
}

/// Partitions committed in one request of the next case.
const COMMITTED_AT_ONCE: i32 = 400;

/// Commits of the same offsets, again and again, with kill -9 in between: `__consumer_offsets`
/// stays small, the last commit is answered, and Kafka's own tool reads every file.
#[test]
fn the_offsets_topic_is_compacted_and_keeps_the_last_commits() {
    let mut tarn = Tarn::start_with(&[
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.segment.bytes", "1048576"),
        ("log.cleaner.backoff.ms", "50"),
    ]);
    tarn.cluster()
        .create_topic("t", COMMITTED_AT_ONCE, json!({}));
    make_offsets_topic(tarn.port());
    for round in 1..=160 {
        commit(tarn.port(), COMMITTED_AT_ONCE, round);
        if round % 40 == 0 {
            tarn.kill();
            tarn.restart();
        }
    }
    let dir = tarn.partition_dir("__consumer_offsets", 0);
    wait::until(Duration::from_secs(60), "a small log", || {
        // One active segment, and one record for each of the offsets.
        match log_bytes(&dir) {
            bytes if bytes < 1_500_000 => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        }
    });
    tarn.kill();
    tarn.restart();
    wait::until(
        Duration::from_secs(60),
        "the last commit",
        || match committed(tarn.port()) {
            (0, 160) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    tarn.stop();
    let dump = tarn_tests::tools::dump_log(&dir, &["--offsets-decoder"]);
    assert!(dump.contains("offset: "), "{dump}");
    let wrong = ["Exception", "not valid", "Mismatch", "corrupt"];
    assert!(!wrong.iter().any(|w| dump.contains(w)), "{dump}");
}

/// A compacted topic is cleaned under a stock consumer: the newest value of each key, at its
/// offset.
#[test]
fn a_compacted_topic_is_cleaned_for_stock_consumers() {
    let tarn = Tarn::start_with(&[("log.cleaner.backoff.ms", "50")]);
    let configs = json!({"cleanup.policy": "compact", "segment.bytes": "1048576"});
    tarn.cluster().create_topic("c", 1, configs);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let topic = Topic::Name("c".to_owned());
    let (batches, records) = (40, 100);
    for b in 0..batches {
        let forged = Forged::new(now_ms(), records).with(|f| {
            let one = |i: i32| {
                let key = format!("key {}", i % 10);
                record(i, 0, Some(key.as_bytes()), &vec![b as u8; 1000])
            };
            f.payload = (0..records).flat_map(one).collect();
        });
        let produced = raw::produce(&mut client, &topic, 0, forged.bytes().into(), -1, 9);
        assert_eq!(produced.unwrap().unwrap().code, 0);
    }
    let dir = tarn.partition_dir("c", 0);
    wait::until(Duration::from_secs(60), "a small log", || {
        match log_bytes(&dir) {
            bytes if bytes < 1_200_000 => Ok(()),
            bytes => Err(format!("{bytes} bytes")),
        }
    });
    let read = tarn.cluster().consume("c", 0, false);
    let last: Vec<_> = read.iter().rev().take(10).collect();
    assert!(read.len() < 1_200, "{} records", read.len());
    let end = i64::from(batches * records);
    for (back, line) in (1..).zip(&last) {
        assert!(line.contains(&format!("{}", end - back)), "{line}");
    }
    assert_eq!(tarn.cluster().end_offset("c", 0), end);
}
