//! Start (P10) and resident memory of an idle broker (P9). Not here: memory under load (the
//! scenarios of load take it).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::scale::{Broker, create, last, produce_until_accepted, topics};
use crate::process::Usage;
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

/// How long a started broker is left alone before its memory is taken, seconds.
const IDLE_S: u64 = 4;
const START_LIMIT: Duration = Duration::from_secs(120);

/// The scenario.
#[derive(Debug)]
pub struct Start;

impl Scenario for Start {
    fn name(&self) -> &'static str {
        "start"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P10", "P9"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn about(&self) -> &'static str {
        "A broker with one topic of one partition was stopped in order and is started again. A raw client tries to connect and to produce one \
         record with acks=all every half millisecond; the time runs from the start of the process to the accepted produce. Resident memory is \
         taken 4 s later, with nobody connected."
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Starts))
    }
}

struct Starts;

impl Rounds for Starts {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let mut broker = Broker::start(ctx, side)?;
        let topics = topics("start", 1, 1);
        create(broker.port(), &topics)?;
        produce_until_accepted(
            broker.port(),
            &topics,
            last(&topics),
            Instant::now(),
            START_LIMIT,
        )?;
        broker.stop();
        ctx.progress("starting again");
        let started = Instant::now();
        broker.launch_again();
        let accepted =
            produce_until_accepted(broker.port(), &topics, last(&topics), started, START_LIMIT)?;
        thread::sleep(Duration::from_millis(ctx.scaled(IDLE_S * 1000, 500)));
        let usage = Usage::of(&[broker.pid()]);
        Ok(vec![
            Sample::new("P10", "", measure::SECONDS, accepted.first.as_secs_f64()),
            Sample::new(
                "P9",
                "idle",
                measure::MIB,
                usage.rss_bytes as f64 / f64::from(1 << 20),
            ),
        ])
    }
}
