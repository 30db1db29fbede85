//! What is sent: batches that a real Kafka takes or refuses for each reason that it has.

use kafka_protocol::records::Compression;

use super::forged::{Forged, altered, compressed, record, record_with};

/// One thing sent: its name, topic, Produce version and bytes.
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) topic: &'static str,
    pub(super) version: i16,
    pub(super) bytes: Vec<u8>,
}

fn on(topic: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Sent {
    Sent {
        name: name.into(),
        topic,
        version: 9,
        bytes,
    }
}

/// Everything that is sent.
pub(super) fn all(at: i64) -> Vec<Sent> {
    let parts = [headers, frames, payloads, times, codecs];
    parts.iter().flat_map(|part| part(at)).collect()
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
    let values = [(); 3].map(|()| vec![b'v'; 2000]);
    let mut out = Vec::new();
    for (codec, bits) in CODECS {
        let good = || compressed(at, codec, true, &values);
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
        case(
            "compacted",
            "no keys",
            compressed(at, codec, false, &values),
        );
        case(
            "compacted",
            "two hours ahead, no keys",
            compressed(at + 2 * HOUR_MS, codec, false, &values),
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
        altered(compressed(at, Compression::Gzip, true, &values), |b| {
            b.extend([7; 9])
        }),
    ));
    out.push(Sent {
        version: 6,
        ..on(
            "plain",
            "zstd in version 6",
            compressed(at, Compression::Zstd, true, &values),
        )
    });
    out
}
