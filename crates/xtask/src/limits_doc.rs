//! `limits-doc`: writes docs/limits.md. The page is made where the tables of keys are, in
//! `tarn-server`; this only runs it, so that the other tasks do not have to be built with the whole
//! server.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

/// Writes the page.
pub(crate) fn run() -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let made = Command::new(cargo)
        .args(["run", "-q", "-p", "tarn-server", "--example", "limits-doc"])
        .current_dir(super::repository())
        .output()?;
    let problem = String::from_utf8_lossy(&made.stderr);
    ensure!(
        made.status.success(),
        "the page could not be made: {problem}"
    );
    fs::write(super::repository().join("docs/limits.md"), made.stdout)?;
    Ok(())
}
