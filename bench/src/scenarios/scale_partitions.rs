//! 10,000 partitions (P12): creating them, what they cost while nobody uses them, and how much memory each holds.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::scale::{
    Broker, Wanted, create, create_in_steps, everywhere, last, produce_until_accepted,
    raise_limits, topics,
};
use crate::process::{Meter, Usage};
use crate::rows::measure;
use crate::scenario::{Ctx, ROUNDS_SLOW, Rounds, Sample, Scenario, Side};

const PARTITIONS: u64 = 10_000;
/// Partitions of a topic in the shape of many topics.
const PARTITIONS_PER_TOPIC: u64 = 10;
/// Left alone before the idle time is measured, milliseconds.
const SETTLE_MS: u64 = 10_000;
const IDLE_MS: u64 = 30_000;
const LIMIT: Duration = Duration::from_secs(300);
/// What Kafka's controller takes in one request.
const CREATED_AT_ONCE: i32 = 5_000;

/// The scenario.
#[derive(Debug)]
pub struct Partitions;

impl Scenario for Partitions {
    fn name(&self) -> &'static str {
        "partitions"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P12"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn about(&self) -> &'static str {
        "A fresh broker gets 10,000 partitions: one topic by one CreateTopics request (Kafka's controller refuses that many at once and gets two topics \
         of 5,000 by two requests). The time runs until the last partition has accepted a record. Processor time is taken over 30 s with nobody connected, \
         10 s after that; memory is what the process holds more than before the creation, then once more after one record was produced to \
         each partition. A second fresh broker gets 1,000 topics of 10 partitions by one \
         request (Kafka: two)."
    }

    fn rounds(&self) -> u32 {
        ROUNDS_SLOW
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(PARTITIONS, 0) * 64 * 1024
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        raise_limits(ctx);
        Ok(Box::new(Creations))
    }
}

struct Creations;

impl Rounds for Creations {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let partitions = ctx.scaled(PARTITIONS, 100);
        let each = match side {
            Side::Kafka => partitions.min(CREATED_AT_ONCE as u64),
            _ => partitions,
        };
        let mut samples = one_topic(ctx, side, &topics("wide", partitions, each))?;
        let mut broker = Broker::start(ctx, side)?;
        let before = Usage::of(&[broker.pid()]);
        let many = topics("many", partitions, PARTITIONS_PER_TOPIC);
        let created = creation_s(broker.port(), side, &many)?;
        let after = Usage::of(&[broker.pid()]);
        samples.push(Sample::new(
            "P12",
            "create as topics of 10",
            measure::SECONDS,
            created,
        ));
        ctx.progress(format!(
            "topics of 10: {created:.3} s, {:.2} processor seconds",
            after.since(&before)
        ));
        Ok(samples)
    }
}

fn one_topic(ctx: &Ctx, side: Side, topics: &[Wanted]) -> Result<Vec<Sample>> {
    let mut broker = Broker::start(ctx, side)?;
    let pid = broker.pid();
    let before = Usage::of(&[pid]);
    let created = creation_s(broker.port(), side, topics)?;
    ctx.progress(format!("created in {created:.3} s"));
    thread::sleep(Duration::from_millis(ctx.scaled(SETTLE_MS, 200)));
    let meter = Meter::start(&[pid]);
    thread::sleep(Duration::from_millis(ctx.scaled(IDLE_MS, 500)));
    let (processor_s, wall_s) = meter.read();
    let partitions: i32 = topics.iter().map(|topic| topic.partitions).sum();
    let each_kib = || {
        let grown = Usage::of(&[pid]).rss_bytes.saturating_sub(before.rss_bytes);
        grown as f64 / 1024.0 / f64::from(partitions)
    };
    let empty_kib = each_kib();
    let all = everywhere(topics);
    produce_until_accepted(broker.port(), topics, all, Instant::now(), LIMIT)?;
    Ok(vec![
        Sample::new("P12", "create", measure::SECONDS, created),
        Sample::new(
            "P12",
            "idle",
            measure::PERCENT_OF_A_CORE,
            100.0 * processor_s / wall_s,
        ),
        Sample::new("P12", "memory", measure::KIB_PER_PARTITION, empty_kib),
        Sample::new(
            "P12",
            "memory, a record in each",
            measure::KIB_PER_PARTITION,
            each_kib(),
        ),
    ])
}

/// Seconds from the first request to a record accepted in the last partition.
fn creation_s(port: u16, side: Side, topics: &[Wanted]) -> Result<f64> {
    let started = Instant::now();
    match side {
        Side::Kafka => create_in_steps(port, topics, CREATED_AT_ONCE)?,
        _ => create(port, topics)?,
    }
    let accepted = produce_until_accepted(port, topics, last(topics), started, LIMIT)?;
    Ok(accepted.all.as_secs_f64())
}
