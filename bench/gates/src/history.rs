//! Owns the look at the version of the baseline before the present one, in git. Without a history
//! (an archive, a shallow clone) there is nothing to compare with.

use std::path::Path;
use std::process::Command;

use crate::baseline::Baseline;

/// Paths whose row was changed last without a new reason.
pub(crate) fn changed_without_reason(file: &Path, now: &Baseline) -> Vec<String> {
    before(file, now)
        .map(|before| now.changed_without_reason(&before))
        .unwrap_or_default()
}

/// The newest committed version that is not the present one.
fn before(file: &Path, now: &Baseline) -> Option<Baseline> {
    let (folder, name) = (file.parent()?, file.file_name()?.to_str()?);
    let commits = git(folder, &["log", "-n", "2", "--format=%H", "--", name])?;
    commits
        .lines()
        .filter_map(|commit| git(folder, &["show", &format!("{commit}:./{name}")]))
        .filter_map(|text| Baseline::parse(&text).ok())
        .find(|version| version != now)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}
