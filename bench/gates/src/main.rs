//! The regression gates: instruction and allocation counts of the hot paths against a committed
//! baseline.
//!
//! Not here: times. They say nothing on shared cores; the benchmark harness owns them.
//!
//!     tarn-gates                        check; exit code 1 = a gate is broken, 3 = what could be checked is good, but callgrind is missing
//!     tarn-gates --update --why TEXT    take over the figures that left their bounds, with the reason for it

mod baseline;
mod counted;
mod history;
mod measure;
mod paths;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use baseline::{Baseline, Figures, Row};
use paths::{PATHS, Path, Shape};

const TOOLCHAIN: &str = env!("TARN_GATES_TOOLCHAIN");
const USAGE: &str = "usage: tarn-gates [--update --why TEXT]";
/// Exit code: nothing is wrong, but not everything could be checked.
const INCOMPLETE: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => check(),
        ["--update", "--why", why] if !why.trim().is_empty() => update(why.trim()),
        [measure::RUN, name] => run(name),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

fn run(name: &str) -> Result<ExitCode> {
    let path = PATHS.iter().find(|path| path.name == name);
    measure::run(path.with_context(|| format!("no path is called {name}"))?);
    Ok(ExitCode::SUCCESS)
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("baseline.txt")
}

fn read() -> Result<Baseline> {
    let file = file();
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Baseline::parse(&text).with_context(|| file.display().to_string())
}

/// Measures one path; an error when it allocates for records.
fn measure(path: &Path, count: bool) -> Result<Figures> {
    let [few, many] = [Shape::Few, Shape::Many].map(|shape| measure::allocations(path, shape));
    if few != many {
        bail!(
            "{}: {few} allocations with few records, {many} with ten times as many: something is allocated for each record",
            path.name
        );
    }
    let units = (path.prepare)(Shape::Few).units;
    let instructions = if count {
        Some(measure::instructions(path)? / units)
    } else {
        None
    };
    Ok(Figures {
        instructions,
        allocations_hundredths: (few * 100).div_ceil(units),
    })
}

fn check() -> Result<ExitCode> {
    let baseline = read()?;
    let count = measure::has_callgrind();
    let same_toolchain = baseline.toolchain == TOOLCHAIN;
    let mut broken = Vec::new();
    for path in PATHS {
        let row = baseline.rows.get(path.name);
        let row =
            row.with_context(|| format!("{} has no row in the baseline: run --update", path.name))?;
        let found = match measure(path, count && same_toolchain) {
            Ok(figures) => {
                print(path, &figures);
                row.deviations(&figures)
            }
            Err(error) => vec![format!("{error:#}")],
        };
        broken.extend(
            found
                .into_iter()
                .map(|text| format!("{}: {text}", path.name)),
        );
    }
    if !same_toolchain {
        broken.push(format!(
            "the baseline was counted with {}, this is {TOOLCHAIN}: run `tarn-gates --update --why \"{TOOLCHAIN}\"` on the commit that changes the compiler and nothing else",
            baseline.toolchain
        ));
    }
    for name in history::changed_without_reason(&file(), &baseline) {
        broken.push(format!(
            "{name}: the commit that changed its row gives no new reason"
        ));
    }
    for text in &broken {
        eprintln!("BROKEN {text}");
    }
    if !broken.is_empty() {
        eprintln!("If that is meant: tarn-gates --update --why \"the reason\"");
        return Ok(ExitCode::FAILURE);
    }
    if !count {
        eprintln!("instructions were not counted: valgrind is missing");
        return Ok(ExitCode::from(INCOMPLETE));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(path: &Path, figures: &Figures) {
    let instructions = figures
        .instructions
        .map_or("not counted".to_owned(), |n| n.to_string());
    println!(
        "{:<16} {instructions:>11} instructions {:>8.2} allocations   per {}",
        path.name,
        figures.allocations_hundredths as f64 / 100.0,
        path.unit
    );
}

fn update(why: &str) -> Result<ExitCode> {
    if !measure::has_callgrind() {
        bail!("the baseline needs instruction counts, and valgrind is missing: install it");
    }
    let old = read().unwrap_or_default();
    let mut rows = BTreeMap::new();
    for path in PATHS {
        let figures = measure(path, true)?;
        print(path, &figures);
        let kept = old.rows.get(path.name).filter(|row| {
            old.toolchain == TOOLCHAIN
                && row.deviations(&figures).is_empty()
                && row.allocations_hundredths == figures.allocations_hundredths
        });
        let row = kept.cloned().unwrap_or_else(|| Row {
            instructions: figures.instructions.unwrap_or_default(),
            allocations_hundredths: figures.allocations_hundredths,
            why: why.to_owned(),
        });
        rows.insert(path.name.to_owned(), row);
    }
    let new = Baseline {
        toolchain: TOOLCHAIN.to_owned(),
        rows,
    };
    std::fs::write(file(), new.format()).with_context(|| file().display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
