//! Whatever comes in on a port, nothing falls over and nobody else notices.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::{librdkafka, proxy};

use crate::fixture::{SOON, sample_topic};

/// How long the mutated requests may take all in all; what does not fit is left out evenly.
const BUDGET: Duration = Duration::from_secs(60);

/// A connection beside the storm that must be served as if nothing happened.
struct Bystander {
    client: RawClient,
    topic: Topic,
    next: i64,
}

impl Bystander {
    fn new(tarn: &Tarn) -> Self {
        tarn.cluster().create_topic("bystander", 1, json!({}));
        Self {
            client: RawClient::connect(tarn.port()).unwrap(),
            topic: Topic::Name("bystander".into()),
            next: 0,
        }
    }

    /// Produces and fetches on its one connection.
    fn lives(&mut self) {
        let produced = raw::produce(
            &mut self.client,
            &self.topic,
            0,
            raw::batch(PLAIN, &["alive"]),
            1,
            9,
        )
        .expect("the bystander's connection")
        .unwrap();
        assert_eq!((produced.code, produced.offset), (0, self.next));
        let data = raw::fetch_once(
            &mut self.client,
            &self.topic,
            0,
            self.next,
            1 << 20,
            false,
            1000,
        )
        .expect("the bystander's connection");
        assert!(data.records.is_some_and(|r| !r.is_empty()));
        self.next += 1;
    }
}

#[test]
fn raw_garbage_on_every_port_harms_nobody() {
    let mut tarn = Tarn::start();
    let mut bystander = Bystander::new(&tarn);
    let mut samples: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0; 4],
        vec![0xff; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        i32::MAX.to_be_bytes().to_vec(),
        (-2_i32).to_be_bytes().to_vec(),
        [&100_i32.to_be_bytes()[..], &[0; 10]].concat(),
        [&8_i32.to_be_bytes()[..], &[0xff; 8]].concat(),
    ];
    // A header for every key and absurd versions, with and without a body.
    for key in (-2..120_i16).chain([i16::MIN, i16::MAX]) {
        for version in [i16::MIN, -1, 0, 1, 99, i16::MAX] {
            let frame = [
                &key.to_be_bytes()[..],
                &version.to_be_bytes(),
                &7_i32.to_be_bytes(),
                &(-1_i16).to_be_bytes(),
                &[0xff; 9],
            ]
            .concat();
            samples.push(
                [
                    &i32::try_from(frame.len()).unwrap().to_be_bytes()[..],
                    &frame,
                ]
                .concat(),
            );
        }
    }
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..300 {
        samples.push(
            (0..200)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    seed as u8
                })
                .collect(),
        );
    }
    for port in tarn.ports() {
        for sample in &samples {
            let mut client = RawClient::connect(port).unwrap();
            client.send_bytes(sample).ok();
        }
        bystander.lives();
    }
    tarn.check_healthy();
}

/// Every request that real clients and tools send, with lengths of −2, 2³¹−1 and one more than
/// there is written over every position, in the fixed and in the compact form.
#[test]
fn absurd_lengths_at_every_position_of_real_requests_harm_nobody() {
    let relay_port = free_port();
    let advertised = format!("PLAINTEXT://127.0.0.1:{relay_port}");
    let mut tarn = Tarn::start_with(&[("advertised.listeners", &advertised)]);
    let frames = proxy::relay(relay_port, tarn.port());
    let mut requests = one_of_each(record_real_requests(&tarn, relay_port, &frames));
    requests.sort();
    let mut bystander = Bystander::new(&tarn);
    let mut mutations = Vec::new();
    for request in &requests {
        for position in 8..request.len() {
            mutations.extend(overwritten(request, position));
        }
    }
    let started = Instant::now();
    let mut sent = 0;
    // Coprime with everything in sight: leaving out is spread evenly if time runs out.
    for i in 0..mutations.len() {
        let frame = &mutations[(i * 7919) % mutations.len()];
        let mut client = RawClient::connect(tarn.port()).unwrap();
        client
            .send_bytes(&i32::try_from(frame.len()).unwrap().to_be_bytes())
            .ok();
        client.send_bytes(frame).ok();
        sent += 1;
        if i % 500 == 0 {
            bystander.lives();
            tarn.process().check_running().unwrap();
        }
        if started.elapsed() > BUDGET {
            break;
        }
    }
    eprintln!(
        "{sent} of {} mutations of {} requests sent",
        mutations.len(),
        requests.len()
    );
    assert!(
        requests.len() >= 15,
        "too few kinds of requests: {}",
        requests.len()
    );
    bystander.lives();
    tarn.check_healthy();
    tarn.cluster().create_topic("afterwards", 1, json!({}));
}

/// What Java's and librdkafka's clients and the mirror tools send for a bit of everything.
fn record_real_requests(tarn: &Tarn, relay_port: u16, frames: &proxy::Frames) -> Vec<Vec<u8>> {
    let source = Kafka::shared();
    let topic = sample_topic(source, "storm", 1, 3);
    let bootstrap = format!("127.0.0.1:{relay_port}");
    let through = tarn_tests::driver::Cluster {
        bootstrap: bootstrap.clone(),
    };
    through.create_topic("own", 2, json!({"retention.ms": "100000"}));
    through.produce(
        "own",
        json!([{"key": "k", "value": "v", "headers": [["h", "x"]]}]),
        json!({"compression.type": "gzip"}),
    );
    assert_eq!(through.consume("own", 0, true).len(), 1);
    through.call(
        "subscribe",
        json!({"topic": "own", "count": 1, "props": {"group.id": "g"}}),
    );
    through.call("create_partitions", json!({"topic": "own", "count": 3}));
    through.call(
        "alter_topic",
        json!({"topic": "own", "set": {"retention.ms": "5000000"}}),
    );
    through.call("topic_config", json!({"topic": "own"}));
    through.call("delete_records", json!({"topic": "own", "before": 1}));
    through.call("delete_topic", json!({"topic": "own"}));
    let file = tarn.mirror_config("m", &source.bootstrap(), &[]);
    for arguments in [
        &["--create", "--mirror", "m", "--mirror-config", &file][..],
        &["--add", "--mirror", "m", "--topic", &topic, "--wait"],
        &["--describe"],
        &["--list"],
        &["--pause", "--mirror", "m", "--topic", &topic, "--wait"],
        &["--resume", "--mirror", "m", "--topic", &topic, "--wait"],
        &["--remove", "--mirror", "m", "--topic", &topic, "--wait"],
        &["--delete", "--mirror", "m"],
    ] {
        let output = Tarn::mirrors_at(&bootstrap, tarn.dir(), arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
    }
    librdkafka::consume(&bootstrap, &topic, 0, false, SOON).unwrap();
    frames.take()
}

/// One request of each API and version, the longest.
fn one_of_each(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = frames
        .into_iter()
        .filter(|f| (8..=1024).contains(&f.len()))
        .collect();
    frames.sort_by_key(|f| std::cmp::Reverse(f.len()));
    let mut seen = BTreeSet::new();
    frames
        .into_iter()
        .filter(|f| seen.insert(f[..4].to_vec()))
        .collect()
}

fn overwritten(request: &[u8], position: usize) -> Vec<Vec<u8>> {
    let remaining = request.len() - position;
    let fixed =
        [-2_i32, i32::MAX, i32::try_from(remaining).unwrap() + 1].map(|n| n.to_be_bytes().to_vec());
    let short = [
        (-2_i16).to_be_bytes().to_vec(),
        i16::MAX.to_be_bytes().to_vec(),
    ];
    let compact = [
        vec![0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0xfe, 0xff, 0xff, 0xff, 0x07],
        vec![u8::try_from(remaining + 2).unwrap_or(0x7f) & 0x7f],
        vec![0xff; 10],
    ];
    fixed
        .into_iter()
        .chain(short)
        .chain(compact)
        .map(|bytes| {
            let mut out = request.to_vec();
            let end = (position + bytes.len()).min(out.len());
            out[position..end].copy_from_slice(&bytes[..end - position]);
            out
        })
        .collect()
}
