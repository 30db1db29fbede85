//! The command line of the harness. `bin/bench.sh` builds everything and calls it.

use clap::Parser;
use tarn_bench::load;
use tarn_bench::scenario::{Ctx, Side};
use tarn_bench::scenarios;

/// Measures Tarn beside a real Kafka and beside MirrorMaker 2.
#[derive(Parser)]
#[command(name = "bench.sh")]
struct Arguments {
    /// Scenarios or rows ("P1"), or "all".
    #[arg(required = true)]
    what: Vec<String>,
    /// Less than 1: a smoke run, whose figures are never published.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

fn main() -> anyhow::Result<()> {
    if let Some(load) = load::command::asked_for() {
        return load.run();
    }
    let arguments = Arguments::parse();
    let ctx = Ctx::new(arguments.scale, |text| eprintln!("{text}"));
    for scenario in scenarios::all() {
        let wanted = |w: &String| {
            w == "all" || w == scenario.name() || scenario.rows().contains(&w.as_str())
        };
        if !arguments.what.iter().any(wanted) {
            continue;
        }
        let mut rounds = scenario.setup(&ctx)?;
        for side in [Some(Side::Tarn), scenario.rival()].into_iter().flatten() {
            for s in rounds.round(&ctx, side)? {
                println!("{} {} {:?} {} {}", s.row, s.cell, side, s.measure, s.value);
            }
        }
    }
    Ok(())
}
