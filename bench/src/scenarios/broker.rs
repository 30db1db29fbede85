//! What the broker scenarios share: a fresh broker of either side with its settings, the loads that
//! several of them use, and latencies as samples. What is measured is said by the `broker_*` files.

use std::time::Duration;

use anyhow::Result;
use tarn_tests::kafka::Kafka;
use tarn_tests::tarn::Tarn;

use crate::load::{Choice, Cluster, Histogram, Produce, Shape, Topic};
use crate::process::Meter;
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Sample, Side};

/// Kafka's documented defaults.
pub(crate) const KAFKA_DEFAULTS: &[(&str, &str)] = &[];
/// What an operator would tune on two cores: as many network threads as processors and no more
/// request handlers than can run, so that fewer threads compete.
pub(crate) const KAFKA_TUNED: &[(&str, &str)] =
    &[("num.network.threads", "2"), ("num.io.threads", "2")];
/// Tarn acknowledging as Kafka does, once records are in the page cache. Its own default is `disk`.
pub(crate) const TARN_PAGE_CACHE: &[(&str, &str)] = &[("log.ack.durability", "page-cache")];
/// Tarn acknowledging once records are on disk: its default.
pub(crate) const TARN_DISK: &[(&str, &str)] = &[("log.ack.durability", "disk")];

/// Bytes of a value in the loads of large batches.
pub(crate) const VALUE_BYTES: usize = 1_000;
/// Bytes of a large batch.
pub(crate) const BATCH_BYTES: usize = 256 * 1024;
/// Partitions of the topics that are written to.
pub(crate) const PARTITIONS: i32 = 8;
/// Data that a Kafka takes before anything is measured, so that its compilers are done.
pub(crate) const KAFKA_WARM_BYTES: u64 = 1_500_000_000;
/// Tarn has nothing to compile; this only opens files and fills its pools.
pub(crate) const TARN_WARM_BYTES: u64 = 300_000_000;

/// Bytes a second of the load of many keyed producers.
const KEYED_BYTES_PER_S: f64 = 20e6;
/// Its producers.
const KEYED_PRODUCERS: usize = 50;
/// Batches that a producer has ready when its linger of 5 ms ends, at its share of the load: two
/// records with different keys.
const KEYED_BATCHES: usize = 2;
/// Requests in flight of a Java producer.
const KEYED_IN_FLIGHT: usize = 5;

/// The settings of Kafka that the scenario, or the trial of settings, asks for.
pub(crate) fn kafka_settings(ctx: &Ctx) -> &'static [(&'static str, &'static str)] {
    match ctx.rival_settings() {
        RivalSettings::Tuned => KAFKA_TUNED,
        RivalSettings::Default => KAFKA_DEFAULTS,
    }
}

/// A broker under test.
#[derive(Debug)]
pub(crate) struct Broker {
    system: System,
    bootstrap: String,
    /// The generator's view of it.
    pub(crate) cluster: Cluster,
    pid: u32,
}

#[derive(Debug)]
enum System {
    Tarn(#[expect(dead_code, reason = "ends with its owner")] Tarn),
    Kafka(#[expect(dead_code, reason = "ends with its owner")] Kafka),
}

impl Broker {
    /// Starts a fresh one; `tarn` are Tarn's settings.
    pub(crate) fn start(ctx: &Ctx, side: Side, tarn: &[(&str, &str)]) -> Result<Self> {
        let (system, bootstrap, pid) = match side {
            Side::Tarn => {
                let mut tarn = ctx.tarn(tarn);
                let (bootstrap, pid) = (tarn.bootstrap(), tarn.process().id());
                (System::Tarn(tarn), bootstrap, pid)
            }
            Side::Kafka | Side::Mm2 => {
                let kafka = ctx.kafka(kafka_settings(ctx));
                let (bootstrap, pid) = (kafka.bootstrap(), kafka.process().id());
                (System::Kafka(kafka), bootstrap, pid)
            }
        };
        Ok(Self {
            system,
            cluster: Cluster::connect(&bootstrap)?,
            bootstrap,
            pid,
        })
    }

    /// Where it listens.
    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub(crate) fn is_kafka(&self) -> bool {
        matches!(self.system, System::Kafka(_))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter::start(&[self.pid])
    }

    /// `full` of a warm-up for a Kafka, `brief` for Tarn.
    pub(crate) fn warm_up<T>(&self, full: T, brief: T) -> T {
        if self.is_kafka() { full } else { brief }
    }

    /// Runs the measured part `phase`; a profile of Tarn is taken of it when profiles are wanted.
    pub(crate) fn profiled<T>(
        &self,
        ctx: &Ctx,
        name: &str,
        phase: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        ctx.profiled((!self.is_kafka()).then_some(self.pid), name, phase)
    }
}

/// Large batches as fast as the broker takes them, `bytes` in all.
pub(crate) fn flood(topic: &Topic, bytes: u64) -> Produce {
    Produce::flood(
        topic.clone(),
        Shape::filling(VALUE_BYTES, BATCH_BYTES),
        bytes,
    )
}

/// 50 keyed producers that send 20 MB/s together: two batches of one 1 KB record in each request,
/// acks all.
pub(crate) fn keyed(topic: &Topic, time: Duration) -> Produce {
    let shape = Shape::of(VALUE_BYTES, 1).keyed();
    let request_bytes = shape.payload_bytes() as f64 * KEYED_BATCHES as f64;
    Produce {
        connections: KEYED_PRODUCERS,
        in_flight: KEYED_IN_FLIGHT,
        batches_per_request: KEYED_BATCHES,
        choice: Choice::Keyed,
        ..Produce::paced(
            topic.clone(),
            shape,
            KEYED_BYTES_PER_S / request_bytes,
            time,
        )
    }
}

/// `seconds` × scale, at least one.
pub(crate) fn seconds(ctx: &Ctx, seconds: u64) -> Duration {
    Duration::from_millis(ctx.scaled(seconds * 1_000, 1_000))
}

/// A latency as the samples of one cell.
pub(crate) fn latency_samples(row: &'static str, cell: &str, latency: &Histogram) -> Vec<Sample> {
    let quantiles = [
        (measure::P50_MS, 0.5),
        (measure::P90_MS, 0.9),
        (measure::P99_MS, 0.99),
        (measure::P999_MS, 0.999),
        (measure::P9999_MS, 0.9999),
    ];
    let mut samples: Vec<Sample> = quantiles
        .into_iter()
        .map(|(measure, share)| Sample::new(row, cell, measure, latency.quantile_ms(share)))
        .collect();
    samples.push(Sample::new(row, cell, measure::MAX_MS, latency.max_ms()));
    samples
}
