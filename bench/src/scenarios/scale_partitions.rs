//! 10,000 partitions (P12): creating them, what they cost while nobody uses them, and how much
//! memory each holds.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::scale::{
    Broker, Wanted, count, create, create_while_held, everywhere, last, produce_until_accepted,
    raise_limits, topics,
};
use crate::process::{Meter, Usage};
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

const PARTITIONS: u64 = 10_000;
/// Partitions of a topic in the shape of many topics.
const PARTITIONS_PER_TOPIC: u64 = 10;
/// Left alone before the idle time is measured, milliseconds.
const SETTLE_MS: u64 = 5_000;
/// Idle time that is measured, milliseconds; a Java broker uses so much that less is enough.
const IDLE_MS: u64 = 20_000;
const KAFKA_IDLE_MS: u64 = 10_000;
/// Until all partitions are there and the last has a record. What a Java broker has not made by
/// then it does not hold.
const CREATE_LIMIT: Duration = Duration::from_secs(45);
/// Until every partition has a record.
const RECORDS_LIMIT: Duration = Duration::from_secs(15);
/// Made by one request at a Kafka: its controller refuses 10,000, and a step that fails is not
/// held.
const CREATED_AT_ONCE: i32 = 2_500;

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
        "A fresh broker gets 10,000 partitions: one topic by one CreateTopics request (Kafka's controller refuses that many at once and gets four \
         topics of 2,500, one after the other; where it has not made them all within 45 s, its figures are of those that it holds, and the round \
         says how many). The time runs until the last partition has accepted a record. 5 s later processor time is taken over 20 s (Kafka: 10 s) \
         with nobody connected; memory is what the process holds more than before the creation, then once more after one record was produced to \
         each partition, if that ends within 15 s (every first record opens files, and Tarn syncs them). A \
         second fresh Tarn gets 1,000 topics of 10 partitions by one request."
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
        if side == Side::Kafka {
            let wanted = topics("wide", partitions, CREATED_AT_ONCE as u64);
            return few_topics(ctx, side, &wanted);
        }
        let mut samples = few_topics(ctx, side, &topics("wide", partitions, partitions))?;
        let broker = Broker::start(ctx, side)?;
        let many = topics("many", partitions, PARTITIONS_PER_TOPIC);
        let (created_s, _) = creation(ctx, broker.port(), side, &many)?;
        samples.push(Sample::new(
            "P12",
            "create as topics of 10",
            measure::SECONDS,
            created_s,
        ));
        Ok(samples)
    }
}

fn few_topics(ctx: &Ctx, side: Side, wanted: &[Wanted]) -> Result<Vec<Sample>> {
    let mut broker = Broker::start(ctx, side)?;
    let pid = broker.pid();
    let before = Usage::of(&[pid]);
    let (created_s, held) = creation(ctx, broker.port(), side, wanted)?;
    ctx.progress(format!("created in {created_s:.3} s"));
    let topics = &wanted[..held];
    let partitions = f64::from(count(topics));
    thread::sleep(Duration::from_millis(ctx.scaled(SETTLE_MS, 200)));
    let meter = Meter::start(&[pid]);
    let idle_ms = if side == Side::Kafka {
        KAFKA_IDLE_MS
    } else {
        IDLE_MS
    };
    thread::sleep(Duration::from_millis(ctx.scaled(idle_ms, 500)));
    let (processor_s, wall_s) = meter.read();
    let each_kib = || {
        let grown = Usage::of(&[pid]).rss_bytes.saturating_sub(before.rss_bytes);
        grown as f64 / 1024.0 / partitions
    };
    let sample = |cell: &str, measure, value| Sample::new("P12", cell, measure, value);
    let mut samples = vec![
        sample("create", measure::SECONDS, created_s),
        sample(
            "idle",
            measure::PERCENT_OF_A_CORE,
            100.0 * processor_s / wall_s,
        ),
        sample("memory", measure::KIB_PER_PARTITION, each_kib()),
    ];
    if held < wanted.len() {
        samples.push(sample("create", measure::PARTITIONS_HELD, partitions));
    }
    ctx.progress("a record to each partition");
    let all = everywhere(topics);
    let accepted =
        produce_until_accepted(broker.port(), topics, all, Instant::now(), RECORDS_LIMIT);
    match accepted {
        Ok(_) => samples.push(sample(
            "memory, a record in each",
            measure::KIB_PER_PARTITION,
            each_kib(),
        )),
        Err(error) => ctx.remark(format!("no memory with a record in each: {error:#}")),
    }
    Ok(samples)
}

/// Seconds from the first request to a record accepted in the last partition, and how many of
/// `topics` the broker holds.
fn creation(ctx: &Ctx, port: u16, side: Side, topics: &[Wanted]) -> Result<(f64, usize)> {
    let started = Instant::now();
    let held = match side {
        Side::Kafka => {
            create_while_held(ctx, port, topics, CREATED_AT_ONCE, CREATE_LIMIT, |step| {
                produce_until_accepted(port, step, last(step), Instant::now(), CREATE_LIMIT)
                    .map(|_| ())
            })?
        }
        _ => {
            create(port, topics)?;
            let last = last(topics);
            produce_until_accepted(port, topics, last, started, CREATE_LIMIT)?;
            topics.len()
        }
    };
    Ok((started.elapsed().as_secs_f64(), held))
}
