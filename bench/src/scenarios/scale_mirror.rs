//! Many mirrored partitions: what they cost while the source is silent (X7), and how long it takes
//! to make them writable here when the source is dead (X11). Not here: copying.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::proxy::{self, Frames};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

use super::scale::{
    Wanted, count, create_while_held, everywhere, fitting, produce_until_accepted, raise_limits,
    topics,
};
use crate::process::Meter;
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

/// Partitions of a topic at the source; the smallest shape has one topic of one.
const PARTITIONS_PER_TOPIC: u64 = 100;
/// Partitions made by one request at the source.
const CREATED_AT_ONCE: i32 = 1_000;
/// Left alone after everything is mirrored, milliseconds.
const SETTLE_MS: u64 = 5_000;
const SETTLE_MS_MAX: u64 = 40_000;
const SETTLE_LOOK: Duration = Duration::from_secs(2);
/// Share of a core below which nothing is left over: the goal for 10,000 partitions.
const SETTLED_SHARE: f64 = 0.01;
const IDLE_MS: u64 = 30_000;
/// Until the source has made the partitions of one shape and holds a record in each; what it has
/// not by then it does not hold.
const SOURCE_LIMIT: Duration = Duration::from_secs(150);
const MIRROR_LIMIT: Duration = Duration::from_secs(90);
const REMOVE_LIMIT: Duration = Duration::from_secs(60);

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
}

/// A shape with the topics that the source holds of it.
struct Held {
    shape: Shape,
    topics: Vec<Wanted>,
    /// Whether those are fewer than the shape's name says.
    is_less: bool,
}

impl Held {
    /// Says in the cell how many partitions it is about, when its name does not.
    fn samples(&self, row: &'static str) -> Option<Sample> {
        let partitions = f64::from(count(&self.topics));
        self.is_less
            .then(|| Sample::new(row, self.shape.cell, measure::PARTITIONS_HELD, partitions))
    }
}

/// A real Kafka behind a relay that sees every request, with one record in every partition of all
/// shapes.
struct SourceCluster {
    kafka: Kafka,
    frames: Frames,
    /// Where the mirrors connect.
    port: u16,
    shapes: Vec<Held>,
}

impl SourceCluster {
    fn start(ctx: &Ctx, shapes: Vec<Shape>) -> Result<Self> {
        raise_limits(ctx);
        let port = free_port();
        let advertised = format!("PLAINTEXT://127.0.0.1:{port}");
        let kafka = ctx.kafka(&[("advertised.listeners", &advertised)]);
        let frames = proxy::relay(port, kafka.port());
        let mut held = Vec::new();
        for shape in shapes {
            let open: i32 = held.iter().map(|held: &Held| count(&held.topics)).sum();
            held.push(Self::make(ctx, kafka.port(), shape, open)?);
        }
        Ok(Self {
            kafka,
            frames,
            port,
            shapes: held,
        })
    }

    /// Makes the partitions of a shape, as many as the source holds beside those that are `open`
    /// already.
    fn make(ctx: &Ctx, port: u16, shape: Shape, open: i32) -> Result<Held> {
        let wanted = shape.topics(ctx);
        let started = Instant::now();
        let fit = fitting(ctx, &wanted, open);
        ctx.progress(format!("making {} partitions at the source", count(fit)));
        let held = create_while_held(ctx, port, fit, CREATED_AT_ONCE, SOURCE_LIMIT, |step| {
            let limit = SOURCE_LIMIT.saturating_sub(started.elapsed());
            produce_until_accepted(port, step, everywhere(step), Instant::now(), limit).map(|_| ())
        })?;
        Ok(Held {
            is_less: held < wanted.len(),
            topics: fit[..held].to_vec(),
            shape,
        })
    }

    fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Mirrors what the source holds of a shape and waits until every partition has its record
    /// here.
    fn mirror(&self, ctx: &Ctx, tarn: &Tarn, held: &Held) -> Result<()> {
        let (name, topics) = (held.shape.name, &held.topics);
        let wanted = usize::try_from(count(topics))?;
        let started = Instant::now();
        tarn.create_mirror(name, &self.bootstrap(), &[]);
        // The topics of a step that failed may be there, without records; they have the highest
        // numbers.
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        tarn.mirrors_ok(&["--add", "--mirror", name, "--topic", &names.join("|")]);
        wait::until(MIRROR_LIMIT, "every partition is mirrored", || {
            // A broker that is busy with thousands of new partitions may let the tool wait too
            // long.
            let rows = rows_of(tarn, name)?;
            let done = rows
                .iter()
                .filter(|row| row["state"] == "MIRRORING" && row["lag"] == 0)
                .count();
            // Looking costs the broker something; it shall not look all the time.
            thread::sleep(Duration::from_millis(200));
            if done == wanted {
                Ok(())
            } else {
                Err(format!("{done} of {wanted}"))
            }
        });
        ctx.progress(format!(
            "{wanted} partitions mirrored after {:.1} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

/// What the tool says of the partitions of a mirror.
fn rows_of(tarn: &Tarn, mirror: &str) -> Result<Vec<Value>, String> {
    let said = tarn.mirrors(&["--describe", "--mirror", mirror, "--json"]);
    if said.code != 0 {
        return Err(said.stderr);
    }
    serde_json::from_str(&said.stdout).map_err(|e| format!("{e}: {}", said.stdout))
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
        "A real Kafka with 11,000 partitions in topics of 100, one record in each (or as many as it holds within its descriptors and 150 s; then \
         the cell says how many). Tarn mirrors 1,000 of them, then a fresh Tarn 10,000. When every record has arrived, both are left alone for \
         5 s, and up to 40 s until what the new partitions left to be synced is done (less than 1 % of a core in 2 s); then \
         processor time of Tarn and the requests that it sends are taken over 30 s. A relay in front of the source counts the requests, of every \
         kind."
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Idle(SourceCluster::start(
            ctx,
            vec![THOUSAND, TEN_THOUSAND],
        )?)))
    }
}

struct Idle(SourceCluster);

impl Rounds for Idle {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        ensure!(side == Side::Tarn, "this scenario measures Tarn only");
        let mut samples = Vec::new();
        for held in &self.0.shapes {
            let cell = held.shape.cell;
            let mut tarn = ctx.tarn(&[]);
            self.0.mirror(ctx, &tarn, held)?;
            settle(ctx, tarn.process().id());
            let meter = Meter::start(&[tarn.process().id()]);
            drop(self.0.frames.take());
            thread::sleep(Duration::from_millis(ctx.scaled(IDLE_MS, 1_000)));
            let (processor_s, wall_s) = meter.read();
            let requests = self.0.frames.take();
            ctx.progress(format!("{cell}: {}", by_key(&requests)));
            let percent = 100.0 * processor_s / wall_s;
            let rate = requests.len() as f64 / wall_s;
            samples.push(Sample::new("X7", cell, measure::PERCENT_OF_A_CORE, percent));
            samples.push(Sample::new("X7", cell, measure::REQUESTS_PER_S, rate));
            samples.extend(held.samples("X7"));
        }
        Ok(samples)
    }
}

/// Leaves a process alone for a while, and until what its new partitions left to be synced is done:
/// until it uses little, but not for long. What it uses all the time is in the measured window in
/// any case.
fn settle(ctx: &Ctx, pid: u32) {
    let started = Instant::now();
    thread::sleep(Duration::from_millis(ctx.scaled(SETTLE_MS, 200)));
    let limit = Duration::from_millis(ctx.scaled(SETTLE_MS_MAX, 200));
    while started.elapsed() < limit {
        let meter = Meter::start(&[pid]);
        thread::sleep(SETTLE_LOOK);
        let (processor_s, wall_s) = meter.read();
        if processor_s / wall_s < SETTLED_SHARE {
            break;
        }
    }
    let waited_s = started.elapsed().as_secs_f64();
    ctx.progress(format!("settled for {waited_s:.0} s"));
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
        "Tarn mirrors 1, 1,000 and 10,000 partitions of a real Kafka, one record in each, in three mirrors (where the source holds fewer within \
         its descriptors and 150 s, the cell says how many). The source is killed with SIGKILL. Then each \
         mirror in turn is removed with the command line tool, and a raw client tries to produce to every one of its partitions all the time. \
         The figure runs from the start of the tool's process to the accepted produce in the partition that came last, which is harder than the \
         goal's \"first accepted\"; the cells \"…, first of all\" show that one."
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Failovers {
            source: SourceCluster::start(ctx, vec![ONE, THOUSAND, TEN_THOUSAND])?,
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
        for held in &self.source.shapes {
            self.source.mirror(ctx, &tarn, held)?;
        }
        self.source.kafka.kill();
        let mut samples = Vec::new();
        for held in &self.source.shapes {
            let (first, all) = remove(&tarn, held)?;
            let cell = held.shape.cell;
            samples.push(Sample::new("X11", cell, measure::SECONDS, all));
            let first_cell = format!("{cell}, first of all");
            samples.push(Sample::new("X11", first_cell, measure::SECONDS, first));
            samples.extend(held.samples("X11"));
        }
        Ok(samples)
    }
}

/// Removes a mirror's topics; seconds until the first and until every partition accepted a record.
fn remove(tarn: &Tarn, held: &Held) -> Result<(f64, f64)> {
    let (name, topics) = (held.shape.name, &held.topics);
    let (bootstrap, dir): (String, &Path) = (tarn.bootstrap(), tarn.dir());
    let started = Instant::now();
    let (accepted, tool) = thread::scope(|scope| {
        let tool = scope.spawn(|| {
            Tarn::mirrors_at(
                &bootstrap,
                dir,
                &["--remove", "--mirror", name, "--all-topics"],
            )
        });
        let all = everywhere(topics);
        let accepted = produce_until_accepted(tarn.port(), topics, all, started, REMOVE_LIMIT);
        (accepted, tool.join())
    });
    match tool {
        Ok(output) if output.code == 0 => {}
        Ok(output) => bail!("removing the mirror {name} failed: {output:?}"),
        Err(_) => bail!("the tool could not be run"),
    }
    let accepted = accepted?;
    Ok((accepted.first.as_secs_f64(), accepted.all.as_secs_f64()))
}
