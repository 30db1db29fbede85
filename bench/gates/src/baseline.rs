//! Owns the committed baseline: its text form, what counts as a deviation, and the rule that a
//! changed figure needs a new reason. Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// How far an instruction count may be from its row, in parts of it.
const TOLERANCE_PERCENT: u64 = 3;
/// What is in front of the compiler's line.
const TOOLCHAIN: &str = "toolchain: ";
/// What stands above the rows.
const HEAD: &str = "\
# Instructions (callgrind) and allocations of the hot paths, per unit; see \"Regression gates\" in docs/performance.md.
# A row changes only together with its reason: tarn-gates --update --why \"…\"
";

/// What was measured of one path, per unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// Instructions; `None` when they could not be counted.
    pub(crate) instructions: Option<u64>,
    /// Allocations and reallocations, in hundredths.
    pub(crate) allocations_hundredths: u64,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Instructions per unit.
    pub(crate) instructions: u64,
    /// Most allocations per unit, in hundredths.
    pub(crate) allocations_hundredths: u64,
    /// Why the row is what it is.
    pub(crate) why: String,
}

/// All rows and the compiler they were counted with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Baseline {
    /// Compiler and target.
    pub(crate) toolchain: String,
    /// Rows by path.
    pub(crate) rows: BTreeMap<String, Row>,
}

impl Row {
    /// What is wrong with `figures` by this row; empty = nothing.
    pub(crate) fn deviations(&self, figures: &Figures) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(counted) = figures.instructions
            && counted.abs_diff(self.instructions) * 100 > self.instructions * TOLERANCE_PERCENT
        {
            let ratio = counted as f64 / self.instructions as f64 - 1.0;
            found.push(format!(
                "{counted} instructions, {:+.1} % against the baseline's {}",
                ratio * 100.0,
                self.instructions
            ));
        }
        if figures.allocations_hundredths > self.allocations_hundredths {
            found.push(format!(
                "{} allocations, at most {} are allowed",
                hundredths(figures.allocations_hundredths),
                hundredths(self.allocations_hundredths)
            ));
        }
        found
    }
}

impl Baseline {
    /// Reads the committed text.
    pub(crate) fn parse(text: &str) -> Result<Baseline> {
        let mut baseline = Baseline::default();
        for line in text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
        {
            if let Some(toolchain) = line.strip_prefix(TOOLCHAIN) {
                baseline.toolchain = toolchain.to_owned();
                continue;
            }
            let fields: Vec<&str> = line.splitn(4, '|').map(str::trim).collect();
            let &[name, instructions, allocations, why] = &fields[..] else {
                bail!("a row is `path | instructions | allocations | why`, not: {line}");
            };
            if why.is_empty() {
                bail!("the row of {name} has no reason");
            }
            let row = Row {
                instructions: instructions.parse().with_context(|| line.to_owned())?,
                allocations_hundredths: parse_hundredths(allocations)
                    .with_context(|| format!("not a number with two decimals: {line}"))?,
                why: why.to_owned(),
            };
            baseline.rows.insert(name.to_owned(), row);
        }
        Ok(baseline)
    }

    /// The text to commit.
    pub(crate) fn format(&self) -> String {
        let mut text = format!("{HEAD}{TOOLCHAIN}{}\n", self.toolchain);
        for (name, row) in &self.rows {
            text.push_str(&format!(
                "{name:<16} | {:>9} | {:>7} | {}\n",
                row.instructions,
                hundredths(row.allocations_hundredths),
                row.why
            ));
        }
        text
    }

    /// Paths whose figures differ from those of `before` under the same reason.
    pub(crate) fn changed_without_reason(&self, before: &Baseline) -> Vec<String> {
        let rows = self.rows.iter().filter(|(name, row)| {
            before.rows.get(*name).is_some_and(|old| {
                let figures = |r: &Row| (r.instructions, r.allocations_hundredths);
                figures(old) != figures(row) && old.why == row.why
            })
        });
        rows.map(|(name, _)| name.clone()).collect()
    }
}

fn hundredths(value: u64) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

fn parse_hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part = (part.len() == 2).then(|| part.parse::<u64>().ok())??;
    Some(whole.parse::<u64>().ok()?.checked_mul(100)? + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(instructions: u64, why: &str) -> Baseline {
        let row = Row {
            instructions,
            allocations_hundredths: 205,
            why: why.to_owned(),
        };
        Baseline {
            toolchain: "rustc 1".to_owned(),
            rows: [("append".to_owned(), row)].into(),
        }
    }

    #[test]
    fn the_text_form_reads_back() {
        let one = baseline(1000, "first | with a bar");
        assert_eq!(Baseline::parse(&one.format()).unwrap(), one);
        for bad in [
            "append | 1 | 1.00 |",
            "append | 1 | 1 | w",
            "append | x | 1.00 | w",
            "append",
        ] {
            assert!(Baseline::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn three_percent_either_way_and_one_more_allocation_are_deviations() {
        let row = &baseline(1000, "w").rows["append"];
        let of = |instructions, allocations_hundredths| {
            let figures = Figures {
                instructions,
                allocations_hundredths,
            };
            row.deviations(&figures).len()
        };
        assert_eq!(
            (of(Some(1030), 205), of(Some(970), 0), of(None, 205)),
            (0, 0, 0)
        );
        assert_eq!(
            (of(Some(1031), 205), of(Some(969), 205), of(None, 206)),
            (1, 1, 1)
        );
    }

    #[test]
    fn a_changed_figure_needs_a_new_reason() {
        let before = baseline(1000, "first");
        assert_eq!(
            baseline(900, "first").changed_without_reason(&before),
            ["append"]
        );
        assert!(
            baseline(900, "one copy less")
                .changed_without_reason(&before)
                .is_empty()
        );
        assert!(
            baseline(1000, "first")
                .changed_without_reason(&before)
                .is_empty()
        );
    }
}
