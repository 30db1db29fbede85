//! P2: what a broker pays for a small request.

use std::time::Duration;

use anyhow::Result;

use super::broker::{Broker, PARTITIONS, TARN_PAGE_CACHE, latency_samples};
use crate::load::{Produce, Shape, Topic};
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

const CONNECTIONS: usize = 50;
const VALUE_BYTES: usize = 100;
/// Measured in a full round.
const REQUESTS: u64 = 300_000;
/// Before, at a Kafka: about ten seconds of this very load.
const KAFKA_WARM_REQUESTS: u64 = 300_000;
const TARN_WARM_REQUESTS: u64 = 50_000;
const REQUESTS_LEAST: u64 = 5_000;
/// Bytes that a request leaves in the log, for the pages.
const LOGGED_BYTES: u64 = 200;

/// The scenario.
#[derive(Debug)]
pub struct BrokerRequests;

impl Scenario for BrokerRequests {
    fn name(&self) -> &'static str {
        "broker-requests"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P2"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "50 connections, each with one produce request in flight that carries one batch of one 100-byte record, without any linger: the next \
         request leaves when the answer is there. 8 partitions, acks=1, 300,000 requests after 300,000 (Tarn: 50,000) that are not measured. \
         Both brokers acknowledge from the page cache (Tarn: log.ack.durability=page-cache)."
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Requests))
    }
}

struct Requests;

impl Rounds for Requests {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let broker = Broker::start(ctx, side, TARN_PAGE_CACHE)?;
        let topic = broker.cluster.create_topic("small", PARTITIONS, &[])?;
        ctx.progress("warm-up");
        let warm = broker.warm_up(KAFKA_WARM_REQUESTS, TARN_WARM_REQUESTS);
        load(&topic, ctx.scaled(warm, REQUESTS_LEAST)).run(&broker.cluster)?;
        ctx.progress("small requests");
        let requests = ctx.scaled(REQUESTS, REQUESTS_LEAST);
        ctx.warm_pages(requests * LOGGED_BYTES)?;
        let load = load(&topic, requests);
        let meter = broker.meter();
        let produced = broker.profiled(ctx, "small-requests", || load.run(&broker.cluster))?;
        let (processor_s, _) = meter.read();
        let thousands = produced.requests as f64 / 1e3;
        let sample = |measure, value| Sample::new("P2", "", measure, value);
        let mut samples = vec![
            sample(
                measure::PROCESSOR_S_PER_1000_REQUESTS,
                processor_s / thousands,
            ),
            sample(
                measure::GENERATOR_S_PER_1000_REQUESTS,
                produced.processor_s / thousands,
            ),
            sample(
                measure::REQUESTS_SERVED_PER_S,
                thousands * 1e3 / produced.wall_s,
            ),
        ];
        samples.extend(latency_samples("P2", "", &produced.latency));
        Ok(samples)
    }
}

fn load(topic: &Topic, requests: u64) -> Produce {
    Produce {
        connections: CONNECTIONS,
        in_flight: 1,
        requests,
        limit: Duration::from_secs(300),
        ..Produce::flood(topic.clone(), Shape::of(VALUE_BYTES, 1), 0)
    }
}
