//! What copying compressed topics costs (X2), per gigabyte of what the batches hold.

use std::time::Duration;

use anyhow::Result;
use kafka_protocol::records::Compression;

use super::mirror_copy::{Filled, copy};
use crate::mirroring::destination::Destination;
use crate::mirroring::fill::Payload;
use crate::mirroring::source::Source;
use crate::mirroring::wire::Topic;
use crate::mm2;
use crate::rows::measure;
use crate::scenario::{Ctx, RivalSettings, Rounds, Sample, Scenario, Side};

const CODECS: [(&str, Compression); 2] = [("zstd", Compression::Zstd), ("lz4", Compression::Lz4)];
/// Raw bytes of the warm-up of each codec and of what is measured.
const WARM_BYTES: u64 = 750_000_000;
const COPY_BYTES: u64 = 2_000_000_000;
const LEAST_BYTES: u64 = 40_000_000;
/// Compressed at most to this share: what the disk has to hold twice.
const SHRINKS_TO: f64 = 0.5;
const PARTITIONS: i32 = 8;
/// Connections to the source settle before the next topic.
const PAUSE: Duration = Duration::from_millis(200);

/// The scenario.
#[derive(Debug)]
pub struct MirrorCompressed;

impl Scenario for MirrorCompressed {
    fn name(&self) -> &'static str {
        "mirror-compressed"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X2"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Mm2)
    }

    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Tuned
    }

    fn about(&self) -> &'static str {
        "As mirror-copy, with generated JSON (orders with repeated names, random ids and numbers; zstd makes it about four times smaller) in \
         batches of 256 records, compressed with zstd and with lz4, 8 partitions. Both sides warm up on 0.75 GB of each codec, then 2 GB \
         are measured. GB are raw bytes: what the batches hold once they are open. MirrorMaker 2 writes without compression, its default; \
         compressing again would cost it more processor time."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        let raw = 2 * ctx.scaled(WARM_BYTES + COPY_BYTES, 2 * LEAST_BYTES);
        raw + (raw as f64 * SHRINKS_TO) as u64
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let source = Source::start(ctx);
        let mut codecs = Vec::new();
        for (name, codec) in CODECS {
            let filled = |what: &str, bytes| -> Result<Filled> {
                let topic = Topic::new(format!("{name}-{what}"), PARTITIONS);
                let bytes = ctx.scaled(bytes, LEAST_BYTES);
                let gb = source.filled(ctx, &topic, bytes, Payload::Json(codec))?;
                Ok(Filled { topic, gb })
            };
            codecs.push((
                name,
                filled("warm", WARM_BYTES)?,
                filled("copy", COPY_BYTES)?,
            ));
        }
        Ok(Box::new(Copies { source, codecs }))
    }
}

struct Copies {
    source: Source,
    /// Name, warm-up, what is measured.
    codecs: Vec<(&'static str, Filled, Filled)>,
}

impl Rounds for Copies {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let tuning = mm2::for_throughput(ctx);
        let mut to = Destination::start(ctx, side, &self.source, tuning, &[])?;
        let mut samples = Vec::new();
        for (name, warm, filled) in &self.codecs {
            ctx.progress(format!("{}: {name}", side.title()));
            copy(&mut to, &self.source, warm)?;
            std::thread::sleep(PAUSE);
            let copied = copy(&mut to, &self.source, filled)?;
            let cost = copied.processor_s_per_gb;
            samples.push(Sample::new("X2", *name, measure::PROCESSOR_S_PER_GB, cost));
            samples.push(Sample::new("X2", *name, measure::MB_PER_S, copied.mb_per_s));
            to.prove(&self.source, &[warm.topic.clone(), filled.topic.clone()])?;
        }
        Ok(samples)
    }
}
