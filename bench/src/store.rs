//! The figures on disk: one JSON file a scenario, with every round, so that a run that was cut
//! short goes on where it stopped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::busy::Others;
use crate::machine::Machine;
use crate::scenario::{Sample, Scenario, Side};
use crate::stats::Spread;

/// Everything known of one scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Name of the scenario.
    pub scenario: String,
    /// Rows that it fills.
    pub rows: Vec<String>,
    /// What is measured and how, in words.
    pub about: String,
    /// Where the last round ran.
    pub machine: Machine,
    /// What the setup had to say.
    pub remarks: Vec<String>,
    /// Every round of every side, in the order in which they ran.
    pub rounds: Vec<Round>,
}

/// One round of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// Counted from 1; both sides have the same numbers.
    pub round: u32,
    /// Who was measured.
    pub side: Side,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// Seconds since 1970.
    pub ended_unix_s: u64,
    /// The commit of the product, with a mark when it was changed.
    pub commit: String,
    /// 1.0, or less in a smoke run.
    pub scale: f64,
    /// Run although the machine was busy, because the caller said so.
    #[serde(default)]
    pub forced: bool,
    /// Load average of the last minute before it.
    #[serde(default)]
    pub load_average: f64,
    /// What others used in the seconds before it.
    pub others_before: Others,
    /// What others used while it ran.
    pub others_during: Others,
    /// Disturbed and run once more: shown, but not counted.
    #[serde(default)]
    pub replaced: bool,
    /// What the scenario had to say.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The figures.
    pub samples: Vec<Stored>,
}

/// A [`Sample`] read back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The row: "P1".
    pub row: String,
    /// The shape inside the row.
    #[serde(default)]
    pub cell: String,
    /// What is counted, with its unit.
    pub measure: String,
    /// The figure.
    pub value: f64,
}

impl From<Sample> for Stored {
    fn from(sample: Sample) -> Self {
        Self {
            row: sample.row.to_owned(),
            cell: sample.cell,
            measure: sample.measure.to_owned(),
            value: sample.value,
        }
    }
}

impl Round {
    /// Whether it was disturbed, before or while it ran.
    #[must_use]
    pub fn disturbed(&self) -> bool {
        self.others_before.disturb() || self.others_during.disturb()
    }
}

impl Record {
    /// An empty record of `scenario`.
    #[must_use]
    pub fn new(scenario: &dyn Scenario) -> Self {
        Self {
            scenario: scenario.name().to_owned(),
            rows: scenario
                .rows()
                .iter()
                .map(|row| (*row).to_owned())
                .collect(),
            about: scenario.about().to_owned(),
            ..Self::default()
        }
    }

    /// Whether a round stands in it.
    #[must_use]
    pub fn has(&self, round: u32, side: Side) -> bool {
        self.counted().any(|r| r.round == round && r.side == side)
    }

    /// The rounds that count.
    pub fn counted(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(|round| !round.replaced)
    }

    /// The figures of a cell on one side, in the order of the rounds.
    #[must_use]
    pub fn values(&self, side: Side, row: &str, cell: &str, measure: &str) -> Vec<f64> {
        let of_side = self.counted().filter(|round| round.side == side);
        let samples = of_side.flat_map(|round| &round.samples);
        samples
            .filter(|s| s.row == row && s.cell == cell && s.measure == measure)
            .map(|s| s.value)
            .collect()
    }

    /// Their median with its ends.
    #[must_use]
    pub fn spread(&self, side: Side, row: &str, cell: &str, measure: &str) -> Option<Spread> {
        Spread::of(&self.values(side, row, cell, measure))
    }

    /// Cells and measures of a row that any round has, in the order of their first appearance.
    #[must_use]
    pub fn cells(&self, row: &str) -> Vec<(String, String)> {
        let mut cells = Vec::new();
        for sample in self.counted().flat_map(|round| &round.samples) {
            let cell = (sample.cell.clone(), sample.measure.clone());
            if sample.row == row && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    /// The sides that were measured, Tarn first.
    #[must_use]
    pub fn sides(&self) -> Vec<Side> {
        let mut sides: Vec<Side> = self.counted().map(|round| round.side).collect();
        sides.sort_unstable();
        sides.dedup();
        sides
    }
}

/// The folder with the JSON files.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// A store in `folder`, which is made when the first file is written.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    fn file(&self, scenario: &str) -> PathBuf {
        self.0.join(format!("{scenario}.json"))
    }

    /// What is known of a scenario; `None` when it never ran.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn load(&self, scenario: &str) -> Result<Option<Record>> {
        let file = self.file(scenario);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let record = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no record of a benchmark; move it away to measure anew",
                file.display()
            )
        })?;
        Ok(Some(record))
    }

    /// Every record in the folder, in the order of their names.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load_all(&self) -> Result<Vec<Record>> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some(
                    entry
                        .ok()?
                        .file_name()
                        .to_str()?
                        .strip_suffix(".json")?
                        .to_owned(),
                )
            })
            .collect();
        names.sort();
        let records = names.iter().filter_map(|name| self.load(name).transpose());
        records.collect()
    }

    /// Writes a record in one step: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn save(&self, record: &Record) -> Result<()> {
        fs::create_dir_all(&self.0).with_context(|| self.0.display().to_string())?;
        let file = self.file(&record.scenario);
        let fresh = self.0.join(format!(".{}.fresh", record.scenario));
        fs::write(&fresh, serde_json::to_string_pretty(record)? + "\n")
            .and_then(|()| fs::rename(&fresh, &file))
            .with_context(|| format!("{} could not be written", file.display()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A round with one sample, for tests.
    pub(crate) fn round(number: u32, side: Side, row: &str, measure: &str, value: f64) -> Round {
        Round {
            round: number,
            side,
            started_unix_s: 1_795_986_000,
            ended_unix_s: 1_795_986_030,
            commit: "0123456789".to_owned(),
            scale: 1.0,
            forced: false,
            load_average: 0.1,
            others_before: Others::default(),
            others_during: Others::default(),
            replaced: false,
            remarks: Vec::new(),
            samples: vec![Stored {
                row: row.to_owned(),
                cell: String::new(),
                measure: measure.to_owned(),
                value,
            }],
        }
    }

    #[test]
    fn a_record_survives_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        assert!(store.load("broker").unwrap().is_none());
        let record = Record {
            scenario: "broker".to_owned(),
            rounds: vec![round(1, Side::Tarn, "P1", "s", 0.5)],
            ..Record::default()
        };
        store.save(&record).unwrap();
        let read = store.load_all().unwrap().remove(0);
        assert_eq!(read.values(Side::Tarn, "P1", "", "s"), [0.5]);
        assert!(read.has(1, Side::Tarn) && !read.has(1, Side::Kafka) && !read.has(2, Side::Tarn));
    }

    #[test]
    fn a_broken_record_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.json"), "{").unwrap();
        let said = Store::at(folder.path()).load("x").unwrap_err().to_string();
        assert!(said.contains("x.json is no record"), "{said}");
    }

    #[test]
    fn replaced_rounds_do_not_count() {
        let mut first = round(1, Side::Tarn, "P1", "s", 9.0);
        first.replaced = true;
        let record = Record {
            rounds: vec![first, round(1, Side::Tarn, "P1", "s", 1.0)],
            ..Record::default()
        };
        assert_eq!(record.values(Side::Tarn, "P1", "", "s"), [1.0]);
    }
}
