//! Which settings serve the rivals better: a trial of their documented defaults against the tuned
//! ones, kept beside the figures and shown on the page. The settings themselves stand where they
//! are used: Kafka's in `scenarios/broker.rs`, MirrorMaker 2's in `mm2.rs`; which of them a row
//! runs with is `Scenario::rival_settings`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine};
use crate::pages;
use crate::rows::{self, Better, measure};
use crate::runner::{self, Options};
use crate::scenario::{Ctx, RivalSettings, Scenario, Side};
use crate::scenarios;
use crate::stats::{Spread, figure, moment};
use crate::store::Round;

/// What decides: the scenario that runs, and the figures of the rival that are compared. A scenario
/// runs once for all its lines.
const DECIDING: [Deciding; 17] = [
    deciding("broker-throughput", "P1", "", measure::PROCESSOR_S_PER_GB),
    deciding("broker-throughput", "P3", "", measure::PROCESSOR_S_PER_GB),
    deciding("broker-throughput", "P4", "", measure::MB_PER_S),
    deciding(
        "broker-requests",
        "P2",
        "",
        measure::PROCESSOR_S_PER_1000_REQUESTS,
    ),
    deciding("broker-latency", "P6", "", measure::P99_MS),
    deciding("broker-latency", "P7", "", measure::P99_MS),
    deciding("broker-durability", "P8", "throughput", measure::MB_PER_S),
    deciding("broker-durability", "P8", "latency", measure::P99_MS),
    deciding("mirror-copy", "X1", "", measure::PROCESSOR_S_PER_GB),
    deciding("mirror-copy", "X3", "", measure::MB_PER_S),
    deciding("mirror-copy", "X4", "", measure::SECONDS),
    deciding(
        "mirror-compressed",
        "X2",
        "zstd",
        measure::PROCESSOR_S_PER_GB,
    ),
    deciding(
        "mirror-compressed",
        "X2",
        "lz4",
        measure::PROCESSOR_S_PER_GB,
    ),
    deciding("mirror-lag", "X5", "5 MB/s", measure::P99_MS),
    deciding("mirror-lag", "X5", "10 MB/s", measure::P99_MS),
    deciding(
        "mirror-fanin",
        "X6",
        "1,000 partitions",
        measure::PERCENT_OF_A_CORE,
    ),
    deciding("mirror-fanin", "X6", "1,000 partitions", measure::P99_MS),
];
/// Below the folder of the records, in a folder of its own: it is no record of a scenario.
const FILE: &str = "settings/trials.json";

#[derive(Clone, Copy, Debug)]
struct Deciding {
    scenario: &'static str,
    row: &'static str,
    cell: &'static str,
    measure: &'static str,
}

const fn deciding(
    scenario: &'static str,
    row: &'static str,
    cell: &'static str,
    measure: &'static str,
) -> Deciding {
    Deciding {
        scenario,
        row,
        cell,
        measure,
    }
}

/// A round of a rival with one of its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trial {
    scenario: String,
    settings: RivalSettings,
    round: Round,
}

/// All trials, the newest of each scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Trials {
    machine: Machine,
    trials: Vec<Trial>,
}

/// Whether `scenario` has a part in the trial.
#[must_use]
pub fn decides(scenario: &dyn Scenario) -> bool {
    DECIDING.iter().any(|d| d.scenario == scenario.name())
}

/// Runs the rival of `scenario` with its defaults and with the tuned settings, `options.rounds` (or
/// one) of each in turn, and keeps the rounds below `folder`; those of the scenario that were there
/// are replaced.
///
/// # Errors
/// What is missing or went wrong, in a sentence; what was there stays.
pub fn run(
    scenario: &dyn Scenario,
    ctx: &Ctx,
    options: &Options,
    folder: &Path,
    repository: &Path,
) -> Result<()> {
    let rival = scenario
        .rival()
        .context("a scenario without a rival has no settings to try")?;
    runner::check(scenario, ctx)?;
    runner::quiet_machine(ctx, options)?;
    ctx.set_rival_settings(scenario.rival_settings());
    let mut setup = runner::guarded(|| scenario.setup(ctx))?;
    let commit = machine::commit(repository);
    let mut fresh = Vec::new();
    for number in 1..=options.rounds.unwrap_or(1) {
        let mut order = [RivalSettings::Default, RivalSettings::Tuned];
        if number % 2 == 0 {
            order.reverse();
        }
        for settings in order {
            ctx.progress(format!("{} with {}", rival.title(), settings.title()));
            ctx.set_rival_settings(settings);
            let before = runner::quiet_machine(ctx, options)?;
            let round = runner::one_round(setup.as_mut(), ctx, (number, rival), before, &commit)?;
            fresh.push(Trial {
                scenario: scenario.name().to_owned(),
                settings,
                round,
            });
        }
    }
    drop(setup);
    pages::release();
    let mut all = load(folder)?.unwrap_or_default();
    all.machine = Machine::look();
    all.trials.retain(|t| t.scenario != scenario.name());
    all.trials.extend(fresh);
    let file = file(folder);
    fs::create_dir_all(file.parent().unwrap_or(folder))?;
    fs::write(&file, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| format!("{} could not be written", file.display()))
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn load(folder: &Path) -> Result<Option<Trials>> {
    let file = file(folder);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let trials = serde_json::from_str(&text)
        .with_context(|| format!("{} holds no trials of settings", file.display()))?;
    Ok(Some(trials))
}

/// The page's section about the trial below `folder`; `None` when there was none.
///
/// # Errors
/// The file cannot be read.
pub fn section(folder: &Path) -> Result<Option<String>> {
    let Some(all) = load(folder)? else {
        return Ok(None);
    };
    let mut text = String::from(
        "The rival is to run with the better of its documented defaults and the tuned settings; a scenario gives all its rows the same, so where its figures disagree the last two columns differ. Kafka: `KAFKA_DEFAULTS` and `KAFKA_TUNED` in \
         `bench/src/scenarios/broker.rs`; MirrorMaker 2: `Tuning` in `bench/src/mm2.rs`. `bin/bench.sh settings` tries both, the rival alone (medians):\n\n\
         | rival | row | measure | defaults | tuned | better | the rows ran with |\n|---|---|---|---|---|---|---|\n",
    );
    for line in DECIDING {
        let mut known = scenarios::all().into_iter();
        let scenario = known.find(|s| s.name() == line.scenario);
        let Some((side, scenario)) = side_of(&all, &line).zip(scenario) else {
            continue;
        };
        let figures = [RivalSettings::Default, RivalSettings::Tuned]
            .map(|settings| median(&all, &line, settings));
        let [Some(default), Some(tuned)] = figures else {
            continue;
        };
        let better = if is_better(&line, tuned, default) {
            RivalSettings::Tuned
        } else {
            RivalSettings::Default
        };
        let shape = if line.cell.is_empty() {
            line.measure.to_owned()
        } else {
            format!("{}, {}", line.cell, line.measure)
        };
        writeln!(
            text,
            "| {} | {} | {shape} | {} | {} | {} | {} |",
            side.title(),
            line.row,
            figure(default),
            figure(tuned),
            better.title(),
            scenario.rival_settings().title(),
        )?;
    }
    if let Some(last) = all.trials.iter().max_by_key(|t| t.round.ended_unix_s) {
        let disturbed = all.trials.iter().any(|t| t.round.disturbed());
        writeln!(
            text,
            "\nTried until {} (UTC) on commit {}{}.",
            moment(last.round.ended_unix_s),
            last.round.commit,
            if disturbed {
                ", on a machine that others used too"
            } else {
                ""
            }
        )?;
    }
    Ok(Some(text.trim_end().to_owned()))
}

fn side_of(all: &Trials, line: &Deciding) -> Option<Side> {
    let trial = all.trials.iter().find(|t| t.scenario == line.scenario)?;
    Some(trial.round.side)
}

fn median(all: &Trials, line: &Deciding, settings: RivalSettings) -> Option<f64> {
    let of_scenario = all
        .trials
        .iter()
        .filter(|t| t.scenario == line.scenario && t.settings == settings);
    let values: Vec<f64> = of_scenario
        .flat_map(|t| &t.round.samples)
        .filter(|s| s.row == line.row && s.cell == line.cell && s.measure == line.measure)
        .map(|s| s.value)
        .collect();
    Some(Spread::of(&values)?.median)
}

fn is_better(line: &Deciding, a: f64, b: f64) -> bool {
    let row = rows::find(line.row);
    let goal = row.and_then(|row| row.cells.into_iter().find(|c| c.measure == line.measure));
    match goal.map(|cell| cell.better) {
        Some(Better::More) => a > b,
        _ => a < b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::round;

    fn trial(settings: RivalSettings, value: f64) -> Trial {
        Trial {
            scenario: "broker-throughput".to_owned(),
            settings,
            round: round(1, Side::Kafka, "P4", measure::MB_PER_S, value),
        }
    }

    #[test]
    fn the_section_names_the_better_settings_and_those_that_ran() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(section(folder.path()).unwrap(), None);
        let all = Trials {
            machine: Machine::default(),
            trials: vec![
                trial(RivalSettings::Default, 500.0),
                trial(RivalSettings::Tuned, 400.0),
            ],
        };
        fs::create_dir_all(folder.path().join("settings")).unwrap();
        fs::write(file(folder.path()), serde_json::to_string(&all).unwrap()).unwrap();
        let text = section(folder.path()).unwrap().unwrap();
        let line = "| Kafka | P4 | MB/s | 500 | 400 | defaults | tuned |";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn everything_that_decides_is_a_goal_of_a_scenario_with_a_rival() {
        for line in DECIDING {
            let known = scenarios::all();
            let scenario = known.iter().find(|s| s.name() == line.scenario).unwrap();
            assert!(scenario.rival().is_some() && scenario.rows().contains(&line.row));
            let row = rows::find(line.row).unwrap();
            let is_goal = |c: &rows::Cell| c.cell == line.cell && c.measure == line.measure;
            assert!(row.cells.iter().any(is_goal), "{line:?}");
        }
    }
}
