//! P8: acknowledging only what is on disk, against a Kafka that acknowledges from the page cache;
//! and both alike, in both ways.

use anyhow::Result;

use super::broker::{
    self, Broker, PARTITIONS, TARN_DISK, TARN_PAGE_CACHE, TARN_WARM_BYTES, latency_samples,
};
use crate::load::{Produce, Produced, Topic};
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

/// Produced as fast as answers come, in each mode.
const BYTES: u64 = 2_000_000_000;
/// The same where a Kafka syncs each batch.
const SYNCED_BYTES: u64 = 200_000_000;
const BYTES_LEAST: u64 = 20_000_000;
/// The load at a fixed rate, in each mode.
const PACED_S: u64 = 8;
const PACED_WARM_S: u64 = 2;
const LOGGED_BYTES_PER_S: u64 = 22_000_000;
/// Makes a Kafka sync after every append to a topic.
const KAFKA_SYNCED: &[(&str, &str)] = &[("flush.messages", "1")];

/// Cells of a mode: throughput and latency.
type Cells = [&'static str; 2];
/// Tarn synced, Kafka not: the row's goal.
const DEFAULTS: Cells = ["throughput", "latency"];
const PAGE_CACHE: Cells = ["throughput, both page cache", "latency, both page cache"];
const SYNCED: Cells = ["throughput, both fsync", "latency, both fsync"];

/// The scenario.
#[derive(Debug)]
pub struct BrokerDurability;

impl Scenario for BrokerDurability {
    fn name(&self) -> &'static str {
        "broker-durability"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P8"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn about(&self) -> &'static str {
        "acks=all. Throughput: the load of P4 (2 GB; 0.2 GB where Kafka syncs), after 1.5 GB of warm-up for Kafka and \
         0.3 GB for Tarn (in each mode). Latency: the load of P6 (50 keyed producers, 20 MB/s, 8 s after 2 s of the same load), from the time a request was due. The cells with the goal set Tarn's default, log.ack.durability=disk (an fsync before the \
         acknowledgement, one for all that wait), against Kafka's default, which acknowledges from the page cache. Beside them both in the page \
         cache (Tarn: log.ack.durability=page-cache; Kafka's figure is the same) and both synced (Kafka: flush.messages=1 on the topic)."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(2 * BYTES + 3_000_000_000, 10 * BYTES_LEAST)
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Durability))
    }
}

struct Durability;

impl Rounds for Durability {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let bytes = ctx.scaled(BYTES, BYTES_LEAST);
        let mut samples = Vec::new();
        if side == Side::Tarn {
            let disk = measure_mode(ctx, side, TARN_DISK, bytes)?;
            samples.extend(of_mode(&DEFAULTS, &disk));
            samples.extend(of_mode(&SYNCED, &disk));
            let cached = measure_mode(ctx, side, TARN_PAGE_CACHE, bytes)?;
            samples.extend(of_mode(&PAGE_CACHE, &cached));
            return Ok(samples);
        }
        let broker = Broker::start(ctx, side, &[])?;
        warm_up(ctx, &broker)?;
        let cached = both_loads(ctx, &broker, "cached", &[], bytes)?;
        samples.extend(of_mode(&DEFAULTS, &cached));
        samples.extend(of_mode(&PAGE_CACHE, &cached));
        let bytes = ctx.scaled(SYNCED_BYTES, BYTES_LEAST);
        let synced = both_loads(ctx, &broker, "synced", KAFKA_SYNCED, bytes)?;
        samples.extend(of_mode(&SYNCED, &synced));
        Ok(samples)
    }
}

/// What one mode gave: the load without a rate, and the one with.
type Measured = (Produced, Produced);

fn measure_mode(ctx: &Ctx, side: Side, tarn: &[(&str, &str)], bytes: u64) -> Result<Measured> {
    let broker = Broker::start(ctx, side, tarn)?;
    warm_up(ctx, &broker)?;
    both_loads(ctx, &broker, "load", &[], bytes)
}

fn warm_up(ctx: &Ctx, broker: &Broker) -> Result<()> {
    ctx.progress("warm-up");
    let topic = broker.cluster.create_topic("warm-up", PARTITIONS, &[])?;
    let bytes = broker.warm_up(broker::KAFKA_WARM_BYTES, TARN_WARM_BYTES);
    flood(&topic, ctx.scaled(bytes, BYTES_LEAST)).run(&broker.cluster)?;
    Ok(())
}

fn flood(topic: &Topic, bytes: u64) -> Produce {
    Produce {
        acks: -1,
        ..broker::flood(topic, bytes)
    }
}

fn both_loads(
    ctx: &Ctx,
    broker: &Broker,
    name: &str,
    configs: &[(&str, &str)],
    bytes: u64,
) -> Result<Measured> {
    ctx.progress(format!("{name}: as fast as it goes, acks=all"));
    let topic = broker.cluster.create_topic(name, PARTITIONS, configs)?;
    ctx.warm_pages(bytes)?;
    let fast = flood(&topic, bytes).run(&broker.cluster)?;
    ctx.progress(format!("{name}: keyed producers"));
    let topic = broker
        .cluster
        .create_topic(&format!("{name}-keyed"), PARTITIONS, configs)?;
    let (warm, measured) = (
        broker::seconds(ctx, PACED_WARM_S),
        broker::seconds(ctx, PACED_S),
    );
    ctx.warm_pages((warm + measured).as_secs() * LOGGED_BYTES_PER_S)?;
    let load = Produce {
        settle: warm,
        ..broker::keyed(&topic, warm + measured)
    };
    let paced = load.run(&broker.cluster)?;
    Ok((fast, paced))
}

fn of_mode([throughput, latency]: &Cells, (fast, paced): &Measured) -> Vec<Sample> {
    let rate = fast.megabytes_per_s();
    let mut samples = vec![Sample::new("P8", *throughput, measure::MB_PER_S, rate)];
    samples.extend(latency_samples("P8", latency, &paced.latency));
    samples
}
