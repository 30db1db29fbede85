//! Many mirrored partitions: what they cost while the source is silent (X7), and how long it takes to make them writable here when the source
//! is dead (X11). Not here: copying.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::proxy::{self, Frames};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use super::scale::{
    Wanted, create_in_steps, everywhere, produce_until_accepted, raise_limits, topics,
};
use crate::process::Meter;
use crate::rows::measure;
use crate::scenario::{Ctx, ROUNDS_SLOW, Rounds, Sample, Scenario, Side};

/// Partitions of a topic at the source; the smallest shape has one topic of one.
const PARTITIONS_PER_TOPIC: u64 = 100;
/// Partitions made by one request at the source.
const CREATED_AT_ONCE: i32 = 2_000;
/// Left alone after everything is mirrored, milliseconds.
const SETTLE_MS: u64 = 10_000;
const IDLE_MS: u64 = 30_000;
const SOURCE_LIMIT: Duration = Duration::from_secs(300);
const MIRROR_LIMIT: Duration = Duration::from_secs(300);
const REMOVE_LIMIT: Duration = Duration::from_secs(120);

/// One shape: how many partitions, the prefix of their topics, the mirror that holds them.
struct Shape {
    cell: &'static str,
    partitions: u64,
    name: &'static str,
}

const ONE: Shape = Shape {
    cell: "1 partition",
    partitions: 1,
    name: "one",
};
const THOUSAND: Shape = Shape {
    cell: "1,000 partitions",
    partitions: 1_000,
    name: "thousand",
};
const TEN_THOUSAND: Shape = Shape {
    cell: "10,000 partitions",
    partitions: 10_000,
    name: "tenthousand",
};

impl Shape {
    fn topics(&self, ctx: &Ctx) -> Vec<Wanted> {
        let least = self.partitions.min(20);
        topics(
            self.name,
            ctx.scaled(self.partitions, least),
            PARTITIONS_PER_TOPIC,
        )
    }

    /// The partitions that a smoke run has, or all.
    fn count(&self, ctx: &Ctx) -> usize {
        everywhere(&self.topics(ctx)).len()
    }
}

/// A real Kafka behind a relay that sees every request, with one record in every partition of all shapes.
struct SourceCluster {
    kafka: Kafka,
    frames: Frames,
    /// Where the mirrors connect.
    port: u16,
}

impl SourceCluster {
    fn start(ctx: &Ctx, shapes: &[Shape]) -> Result<Self> {
        raise_limits(ctx);
        let port = free_port();
        let advertised = format!("PLAINTEXT://127.0.0.1:{port}");
        let kafka = ctx.kafka(&[("advertised.listeners", &advertised)]);
        let frames = proxy::relay(port, kafka.port());
        for shape in shapes {
            let topics = shape.topics(ctx);
            ctx.progress(format!(
                "making {} partitions at the source",
                shape.count(ctx)
            ));
            create_in_steps(kafka.port(), &topics, CREATED_AT_ONCE)?;
            let all = everywhere(&topics);
            produce_until_accepted(kafka.port(), &topics, all, Instant::now(), SOURCE_LIMIT)?;
        }
        Ok(Self {
            kafka,
            frames,
            port,
        })
    }

    fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Mirrors a shape and waits until every partition has its record here.
    fn mirror(&self, ctx: &Ctx, tarn: &Tarn, shape: &Shape) -> Result<()> {
        let count = shape.count(ctx);
        let started = Instant::now();
        tarn.create_mirror(shape.name, &self.bootstrap(), &[]);
        let pattern = format!("{}-.*", shape.name);
        tarn.mirrors_ok(&["--add", "--mirror", shape.name, "--topic", &pattern]);
        wait::until(MIRROR_LIMIT, "every partition is mirrored", || {
            let rows = tarn.describe(shape.name);
            let done = rows
                .iter()
                .filter(|row| row["state"] == "MIRRORING" && row["lag"] == 0)
                .count();
            // Looking costs the broker something; it shall not look all the time.
            thread::sleep(Duration::from_millis(200));
            if done == count {
                Ok(())
            } else {
                Err(format!("{done} of {count}"))
            }
        });
        ctx.progress(format!(
            "{count} partitions mirrored after {:.1} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

/// Idle mirrors.
#[derive(Debug)]
pub struct IdleMirror;

impl Scenario for IdleMirror {
    fn name(&self) -> &'static str {
        "mirror-idle"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X7"]
    }

    fn rival(&self) -> Option<Side> {
        None
    }

    fn about(&self) -> &'static str {
        "A real Kafka with 11,000 partitions in topics of 100, one record in each. Tarn mirrors 1,000 of them, then a fresh Tarn 10,000. When every \
         record has arrived, both are left alone for 10 s; then processor time of Tarn and the requests that it sends are taken over 30 s. \
         A relay in front of the source counts the requests, of every kind."
    }

    fn rounds(&self) -> u32 {
        ROUNDS_SLOW
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let source = SourceCluster::start(ctx, &[THOUSAND, TEN_THOUSAND])?;
        Ok(Box::new(source))
    }
}

impl Rounds for SourceCluster {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        ensure!(side == Side::Tarn, "this scenario measures Tarn only");
        let mut samples = Vec::new();
        for shape in [THOUSAND, TEN_THOUSAND] {
            let mut tarn = ctx.tarn(&[]);
            self.mirror(ctx, &tarn, &shape)?;
            thread::sleep(Duration::from_millis(ctx.scaled(SETTLE_MS, 200)));
            let meter = Meter::start(&[tarn.process().id()]);
            drop(self.frames.take());
            thread::sleep(Duration::from_millis(ctx.scaled(IDLE_MS, 1_000)));
            let (processor_s, wall_s) = meter.read();
            let requests = self.frames.take();
            ctx.progress(format!("{}: {}", shape.cell, by_key(&requests)));
            samples.push(Sample::new(
                "X7",
                shape.cell,
                measure::PERCENT_OF_A_CORE,
                100.0 * processor_s / wall_s,
            ));
            samples.push(Sample::new(
                "X7",
                shape.cell,
                measure::REQUESTS_PER_S,
                requests.len() as f64 / wall_s,
            ));
        }
        Ok(samples)
    }
}

/// How many requests of each API key.
fn by_key(frames: &[Vec<u8>]) -> String {
    let mut counts = std::collections::BTreeMap::<i16, u32>::new();
    for key in frames.iter().filter_map(|frame| frame.first_chunk::<2>()) {
        *counts.entry(i16::from_be_bytes(*key)).or_default() += 1;
    }
    format!("requests by API key {counts:?}")
}

/// Failover with the source dead.
#[derive(Debug)]
pub struct Failover;

impl Scenario for Failover {
    fn name(&self) -> &'static str {
        "mirror-failover"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X11"]
    }

    fn rival(&self) -> Option<Side> {
        None
    }

    fn about(&self) -> &'static str {
        "Tarn mirrors 1, 1,000 and 10,000 partitions of a real Kafka, one record in each, in three mirrors. The source is killed with SIGKILL. Then each \
         mirror in turn is removed with the command line tool, and a raw client tries to produce to every one of its partitions all the time. \
         The figure runs from the start of the tool's process to the accepted produce in the partition that came last, which is harder than the \
         goal's \"first accepted\"; the cells \"…, first of all\" show that one."
    }

    fn rounds(&self) -> u32 {
        ROUNDS_SLOW
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Failovers {
            source: SourceCluster::start(ctx, &[ONE, THOUSAND, TEN_THOUSAND])?,
            is_dead: false,
        }))
    }
}

struct Failovers {
    source: SourceCluster,
    is_dead: bool,
}

impl Rounds for Failovers {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        ensure!(side == Side::Tarn, "this scenario measures Tarn only");
        if std::mem::replace(&mut self.is_dead, true) {
            ctx.progress("starting the source again");
            self.source.kafka.restart();
        }
        let tarn = ctx.tarn(&[]);
        let shapes = [ONE, THOUSAND, TEN_THOUSAND];
        for shape in &shapes {
            self.source.mirror(ctx, &tarn, shape)?;
        }
        self.source.kafka.kill();
        let mut samples = Vec::new();
        for shape in &shapes {
            let (first, all) = remove(ctx, &tarn, shape)?;
            samples.push(Sample::new("X11", shape.cell, measure::SECONDS, all));
            let cell = format!("{}, first of all", shape.cell);
            samples.push(Sample::new("X11", cell, measure::SECONDS, first));
        }
        Ok(samples)
    }
}

/// Removes a mirror's topics; seconds until the first and until every partition accepted a record.
fn remove(ctx: &Ctx, tarn: &Tarn, shape: &Shape) -> Result<(f64, f64)> {
    let topics = shape.topics(ctx);
    let (bootstrap, dir): (String, &Path) = (tarn.bootstrap(), tarn.dir());
    let started = Instant::now();
    let (accepted, tool) = thread::scope(|scope| {
        let tool = scope.spawn(|| {
            Tarn::mirrors_at(
                &bootstrap,
                dir,
                &["--remove", "--mirror", shape.name, "--all-topics"],
            )
        });
        let all = everywhere(&topics);
        let accepted = produce_until_accepted(tarn.port(), &topics, all, started, REMOVE_LIMIT);
        (accepted, tool.join())
    });
    match tool {
        Ok(output) if output.code == 0 => {}
        Ok(output) => bail!("removing the mirror {} failed: {output:?}", shape.name),
        Err(_) => bail!("the tool could not be run"),
    }
    let accepted = accepted?;
    Ok((accepted.first.as_secs_f64(), accepted.all.as_secs_f64()))
}
