//! Faults found from outside: what batches cost that are small until they are decompressed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{ListOffsetsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::Compression;
use serde_json::json;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;

use super::records::forged::{compressed, now_ms};

/// What comes out of the bomb below.
const BOMB_BYTES: usize = 64 << 20;

/// Offset of the first record at or after `timestamp`.
fn offset_at(port: u16, topic: &str, timestamp: i64) -> i64 {
    let asked = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let mut client = RawClient::connect(port).unwrap();
    client.set_read_limit(Duration::from_secs(120)).unwrap();
    let answer = client.call(7, &request).unwrap();
    let partition = &answer.topics[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.offset
}

/// Batches of a few KB that hold 64 MiB, produced to a compacted topic and then searched by time by
/// eight callers at once. Meanwhile a bystander is served, and memory does not grow with what comes
/// out.
#[test]
fn decompression_holds_up_nobody_and_has_a_memory_budget() {
    let mut tarn = Tarn::start();
    tarn.cluster()
        .create_topic("bombs", 1, json!({"cleanup.policy": "compact"}));
    tarn.cluster().create_topic("bystander", 1, json!({}));
    let at = now_ms();
    let (port, process) = (tarn.port(), tarn.process());
    let values = [vec![0; BOMB_BYTES], vec![0]];
    let bomb = |codec| Bytes::from(compressed(at, codec, true, &values));
    let bombs = [Compression::Gzip, Compression::Zstd].map(bomb);
    assert!(bombs.iter().all(|b| b.len() < 100_000), "small ones");
    let before = process.resident_bytes();
    let over = AtomicBool::new(false);
    let (slowest, most) = std::thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let mut client = RawClient::connect(port).unwrap();
            let (mut slowest, mut most) = (Duration::ZERO, 0);
            while !over.load(Ordering::Relaxed) {
                let started = Instant::now();
                let topic = Topic::Name("bystander".to_owned());
                let batch = raw::batch(raw::PLAIN, &["alive"]);
                let produced = raw::produce(&mut client, &topic, 0, batch, 1, 9).unwrap();
                assert_eq!(produced.unwrap().code, 0);
                slowest = slowest.max(started.elapsed());
                most = most.max(process.resident_bytes());
                std::thread::sleep(Duration::from_millis(5));
            }
            (slowest, most)
        });
        for bomb in &bombs {
            let mut client = RawClient::connect(port).unwrap();
            let topic = Topic::Name("bombs".to_owned());
            let produced = raw::produce(&mut client, &topic, 0, bomb.clone(), -1, 9).unwrap();
            assert_eq!(produced.unwrap().code, 0);
        }
        let callers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| offset_at(port, "bombs", at + 1)))
            .collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), 1);
        }
        over.store(true, Ordering::Relaxed);
        bystander.join().unwrap()
    });
    assert!(
        slowest < Duration::from_secs(2),
        "the bystander waited {slowest:?}"
    );
    let grown = most.saturating_sub(before);
    assert!(grown < 48 << 20, "{} MiB more resident memory", grown >> 20);
}
