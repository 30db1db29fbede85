//! Many partitions with little in each (X6): processor time of the destination side, and the lag of
//! a sample of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use kafka_protocol::records::Compression;
use tarn_tests::raw::RawClient;

use crate::mirroring::destination::Destination;
use crate::mirroring::observe::{Reader, Schedule, Writer};
use crate::mirroring::source::Source;
use crate::mirroring::wire::{self, Topic};
use crate::mm2;
use crate::process::{Meter, Usage};
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

/// Topics of the first cell, and those that the second adds.
const NARROW_TOPICS: u64 = 10;
const WIDE_TOPICS: u64 = 40;
const PARTITIONS_PER_TOPIC: i32 = 100;
/// Of the same load before anything counts; Tarn has nothing to compile.
const WARM_S: u64 = 10;
const TARN_WARM_S: u64 = 5;
const MEASURED_S: u64 = 15;
const LEAST_S: u64 = 3;
/// Partitions whose lag is watched: enough samples, and a reader whose own cost does not show.
const WATCHED: usize = 50;
/// Until a destination holds what the source does: creating 5,000 partitions included.
const LIMIT: Duration = Duration::from_secs(120);
/// The cell of all partitions.
const WIDE: &str = "5,000 partitions";
const VALUE_BYTES: usize = 100;
/// Records of this size, each in a batch of its own, between two index entries of Kafka, and more
/// of them than fit.
const INDEX_PLACES: usize = 24;
const HISTORY_EXTRA: usize = 21;
const BYTES_PER_PARTITION: u64 = 256 * 1024;

/// The scenario.
#[derive(Debug)]
pub struct MirrorFanIn;

impl Scenario for MirrorFanIn {
    fn name(&self) -> &'static str {
        "mirror-fanin"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X6"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Mm2)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "One record of 100 bytes a second to each of 1,000 partitions (10 topics), then to each of 5,000 (40 topics more on the same \
         destination), a hundred requests a second. After 10 s of warm-up (Tarn: 5 s), 15 s are counted: processor time of the destination side as a \
         share of one core, and the lag of 50 partitions, seen by a reader at the destination. The round ends with the comparison of the \
         copies of all partitions. Before that every partition got 46 to 69 records, so that the source has touched its indexes' first pages \
         and does not write all of them at once. A MirrorMaker 2 that is not up to date with 5,000 partitions within 120 s has no figure there."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        let topics = ctx.scaled(NARROW_TOPICS, 1) + ctx.scaled(WIDE_TOPICS, 1);
        2 * topics * PARTITIONS_PER_TOPIC as u64 * BYTES_PER_PARTITION
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let topics = |name: &str, count| -> Vec<Topic> {
            (0..count)
                .map(|i| Topic::new(format!("{name}-{i:02}"), PARTITIONS_PER_TOPIC))
                .collect()
        };
        let source = Source::start(ctx);
        let narrow = topics("narrow", ctx.scaled(NARROW_TOPICS, 1));
        let wide = topics("wide", ctx.scaled(WIDE_TOPICS, 1));
        let wanted = wire::partitions_of(&wide);
        let narrow = source.create_many(ctx, narrow, 0)?;
        let wide = source.create_many(ctx, wide, wire::partitions_of(&narrow))?;
        ctx.progress("giving every partition some history");
        history(&source, &narrow)?;
        history(&source, &wide)?;
        Ok(Box::new(FanIn {
            is_less: wire::partitions_of(&wide) < wanted,
            source,
            narrow,
            wide,
        }))
    }
}

/// Kafka makes an index entry for each 4 KiB. Its first one in a partition faults in a page of a
/// sparse file, and partitions that grow alike do that all at once. So that is done here, and
/// afterwards each partition is at another place on its way to the next entry.
fn history(source: &Source, topics: &[Topic]) -> Result<()> {
    let before = source.ends(topics)?.iter().sum::<i64>().unsigned_abs();
    let mut client = RawClient::connect(source.kafka().port())?;
    let value = Bytes::from_static(&[b'x'; VALUE_BYTES]);
    let batch = |records: usize| wire::batch(&vec![value.clone(); records], Compression::None);
    let mut sent = 0;
    for topic in topics {
        for partition in 0..topic.partitions {
            let place = usize::try_from(partition)? % INDEX_PLACES;
            for records in [INDEX_PLACES + HISTORY_EXTRA, 1 + place] {
                wire::send(&mut client, &topic.name, vec![(partition, batch(records)?)])?;
                sent += records as u64;
            }
        }
    }
    source.await_records(topics, before + sent)
}

struct FanIn {
    source: Source,
    narrow: Vec<Topic>,
    wide: Vec<Topic>,
    /// Whether both together are fewer than 5,000 partitions.
    is_less: bool,
}

impl Rounds for FanIn {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let mut to = Destination::start(ctx, side, &self.source, mm2::for_lag(ctx), &[])?;
        let mut samples = Vec::new();
        let mut proven = self.narrow.clone();
        let all: Vec<Topic> = self.narrow.iter().chain(&self.wide).cloned().collect();
        let cells = [
            ("1,000 partitions", "narrow-.*", &self.narrow),
            (WIDE, "wide-.*", &all),
        ];
        for (cell, pattern, topics) in cells {
            ctx.progress(format!("{}: {cell}", side.title()));
            let trickled = to
                .add(pattern)
                .and_then(|()| to.await_caught_up(&self.source, topics, LIMIT))
                .and_then(|()| self.trickle(ctx, cell, topics, &mut to));
            match trickled {
                Ok(figures) => {
                    samples.extend(figures);
                    proven.clone_from(topics);
                }
                // What it could do counts.
                Err(error) if side == Side::Mm2 && !samples.is_empty() => {
                    let said = format!("{error:#}");
                    let said = said.lines().next().unwrap_or_default();
                    ctx.remark(format!("MirrorMaker 2 did not do {cell}: {said}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.is_less && proven.len() > self.narrow.len() {
            let held = f64::from(wire::partitions_of(&all));
            samples.push(Sample::new("X6", WIDE, measure::PARTITIONS_HELD, held));
        }
        to.prove(&self.source, &proven)?;
        Ok(samples)
    }
}

impl FanIn {
    fn trickle(
        &self,
        ctx: &Ctx,
        cell: &str,
        topics: &[Topic],
        to: &mut Destination,
    ) -> Result<Vec<Sample>> {
        let clock = Instant::now();
        let before = self.source.ends(topics)?.iter().sum::<i64>().unsigned_abs();
        let writer = Writer::start(self.source.kafka().port(), Schedule::trickle(topics), clock)?;
        // Every partition has got its first record, so that nothing here is still being made ready.
        let warm_s = match to {
            Destination::Tarn(_) => TARN_WARM_S,
            Destination::Mm2(_) => WARM_S,
        };
        std::thread::sleep(Duration::from_secs(ctx.scaled(warm_s, LEAST_S)));
        to.await_caught_up(&self.source, topics, LIMIT)?;
        let reader = Reader::start(to.port(), watched(to.port(), topics)?, clock)?;
        std::thread::sleep(Duration::from_secs(1));
        let from = clock.elapsed();
        let source_pid = [self.source.kafka().process().id()];
        let source_before = Usage::of(&source_pid);
        let meter = Meter::start(&to.pids());
        let name = format!("mirror-fanin-{}-topics", topics.len());
        ctx.profiled(to.profiled_pid(), &name, || {
            std::thread::sleep(Duration::from_secs(ctx.scaled(MEASURED_S, LEAST_S)));
            Ok(())
        })?;
        let (processor_s, wall_s) = meter.read();
        let source_s = Usage::of(&source_pid).since(&source_before);
        let window = from..clock.elapsed();
        let sent = writer.stop()?;
        self.source.await_records(topics, before + sent)?;
        to.await_caught_up(&self.source, topics, LIMIT)?;
        let lags = reader.stop(&window)?;
        ensure!(lags.count() > 0, "the reader saw no record of {cell}");
        let sample = |measure, value| Sample::new("X6", cell, measure, value);
        Ok(vec![
            sample(measure::PERCENT_OF_A_CORE, 100.0 * processor_s / wall_s),
            sample(measure::P50_MS, lags.quantile_ms(0.5)),
            sample(measure::P99_MS, lags.quantile_ms(0.99)),
            Sample::new(
                "X6",
                format!("{cell}, the source meanwhile"),
                measure::PERCENT_OF_A_CORE,
                100.0 * source_s / wall_s,
            ),
        ])
    }
}

/// Partitions spread over all topics, with their log ends at the destination.
fn watched(port: u16, topics: &[Topic]) -> Result<Vec<(String, i32, i64)>> {
    let ends = wire::log_ends(&mut RawClient::connect(port)?, topics)?;
    let all = topics
        .iter()
        .flat_map(|t| (0..t.partitions).map(|p| (t.name.clone(), p)));
    let step = (ends.len() / WATCHED).max(1);
    Ok(all
        .zip(ends)
        .map(|((topic, partition), end)| (topic, partition, end))
        .step_by(step)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_hold_the_partitions_that_they_are_named_after() {
        let partitions = |topics: u64| topics * PARTITIONS_PER_TOPIC as u64;
        assert_eq!(partitions(NARROW_TOPICS), 1000);
        assert_eq!(partitions(NARROW_TOPICS + WIDE_TOPICS), 5000);
    }
}
