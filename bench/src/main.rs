//! The command line of the harness. `bin/bench.sh` builds everything and calls it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use tarn_bench::load;
use tarn_bench::runner::{self, Options, ROUNDS_MAX};
use tarn_bench::scenario::{Ctx, Scenario, Side};
use tarn_bench::store::{Record, Store};
use tarn_bench::{machine, page, pages, scenarios, settings, table};

/// Measures Tarn beside a real Kafka and beside MirrorMaker 2, in rounds that alternate, and builds
/// docs/performance.md from the figures.
///
/// Every round is kept in docs/performance/SCENARIO.json; a run that was cut short goes on with the
/// rounds that are left.
#[derive(Parser, Debug)]
#[command(name = "bench.sh")]
struct Arguments {
    /// Scenarios or rows (P1, X5), "all", "list" to see them, "page" to build the page only,
    /// "settings" (with scenarios or alone) to try the rivals' settings
    #[arg(required = true, value_name = "SCENARIO")]
    what: Vec<String>,
    /// Whom to measure against: a list of kafka and mm2, or none
    #[arg(long, default_value = "kafka,mm2")]
    against: String,
    /// Rounds of each side; each scenario has its own default
    #[arg(long)]
    rounds: Option<u32>,
    /// Writes the records of the scenarios into one file as well
    #[arg(long)]
    json: Option<PathBuf>,
    /// Less than 1: a smoke run with less load, whose figures are never published
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Runs on a busy machine too; the figures are marked
    #[arg(long)]
    force: bool,
    /// Measures anew instead of going on with the rounds that are left
    #[arg(long)]
    again: bool,
    /// One round of Tarn for each scenario that writes where processor time goes to
    /// docs/performance/profiles, and no figures
    #[arg(long)]
    profile: bool,
}

fn main() -> ExitCode {
    let result = match load::command::asked_for() {
        Some(load) => load.run().map(|()| true),
        None => run(&Arguments::parse()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let published = repository.join("docs/performance");
    if arguments.what.iter().any(|what| what == "list") {
        for scenario in scenarios::all() {
            println!("{:<24} {}", scenario.name(), scenario.rows().join(" "));
        }
        return Ok(true);
    }
    let docs = repository.join("docs");
    if arguments.what == ["page"] {
        page::write(&docs)?;
        return Ok(true);
    }
    let options = options(arguments)?;
    let (tries_settings, chosen) = match arguments.what.split_first() {
        Some((first, of)) if first == "settings" => (true, with_settings(of)?),
        _ => (false, choose(&arguments.what)?),
    };
    if let Some(sentence) = machine::raise_descriptor_limit() {
        eprintln!("bench: {sentence}");
    }
    let store = if arguments.scale == 1.0 && !arguments.profile {
        Store::at(&published)
    } else {
        Store::at(&std::env::temp_dir().join("tarn-bench-smoke"))
    };
    let mut records = Vec::new();
    let mut failed = Vec::new();
    for (at, scenario) in chosen.iter().enumerate() {
        let ctx = context(arguments, *scenario, (at + 1, chosen.len()), &published);
        if tries_settings {
            if let Err(e) = settings::run(*scenario, &ctx, &options, store.folder(), &repository) {
                eprintln!("bench: {}: {e:#}", scenario.name());
                failed.push(scenario.name());
            }
            continue;
        }
        match runner::run(*scenario, &ctx, &options, &store, &repository) {
            Ok(record) => {
                print!("{}", table::text(&record));
                records.push(record);
            }
            Err(e) => {
                eprintln!("bench: {}: {e:#}", scenario.name());
                failed.push(scenario.name());
            }
        }
        if store.folder() == published || arguments.profile {
            page::write(&docs)?;
        }
    }
    pages::release();
    if tries_settings && store.folder() == published {
        page::write(&docs)?;
    }
    write_json(arguments, &records)?;
    if !failed.is_empty() {
        eprintln!("bench: not finished: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn options(arguments: &Arguments) -> Result<Options> {
    if arguments
        .rounds
        .is_some_and(|rounds| !(1..=ROUNDS_MAX).contains(&rounds))
    {
        bail!("--rounds must be from 1 to {ROUNDS_MAX}");
    }
    if !(arguments.scale > 0.0 && arguments.scale <= 1.0) {
        bail!("--scale must be more than 0 and at most 1");
    }
    let mut against = Vec::new();
    for name in arguments.against.split(',') {
        match name {
            "kafka" => against.push(Side::Kafka),
            "mm2" => against.push(Side::Mm2),
            "none" => {}
            other => bail!("--against knows kafka, mm2 and none, not {other:?}"),
        }
    }
    let smoke = arguments.scale < 1.0 || arguments.profile;
    Ok(Options {
        against: if arguments.profile {
            Vec::new()
        } else {
            against
        },
        rounds: if smoke {
            Some(arguments.rounds.unwrap_or(1))
        } else {
            arguments.rounds
        },
        force: arguments.force || arguments.profile,
        again: arguments.again || smoke,
    })
}

/// The scenarios that names of scenarios and rows stand for, each once, in the order of the
/// registry.
fn choose(what: &[String]) -> Result<Vec<&'static dyn Scenario>> {
    let all = scenarios::all();
    let is = |scenario: &dyn Scenario, name: &str| {
        name == "all"
            || name == scenario.name()
            || scenario
                .rows()
                .iter()
                .any(|row| row.eq_ignore_ascii_case(name))
    };
    for name in what {
        if !all.iter().any(|scenario| is(*scenario, name)) {
            let known: Vec<String> = all
                .iter()
                .map(|s| format!("{} ({})", s.name(), s.rows().join(" ")))
                .collect();
            bail!(
                "there is no scenario or row {name:?}; there are: all, {}",
                known.join(", ")
            );
        }
    }
    Ok(all
        .into_iter()
        .filter(|scenario| what.iter().any(|name| is(*scenario, name)))
        .collect())
}

/// The scenarios of `what`, or all, whose rivals have settings to try.
fn with_settings(what: &[String]) -> Result<Vec<&'static dyn Scenario>> {
    let all = ["all".to_owned()];
    let mut chosen = choose(if what.is_empty() { &all } else { what })?;
    chosen.retain(|scenario| settings::decides(*scenario));
    if chosen.is_empty() {
        bail!(
            "{} has no rival whose settings could be tried",
            what.join(", ")
        );
    }
    Ok(chosen)
}

/// A context that shows progress with the time since the start of the scenario.
fn context(
    arguments: &Arguments,
    scenario: &dyn Scenario,
    (at, of): (usize, usize),
    published: &Path,
) -> Ctx {
    let (started, name) = (Instant::now(), scenario.name());
    let say = move |text: &str| {
        let s = started.elapsed().as_secs();
        eprintln!("[{at}/{of} {name} {:02}:{:02}] {text}", s / 60, s % 60);
    };
    let ctx = Ctx::new(arguments.scale, say);
    if arguments.profile {
        return ctx.with_profiles(&published.join("profiles"));
    }
    ctx
}

fn write_json(arguments: &Arguments, records: &[Record]) -> Result<()> {
    let Some(file) = &arguments.json else {
        return Ok(());
    };
    std::fs::write(file, serde_json::to_string_pretty(records)? + "\n")
        .with_context(|| format!("{} could not be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_chooses_the_scenario_that_fills_it() {
        let chosen = choose(&["m1".to_owned()]).unwrap();
        assert_eq!(chosen[0].name(), "machine-limits");
    }

    #[test]
    fn only_scenarios_whose_rival_has_settings_are_tried() {
        let names = |what: &[&str]| {
            let what: Vec<String> = what.iter().map(|&name| name.to_owned()).collect();
            with_settings(&what).map(|all| all.iter().map(|s| s.name()).collect::<Vec<_>>())
        };
        assert!(!names(&[]).unwrap().contains(&"wan"));
        assert_eq!(names(&["P1", "wan"]).unwrap(), ["broker-throughput"]);
        let said = names(&["wan"]).unwrap_err().to_string();
        assert_eq!(said, "wan has no rival whose settings could be tried");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let said = choose(&["P99".to_owned()]).err().unwrap().to_string();
        assert!(
            said.starts_with(
                "there is no scenario or row \"P99\"; there are: all, machine-limits (M1)"
            ),
            "{said}"
        );
    }

    #[test]
    fn every_scenario_fills_known_rows_and_has_a_name_of_its_own() {
        let mut names: Vec<&str> = scenarios::all().iter().map(|s| s.name()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for scenario in scenarios::all() {
            for row in scenario.rows() {
                assert!(
                    *row == "M1" || tarn_bench::rows::find(row).is_some(),
                    "{row}"
                );
            }
        }
    }
}
