//! Tasks of the repository: `cargo run -p xtask -- TASK`.
//!
//! Owns no product code. Each task is a module; this file only picks one.

mod import_schemas;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo run -p xtask -- import-schemas --jar FILE [--jar FILE …]";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((task, rest)) if task == "import-schemas" => import_schemas::run(rest),
        _ => bail!(USAGE),
    }
}
