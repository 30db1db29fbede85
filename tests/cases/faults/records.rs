//! Faults found from outside: what Produce takes and refuses.

pub(super) mod forged;
mod table;

use bytes::Bytes;
use kafka_protocol::records::{Record, RecordBatchDecoder};
use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;

use forged::now_ms;

/// What became of it: error code, and what is stored of it.
fn outcome(port: u16, sent: &table::Sent) -> (i16, Option<Vec<u8>>) {
    let mut client = RawClient::connect(port).unwrap();
    let topic = Topic::Name(sent.topic.to_owned());
    let bytes = Bytes::from(sent.bytes.clone());
    let produced = raw::produce(&mut client, &topic, 0, bytes, -1, sent.version)
        .unwrap_or_else(|e| panic!("{} on {port}: {e:#}", sent.name))
        .unwrap();
    if produced.code != 0 {
        return (produced.code, None);
    }
    let data = raw::fetch_once(
        &mut client,
        &topic,
        0,
        produced.offset,
        4 << 20,
        false,
        5000,
    )
    .unwrap_or_else(|e| panic!("{} on {port}: {e:#}", sent.name));
    let mut stored = data.records.unwrap_or_default().to_vec();
    assert_eq!(stored[..8], produced.offset.to_be_bytes(), "{}", sent.name);
    // The offset differs when one of the two took more, the leader epoch is each broker's own.
    stored[..8].fill(0);
    stored[12..16].fill(0);
    (0, Some(stored))
}

/// What is compared of a stored batch: all of it, except where the broker's clock or its own codec
/// decides.
fn comparable(topic: &str, stored: Option<Vec<u8>>) -> Option<(Vec<u8>, Vec<String>)> {
    let stored = stored?;
    let header = |ranges: &[std::ops::Range<usize>]| {
        ranges
            .iter()
            .flat_map(|r| stored[r.clone()].to_vec())
            .collect()
    };
    Some(match topic {
        "plain" | "compacted" => (stored, Vec::new()),
        "appendtime" => (header(&[21..35, 43..stored.len()]), Vec::new()),
        // Attributes, last delta, largest timestamp, producer and count; the records themselves by
        // an independent reader.
        _ => {
            let records = RecordBatchDecoder::decode(&mut Bytes::from(stored.clone()));
            let records = records.expect("a readable batch").records;
            let text =
                |r: &Record| format!("{} {} {:?} {:?}", r.offset, r.timestamp, r.key, r.value);
            (
                header(&[21..27, 35..61]),
                records.iter().map(text).collect(),
            )
        }
    })
}

/// A table of mutated batches, sent raw to a real Kafka and to Tarn. Each gets the same error code
/// from both, and what is taken is stored alike, the largest timestamp of the header made right.
/// Where Kafka's validation dies of it (UNKNOWN_SERVER_ERROR), Tarn says INVALID_RECORD: to a
/// producer both are final.
#[test]
fn produce_takes_and_refuses_what_kafka_does() {
    const UNKNOWN_SERVER_ERROR: i16 = -1;
    const INVALID_RECORD: i16 = 87;
    let (kafka, tarn) = (Kafka::shared(), Tarn::start());
    for cluster in [kafka.cluster(), tarn.cluster()] {
        cluster.create_topic(
            "plain",
            1,
            json!({"retention.ms": "-1", "max.message.bytes": "1048588"}),
        );
        cluster.create_topic("compacted", 1, json!({"cleanup.policy": "compact"}));
        cluster.create_topic(
            "appendtime",
            1,
            json!({"message.timestamp.type": "LogAppendTime"}),
        );
        for codec in ["zstd", "gzip", "snappy", "lz4", "uncompressed"] {
            cluster.create_topic(codec, 1, json!({"compression.type": codec}));
        }
    }
    let table = table::all(now_ms());
    let mut differences = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    for sent in &table {
        let (mut theirs, their_batch) = outcome(kafka.port(), sent);
        let (ours, our_batch) = outcome(tarn.port(), sent);
        if theirs == UNKNOWN_SERVER_ERROR {
            theirs = INVALID_RECORD;
        }
        match ours {
            0 => taken += 1,
            _ => refused += 1,
        }
        let what = format!("{} on {}", sent.name, sent.topic);
        println!("{what}: {ours}");
        if ours != theirs {
            differences.push(format!("{what}: Kafka {theirs}, Tarn {ours}"));
        } else if comparable(sent.topic, their_batch.clone())
            != comparable(sent.topic, our_batch.clone())
        {
            differences.push(format!(
                "{what}: stored differently\n{their_batch:x?}\n{our_batch:x?}"
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(
        taken > 30 && refused > 60,
        "{taken} taken, {refused} refused"
    );
}
