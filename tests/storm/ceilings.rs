//! What must hold during a storm: memory of the broker, and how fast a bystander is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};

/// How much more memory the broker may take than before the storm.
pub(crate) const GROWTH_MAX: u64 = 64 << 20;
/// Longest answer to a request of a few hundred bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Below this a slower bystander says nothing: a machine with two busy cores is that slow by
/// itself.
const P99_FLOOR: Duration = Duration::from_millis(100);
/// Round trips that are measured before the storm.
const QUIET_ROUNDS: usize = 300;
/// How often it asks for its record before it counts as not served.
const READS_MAX: u32 = 30;
/// Pause between two round trips.
const PAUSE: Duration = Duration::from_millis(3);

/// Creates a topic, or finds it there.
pub(crate) fn create_topic(port: u16, name: &str, partitions: i32) {
    let topic = CreatableTopic::default()
        .with_name(TopicName(StrBytes::from_string(name.to_owned())))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let mut client = RawClient::connect(port).expect("the broker");
    let answer = client.call(5, &request).expect("an answer");
    let code = answer.topics[0].error_code;
    assert!(code == 0 || code == 36, "{name}: {code}");
}

/// A client that produces and reads back, one record at a time, while the storm goes on.
pub(crate) struct Bystander {
    quiet: Duration,
    stop: Arc<AtomicBool>,
    running: JoinHandle<Vec<Duration>>,
}

impl Bystander {
    /// Measures the quiet broker, then goes on until [`Bystander::judge`].
    pub(crate) fn start(port: u16) -> Bystander {
        create_topic(port, "bystander-topic", 1);
        let mut client = RawClient::connect(port).expect("the broker");
        let mut next = 0;
        let quiet = (0..QUIET_ROUNDS)
            .map(|_| round(&mut client, &mut next))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let running = std::thread::spawn(move || {
            let mut rounds = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                rounds.push(round(&mut client, &mut next));
            }
            rounds
        });
        Bystander {
            quiet: p99(quiet),
            stop,
            running,
        }
    }

    /// Ends it; fails when it was refused, or served more than twice as slowly as before.
    pub(crate) fn judge(self) {
        self.stop.store(true, Ordering::Relaxed);
        let rounds = self.running.join().expect("the bystander was served");
        let (count, stormy) = (rounds.len(), p99(rounds));
        eprintln!(
            "bystander: {count} rounds, p99 {stormy:?}, before the storm {:?}",
            self.quiet
        );
        let most = (self.quiet * 2).max(P99_FLOOR);
        assert!(stormy <= most, "p99 {stormy:?}, allowed are {most:?}");
    }
}

fn round(client: &mut RawClient, next: &mut i64) -> Duration {
    std::thread::sleep(PAUSE);
    let started = Instant::now();
    let topic = Topic::Name("bystander-topic".into());
    let batch = raw::batch(PLAIN, &["alive"]);
    let produced = raw::produce(client, &topic, 0, batch, 1, 9).expect("its connection");
    let produced = produced.expect("an answer");
    assert_eq!((produced.code, produced.offset), (0, *next));
    // What is not on disk yet is not shown: on a busy disk the first wait of a second may end
    // without it.
    let is_read = |client: &mut RawClient| {
        let read = raw::fetch_once(client, &topic, 0, *next, 1 << 20, false, 1000);
        let records = read.expect("its connection").records;
        records.is_some_and(|records| !records.is_empty())
    };
    assert!((0..READS_MAX).any(|_| is_read(client)), "offset {next}");
    *next += 1;
    started.elapsed()
}

fn p99(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    rounds[(rounds.len() * 99 / 100).min(rounds.len() - 1)]
}
