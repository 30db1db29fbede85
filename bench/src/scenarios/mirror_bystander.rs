//! What producers to ordinary topics feel while thousands of mirrored partitions catch up (X10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bytes::Bytes;
use kafka_protocol::records::Compression;
use tarn_tests::raw::RawClient;

use crate::mirroring::destination::Destination;
use crate::mirroring::fill::{self, BATCH_VALUE_BYTES, Dice, Payload};
use crate::mirroring::observe::Lags;
use crate::mirroring::source::Source;
use crate::mirroring::wire::{self, Topic};
use crate::mm2;
use crate::rows::measure;
use crate::scenario::{Ctx, ROUNDS, Rounds, Sample, Scenario, Side};

const TOPICS: u64 = 50;
const PARTITIONS_PER_TOPIC: i32 = 100;
/// Batches that each partition misses after the outage.
const MISSED_BATCHES: u64 = 2;
const PRODUCERS: i32 = 8;
/// Each producer sends a batch of this many records of 1,000 bytes every 8 ms: 5 MB/s together.
const RECORDS: usize = 5;
const INTERVAL: Duration = Duration::from_millis(8);
const WARM_S: u64 = 3;
const UNDISTURBED_S: u64 = 10;
const LEAST_S: u64 = 2;
/// Until the mirror is up to date, at the start and after the outage.
const LIMIT: Duration = Duration::from_secs(120);
/// The cell with the goal.
const DISTURBED: &str = "during the catch-up";

/// The scenario.
#[derive(Debug)]
pub struct MirrorBystander;

impl Scenario for MirrorBystander {
    fn name(&self) -> &'static str {
        "mirror-bystander"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X10"]
    }

    fn rival(&self) -> Option<Side> {
        None
    }

    fn about(&self) -> &'static str {
        "Tarn mirrors 5,000 partitions (50 topics, a record in each) and is up to date. Eight producers with a connection and a partition each \
         write 5 MB/s to an ordinary topic, acks=all with log.ack.durability=disk, a batch of five 1,000-byte records every 8 ms each; a latency \
         counts from the moment at which the batch was due. 10 s undisturbed; then the mirror is paused, the source gets 512,000 bytes for each of \
         the 5,000 partitions and the disk gets all of it, the mirror is resumed, and the latencies until lag 0 are taken. The round ends with the \
         comparison of all copies."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        let partitions = ctx.scaled(TOPICS, 1) * PARTITIONS_PER_TOPIC as u64;
        // The source keeps what every round added; the copy holds it all once more.
        partitions * MISSED_BATCHES * BATCH_VALUE_BYTES * u64::from(ROUNDS) * 2
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let source = Source::start(ctx);
        let topics: Vec<Topic> = (0..ctx.scaled(TOPICS, 1))
            .map(|i| Topic::new(format!("wide-{i:02}"), PARTITIONS_PER_TOPIC))
            .collect();
        let wanted = wire::partitions_of(&topics);
        let topics = source.create_many(ctx, topics, 0)?;
        // Partitions that catch up have been there before: their files are not what the round is
        // about.
        ctx.progress("a record in each partition");
        let mut client = RawClient::connect(source.kafka().port())?;
        let record = wire::batch(&[Dice::new(0).random_value()], Compression::None)?;
        for topic in &topics {
            for partition in 0..topic.partitions {
                wire::produce_safely(&mut client, &topic.name, partition, record.clone())?;
            }
        }
        Ok(Box::new(Outages {
            is_less: wire::partitions_of(&topics) < wanted,
            source,
            topics,
        }))
    }
}

struct Outages {
    source: Source,
    topics: Vec<Topic>,
    /// Whether those are fewer than 5,000 partitions.
    is_less: bool,
}

impl Rounds for Outages {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let tuning = mm2::for_throughput(ctx);
        let mut to = Destination::start(ctx, side, &self.source, tuning, &[])?;
        ctx.progress("first copy of what the source holds");
        to.add("wide-.*")?;
        to.await_caught_up(&self.source, &self.topics, LIMIT)?;
        let bystander = Topic::new("bystander", PRODUCERS);
        wire::create_topics(to.port(), std::slice::from_ref(&bystander), &[])?;

        // Before the clock starts the disk has what the source was given: the two share it here,
        // and its writing is nothing of ours.
        rustix::fs::sync();
        ctx.progress("undisturbed");
        let mut producers = Producers::start(to.port(), &bystander)?;
        std::thread::sleep(Duration::from_secs(ctx.scaled(WARM_S, LEAST_S)));
        producers.forget();
        std::thread::sleep(Duration::from_secs(ctx.scaled(UNDISTURBED_S, LEAST_S)));
        let quiet = producers.stop()?;

        ctx.progress("outage");
        to.pause("wide-.*")?;
        for topic in &self.topics {
            let bytes = PARTITIONS_PER_TOPIC as u64 * MISSED_BATCHES * BATCH_VALUE_BYTES;
            fill::fill(self.source.kafka().port(), topic, bytes, Payload::Random)?;
        }
        rustix::fs::sync();
        ctx.progress("catch-up");
        let mut producers = Producers::start(to.port(), &bystander)?;
        std::thread::sleep(Duration::from_secs(1));
        producers.forget();
        let resumed = Instant::now();
        to.resume("wide-.*")?;
        to.await_caught_up(&self.source, &self.topics, LIMIT)?;
        let catch_up_s = resumed.elapsed().as_secs_f64();
        let disturbed = producers.stop()?;
        to.prove(&self.source, &self.topics)?;
        let mut samples = figures(&quiet, &disturbed, catch_up_s);
        if self.is_less {
            let held = f64::from(wire::partitions_of(&self.topics));
            samples.push(Sample::new(
                "X10",
                DISTURBED,
                measure::PARTITIONS_HELD,
                held,
            ));
        }
        Ok(samples)
    }
}

fn figures(quiet: &Lags, disturbed: &Lags, catch_up_s: f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (cell, lags) in [("undisturbed", quiet), (DISTURBED, disturbed)] {
        for (measure, q) in [
            (measure::P50_MS, 0.5),
            (measure::P99_MS, 0.99),
            (measure::P999_MS, 0.999),
            (measure::MAX_MS, 1.0),
        ] {
            samples.push(Sample::new("X10", cell, measure, lags.quantile_ms(q)));
        }
    }
    let times = disturbed.quantile_ms(0.99) / quiet.quantile_ms(0.99);
    samples.push(Sample::new(
        "X10",
        DISTURBED,
        measure::TIMES_UNDISTURBED,
        times,
    ));
    samples.push(Sample::new(
        "X10",
        "the catch-up itself",
        measure::SECONDS,
        catch_up_s,
    ));
    samples
}

/// When a batch was due, and how long after that it was acknowledged, microseconds.
type Latency = (Duration, u64);

/// Producers on a fixed schedule, one thread and one connection each.
struct Producers {
    stop: Arc<AtomicBool>,
    clock: Instant,
    /// Latencies of batches that were due earlier on that clock are left out.
    from: Duration,
    threads: Vec<JoinHandle<Result<Vec<Latency>>>>,
}

impl Producers {
    fn start(port: u16, topic: &Topic) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let clock = Instant::now();
        let mut dice = Dice::new(1);
        let values: Vec<Bytes> = (0..RECORDS).map(|_| dice.random_value()).collect();
        let batch = wire::batch(&values, Compression::None)?;
        let mut threads = Vec::new();
        for partition in 0..topic.partitions {
            let client = RawClient::connect(port)?;
            let (stop, topic, batch) = (Arc::clone(&stop), topic.name.clone(), batch.clone());
            // Spread over the interval, so that they do not all come at once.
            let first = clock + INTERVAL * partition.unsigned_abs() / PRODUCERS.unsigned_abs();
            threads.push(std::thread::spawn(move || {
                produce(client, &topic, partition, &batch, (clock, first), &stop)
            }));
        }
        Ok(Self {
            stop,
            clock,
            from: Duration::ZERO,
            threads,
        })
    }

    /// Leaves out what was due until now.
    fn forget(&mut self) {
        self.from = self.clock.elapsed();
    }

    fn stop(self) -> Result<Lags> {
        self.stop.store(true, Ordering::Relaxed);
        let from = self.from;
        let mut latencies = Vec::new();
        for thread in self.threads {
            let seen = thread
                .join()
                .map_err(|_| anyhow!("a producer panicked"))??;
            latencies.extend(
                seen.into_iter()
                    .filter(|(due, _)| *due >= from)
                    .map(|s| s.1),
            );
        }
        ensure!(!latencies.is_empty(), "no batch was acknowledged");
        Ok(Lags::of(latencies))
    }
}

/// When each batch was due, and how long after that it was acknowledged, nanoseconds.
fn produce(
    mut client: RawClient,
    topic: &str,
    partition: i32,
    batch: &Bytes,
    (clock, first): (Instant, Instant),
    stop: &AtomicBool,
) -> Result<Vec<(Duration, u64)>> {
    let mut seen = Vec::new();
    let mut due = first;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        wire::produce_safely(&mut client, topic, partition, batch.clone())?;
        let latency = u64::try_from(due.elapsed().as_nanos())?;
        seen.push((due.duration_since(clock), latency));
        due += INTERVAL;
    }
    Ok(seen)
}
