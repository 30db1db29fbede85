//! The figures of a record as a table on a terminal, and the comparison behind it, which the page
//! uses too.

use std::fmt::Write as _;

use crate::rows::{self, Better, Bound, Cell, Verdict};
use crate::scenario::Side;
use crate::stats::{Spread, figure};
use crate::store::Record;

/// One figure of a row: both sides, and how it came out.
#[derive(Clone, Debug)]
pub struct Line {
    /// Shape inside the row.
    pub cell: String,
    /// What is counted, with its unit.
    pub measure: String,
    /// Tarn's rounds.
    pub own: Option<Spread>,
    /// The rival's.
    pub rival: Option<Spread>,
    /// How many times better Tarn is; `None` without a rival or without knowing which way is
    /// better.
    pub ratio: Option<f64>,
    /// `None`: shown without a goal.
    pub verdict: Option<Verdict>,
}

/// The figures of a row: those with goals first, whether measured or not, then what else was
/// measured.
#[must_use]
pub fn lines(record: Option<&Record>, id: &str) -> Vec<Line> {
    let goals = rows::find(id).map_or_else(Vec::new, |row| row.cells);
    let mut lines: Vec<Line> = goals
        .iter()
        .map(|cell| with_goal(record, id, cell))
        .collect();
    let measured = record.map_or_else(Vec::new, |record| record.cells(id));
    for (cell, measure) in measured {
        if lines
            .iter()
            .any(|line| line.cell == cell && line.measure == measure)
        {
            continue;
        }
        // What shares its measure with a goal is better in the same direction.
        let better = goals
            .iter()
            .find(|goal| goal.measure == measure)
            .map(|goal| goal.better);
        lines.push(line(record, id, (&cell, &measure), better));
    }
    lines
}

fn with_goal(record: Option<&Record>, id: &str, cell: &Cell) -> Line {
    let mut line = line(record, id, (cell.cell, cell.measure), Some(cell.better));
    let other = |measure: &str| {
        let spread = record?.spread(Side::Tarn, id, cell.cell, measure)?;
        Some(spread.median)
    };
    let median = |spread: Option<Spread>| spread.map(|s| s.median);
    line.verdict = Some(cell.verdict(median(line.own), median(line.rival), &other));
    line
}

fn line(
    record: Option<&Record>,
    id: &str,
    (cell, measure): (&str, &str),
    better: Option<Better>,
) -> Line {
    let spread = |side| record.and_then(|record| record.spread(side, id, cell, measure));
    let own = spread(Side::Tarn);
    let rival = spread(Side::Kafka).or_else(|| spread(Side::Mm2));
    let ratio = match (better, own, rival) {
        (Some(better), Some(own), Some(rival)) => {
            Some(rows::ratio(better, own.median, rival.median))
        }
        _ => None,
    };
    Line {
        cell: cell.to_owned(),
        measure: measure.to_owned(),
        own,
        rival,
        ratio,
        verdict: None,
    }
}

/// A spread as "0.61 (0.58 to 0.70)"; "–" when there is none.
#[must_use]
pub fn spread_text(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |s| match s.count {
            1 => figure(s.median),
            _ => format!(
                "{} ({} to {})",
                figure(s.median),
                figure(s.min),
                figure(s.max)
            ),
        },
    )
}

/// A bound in words, such as "≥ 6× less and ≤ 3 s".
#[must_use]
pub fn bound_text(bound: &Bound, better: Better, measure: &str) -> String {
    let mut parts = Vec::new();
    if let Some(ratio) = bound.ratio {
        let less = match better {
            Better::Less => " less",
            Better::More => "",
        };
        parts.push(format!("≥ {ratio}×{less}"));
    }
    if let Some(absolute) = bound.absolute {
        let sign = match better {
            Better::Less => "≤",
            Better::More => "≥",
        };
        // "p99 ms" says what is counted; the bound is in its unit.
        let is_percentile = measure.starts_with('p') && measure.ends_with(" ms");
        let unit = if is_percentile { "ms" } else { measure };
        parts.push(format!("{sign} {absolute} {unit}"));
    }
    let mut text = parts.join(" and ");
    if let Some((of, _)) = bound.or_share_of {
        write!(text, " or {of}").ok();
    }
    text
}

/// The table of one record for a terminal.
#[must_use]
pub fn text(record: &Record) -> String {
    let mut text = format!("\n{}\n", record.scenario);
    writeln!(
        text,
        "{:<5} {:<34} {:<26} {:<30} {:<30} {:>8}  verdict",
        "row", "cell", "measure", "Tarn", "rival", "ratio"
    )
    .ok();
    for id in &record.rows {
        for line in lines(Some(record), id) {
            writeln!(
                text,
                "{id:<5} {:<34} {:<26} {:<30} {:<30} {:>8}  {}",
                line.cell,
                line.measure,
                spread_text(line.own),
                spread_text(line.rival),
                line.ratio
                    .map_or_else(String::new, |r| format!("{}×", figure(r))),
                line.verdict.map_or("", Verdict::word).trim_matches('*')
            )
            .ok();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::measure;
    use crate::store::tests::round;

    #[test]
    fn a_line_compares_medians_and_names_the_verdict() {
        let of =
            |number, side, value| round(number, side, "P1", measure::PROCESSOR_S_PER_GB, value);
        let record = Record {
            rows: vec!["P1".to_owned()],
            rounds: vec![
                of(1, Side::Tarn, 0.5),
                of(1, Side::Kafka, 4.2),
                of(2, Side::Kafka, 4.0),
                of(2, Side::Tarn, 0.7),
            ],
            ..Record::default()
        };
        let line = lines(Some(&record), "P1").remove(0);
        assert!((line.ratio.unwrap() - 4.1 / 0.6).abs() < 1e-9);
        assert_eq!(line.verdict, Some(Verdict::Goal));
        assert!(text(&record).contains("0.600 (0.500 to 0.700)"));
    }

    #[test]
    fn a_row_that_was_not_measured_says_so() {
        let lines = lines(None, "X7");
        assert_eq!(lines.len(), 4);
        assert!(
            lines
                .iter()
                .all(|line| line.verdict == Some(Verdict::NotMeasured))
        );
    }

    #[test]
    fn bounds_are_written_out() {
        let x4 = rows::find("X4").unwrap().cells.remove(0);
        assert_eq!(
            bound_text(&x4.goal, x4.better, x4.measure),
            "≥ 6× less and ≤ 3 s"
        );
    }
}
