//! Lag of a steady stream (X5): stamped at the source to seen by a reader at the destination.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::mirroring::destination::Destination;
use crate::mirroring::observe::{Lags, Reader, Schedule, Writer};
use crate::mirroring::source::Source;
use crate::mirroring::wire::{self, Topic};
use crate::mm2;
use crate::rows::measure;
use crate::scenario::{Ctx, ROUNDS, RivalSettings, Rounds, Sample, Scenario, Side};
use tarn_tests::raw::RawClient;

const RATES: [(&str, u64); 2] = [("5 MB/s", 5_000_000), ("10 MB/s", 10_000_000)];
/// Of the same stream, before anything counts; Tarn has nothing to compile.
const WARM_S: u64 = 10;
const TARN_WARM_S: u64 = 4;
const MEASURED_S: u64 = 15;
const LEAST_S: u64 = 2;
const LIMIT: Duration = Duration::from_secs(60);

/// The scenario.
#[derive(Debug)]
pub struct MirrorLag;

impl Scenario for MirrorLag {
    fn name(&self) -> &'static str {
        "mirror-lag"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X5"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Mm2)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "A writer sends records of 1,000 bytes to one partition of the source, a batch each millisecond on a fixed schedule, stamped with the \
         moment at which it was due. A reader follows the partition at the destination with long polls, and takes the time at which an answer \
         has been received. Both are threads of one process with one clock. 10 s of warm-up (Tarn: 4 s), then 15 s are counted, for each rate. The same \
         reader at the source itself gives what the source alone takes, with nobody mirroring (7 s). MirrorMaker 2 runs with linger 0. The round \
         ends with the comparison of the copies."
    }

    fn disk_bytes(&self, _ctx: &Ctx) -> u64 {
        let rate: u64 = RATES.iter().map(|(_, rate)| rate).sum();
        // The source keeps the topics of all rounds of both sides.
        rate * (WARM_S + MEASURED_S) * u64::from(ROUNDS * 2 + 1)
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let mut streams = Streams {
            source: Source::start(ctx),
            topics: 0,
        };
        ctx.progress("warming the source");
        for (_, bytes_per_s) in RATES {
            let topic = streams.fresh_topic()?;
            streams.stream(ctx, &topic, bytes_per_s, None)?;
        }
        Ok(Box::new(streams))
    }
}

struct Streams {
    source: Source,
    /// Each stream gets a topic of its own.
    topics: u32,
}

impl Rounds for Streams {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        if side == Side::Tarn {
            let (rate, bytes_per_s) = RATES[0];
            let cell = format!("{rate}, the source alone");
            ctx.progress(&cell);
            let topic = self.fresh_topic()?;
            let lags = self.stream(ctx, &topic, bytes_per_s, None)?;
            samples.extend(figures(&cell, &lags));
        }
        let mut to = Destination::start(ctx, side, &self.source, mm2::for_lag(ctx), &[])?;
        for (rate, bytes_per_s) in RATES {
            ctx.progress(format!("{}: {rate}", side.title()));
            let topic = self.fresh_topic()?;
            to.add(&topic.name)?;
            let lags = self.stream(ctx, &topic, bytes_per_s, Some(&mut to))?;
            samples.extend(figures(rate, &lags));
            to.prove(&self.source, std::slice::from_ref(&topic))?;
        }
        Ok(samples)
    }
}

impl Streams {
    fn fresh_topic(&mut self) -> Result<Topic> {
        self.topics += 1;
        let topic = Topic::new(format!("stream-{}", self.topics), 1);
        self.source.create(std::slice::from_ref(&topic))?;
        Ok(topic)
    }

    /// Lags of a stream as a reader at `to` sees them; without `to`, at the source.
    fn stream(
        &self,
        ctx: &Ctx,
        topic: &Topic,
        bytes_per_s: u64,
        mut to: Option<&mut Destination>,
    ) -> Result<Lags> {
        let clock = Instant::now();
        let source_port = self.source.kafka().port();
        let writer = Writer::start(source_port, Schedule::stream(topic, bytes_per_s), clock)?;
        // The source alone is warm since the set-up, and only a reference: half the time does.
        let (warm_s, measured_s) = match &to {
            Some(Destination::Mm2(_)) => (WARM_S, MEASURED_S),
            Some(Destination::Tarn(_)) => (TARN_WARM_S, MEASURED_S),
            None => (TARN_WARM_S, MEASURED_S / 2),
        };
        let warm = Duration::from_secs(ctx.scaled(warm_s, LEAST_S));
        let topics = std::slice::from_ref(topic);
        let port = match &mut to {
            Some(to) => {
                // The stream runs: the first record here ends the start-up of the mirror.
                to.await_share(topics, &[1], 1.0, LIMIT)?;
                to.port()
            }
            None => source_port,
        };
        std::thread::sleep(warm);
        let end = wire::log_ends(&mut RawClient::connect(port)?, topics)?[0];
        let reader = Reader::start(port, vec![(topic.name.clone(), 0, end)], clock)?;
        std::thread::sleep(Duration::from_secs(1).min(warm));
        let from = clock.elapsed();
        std::thread::sleep(Duration::from_secs(ctx.scaled(measured_s, LEAST_S)));
        let window = from..clock.elapsed();
        let sent = writer.stop()?;
        self.source.await_records(topics, sent)?;
        if let Some(to) = to {
            to.await_caught_up(&self.source, topics, LIMIT)?;
        }
        let lags = reader.stop(&window)?;
        ensure!(lags.count() > 0, "the reader saw no record");
        Ok(lags)
    }
}

fn figures(cell: &str, lags: &Lags) -> Vec<Sample> {
    let quantiles = [
        (measure::P50_MS, 0.5),
        (measure::P90_MS, 0.9),
        (measure::P99_MS, 0.99),
        (measure::P999_MS, 0.999),
        (measure::MAX_MS, 1.0),
    ];
    quantiles
        .into_iter()
        .map(|(measure, q)| Sample::new("X5", cell, measure, lags.quantile_ms(q)))
        .collect()
}
