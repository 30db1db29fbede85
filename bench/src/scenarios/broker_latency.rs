//! P6 and P7: how long a produce takes at a fixed rate, and how long a record is on its way to a
//! reader.

use std::time::Duration;

use anyhow::Result;

use super::broker::{self, Broker, PARTITIONS, TARN_PAGE_CACHE, latency_samples};
use crate::load::{Produce, Shape, end_to_end};
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

/// Measured for so long, each row.
const MEASURED_S: u64 = 10;
/// Not measured before it, of the same load.
const KAFKA_WARM_S: u64 = 10;
const TARN_WARM_S: u64 = 2;
/// The end-to-end load.
const RECORDS_PER_S: f64 = 1_000.0;
const VALUE_BYTES: usize = 100;
/// Bytes that the keyed load leaves in the log in a second, for the pages.
const LOGGED_BYTES_PER_S: u64 = 22_000_000;

/// The scenario.
#[derive(Debug)]
pub struct BrokerLatency;

impl Scenario for BrokerLatency {
    fn name(&self) -> &'static str {
        "broker-latency"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P6", "P7"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "P6: 50 connections send 20 MB/s together into 8 partitions. Each is a keyed producer with the Java client's linger of 5 ms: 200 \
         requests a second, each with two batches of one 1,000-byte record with a 16-byte key, for two partitions as hashes fall; at most 5 in \
         flight. P7: one producer sends 1,000 records of 100 bytes a second, each a request of its own, to one partition, while one reader with \
         a fetch session follows. acks=all in both; both brokers acknowledge from the page cache (Tarn: log.ack.durability=page-cache). \
         Latency counts from the time at which a request was due, on one clock; P7 ends when the reader has the record. 10 s are measured after \
         10 s (Tarn: 2 s) of the same load."
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Latency))
    }
}

struct Latency;

impl Rounds for Latency {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let broker = Broker::start(ctx, side, TARN_PAGE_CACHE)?;
        let warm = broker::seconds(ctx, broker.warm_up(KAFKA_WARM_S, TARN_WARM_S));
        let measured = broker::seconds(ctx, MEASURED_S);
        let mut samples = keyed(ctx, &broker, warm, measured)?;
        samples.extend(followed(ctx, &broker, warm, measured)?);
        Ok(samples)
    }
}

fn keyed(ctx: &Ctx, broker: &Broker, warm: Duration, measured: Duration) -> Result<Vec<Sample>> {
    ctx.progress("keyed producers");
    let topic = broker.cluster.create_topic("keyed", PARTITIONS, &[])?;
    ctx.warm_pages((warm + measured).as_secs() * LOGGED_BYTES_PER_S)?;
    broker::keyed(&topic, warm).run(&broker.cluster)?;
    let meter = broker.meter();
    let produced = broker.profiled(ctx, "keyed", || {
        broker::keyed(&topic, measured).run(&broker.cluster)
    })?;
    let (processor_s, wall_s) = meter.read();
    let percent = 100.0 * processor_s / wall_s;
    let mut samples = latency_samples("P6", "", &produced.latency);
    samples.push(Sample::new(
        "P6",
        "",
        measure::MB_PER_S,
        produced.megabytes_per_s(),
    ));
    samples.push(Sample::new("P6", "", measure::PERCENT_OF_A_CORE, percent));
    Ok(samples)
}

fn followed(ctx: &Ctx, broker: &Broker, warm: Duration, measured: Duration) -> Result<Vec<Sample>> {
    ctx.progress("end to end");
    let topic = broker.cluster.create_topic("followed", 1, &[])?;
    let load = Produce {
        settle: warm,
        ..Produce::paced(
            topic.clone(),
            Shape::of(VALUE_BYTES, 1),
            RECORDS_PER_S,
            warm + measured,
        )
    };
    let both = end_to_end::run(&broker.cluster, &load, &broker.cluster, &topic, 1)?;
    let mut samples = latency_samples("P7", "", &both.consumed.latency);
    samples.extend(latency_samples(
        "P7",
        "acknowledged",
        &both.produced.latency,
    ));
    Ok(samples)
}
