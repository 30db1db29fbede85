//! P1, P3, P4 and the loaded half of P9: large batches in and out of one broker as fast as it goes.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::broker::{self, Broker, PARTITIONS, TARN_PAGE_CACHE};
use crate::load::{Cluster, Consume, Consumed, End, Topic};
use crate::process::Usage;
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

/// Produced, then consumed, in a full round.
const BYTES: u64 = 3_000_000_000;
const BYTES_LEAST: u64 = 20_000_000;
/// Rest after the start before idle memory is read.
const IDLE_S: u64 = 3;
/// Pieces of the disk's own figure, each synced.
const DISK_PIECE_BYTES: usize = 16 << 20;
const DISK_BYTES: u64 = 1_000_000_000;

/// The scenario.
#[derive(Debug)]
pub struct BrokerThroughput;

impl Scenario for BrokerThroughput {
    fn name(&self) -> &'static str {
        "broker-throughput"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P1", "P3", "P4", "P9"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "One broker, one topic of 8 partitions with one replica. Our generator sends 3 GB of 1,000-byte records in batches of 256 KiB, made \
         once, over 8 connections with 4 requests in flight each, acks=1, as fast as answers come; then two connections with a fetch session \
         each read it back out of the page cache (1 MiB of a partition, 50 MiB an answer). Both brokers acknowledge from the page cache \
         (Tarn: log.ack.durability=page-cache; Kafka: its default). Kafka is warmed up with 1.5 GB in and out, Tarn with 0.3 GB. GB and MB \
         of P1 and P4 are bytes of values; those of P3 are bytes of whole batches, as answers carry them, about 1 % more, on both sides. \
         Memory is VmRSS three seconds after the start (idle) and VmHWM at the end (under load); the page cache is not part of it. The disk's own figure beside P4 is appended in the same round and synced every 16 MiB."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(2 * BYTES + broker::KAFKA_WARM_BYTES, 10 * BYTES_LEAST)
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Throughput))
    }
}

struct Throughput;

impl Rounds for Throughput {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let broker = Broker::start(ctx, side, TARN_PAGE_CACHE)?;
        std::thread::sleep(Duration::from_millis(ctx.scaled(IDLE_S * 1_000, 500)));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let idle = Usage::of(&[broker.pid()]).rss_bytes;
        let mut samples = vec![Sample::new("P9", "idle", measure::MIB, mib(idle))];
        warm_up(ctx, &broker)?;
        let topic = broker.cluster.create_topic("load", PARTITIONS, &[])?;
        samples.extend(produce(ctx, &broker, &topic)?);
        samples.extend(consume(ctx, &broker, &topic)?);
        let peak = Usage::of(&[broker.pid()]).rss_peak_bytes;
        samples.push(Sample::new("P9", "under load", measure::MIB, mib(peak)));
        drop(broker);
        samples.push(Sample::new("P4", "", measure::DISK_MB_PER_S, disk(ctx)?));
        Ok(samples)
    }
}

fn warm_up(ctx: &Ctx, broker: &Broker) -> Result<()> {
    ctx.progress("warm-up");
    let topic = broker.cluster.create_topic("warm-up", PARTITIONS, &[])?;
    let bytes = broker.warm_up(broker::KAFKA_WARM_BYTES, broker::TARN_WARM_BYTES);
    broker::flood(&topic, ctx.scaled(bytes, BYTES_LEAST)).run(&broker.cluster)?;
    read_all(&broker.cluster, &topic)?;
    Ok(())
}

fn produce(ctx: &Ctx, broker: &Broker, topic: &Topic) -> Result<Vec<Sample>> {
    ctx.progress("produce");
    let bytes = ctx.scaled(BYTES, BYTES_LEAST);
    let load = broker::flood(topic, bytes);
    ctx.warm_pages(bytes)?;
    let meter = broker.meter();
    let produced = broker.profiled(ctx, "produce", || load.run(&broker.cluster))?;
    let (processor_s, _) = meter.read();
    let per_gb = processor_s / (produced.bytes as f64 / 1e9);
    let own = produced.own_processor_s_per_gb();
    Ok(vec![
        Sample::new("P1", "", measure::PROCESSOR_S_PER_GB, per_gb),
        Sample::new("P1", "", measure::GENERATOR_S_PER_GB, own),
        Sample::new("P4", "", measure::MB_PER_S, produced.megabytes_per_s()),
        Sample::new(
            "P4",
            "",
            measure::P99_MS,
            produced.latency.quantile_ms(0.99),
        ),
    ])
}

fn consume(ctx: &Ctx, broker: &Broker, topic: &Topic) -> Result<Vec<Sample>> {
    ctx.progress("consume");
    let meter = broker.meter();
    let consumed = broker.profiled(ctx, "fetch", || read_all(&broker.cluster, topic))?;
    let (processor_s, _) = meter.read();
    let gigabytes = consumed.bytes as f64 / 1e9;
    Ok(vec![
        Sample::new(
            "P3",
            "",
            measure::PROCESSOR_S_PER_GB,
            processor_s / gigabytes,
        ),
        Sample::new(
            "P3",
            "",
            measure::GENERATOR_S_PER_GB,
            consumed.processor_s / gigabytes,
        ),
        Sample::new("P3", "", measure::MB_PER_S, consumed.megabytes_per_s()),
    ])
}

fn read_all(cluster: &Cluster, topic: &Topic) -> Result<Consumed> {
    let from = cluster.offsets(topic, End::Earliest)?;
    let until = cluster.offsets(topic, End::Latest)?;
    Consume::whole(topic.clone(), from, until).run(cluster)
}

/// MB a second that the disk takes when nothing but this appends.
fn disk(ctx: &Ctx) -> Result<f64> {
    let scratch = ctx.scratch("disk");
    let mut file = File::create(scratch.path().join("appended")).context("a file to append")?;
    let bytes = ctx.scaled(DISK_BYTES, DISK_PIECE_BYTES as u64);
    ctx.warm_pages(bytes)?;
    let piece = vec![7; DISK_PIECE_BYTES];
    let (started, mut written) = (Instant::now(), 0);
    while written < bytes {
        file.write_all(&piece).context("the disk took no more")?;
        file.sync_data()?;
        written += piece.len() as u64;
    }
    Ok(written as f64 / 1e6 / started.elapsed().as_secs_f64())
}
