//! Faults found from outside: what Produce takes and refuses, and what internal topics keep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{
    FindCoordinatorRequest, GroupId, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

/// A v2 batch whose fields can be set at will.
#[derive(Clone)]
struct Forged {
    base_offset: i64,
    leader_epoch: i32,
    magic: i8,
    attributes: i16,
    last_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    producer: (i64, i16, i32),
    count: i32,
    payload: Vec<u8>,
}

impl Forged {
    /// `count` records with keys, stamped `at`.
    fn new(at: i64, count: i32) -> Self {
        let record = |i: i32| record(i, 0, Some(b"key"), b"a value");
        Self {
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            attributes: 0,
            last_delta: count - 1,
            base_timestamp: at,
            max_timestamp: at,
            producer: (-1, -1, -1),
            count,
            payload: (0..count).flat_map(record).collect(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut tail = Vec::new();
        tail.extend(self.attributes.to_be_bytes());
        tail.extend(self.last_delta.to_be_bytes());
        tail.extend(self.base_timestamp.to_be_bytes());
        tail.extend(self.max_timestamp.to_be_bytes());
        tail.extend(self.producer.0.to_be_bytes());
        tail.extend(self.producer.1.to_be_bytes());
        tail.extend(self.producer.2.to_be_bytes());
        tail.extend(self.count.to_be_bytes());
        tail.extend(&self.payload);
        let mut out = Vec::new();
        out.extend(self.base_offset.to_be_bytes());
        out.extend((tail.len() as i32 + 9).to_be_bytes());
        out.extend(self.leader_epoch.to_be_bytes());
        out.extend(self.magic.to_be_bytes());
        out.extend(crc32c::crc32c(&tail).to_be_bytes());
        out.extend(tail);
        out
    }
}

fn varint(out: &mut Vec<u8>, v: i64) {
    let mut v = ((v << 1) ^ (v >> 63)) as u64;
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn record(offset: i32, timestamp: i64, key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
    record_with(
        offset,
        timestamp,
        key.map_or(-1, |k| k.len() as i64),
        key,
        value,
        &[0],
    )
}

fn record_with(
    offset: i32,
    timestamp: i64,
    key_length: i64,
    key: Option<&[u8]>,
    value: &[u8],
    headers: &[u8],
) -> Vec<u8> {
    let mut body = vec![0];
    varint(&mut body, timestamp);
    varint(&mut body, i64::from(offset));
    varint(&mut body, key_length);
    body.extend(key.unwrap_or_default());
    varint(&mut body, value.len() as i64);
    body.extend(value);
    body.extend(headers);
    let mut out = Vec::new();
    varint(&mut out, body.len() as i64);
    out.extend(body);
    out
}

/// A good batch of `codec` with three records, from an encoder that knows nothing of Tarn.
fn compressed(at: i64, codec: Compression, keyed: bool) -> Vec<u8> {
    let records: Vec<Record> = (0..3)
        .map(|i| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: i,
            // The encoder begins a new batch where sequences do not follow.
            sequence: i as i32 - 1,
            timestamp: at + i,
            key: keyed.then(|| Bytes::from_static(b"key")),
            value: Some(Bytes::from(vec![b'v'; 2000])),
            headers: Default::default(),
        })
        .collect();
    let mut out = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: codec,
    };
    RecordBatchEncoder::encode(&mut out, records.iter(), &options).unwrap();
    out.to_vec()
}

/// The batch with some bytes changed and its length and CRC made right again.
fn altered(mut batch: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut batch);
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// One thing sent: its name, topic, Produce version and bytes.
struct Sent {
    name: String,
    topic: &'static str,
    version: i16,
    bytes: Vec<u8>,
}

fn on(topic: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Sent {
    Sent {
        name: name.into(),
        topic,
        version: 9,
        bytes,
    }
}

const HOUR_MS: i64 = 3_600_000;
const LOG_APPEND_TIME: i16 = 8;
const CODECS: [(Compression, i16); 4] = [
    (Compression::Gzip, 1),
    (Compression::Snappy, 2),
    (Compression::Lz4, 3),
    (Compression::Zstd, 4),
];

fn headers(at: i64) -> Vec<Sent> {
    let new = |count| Forged::new(at, count);
    let case = |name, forged: Forged| on("plain", name, forged.bytes());
    vec![
        case("a good batch", new(3)),
        case("base offset 5", new(1).with(|b| b.base_offset = 5)),
        case("base offset -1", new(1).with(|b| b.base_offset = -1)),
        case("leader epoch -7", new(1).with(|b| b.leader_epoch = -7)),
        case(
            "more records than there are",
            new(1).with(|b| (b.count, b.last_delta) = (2, 1)),
        ),
        case(
            "fewer records than there are",
            new(2).with(|b| (b.count, b.last_delta) = (1, 0)),
        ),
        case("count above the deltas", new(2).with(|b| b.last_delta = 0)),
        case("deltas above the count", new(2).with(|b| b.last_delta = 7)),
        case("no record", new(0)),
        case("no record, delta 0", new(0).with(|b| b.last_delta = 0)),
        case("negative count", new(1).with(|b| b.count = -1)),
        case("delta below zero", new(1).with(|b| b.last_delta = -3)),
        case("control bit", new(1).with(|b| b.attributes = 0x20)),
        case("delete horizon bit", new(1).with(|b| b.attributes = 0x40)),
        case(
            "unused attribute bits",
            new(1).with(|b| b.attributes = 0x0100),
        ),
        case("codec 5", new(1).with(|b| b.attributes = 5)),
        case(
            "producer without sequence",
            new(1).with(|b| b.producer = (4000, 0, -1)),
        ),
        case(
            "producer with epoch -1",
            new(1).with(|b| b.producer = (4001, -1, 0)),
        ),
        case("magic 0", new(1).with(|b| b.magic = 0)),
        case("magic 1", new(1).with(|b| b.magic = 1)),
        case("magic 3", new(1).with(|b| b.magic = 3)),
        case("magic -1", new(1).with(|b| b.magic = -1)),
    ]
}

fn frames(at: i64) -> Vec<Sent> {
    let good = || Forged::new(at, 1).bytes();
    let with = |tail: &[u8]| [good(), tail.to_vec()].concat();
    let second = Forged::new(at, 1).bytes();
    let mut bad_crc = good();
    bad_crc[70] ^= 1;
    let mut cut = good();
    cut.pop();
    let mut short = good();
    short[8..12].copy_from_slice(&20_i32.to_be_bytes());
    let mut tiny = good();
    tiny[8..12].copy_from_slice(&3_i32.to_be_bytes());
    let mut negative = good();
    negative[8..12].copy_from_slice(&(-3_i32).to_be_bytes());
    let large = Forged::new(at, 1).with(|b| b.payload = record(0, 0, None, &vec![1; 1_100_000]));
    let large_offset = large.clone().with(|b| b.base_offset = 9);
    vec![
        on("plain", "CRC", bad_crc),
        on("plain", "cut off", cut),
        on("plain", "length 20", short),
        on("plain", "length 3", tiny),
        on("plain", "length -3", negative),
        on("plain", "no bytes", Vec::new()),
        on("plain", "ten bytes", vec![0; 10]),
        on("plain", "five bytes behind", with(&[0; 5])),
        on("plain", "zeros behind", with(&[0; 30])),
        on("plain", "half a batch behind", with(&second[..40])),
        on("plain", "a second batch", with(&second)),
        on("plain", "too large", large.bytes()),
        on("plain", "too large, base offset 9", large_offset.bytes()),
    ]
}

fn payloads(at: i64) -> Vec<Sent> {
    let of = |payload: Vec<u8>| Forged::new(at, 1).with(|b| b.payload = payload).bytes();
    let two = |second: i32| {
        let payload = [record(0, 0, None, b"a"), record(second, 0, None, b"b")].concat();
        Forged::new(at, 2).with(|b| b.payload = payload).bytes()
    };
    let headers = |headers: &[u8]| of(record_with(0, 0, 1, Some(b"k"), b"v", headers));
    let mut long = record(0, 0, None, b"v");
    long[0] += 2;
    vec![
        on("plain", "garbage records", of(vec![0xa5; 40])),
        on("plain", "no payload", of(Vec::new())),
        on("plain", "length above the record", of(long)),
        on(
            "plain",
            "a byte behind the record",
            of([record(0, 0, None, b"v"), vec![0]].concat()),
        ),
        on("plain", "offset deltas 0, 5", two(5)),
        on("plain", "offset deltas 0, -1", two(-1)),
        on(
            "plain",
            "key length -2",
            of(record_with(0, 0, -2, None, b"v", &[0])),
        ),
        on(
            "plain",
            "key length above the record",
            of(record_with(0, 0, 99, None, b"v", &[0])),
        ),
        on("plain", "a header", headers(&[2, 2, b'h', 2, b'x'])),
        on("plain", "a header without value", headers(&[2, 2, b'h', 1])),
        on("plain", "a header without key", headers(&[2, 1, 2, b'x'])),
        on("plain", "header count -1", headers(&[1])),
        on("plain", "header count above the headers", headers(&[40])),
        on(
            "plain",
            "a varint of six bytes",
            of([0x80, 0x80, 0x80, 0x80, 0x80, 0].into()),
        ),
        on("compacted", "a key", Forged::new(at, 2).bytes()),
        on("compacted", "no key", of(record(0, 0, None, b"v"))),
        on(
            "compacted",
            "an empty key",
            of(record(0, 0, Some(b""), b"v")),
        ),
    ]
}

fn times(at: i64) -> Vec<Sent> {
    let new = || Forged::new(at, 1);
    let case = |name, forged: Forged| on("plain", name, forged.bytes());
    let bit = |b: &mut Forged| b.attributes = LOG_APPEND_TIME;
    let two_late = [record(0, 2 * HOUR_MS, None, b"v"), record(1, 0, None, b"v")].concat();
    let two = |b: &mut Forged| (b.count, b.last_delta, b.payload) = (2, 1, two_late);
    vec![
        case(
            "largest timestamp -1 in the header",
            new().with(|b| b.max_timestamp = -1),
        ),
        case(
            "largest timestamp 0 in the header",
            new().with(|b| b.max_timestamp = 0),
        ),
        case(
            "a lying largest timestamp",
            new().with(|b| b.max_timestamp = at + 99 * HOUR_MS),
        ),
        case(
            "two hours ahead",
            new().with(|b| b.base_timestamp = at + 2 * HOUR_MS),
        ),
        case(
            "half an hour ahead",
            new().with(|b| b.base_timestamp = at + HOUR_MS / 2),
        ),
        case("1970", new().with(|b| b.base_timestamp = 5)),
        case(
            "no time at all",
            new().with(|b| (b.base_timestamp, b.max_timestamp) = (-1, -1)),
        ),
        case("before 1970", new().with(|b| b.base_timestamp = -500)),
        case("the first of two ahead", new().with(two)),
        case("LogAppendTime bit", new().with(bit)),
        case(
            "LogAppendTime bit, far ahead",
            new().with(bit).with(|b| b.max_timestamp += 2 * HOUR_MS),
        ),
        case(
            "LogAppendTime bit, no time",
            new().with(bit).with(|b| b.max_timestamp = -1),
        ),
        on("appendtime", "producer's time", new().bytes()),
        on(
            "appendtime",
            "two hours ahead",
            new().with(|b| b.base_timestamp += 2 * HOUR_MS).bytes(),
        ),
        on("appendtime", "LogAppendTime bit", new().with(bit).bytes()),
    ]
}

fn codecs(at: i64) -> Vec<Sent> {
    let mut out = Vec::new();
    for (codec, bits) in CODECS {
        let good = || compressed(at, codec, true);
        let count = |n: i32| {
            altered(good(), |b| {
                b[57..61].copy_from_slice(&n.to_be_bytes());
                b[23..27].copy_from_slice(&(n - 1).to_be_bytes());
            })
        };
        let mut case =
            |topic, name: &str, bytes| out.push(on(topic, format!("{codec:?}: {name}"), bytes));
        case("plain", "good", good());
        case(
            "plain",
            "garbage",
            Forged::new(at, 1)
                .with(|b| {
                    (b.attributes, b.payload) = (bits, vec![0xa5; 40]);
                })
                .bytes(),
        );
        case(
            "plain",
            "not compressed",
            Forged::new(at, 1).with(|b| b.attributes = bits).bytes(),
        );
        case("plain", "no payload", altered(good(), |b| b.truncate(61)));
        case(
            "plain",
            "cut off",
            altered(good(), |b| b.truncate(b.len() - 12)),
        );
        case("plain", "more records than there are", count(4));
        case("plain", "fewer records than there are", count(2));
        case(
            "plain",
            "LogAppendTime bit",
            altered(good(), |b| b[22] |= LOG_APPEND_TIME as u8),
        );
        case(
            "plain",
            "largest timestamp 0",
            altered(good(), |b| b[35..43].fill(0)),
        );
        case("compacted", "keys", good());
        case("compacted", "no keys", compressed(at, codec, false));
        case(
            "compacted",
            "two hours ahead, no keys",
            compressed(at + 2 * HOUR_MS, codec, false),
        );
        case("appendtime", "producer's time", good());
        for topic in ["zstd", "gzip", "uncompressed"] {
            case(topic, "into the topic's codec", good());
        }
    }
    for topic in ["zstd", "gzip", "snappy", "lz4", "uncompressed"] {
        out.push(on(
            topic,
            "plain into the topic's codec",
            Forged::new(at, 3).bytes(),
        ));
        out.push(on(
            topic,
            "garbage",
            Forged::new(at, 1)
                .with(|b| b.payload = vec![0xa5; 40])
                .bytes(),
        ));
    }
    out.push(on(
        "plain",
        "gzip with garbage behind the member",
        altered(compressed(at, Compression::Gzip, true), |b| {
            b.extend([7; 9])
        }),
    ));
    out.push(Sent {
        version: 6,
        ..on(
            "plain",
            "zstd in version 6",
            compressed(at, Compression::Zstd, true),
        )
    });
    out
}

/// What became of it: error code, and what is stored of it.
fn outcome(port: u16, sent: &Sent) -> (i16, Option<Vec<u8>>) {
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

/// What is compared of a stored batch: all of it, except where the broker's clock or its own codec decides.
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
        // Attributes, last delta, largest timestamp, producer and count; the records themselves by an independent reader.
        _ => {
            let records = kafka_protocol::records::RecordBatchDecoder::decode(&mut Bytes::from(
                stored.clone(),
            ));
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

/// H06, N04, N05, N07: a table of mutated batches, sent raw to a real Kafka and to Tarn. Each gets the same error code from both, and what is
/// taken is stored alike, the largest timestamp of the header made right. Where Kafka's validation dies of it (UNKNOWN_SERVER_ERROR), Tarn
/// says INVALID_RECORD: to a producer both are final.
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
    let at = now_ms();
    let mut table = headers(at);
    table.extend(frames(at));
    table.extend(payloads(at));
    table.extend(times(at));
    table.extend(codecs(at));
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

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as i64
}

/// What comes out of the bomb below.
const BOMB_BYTES: usize = 64 << 20;

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

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

/// S09: batches of a few KB that hold 64 MiB, produced to a compacted topic and then searched by time by eight callers at once. Meanwhile a
/// bystander is served, and memory does not grow with what comes out.
#[test]
fn decompression_holds_up_nobody_and_has_a_memory_budget() {
    let mut tarn = Tarn::start();
    tarn.cluster()
        .create_topic("bombs", 1, json!({"cleanup.policy": "compact"}));
    tarn.cluster().create_topic("bystander", 1, json!({}));
    let at = now_ms();
    let (port, pid) = (tarn.port(), tarn.process().id());
    let bomb = |codec| {
        let record = |i: i32, bytes: usize| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: i64::from(i),
            sequence: i - 1,
            timestamp: at + i64::from(i),
            key: Some(Bytes::from_static(b"key")),
            value: Some(Bytes::from(vec![0; bytes])),
            headers: Default::default(),
        };
        let options = RecordEncodeOptions {
            version: 2,
            compression: codec,
        };
        let mut out = BytesMut::new();
        let records = [record(0, BOMB_BYTES), record(1, 1)];
        RecordBatchEncoder::encode(&mut out, records.iter(), &options).unwrap();
        out.freeze()
    };
    let bombs = [Compression::Gzip, Compression::Zstd].map(bomb);
    assert!(bombs.iter().all(|b| b.len() < 100_000), "small ones");
    let before = resident_bytes(pid);
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
                most = most.max(resident_bytes(pid));
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

fn group_topic() -> TopicName {
    TopicName(StrBytes::from_static_str("t"))
}

fn commit(port: u16, offset: i64) {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(offset);
    let topic = OffsetCommitRequestTopic::default()
        .with_name(group_topic())
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    wait::until(Duration::from_secs(30), "a commit", || {
        let answer = RawClient::connect(port)
            .and_then(|mut client| client.call(7, &request))
            .map_err(|e| e.to_string())?;
        match answer.topics[0].partitions[0].error_code {
            0 => Ok(()),
            code => Err(format!("error {code}")),
        }
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

/// S07: a bit flipped in `__consumer_offsets` after a clean stop, inside the value of a commit. No wrong offset is answered: the coordinator
/// says that it is loading, and the log names topic, partition and offset.
#[test]
fn a_rotten_offsets_partition_gives_no_wrong_offset() {
    const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    let mut tarn = Tarn::start_with(&[("offsets.topic.num.partitions", "1")]);
    tarn.cluster().create_topic("t", 1, json!({}));
    make_offsets_topic(tarn.port());
    commit(tarn.port(), 5);
    commit(tarn.port(), 0x1234_5678);
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
        assert_eq!(committed(tarn.port()).0, COORDINATOR_LOAD_IN_PROGRESS);
        let said = tarn.process().output();
        let line = said.lines().find(|l| l.contains("fails its CRC"));
        let line = line.ok_or("nothing said yet")?;
        let named = line.contains("__consumer_offsets") && line.contains("partition=0");
        assert!(named && line.contains("at offset 1"), "{line}");
        Ok(())
    });
}

/// Partitions committed in one request of the case below.
const COMMITTED_AT_ONCE: i32 = 400;

/// Commits `offset` for all of them, and again while the broker is not ready.
fn commit_many(port: u16, offset: i64) {
    let partitions = (0..COMMITTED_AT_ONCE).map(|p| {
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

fn log_bytes(dir: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().flatten();
    let logs = files.filter(|f| f.path().extension().is_some_and(|e| e == "log"));
    logs.filter_map(|f| f.metadata().ok())
        .map(|m| m.len())
        .sum()
}

/// S13: commits of the same offsets, again and again, with kill -9 in between: `__consumer_offsets` stays small, the last commit is answered,
/// and Kafka's own tool reads every file.
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
        commit_many(tarn.port(), round);
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

/// S13: a compacted topic is cleaned under a stock consumer: the newest value of each key, at its offset.
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
