//! The destination side of a mirror in its two forms, behind the few verbs that a round needs:
//! start, add topics, wait for lag 0, prove.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tarn_tests::raw::RawClient;
use tarn_tests::segments;
use tarn_tests::tarn::Tarn;

use super::source::Source;
use super::wire::{self, Topic};
use crate::mm2::{Mm2, Tuning};
use crate::process::Usage;
use crate::scenario::{Ctx, Side};

const MIRROR: &str = "bench";
/// How often the log ends are asked for while a copy runs; its cost is part of both sides' figures.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MANY: Duration = Duration::from_millis(100);
/// From this number of partitions on, asking for all log ends is a cost that shows.
const MANY_PARTITIONS: i32 = 256;

/// What receives the copy.
#[derive(Debug)]
pub enum Destination {
    /// Tarn, which is broker and mirror in one process.
    Tarn(Box<Tarn>),
    /// MirrorMaker 2 and the Kafka that it writes to.
    Mm2(Box<Mm2>),
}

impl Destination {
    /// Starts the side's processes; nothing is copied yet. `settings` are Tarn's, on top of its
    /// defaults.
    ///
    /// # Errors
    /// A process does not come up.
    pub fn start(
        ctx: &Ctx,
        side: Side,
        source: &Source,
        tuning: Tuning,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        match side {
            Side::Tarn => {
                let tarn = ctx.tarn(settings);
                tarn.create_mirror(MIRROR, &source.bootstrap(), &[]);
                Ok(Self::Tarn(Box::new(tarn)))
            }
            Side::Mm2 => Ok(Self::Mm2(Box::new(Mm2::start(
                ctx,
                &source.bootstrap(),
                tuning,
            )?))),
            Side::Kafka => bail!("a Kafka alone mirrors nothing"),
        }
    }

    /// Where its readers connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Tarn(tarn) => tarn.port(),
            Self::Mm2(mm2) => mm2.kafka().port(),
        }
    }

    /// Where its brokers keep their data.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        match self {
            Self::Tarn(tarn) => tarn.dir().join("data"),
            Self::Mm2(mm2) => mm2.kafka().data_dir(),
        }
    }

    /// Every process of the side.
    #[must_use]
    pub fn pids(&mut self) -> Vec<u32> {
        match self {
            Self::Tarn(tarn) => vec![tarn.process().id()],
            Self::Mm2(mm2) => mm2.pids().to_vec(),
        }
    }

    /// The process that profiles are taken of; none of a rival.
    #[must_use]
    pub fn profiled_pid(&mut self) -> Option<u32> {
        match self {
            Self::Tarn(tarn) => Some(tarn.process().id()),
            Self::Mm2(_) => None,
        }
    }

    /// What the side used so far.
    #[must_use]
    pub fn usage(&mut self) -> Usage {
        Usage::of(&self.pids())
    }

    /// Adds the topics that match `pattern` (a name or a regular expression) to the mirror; returns
    /// when the command was accepted.
    ///
    /// # Errors
    /// The command was refused.
    pub fn add(&mut self, pattern: &str) -> Result<()> {
        match self {
            Self::Tarn(tarn) => {
                let said = tarn.mirrors(&["--add", "--mirror", MIRROR, "--topic", pattern]);
                ensure!(said.code == 0, "adding {pattern}: {said:?}");
                Ok(())
            }
            Self::Mm2(mm2) => mm2.add(pattern),
        }
    }

    /// Pauses the mirroring of the topics that match `pattern`, and waits until it stands. Tarn
    /// only.
    ///
    /// # Errors
    /// The command was refused, or the side cannot.
    pub fn pause(&mut self, pattern: &str) -> Result<()> {
        let Self::Tarn(tarn) = self else {
            bail!("only Tarn's mirrors are paused here");
        };
        let said = tarn.mirrors(&["--pause", "--mirror", MIRROR, "--topic", pattern, "--wait"]);
        ensure!(said.code == 0, "pausing {pattern}: {said:?}");
        Ok(())
    }

    /// Lets it go on. Tarn only.
    ///
    /// # Errors
    /// The command was refused, or the side cannot.
    pub fn resume(&mut self, pattern: &str) -> Result<()> {
        let Self::Tarn(tarn) = self else {
            bail!("only Tarn's mirrors are paused here");
        };
        let said = tarn.mirrors(&["--resume", "--mirror", MIRROR, "--topic", pattern]);
        ensure!(said.code == 0, "resuming {pattern}: {said:?}");
        Ok(())
    }

    /// Waits until `share` (1.0: all) of the records below `ends` of `topics` is here; gives the
    /// number of those records.
    ///
    /// # Errors
    /// Not within `limit`, or a process has ended.
    pub fn await_share(
        &mut self,
        topics: &[Topic],
        ends: &[i64],
        share: f64,
        limit: Duration,
    ) -> Result<i64> {
        let started = Instant::now();
        let mut client = RawClient::connect(self.port())?;
        let many = wire::partitions_of(topics) >= MANY_PARTITIONS;
        let all: i64 = ends.iter().sum();
        loop {
            let have = wire::log_ends(&mut client, topics)?;
            let here: i64 = ends.iter().zip(&have).map(|(e, h)| *e.min(h)).sum();
            if here == all || (here as f64) >= all as f64 * share {
                return Ok(here);
            }
            self.check_running()?;
            ensure!(
                started.elapsed() < limit,
                "after {limit:?} the mirror is still {} records behind{}",
                all - here,
                self.complaints()
            );
            std::thread::sleep(if many { LOOK_MANY } else { LOOK });
        }
    }

    /// Waits until everything that the source holds in `topics` now is here.
    ///
    /// # Errors
    /// Not within `limit`, or a process has ended.
    pub fn await_caught_up(
        &mut self,
        source: &Source,
        topics: &[Topic],
        limit: Duration,
    ) -> Result<()> {
        let ends = source.ends(topics)?;
        self.await_share(topics, &ends, 1.0, limit).map(|_| ())
    }

    /// Proves the copy: Tarn's batches are those of the source, byte for byte; MirrorMaker 2, which
    /// makes batches of its own, has as many records.
    ///
    /// # Errors
    /// The first difference.
    pub fn prove(&mut self, source: &Source, topics: &[Topic]) -> Result<()> {
        match self {
            Self::Tarn(tarn) => {
                for topic in topics {
                    for partition in 0..topic.partitions {
                        let theirs = source.kafka().partition_dir(&topic.name, partition);
                        let ours = tarn.partition_dir(&topic.name, partition);
                        // A partition without records has no folder of ours before its first
                        // append.
                        if !ours.exists() && segments::batches(&theirs)?.is_empty() {
                            continue;
                        }
                        segments::same(&theirs, &ours).with_context(|| {
                            format!("{}-{partition} is no exact copy", topic.name)
                        })?;
                    }
                }
                tarn.check_healthy();
                Ok(())
            }
            Self::Mm2(_) => {
                let want = source.ends(topics)?;
                let have = wire::log_ends(&mut RawClient::connect(self.port())?, topics)?;
                ensure!(
                    want == have,
                    "MirrorMaker 2 holds {} records, the source {}",
                    have.iter().sum::<i64>(),
                    want.iter().sum::<i64>()
                );
                Ok(())
            }
        }
    }

    /// The end of the mirror's log, for the sentence of a round that failed.
    fn complaints(&mut self) -> String {
        match self {
            Self::Tarn(tarn) => format!(":\n{}", tarn.process().tail(20)),
            Self::Mm2(mm2) => format!(":\n{}", mm2.log()),
        }
    }

    fn check_running(&mut self) -> Result<()> {
        match self {
            Self::Tarn(tarn) => tarn.process().check_running(),
            Self::Mm2(mm2) => mm2.check_running(),
        }
    }
}
