//! The generator by hand: `tarn-bench load produce|consume|e2e`, its options and what it prints.
//!
//! Only turns words into loads and figures into words.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use tarn_records::Compression;

use super::batch::{Content, Shape};
use super::cluster::{Cluster, End, Topic};
use super::consume::Consume;
use super::end_to_end;
use super::histogram::Histogram;
use super::produce::{Choice, Produce};

/// What `tarn-bench load` does.
#[derive(Debug, Subcommand)]
pub enum Load {
    /// Produce prepared batches, as fast as answers come or at a rate; latency counts from when a
    /// request was due.
    Produce(ProduceOptions),
    /// Read all there is in a topic and throw it away.
    Consume(ConsumeOptions),
    /// Produce at a rate and measure until a reader has seen each batch.
    E2e(EndToEndOptions),
}

/// The command line `tarn-bench load …`.
#[derive(Debug, Parser)]
#[command(name = "tarn-bench load")]
struct CommandLine {
    #[command(subcommand)]
    load: Load,
}

/// The load that this program's command line asks for: `None` when its first word is not `load`.
/// Wrong options end the program with a text.
#[must_use]
pub fn asked_for() -> Option<Load> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "load" {
        return None;
    }
    let own_name = std::iter::once("tarn-bench load".into());
    Some(CommandLine::parse_from(own_name.chain(words)).load)
}

/// Which topic.
#[derive(Debug, Args)]
pub struct Target {
    /// Any broker of the cluster, host:port.
    #[arg(long)]
    bootstrap: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// Create the topic with so many partitions first.
    #[arg(long)]
    create: Option<i32>,
}

/// Options of `load produce`.
#[derive(Debug, Args)]
pub struct ProduceOptions {
    #[command(flatten)]
    target: Target,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1_000)]
    value_bytes: usize,
    /// Bytes of a batch; as many records as fit.
    #[arg(long, default_value_t = 262_144)]
    batch_bytes: usize,
    /// Records in a batch, instead of its bytes.
    #[arg(long)]
    batch_records: Option<usize>,
    /// Give each record a key, and choose partitions at random as keys would.
    #[arg(long)]
    keyed: bool,
    /// What values hold.
    #[arg(long, value_enum, default_value = "random")]
    content: Content,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none")]
    compression: String,
    /// 0, 1 or -1.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    acks: i16,
    /// Connections, each a producer.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Requests in flight on a connection.
    #[arg(long, default_value_t = 4)]
    in_flight: usize,
    /// Batches in a request.
    #[arg(long, default_value_t = 1)]
    batches_per_request: usize,
    /// Megabytes (10^6) a second over all connections; none: as fast as answers come.
    #[arg(long)]
    rate: Option<f64>,
    /// Megabytes to produce.
    #[arg(long, default_value_t = 1_000.0)]
    megabytes: f64,
    /// Seconds at the start whose latencies do not count.
    #[arg(long, default_value_t = 0.0)]
    settle: f64,
    /// Threads of the generator.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// Options of `load consume`.
#[derive(Debug, Args)]
pub struct ConsumeOptions {
    #[command(flatten)]
    target: Target,
    /// Connections; partitions are dealt out to them.
    #[arg(long, default_value_t = 2)]
    connections: usize,
    /// Most bytes of one partition in an answer.
    #[arg(long, default_value_t = 1 << 20)]
    partition_bytes_max: i32,
}

/// Options of `load e2e`.
#[derive(Debug, Args)]
pub struct EndToEndOptions {
    #[command(flatten)]
    produce: ProduceOptions,
    /// Read from this cluster instead (a mirror of the first).
    #[arg(long)]
    read_bootstrap: Option<String>,
    /// Read this topic instead.
    #[arg(long)]
    read_topic: Option<String>,
}

impl Load {
    /// Runs it and prints what it measured.
    ///
    /// # Errors
    /// The load fails.
    pub fn run(&self) -> Result<()> {
        match self {
            Self::Produce(options) => options.run(),
            Self::Consume(options) => options.run(),
            Self::E2e(options) => options.run(),
        }
    }
}

impl Target {
    fn open(&self) -> Result<(Cluster, Topic)> {
        let cluster = Cluster::connect(&self.bootstrap)?;
        let topic = match self.create {
            Some(partitions) => cluster.create_topic(&self.topic, partitions, &[])?,
            None => cluster.topic(&self.topic)?,
        };
        Ok((cluster, topic))
    }
}

impl ProduceOptions {
    fn load(&self, topic: Topic) -> Result<Produce> {
        let shape = Shape {
            keyed: self.keyed,
            content: self.content,
            compression: codec(&self.compression)?,
            ..match self.batch_records {
                Some(records) => Shape::of(self.value_bytes, records),
                None => Shape::filling(self.value_bytes, self.batch_bytes),
            }
        };
        let request_bytes = (shape.payload_bytes() * self.batches_per_request as u64).max(1);
        let requests = ((self.megabytes * 1e6) as u64 / request_bytes).max(1);
        let rate = self.rate.map(|r| r * 1e6 / request_bytes as f64);
        let expected_s = rate.map_or(0.0, |r| requests as f64 / r);
        Ok(Produce {
            acks: self.acks,
            connections: self.connections,
            in_flight: self.in_flight,
            batches_per_request: self.batches_per_request,
            choice: if self.keyed {
                Choice::Keyed
            } else {
                Choice::RoundRobin
            },
            rate,
            requests,
            settle: Duration::from_secs_f64(self.settle),
            threads: self.threads,
            limit: Duration::from_secs_f64(600.0 + 2.0 * expected_s),
            ..Produce::flood(topic, shape, 0)
        })
    }

    fn run(&self) -> Result<()> {
        let (cluster, topic) = self.target.open()?;
        let produced = self.load(topic)?.run(&cluster)?;
        println!(
            "{} requests, {} records, {:.1} MB in {:.2} s: {:.1} MB/s, {:.0} requests/s; generator {:.3} processor s/GB",
            produced.requests,
            produced.records,
            produced.bytes as f64 / 1e6,
            produced.wall_s,
            produced.megabytes_per_s(),
            produced.requests as f64 / produced.wall_s,
            produced.own_processor_s_per_gb(),
        );
        print_latency("due to acknowledged", &produced.latency);
        Ok(())
    }
}

impl ConsumeOptions {
    fn run(&self) -> Result<()> {
        let (cluster, topic) = self.target.open()?;
        let from = cluster.offsets(&topic, End::Earliest)?;
        let until = cluster.offsets(&topic, End::Latest)?;
        let consume = Consume {
            connections: self.connections,
            partition_bytes_max: self.partition_bytes_max,
            ..Consume::whole(topic, from, until)
        };
        let consumed = consume.run(&cluster)?;
        println!(
            "{} records, {:.1} MB in {:.2} s: {:.1} MB/s in {} fetches; generator {:.3} processor s/GB",
            consumed.records,
            consumed.bytes as f64 / 1e6,
            consumed.wall_s,
            consumed.megabytes_per_s(),
            consumed.fetches,
            consumed.processor_s / (consumed.bytes as f64 / 1e9).max(1e-9),
        );
        Ok(())
    }
}

impl EndToEndOptions {
    fn run(&self) -> Result<()> {
        let (cluster, topic) = self.produce.target.open()?;
        let destination = match &self.read_bootstrap {
            Some(bootstrap) => Cluster::connect(bootstrap)?,
            None => cluster.clone(),
        };
        let read = destination.topic(self.read_topic.as_ref().unwrap_or(&topic.name))?;
        let produce = self.produce.load(topic)?;
        let both = end_to_end::run(&cluster, &produce, &destination, &read, 1)?;
        print_latency("due to acknowledged", &both.produced.latency);
        print_latency("due to seen", &both.consumed.latency);
        Ok(())
    }
}

fn codec(name: &str) -> Result<Compression> {
    for bits in 0..=4 {
        let codec = Compression::from_bits(bits)?;
        if codec.name() == name {
            return Ok(codec);
        }
    }
    bail!("no codec is called {name}: none, gzip, snappy, lz4 or zstd")
}

fn print_latency(what: &str, latency: &Histogram) {
    println!(
        "{what}: mean {:.3} ms, p50 {:.3}, p90 {:.3}, p99 {:.3}, p99.9 {:.3}, max {:.3} ({} measured)",
        latency.mean_ms(),
        latency.quantile_ms(0.5),
        latency.quantile_ms(0.9),
        latency.quantile_ms(0.99),
        latency.quantile_ms(0.999),
        latency.max_ms(),
        latency.count(),
    );
}
