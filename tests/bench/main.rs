//! Measures what a mirror costs: one partition of a real Kafka copied by Tarn, and by MirrorMaker 2 into a second Kafka, on this machine.
//!
//!     cargo run --release -p tarn-tests --bin bench [-- GIGABYTES]
//!
//! Wall time is from the command that adds the topic to the last record at the destination; processor time is user and system time of the
//! processes named. Everything shares the machine's processors, so that wall time is noisy; processor time is the better figure.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use tarn_tests::driver::Cluster;
use tarn_tests::jars::{self, Logging};
use tarn_tests::kafka::Kafka;
use tarn_tests::process::{Process, Scratch};
use tarn_tests::tarn::Tarn;
use tarn_tests::{tools, wait};

const RECORD_BYTES: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(1200);
/// What Linux counts processor time in.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    let gigabytes: f64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(4.0);
    let records = (gigabytes * 1e9) as u64 / RECORD_BYTES;
    start_up();
    let source = Kafka::start_with(jars::KAFKA_CURRENT, &[("log.retention.ms", "-1")]);
    source.cluster().create_topic("bench", 1, json!({}));
    fill(&source, records);
    println!("{gigabytes} GB, {records} records of {RECORD_BYTES} bytes, one partition");
    println!(
        "{:<14} {:>8} {:>10} {:>14} {:>14} {:>12}",
        "mirror", "wall s", "MB/s", "cpu s per GB", "source cpu/GB", "peak MB"
    );
    for _ in 0..2 {
        tarn(&source, gigabytes, records);
    }
    mirror_maker(&source, gigabytes, records);
}

/// Start-up time and idle memory of Tarn.
fn start_up() {
    let started = Instant::now();
    let mut tarn = Tarn::start();
    let took = started.elapsed();
    std::thread::sleep(Duration::from_secs(2));
    println!(
        "Tarn answers {} ms after its start on an empty directory; idle it holds {} MB",
        took.as_millis(),
        resident(tarn.process().id(), "VmRSS")
    );
}

fn fill(source: &Kafka, records: u64) {
    let (count, size) = (records.to_string(), RECORD_BYTES.to_string());
    let bootstrap = format!("bootstrap.servers={}", source.bootstrap());
    let output = tools::run_within(
        "org.apache.kafka.tools.ProducerPerformance",
        &[
            "--topic",
            "bench",
            "--num-records",
            &count,
            "--record-size",
            &size,
            "--throughput",
            "-1",
            "--producer-props",
            &bootstrap,
            "acks=1",
            "batch.size=262144",
            "linger.ms=5",
        ],
        LIMIT,
    );
    assert_eq!(output.code, 0, "{output:?}");
}

/// User and system time of a process so far, seconds.
fn processor_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// A line of /proc/PID/status in megabytes.
fn resident(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|l| l.starts_with(what))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|kb| kb.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

struct Run<'a> {
    name: &'a str,
    gigabytes: f64,
    pids: Vec<u32>,
    source: u32,
    before: (f64, f64),
    started: Instant,
}

impl<'a> Run<'a> {
    fn start(name: &'a str, gigabytes: f64, pids: Vec<u32>, source: u32) -> Self {
        let before = (
            pids.iter().map(|p| processor_s(*p)).sum(),
            processor_s(source),
        );
        Self {
            name,
            gigabytes,
            pids,
            source,
            before,
            started: Instant::now(),
        }
    }

    fn end(self) {
        let wall = self.started.elapsed().as_secs_f64();
        let used: f64 = self.pids.iter().map(|p| processor_s(*p)).sum::<f64>() - self.before.0;
        let source = processor_s(self.source) - self.before.1;
        let peak: u64 = self.pids.iter().map(|p| resident(*p, "VmHWM")).sum();
        let gb = self.gigabytes;
        println!(
            "{:<14} {wall:>8.1} {:>10.0} {:>14.2} {:>14.2} {peak:>12}",
            self.name,
            gb * 1000.0 / wall,
            used / gb,
            source / gb
        );
    }
}

fn await_end(cluster: &Cluster, topic: &str, records: u64) {
    wait::until(LIMIT, "the last record arrives", || {
        let answer = cluster.try_call(
            "offset",
            json!({"topic": topic, "partition": 0, "at": "latest"}),
        );
        match answer.map_err(|e| e.to_string())?["offset"].as_u64() {
            Some(offset) if offset >= records => Ok(()),
            other => Err(format!("{other:?} of {records}")),
        }
    });
}

fn tarn(source: &Kafka, gigabytes: f64, records: u64) {
    let mut tarn = Tarn::start();
    tarn.create_mirror("m", &source.bootstrap(), &[]);
    let run = Run::start(
        "Tarn",
        gigabytes,
        vec![tarn.process().id()],
        source.process().id(),
    );
    tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", "bench"]);
    await_end(&tarn.cluster(), "bench", records);
    run.end();
}

fn mirror_maker(source: &Kafka, gigabytes: f64, records: u64) {
    let destination = Kafka::start_with(jars::KAFKA_CURRENT, &[("log.retention.ms", "-1")]);
    let scratch = Scratch::new("mirrormaker");
    let file = scratch.path().join("mm2.properties");
    let config = format!(
        "clusters=a,b\na.bootstrap.servers={}\nb.bootstrap.servers={}\na->b.enabled=true\nb->a.enabled=false\na->b.topics=bench\n\
         tasks.max=1\nreplication.factor=1\nrefresh.topics.interval.seconds=5\noffset-syncs.topic.replication.factor=1\n\
         checkpoints.topic.replication.factor=1\nheartbeats.topic.replication.factor=1\noffset.storage.replication.factor=1\n\
         status.storage.replication.factor=1\nconfig.storage.replication.factor=1\nb.producer.batch.size=262144\nb.producer.linger.ms=5\n",
        source.bootstrap(),
        destination.bootstrap()
    );
    fs::write(&file, config).expect("mm2.properties");
    let mut command = jars::java_full(
        "mirrormaker-4.3.1",
        1024,
        &Logging::write(scratch.path(), "WARN"),
    );
    command
        .arg("org.apache.kafka.connect.mirror.MirrorMaker")
        .arg(&file);
    let mm2 = Process::spawn("mirrormaker", command, &scratch.path().join("log"))
        .expect("MirrorMaker starts");
    let run = Run::start(
        "MirrorMaker 2",
        gigabytes,
        vec![mm2.id(), destination.process().id()],
        source.process().id(),
    );
    await_end(&destination.cluster(), "a.bench", records);
    run.end();
}
