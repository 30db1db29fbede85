//! The contract between the runner and what it runs: a scenario, its rounds, their samples, and
//! what a scenario may ask of its surroundings.
//!
//! Not here: the order of rounds and where figures are kept (`runner`, `store`), what the figures
//! should be (`rows`).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tarn_tests::kafka::Kafka;
use tarn_tests::process::Scratch;
use tarn_tests::tarn::Tarn;

use crate::pages;
use crate::profile::Recording;

/// Rounds of each side unless the caller says otherwise. A round of both sides takes less than
/// three minutes in every scenario.
pub const ROUNDS: u32 = 5;

/// A phase that appends less than this is not worth a warming.
const WARM_BYTES_MIN: u64 = 50_000_000;

/// The tests look at their sources more often than a broker does by default, which would be paid
/// for in every figure about mirrors.
const DEFAULTS_THAT_TESTS_CHANGE: &[(&str, &str)] =
    &[("mirror.metadata.refresh.interval.ms", "30000")];

/// One system under test: Tarn alone, a real Kafka, or MirrorMaker 2 with a real Kafka as its
/// destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The `tarn` program.
    Tarn,
    /// Apache Kafka, the version of [`tarn_tests::jars::KAFKA_CURRENT`].
    Kafka,
    /// MirrorMaker 2 and the Kafka that it writes to.
    Mm2,
}

impl Side {
    /// How tables name it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Tarn => "Tarn",
            Self::Kafka => "Kafka",
            Self::Mm2 => "MirrorMaker 2",
        }
    }
}

/// What a rival is set to, for a trial of what serves it better (`settings`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RivalSettings {
    /// Its documented defaults.
    Default,
    /// What someone who knows it would set on such a machine.
    Tuned,
}

impl RivalSettings {
    /// How tables name them.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Default => "defaults",
            Self::Tuned => "tuned",
        }
    }
}

/// One figure of one round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The row it belongs to: "P1".
    pub row: &'static str,
    /// Shape inside the row: "8 partitions", "10 MB/s"; empty when the row has one shape.
    pub cell: String,
    /// What is counted, with its unit; constants stand in [`crate::rows::measure`].
    pub measure: &'static str,
    /// The figure.
    pub value: f64,
}

impl Sample {
    /// A figure of `row`.
    #[must_use]
    pub fn new(
        row: &'static str,
        cell: impl Into<String>,
        measure: &'static str,
        value: f64,
    ) -> Self {
        Self {
            row,
            cell: cell.into(),
            measure,
            value,
        }
    }
}

/// Something that can be measured, for one row or for several that share what is slow to start.
pub trait Scenario: Sync {
    /// Its name on the command line and of its file: "broker-throughput".
    fn name(&self) -> &'static str;

    /// The rows that it fills.
    fn rows(&self) -> &'static [&'static str];

    /// Whom it is measured against; `None`: Tarn only.
    fn rival(&self) -> Option<Side>;

    /// What the rival runs with in its rows: the better of both, as `settings` found by trial.
    fn rival_settings(&self) -> RivalSettings {
        RivalSettings::Default
    }

    /// What is measured and how, in sentences for the page: shapes, settings, what the figures
    /// include and what not.
    fn about(&self) -> &'static str {
        ""
    }

    /// Whether it starts any system, and so needs the product and a Java.
    fn runs_systems(&self) -> bool {
        true
    }

    /// The most it holds on the disk of the temporary folder at one time, bytes.
    fn disk_bytes(&self, _ctx: &Ctx) -> u64 {
        0
    }

    /// Builds what all rounds share, such as a filled source. Runs once, before the first round.
    ///
    /// # Errors
    /// What is missing, in a sentence that a person can act on.
    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>>;
}

/// A scenario that was set up. Dropping it ends everything it started.
pub trait Rounds {
    /// One round with a fresh system under test.
    ///
    /// # Errors
    /// The round gave no valid figures; nothing of it is kept.
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>>;
}

/// What a scenario may ask of its surroundings.
pub struct Ctx {
    scale: f64,
    remarks: RefCell<Vec<String>>,
    say: Box<dyn Fn(&str)>,
    profiles: Option<PathBuf>,
    rival_settings: Cell<RivalSettings>,
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("scale", &self.scale)
            .finish_non_exhaustive()
    }
}

impl Ctx {
    /// Surroundings for a run at `scale`; `say` shows a line of progress.
    #[must_use]
    pub fn new(scale: f64, say: impl Fn(&str) + 'static) -> Self {
        Self {
            scale,
            remarks: RefCell::default(),
            say: Box::new(say),
            profiles: None,
            rival_settings: Cell::new(RivalSettings::Default),
        }
    }

    /// The same with profiles wanted, in `folder`.
    #[must_use]
    pub fn with_profiles(self, folder: &Path) -> Self {
        Self {
            profiles: Some(folder.to_owned()),
            ..self
        }
    }

    /// From now on rivals run with `settings`.
    pub fn set_rival_settings(&self, settings: RivalSettings) {
        self.rival_settings.set(settings);
    }

    /// What rivals shall run with; the runner says it before the first round.
    #[must_use]
    pub fn rival_settings(&self) -> RivalSettings {
        self.rival_settings.get()
    }

    /// 1.0 in a real run; smaller in a smoke run, whose figures are never published. A scenario
    /// shrinks its load, its warm-up and its waiting by it.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// `full` × scale, but at least `least`: for counts of records, partitions, bytes, seconds.
    #[must_use]
    pub fn scaled(&self, full: u64, least: u64) -> u64 {
        // Counts of a benchmark are far below 2^52.
        ((full as f64 * self.scale) as u64).max(least)
    }

    /// Shows what is going on, on standard error.
    pub fn progress(&self, text: impl AsRef<str>) {
        (self.say)(text.as_ref());
    }

    /// Keeps a sentence with the round (or the setup) for the page: a bound that was met, a limit
    /// that could not be raised, a choice made.
    pub fn remark(&self, text: impl Into<String>) {
        let text = text.into();
        (self.say)(&text);
        self.remarks.borrow_mut().push(text);
    }

    /// The remarks since the last call.
    #[must_use]
    pub fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.remarks.borrow_mut())
    }

    /// A temporary folder, removed with the value. All systems under test live in such folders, so
    /// that they share one disk.
    #[must_use]
    pub fn scratch(&self, name: &str) -> Scratch {
        Scratch::new(name)
    }

    /// Makes memory ready for the page cache, for a phase that appends `bytes` ([`pages::warm`]
    /// says why). The runner does it before each round; a scenario does it again when it deleted
    /// much since, right before the measured part and alike for all sides.
    ///
    /// # Errors
    /// The temporary folder takes no sparse file.
    pub fn warm_pages(&self, bytes: u64) -> Result<()> {
        if self.scale < 1.0 || bytes < WARM_BYTES_MIN {
            return Ok(());
        }
        pages::warm(self)
    }

    /// Runs `phase`, the measured part of a round of Tarn whose process is `pid` (`None`: a rival's
    /// round). When the caller asked for profiles, it is sampled meanwhile and the summary becomes
    /// the profile `name` of the page; such a round gives no figures.
    ///
    /// # Errors
    /// What `phase` gives; a profile that cannot be taken is told on standard error only.
    pub fn profiled<T>(
        &self,
        pid: Option<u32>,
        name: &str,
        phase: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (Some(folder), Some(pid)) = (&self.profiles, pid) else {
            return phase();
        };
        let recording = Recording::start(pid);
        let result = phase();
        match recording
            .and_then(|recording| recording.finish(name, &folder.join(format!("{name}.txt"))))
        {
            Ok(()) => self.progress(format!("profile of {name} written")),
            Err(e) => self.progress(format!("no profile of {name}: {e:#}")),
        }
        result
    }

    /// A fresh Tarn as a user would run it. `settings` are lines of `server.properties` on top of
    /// the defaults; figures of rows need none unless the row says so.
    #[must_use]
    pub fn tarn(&self, settings: &[(&str, &str)]) -> Tarn {
        let mut all = DEFAULTS_THAT_TESTS_CHANGE.to_vec();
        all.extend_from_slice(settings);
        Tarn::start_with(&all)
    }

    /// A fresh Kafka as a user would run it: documented defaults, the JVM options of its own start
    /// script, 1 GB heap; `settings` on top.
    #[must_use]
    pub fn kafka(&self, settings: &[(&str, &str)]) -> Kafka {
        Kafka::start_measured(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_count_never_falls_below_its_least() {
        let ctx = Ctx::new(0.01, |_| {});
        assert_eq!((ctx.scaled(10_000, 1), ctx.scaled(100, 8)), (100, 8));
    }

    #[test]
    fn remarks_are_handed_over_once() {
        let ctx = Ctx::new(1.0, |_| {});
        ctx.remark("held 4,000 partitions");
        assert_eq!(ctx.take_remarks(), ["held 4,000 partitions"]);
        assert!(ctx.take_remarks().is_empty());
    }
}
