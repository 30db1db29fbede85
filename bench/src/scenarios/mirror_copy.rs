//! Copying what the source already holds: processor time (X1), speed (X3), time from "add topic" to
//! lag 0 (X4), processes and memory (X12).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::mirroring::destination::Destination;
use crate::mirroring::fill::Payload;
use crate::mirroring::source::Source;
use crate::mirroring::wire::Topic;
use crate::mm2;
use crate::process::Usage;
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

/// The warm-up that both sides get.
const WARM_BYTES: u64 = 1_500_000_000;
const COPY_BYTES: u64 = 2_000_000_000;
const ONE_BYTES: u64 = 500_000_000;
const GIB_BYTES: u64 = 1 << 30;
/// Least of each in a smoke run.
const LEAST_BYTES: u64 = 20_000_000;
/// Cost and speed are counted from the moment at which this share of the topic is there: the
/// restart of MirrorMaker 2's tasks is X4's matter.
const UNDER_WAY: f64 = 0.1;
const LIMIT: Duration = Duration::from_secs(300);
const BYTES_PER_MIB: f64 = 1024.0 * 1024.0;

/// The scenario.
#[derive(Debug)]
pub struct MirrorCopy;

impl Scenario for MirrorCopy {
    fn name(&self) -> &'static str {
        "mirror-copy"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X1", "X3", "X4", "X12"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Mm2)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "One real Kafka holds topics of random 1,000-byte records in batches of 256 records, not compressed. Each round starts the side's \
         processes anew and copies, one after the other: 1.5 GB in 8 partitions (the warm-up; reported as cold, from the start of the \
         processes), 2 GB in 8 partitions (X1, X3), 0.5 GB in one partition (X1), 1 GiB in 8 partitions (X4). X1 and X3 count from the moment \
         at which a tenth of the topic is there. X4 counts from the command: `kafka-mirrors.sh --add`, and a new list of topics put to the \
         connector of a MirrorMaker 2 that is running and warm. GB are bytes of record values. Processor time and memory are those of all \
         processes of the side; what their logs can take of the page cache is named apart. The round ends with a comparison of all batches, \
         byte for byte, for Tarn, and of the record counts for MirrorMaker 2. Tarn runs with its defaults (log.ack.durability=disk), and \
         once more with page-cache; mirrored records are acknowledged to nobody, so that the two should not differ."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        let topics = WARM_BYTES + COPY_BYTES + ONE_BYTES + GIB_BYTES;
        2 * ctx.scaled(topics, 4 * LEAST_BYTES) * 21 / 20
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let source = Source::start(ctx);
        let filled = |name: &str, partitions, bytes| -> Result<Filled> {
            let topic = Topic::new(name, partitions);
            let bytes = ctx.scaled(bytes, LEAST_BYTES);
            let gb = source.filled(ctx, &topic, bytes, Payload::Random)?;
            Ok(Filled { topic, gb })
        };
        Ok(Box::new(Copies {
            warm: filled("warm", 8, WARM_BYTES)?,
            copy: filled("copy", 8, COPY_BYTES)?,
            one: filled("one", 1, ONE_BYTES)?,
            gib: filled("gib", 8, GIB_BYTES)?,
            source,
        }))
    }
}

/// A topic with what it holds.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) topic: Topic,
    /// 10⁹ bytes of raw values.
    pub(super) gb: f64,
}

/// What copying one topic took.
#[derive(Debug)]
pub(super) struct Copied {
    /// From the command to lag 0.
    pub(super) whole_s: f64,
    /// Of the destination side, once under way.
    pub(super) processor_s_per_gb: f64,
    /// Of the source, once under way.
    pub(super) source_s_per_gb: f64,
    /// Once under way.
    pub(super) mb_per_s: f64,
}

/// Adds a topic and waits for lag 0.
pub(super) fn copy(to: &mut Destination, source: &Source, what: &Filled) -> Result<Copied> {
    let topics = std::slice::from_ref(&what.topic);
    let ends = source.ends(topics)?;
    let all: i64 = ends.iter().sum();
    let started = Instant::now();
    to.add(&what.topic.name)?;
    let here = to.await_share(topics, &ends, UNDER_WAY, LIMIT)?;
    let source_pid = [source.kafka().process().id()];
    let (before, source_before) = (to.usage(), Usage::of(&source_pid));
    let under_way = Instant::now();
    to.await_share(topics, &ends, 1.0, LIMIT)?;
    let (now, whole) = (Instant::now(), started.elapsed());
    let gb = what.gb * (all - here) as f64 / all as f64;
    Ok(Copied {
        whole_s: whole.as_secs_f64(),
        processor_s_per_gb: to.usage().since(&before) / gb,
        source_s_per_gb: Usage::of(&source_pid).since(&source_before) / gb,
        mb_per_s: gb * 1000.0 / (now - under_way).as_secs_f64(),
    })
}

struct Copies {
    source: Source,
    warm: Filled,
    copy: Filled,
    one: Filled,
    gib: Filled,
}

impl Rounds for Copies {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let mut samples = self.default_settings(ctx, side)?;
        if side == Side::Tarn {
            samples.extend(self.page_cache(ctx)?);
        }
        Ok(samples)
    }
}

impl Copies {
    fn default_settings(&self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let source = &self.source;
        ctx.progress(format!("{}: start and warm-up", side.title()));
        let started = Instant::now();
        let mut to = Destination::start(ctx, side, source, mm2::for_throughput(ctx), &[])?;
        copy(&mut to, source, &self.warm)?;
        let cold_s = started.elapsed().as_secs_f64();
        let cold = to.usage().processor_s / self.warm.gb;
        ctx.progress(format!("{}: copies", side.title()));
        let pid = to.profiled_pid();
        let eight = ctx.profiled(pid, "mirror-copy", || copy(&mut to, source, &self.copy))?;
        let one = copy(&mut to, source, &self.one)?;
        let gib = copy(&mut to, source, &self.gib)?;
        let usage = to.usage();
        use measure::*;
        let per_gb = PROCESSOR_S_PER_GB;
        let mut samples = vec![
            Sample::new("X1", "", per_gb, eight.processor_s_per_gb),
            Sample::new("X1", "1 partition", per_gb, one.processor_s_per_gb),
            Sample::new("X1", "cold, from process start", per_gb, cold),
            Sample::new("X1", "the source meanwhile", per_gb, eight.source_s_per_gb),
            Sample::new("X3", "", MB_PER_S, eight.mb_per_s),
            Sample::new("X3", "1 partition", MB_PER_S, one.mb_per_s),
            Sample::new("X4", "", SECONDS, gib.whole_s),
            Sample::new("X4", "1.5 GB from process start", SECONDS, cold_s),
            Sample::new("X12", "", MIB, usage.rss_peak_bytes as f64 / BYTES_PER_MIB),
            Sample::new("X12", "", PROCESSES, to.pids().len() as f64),
        ];
        let logs = log_bytes(&to.data_dir()) as f64 / BYTES_PER_MIB;
        samples.push(Sample::new(
            "X12",
            "logs in the page cache, at most",
            MIB,
            logs,
        ));
        ctx.progress(format!("{}: comparing the copies", side.title()));
        let topics = [&self.warm, &self.copy, &self.one, &self.gib].map(|f| f.topic.clone());
        to.prove(source, &topics)?;
        Ok(samples)
    }

    fn page_cache(&self, ctx: &Ctx) -> Result<Vec<Sample>> {
        ctx.progress("Tarn with log.ack.durability=page-cache");
        let settings = [("log.ack.durability", "page-cache")];
        let tuning = mm2::for_throughput(ctx);
        let mut to = Destination::start(ctx, Side::Tarn, &self.source, tuning, &settings)?;
        copy(&mut to, &self.source, &self.gib)?;
        let copied = copy(&mut to, &self.source, &self.copy)?;
        to.prove(
            &self.source,
            &[self.gib.topic.clone(), self.copy.topic.clone()],
        )?;
        let cell = "page-cache mode";
        Ok(vec![
            Sample::new(
                "X1",
                cell,
                measure::PROCESSOR_S_PER_GB,
                copied.processor_s_per_gb,
            ),
            Sample::new("X3", cell, measure::MB_PER_S, copied.mb_per_s),
        ])
    }
}

/// Size of all files below `dir`.
fn log_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => log_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
