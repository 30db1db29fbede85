//! Owns the counting: allocations in this process, instructions in a child of it under callgrind.

use std::alloc::System;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::counted::{SYMBOL, the_counted_part};
use crate::paths::{Path, Shape};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The argument with which the program runs one path once, for callgrind.
pub(crate) const RUN: &str = "run";

/// Allocations and reallocations of one run of the path.
pub(crate) fn allocations(path: &Path, shape: Shape) -> u64 {
    let mut prepared = (path.prepare)(shape);
    let region = Region::new(ALLOCATOR);
    the_counted_part(&mut prepared.work);
    let stats = region.change();
    (stats.allocations + stats.reallocations) as u64
}

/// Runs the path once where callgrind sees it.
pub(crate) fn run(path: &Path) {
    let mut prepared = (path.prepare)(Shape::Few);
    the_counted_part(&mut prepared.work);
}

/// Whether callgrind can be had at all.
pub(crate) fn has_callgrind() -> bool {
    let version = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Instructions of one run of the path.
pub(crate) fn instructions(path: &Path) -> Result<u64> {
    let scratch = tempfile::tempdir().context("a scratch folder")?;
    let out = scratch.path().join("callgrind");
    let program = std::env::current_exe().context("path of this program")?;
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--toggle-collect={SYMBOL}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([RUN, path.name])
        .output()
        .context("valgrind does not start")?;
    if !output.status.success() {
        bail!(
            "callgrind of {} ended with {}:\n{}",
            path.name,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let report = std::fs::read_to_string(&out).context("callgrind wrote no report")?;
    let total = report
        .lines()
        .find_map(|line| {
            line.strip_prefix("totals: ")
                .or(line.strip_prefix("summary: "))
        })
        .and_then(|count| count.trim().parse().ok());
    match total {
        Some(count) if count > 0 => Ok(count),
        _ => bail!(
            "callgrind counted nothing of {}: is {SYMBOL} still a function of its own?",
            path.name
        ),
    }
}
