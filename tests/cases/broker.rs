//! Tarn as an ordinary broker, seen by librdkafka: no mirror in sight.

use std::time::{Duration, Instant};

use tarn_tests::librdkafka;
use tarn_tests::tarn::Tarn;

/// Longest wait for a group to read what is there.
const READ_LIMIT: Duration = Duration::from_secs(30);

fn values(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| format!("value {n}").into_bytes())
        .collect()
}

fn produce(tarn: &Tarn, topic: &str, settings: &[(&str, &str)]) {
    let values = values(200);
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let acked = librdkafka::produce(&tarn.bootstrap(), topic, 0, &values, settings).unwrap();
    let offsets: Vec<i64> = acked.into_iter().map(Result::unwrap).collect();
    assert_eq!(offsets, (0..200).collect::<Vec<i64>>());
}

#[test]
fn librdkafka_writes_with_every_codec_and_reads_the_same() {
    let tarn = Tarn::start_with(&[("auto.create.topics.enable", "true")]);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("codec-{codec}");
        let settings = [("compression.type", codec), ("enable.idempotence", "true")];
        produce(&tarn, &topic, &settings);
        for committed in [false, true] {
            let read =
                librdkafka::consume(&tarn.bootstrap(), &topic, 0, committed, READ_LIMIT).unwrap();
            assert_eq!(read.len(), 200, "{codec}");
        }
    }
}

#[test]
fn a_librdkafka_group_subscribes_commits_and_goes_on_after_a_restart() {
    let mut tarn = Tarn::start_with(&[("auto.create.topics.enable", "true")]);
    produce(&tarn, "grouped", &[("acks", "all")]);
    let first = librdkafka::subscribe(&tarn.bootstrap(), "g", "grouped", 200, READ_LIMIT).unwrap();
    assert_eq!(first.len(), 200);
    tarn.stop();
    tarn.restart();
    let more: Vec<&[u8]> = vec![b"after"];
    let acked = librdkafka::produce(&tarn.bootstrap(), "grouped", 0, &more, &[]).unwrap();
    assert_eq!(acked, vec![Ok(200)]);
    let next = librdkafka::subscribe(&tarn.bootstrap(), "g", "grouped", 1, READ_LIMIT).unwrap();
    assert!(
        next[0].contains("200"),
        "the group goes on where it committed: {next:?}"
    );
}

#[test]
fn a_waiting_consumer_sees_a_record_at_once() {
    let tarn = Tarn::start_with(&[("auto.create.topics.enable", "true")]);
    produce(&tarn, "live", &[]);
    let bootstrap = tarn.bootstrap();
    let reader = std::thread::spawn(move || {
        librdkafka::subscribe(&bootstrap, "live", "live", 201, READ_LIMIT).unwrap()
    });
    std::thread::sleep(Duration::from_secs(3));
    let sent = Instant::now();
    let one: Vec<&[u8]> = vec![b"now"];
    librdkafka::produce(&tarn.bootstrap(), "live", 0, &one, &[]).unwrap();
    assert_eq!(reader.join().unwrap().len(), 201);
    assert!(
        sent.elapsed() < Duration::from_secs(2),
        "{:?}",
        sent.elapsed()
    );
}
