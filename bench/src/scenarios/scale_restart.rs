//! Restart after kill -9 (P11): much data in few partitions, and many partitions with little data.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::scale::{
    Broker, create_in_steps, everywhere, fill, produce_until_accepted, raise_limits, topics,
};
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

const DATA_BYTES: u64 = 3_000_000_000;
const DATA_PARTITIONS: u64 = 8;
const PARTITIONS: u64 = 3_000;
const PARTITIONS_PER_TOPIC: u64 = 100;
/// Partitions made by one request: what both sides take.
const CREATED_AT_ONCE: i32 = 1_000;
const RESTART_LIMIT: Duration = Duration::from_secs(300);

/// The scenario.
#[derive(Debug)]
pub struct Restart;

impl Scenario for Restart {
    fn name(&self) -> &'static str {
        "restart"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P11"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn about(&self) -> &'static str {
        "A broker takes 3 GB of 1 KB records into 8 partitions with acks=1, is killed with SIGKILL right after the last acknowledgement, and is started \
         again; and another with 3,000 partitions of one record each. The time runs from the start of the process to the first accepted produce, a request for one partition; \
         the cells \"…, every partition\" run to the accepted produce in the partition that came last. The data is in the page cache for both."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(DATA_BYTES, 0) + ctx.scaled(PARTITIONS, 0) * 64 * 1024
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        raise_limits(ctx);
        Ok(Box::new(Restarts))
    }
}

struct Restarts;

impl Rounds for Restarts {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let data = ctx.scaled(DATA_BYTES, 20_000_000);
        let few = (DATA_PARTITIONS, DATA_PARTITIONS, data);
        let many = (ctx.scaled(PARTITIONS, 30), PARTITIONS_PER_TOPIC, 0);
        for (cell, (partitions, each, bytes)) in
            [("3 GB in 8 partitions", few), ("3,000 partitions", many)]
        {
            let mut broker = Broker::start(ctx, side)?;
            let topics = topics("restart", partitions, each);
            create_in_steps(broker.port(), &topics, CREATED_AT_ONCE)?;
            produce_until_accepted(
                broker.port(),
                &topics,
                everywhere(&topics),
                Instant::now(),
                RESTART_LIMIT,
            )?;
            if bytes > 0 {
                ctx.progress(format!("filling {bytes} bytes"));
                fill(broker.port(), &topics[0], bytes)?;
            }
            broker.kill();
            ctx.progress(format!("killed with {cell}; starting again"));
            let started = Instant::now();
            broker.launch_again();
            let accepted = produce_until_accepted(
                broker.port(),
                &topics,
                everywhere(&topics),
                started,
                RESTART_LIMIT,
            )?;
            for (cell, time) in [
                (cell.to_owned(), accepted.first),
                (format!("{cell}, every partition"), accepted.all),
            ] {
                samples.push(Sample::new(
                    "P11",
                    cell,
                    measure::SECONDS,
                    time.as_secs_f64(),
                ));
            }
        }
        Ok(samples)
    }
}
