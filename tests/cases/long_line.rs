//! A source that is far away: the next Fetch goes out while the answer before it still comes, and
//! the copy is exact all the same.

use std::time::Duration;

use kafka_protocol::messages::{FetchRequest, RequestHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion};
use serde_json::json;
use tarn_tests::jars::KAFKA_CURRENT;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::proxy;
use tarn_tests::raw::{self, RawClient, Topic};
use tarn_tests::tarn::Tarn;

use crate::fixture::assert_same_bytes;

const FETCH_KEY: i16 = 1;
/// Held back so long, a Fetch is asked for ahead; answers must be large besides.
const DELAY: Duration = Duration::from_millis(40);
const TOPIC: &str = "far";
/// Each part of the topic; four answers of 10 MiB and one of the largest size fit into all of them.
const PART_BYTES: usize = 60_000_000;
const BATCH_BYTES: usize = 500_000;

/// Offsets are estimated from the records before. Small records after large ones bring more of them
/// than was thought, so that batches come twice; large ones after small ones bring fewer, so that
/// an answer begins after a gap. Neither may be seen in the copy.
#[test]
fn a_far_source_is_asked_ahead_and_the_copy_is_exact() {
    let port = free_port();
    let advertised = format!("PLAINTEXT://127.0.0.1:{port}");
    let source = Kafka::start_with(KAFKA_CURRENT, &[("advertised.listeners", &advertised)]);
    let frames = proxy::far_relay(port, source.port(), DELAY);
    source.cluster().create_topic(TOPIC, 1, json!({}));
    let mut client = RawClient::connect(source.port()).expect("source");
    for record_bytes in [20_000, 500, 20_000, 5_000] {
        let value = "v".repeat(record_bytes);
        let values = vec![value.as_str(); BATCH_BYTES / record_bytes];
        let batch = raw::batch(raw::PLAIN, &values);
        for _ in 0..PART_BYTES / BATCH_BYTES {
            let topic = Topic::Name(TOPIC.to_owned());
            let said = raw::produce(&mut client, &topic, 0, batch.clone(), 1, 9)
                .expect("produce")
                .expect("an answer");
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    let tarn = Tarn::start();
    tarn.create_mirror("m", &format!("127.0.0.1:{port}"), &[]);
    drop(frames.take());
    tarn.add_topics("m", TOPIC);
    tarn.await_caught_up(&source.cluster(), TOPIC, 1, Duration::from_secs(60));
    assert_same_bytes(&source, &tarn, TOPIC, 0);
    let start = tarn.cluster().start_offset(TOPIC, 0);
    assert_eq!(start, 0, "the source lost records before they were copied");
    let ahead = frames.take().iter().filter(|f| is_asked_ahead(f)).count();
    assert!(ahead > 0, "no Fetch from an estimated offset was seen");
}

/// Whether a request is a Fetch from an offset that is not our log end: only then it says nothing
/// of our last epoch.
fn is_asked_ahead(frame: &[u8]) -> bool {
    let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
    if frame.len() < 4 || number(0) != FETCH_KEY {
        return false;
    }
    let version = number(2);
    let mut rest = bytes::Bytes::copy_from_slice(frame);
    RequestHeader::decode(&mut rest, FetchRequest::header_version(version)).expect("header");
    let fetch = FetchRequest::decode(&mut rest, version).expect("Fetch");
    let mut partitions = fetch.topics.iter().flat_map(|t| &t.partitions);
    partitions.any(|p| p.fetch_offset > 0 && p.last_fetched_epoch == -1)
}
