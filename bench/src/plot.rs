//! One picture a row: bars of medians with every round as a dot, and percentile curves for
//! latencies. Figures without a goal stand in the tables of the page only, except where a row has
//! no goals at all.

use crate::rows::measure;
use crate::scenario::Side;
use crate::stats::{Spread, figure};
use crate::store::Record;
use crate::svg::{Anchor, Canvas};
use crate::table;

const WIDTH: f64 = 760.0;
const CURVES_HEIGHT: f64 = 240.0;
/// Height of one bar with the space around it.
const BAR_HEIGHT: f64 = 24.0;
/// Width of the names to the left of bars.
const NAMES_WIDTH: f64 = 250.0;
/// Space around the drawing of a panel: left, right, above, below.
const MARGINS: (f64, f64, f64, f64) = (70.0, 20.0, 40.0, 40.0);
const LEGEND_HEIGHT: f64 = 30.0;
const GRID: &str = "#ddd";
const AXIS: &str = "#555";

/// Percentiles in the order of a curve.
const CURVE: [&str; 6] = [
    measure::P50_MS,
    measure::P90_MS,
    measure::P99_MS,
    measure::P999_MS,
    measure::P9999_MS,
    measure::MAX_MS,
];
/// Fewer points make no curve.
const CURVE_POINTS_MIN: usize = 3;

fn colour(side: Side) -> &'static str {
    match side {
        Side::Tarn => "#1f77b4",
        Side::Kafka => "#d98032",
        Side::Mm2 => "#8a6fb0",
    }
}

/// The rounds of one side in one shape.
struct Series {
    cell: String,
    side: Side,
    values: Vec<f64>,
}

/// What one panel shows.
enum Panel {
    Bars {
        measure: String,
        series: Vec<Series>,
    },
    Curves {
        cell: String,
        curves: Vec<(Side, Vec<(usize, Spread)>)>,
    },
}

impl Panel {
    fn height(&self) -> f64 {
        match self {
            Self::Bars { series, .. } => MARGINS.2 + MARGINS.3 + BAR_HEIGHT * series.len() as f64,
            Self::Curves { .. } => CURVES_HEIGHT,
        }
    }
}

/// The picture of a row; `None` when nothing of it was measured.
#[must_use]
pub fn row(record: &Record, id: &str) -> Option<String> {
    let panels = panels(record, id);
    if panels.is_empty() {
        return None;
    }
    let whole: f64 = panels.iter().map(Panel::height).sum();
    let mut canvas = Canvas::new(WIDTH, whole + LEGEND_HEIGHT);
    legend(&mut canvas, record);
    let mut y = LEGEND_HEIGHT;
    for panel in &panels {
        match panel {
            Panel::Bars { measure, series } => {
                let area = Area::of(y, panel.height(), NAMES_WIDTH);
                bars(&mut canvas, &area, measure, series);
            }
            Panel::Curves { cell, curves } => {
                let area = Area::of(y, panel.height(), MARGINS.0);
                draw_curves(&mut canvas, &area, cell, curves);
            }
        }
        y += panel.height();
    }
    Some(canvas.finish())
}

fn panels(record: &Record, id: &str) -> Vec<Panel> {
    let mut lines = table::lines(Some(record), id);
    if lines.iter().any(|line| line.verdict.is_some()) {
        lines.retain(|line| line.verdict.is_some());
    }
    let mut panels = Vec::new();
    let mut measures: Vec<&str> = Vec::new();
    let mut cells: Vec<&str> = Vec::new();
    for line in &lines {
        if CURVE.contains(&line.measure.as_str()) && !cells.contains(&line.cell.as_str()) {
            cells.push(&line.cell);
        }
        if !measures.contains(&line.measure.as_str()) {
            measures.push(&line.measure);
        }
    }
    let mut has_curves = false;
    for cell in cells {
        let curves = curves(record, id, cell);
        if !curves.is_empty() {
            has_curves = true;
            panels.push(Panel::Curves {
                cell: cell.to_owned(),
                curves,
            });
        }
    }
    for measure in measures {
        if has_curves && CURVE.contains(&measure) {
            continue;
        }
        let series = series(record, id, measure, &lines);
        if !series.is_empty() {
            panels.push(Panel::Bars {
                measure: measure.to_owned(),
                series,
            });
        }
    }
    panels
}

fn series(record: &Record, id: &str, measure: &str, lines: &[table::Line]) -> Vec<Series> {
    let mut all = Vec::new();
    for line in lines.iter().filter(|line| line.measure == measure) {
        for side in record.sides() {
            let values = record.values(side, id, &line.cell, measure);
            if !values.is_empty() {
                all.push(Series {
                    cell: line.cell.clone(),
                    side,
                    values,
                });
            }
        }
    }
    all
}

fn curves(record: &Record, id: &str, cell: &str) -> Vec<(Side, Vec<(usize, Spread)>)> {
    let of_side = |side| {
        let points: Vec<(usize, Spread)> = CURVE
            .iter()
            .enumerate()
            .filter_map(|(at, measure)| Some((at, record.spread(side, id, cell, measure)?)))
            .collect();
        (points.len() >= CURVE_POINTS_MIN).then_some((side, points))
    };
    record.sides().into_iter().filter_map(of_side).collect()
}

fn legend(canvas: &mut Canvas, record: &Record) {
    let mut x = MARGINS.0;
    for side in record.sides() {
        canvas.bar((x, 10.0), (12.0, 12.0), colour(side));
        canvas.text((x + 18.0, 20.0), Anchor::Start, side.title());
        x += 130.0;
    }
}

/// The drawing area of a panel.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn of(y: f64, height: f64, left: f64) -> Self {
        Self {
            left,
            right: WIDTH - MARGINS.1,
            top: y + MARGINS.2,
            bottom: y + height - MARGINS.3,
        }
    }

    fn title(&self, canvas: &mut Canvas, text: &str) {
        canvas.text((MARGINS.0, self.top - 16.0), Anchor::Start, text);
    }

    fn grid(&self, canvas: &mut Canvas, y: f64, value: f64) {
        canvas.line((self.left, y), (self.right, y), GRID);
        canvas.text((self.left - 6.0, y + 4.0), Anchor::End, &tick_text(value));
    }

    fn ground(&self, canvas: &mut Canvas) {
        canvas.line((self.left, self.bottom), (self.right, self.bottom), AXIS);
    }
}

fn bars(canvas: &mut Canvas, area: &Area, measure: &str, series: &[Series]) {
    area.title(canvas, measure);
    let most = series
        .iter()
        .flat_map(|s| &s.values)
        .copied()
        .fold(0.0, f64::max);
    let (end, step) = linear_axis(most);
    let x_of = |value: f64| area.left + (area.right - area.left) * value / end;
    let mut tick = 0.0;
    while tick <= end * 1.001 {
        canvas.line((x_of(tick), area.top), (x_of(tick), area.bottom), GRID);
        let below = (x_of(tick), area.bottom + 16.0);
        canvas.text(below, Anchor::Middle, &tick_text(tick));
        tick += step;
    }
    for (at, one) in series.iter().enumerate() {
        let y = area.top + BAR_HEIGHT * at as f64;
        if let Some(spread) = Spread::of(&one.values) {
            let size = (x_of(spread.median) - area.left, BAR_HEIGHT - 6.0);
            canvas.bar((area.left, y + 3.0), size, colour(one.side));
            let beside = (x_of(spread.max) + 8.0, y + BAR_HEIGHT / 2.0 + 4.0);
            canvas.text(beside, Anchor::Start, &figure(spread.median));
        }
        for (round, value) in one.values.iter().enumerate() {
            let share = (round as f64 + 0.5) / one.values.len() as f64;
            let dot = (x_of(*value), y + 3.0 + (BAR_HEIGHT - 6.0) * share);
            canvas.dot(dot, colour(one.side));
        }
        let name = match one.cell.as_str() {
            "" => one.side.title().to_owned(),
            cell => format!("{cell}, {}", one.side.title()),
        };
        let before = (area.left - 8.0, y + BAR_HEIGHT / 2.0 + 4.0);
        canvas.text(before, Anchor::End, &name);
    }
    canvas.line((area.left, area.top), (area.left, area.bottom), AXIS);
}

fn draw_curves(
    canvas: &mut Canvas,
    area: &Area,
    cell: &str,
    curves: &[(Side, Vec<(usize, Spread)>)],
) {
    let title = if cell.is_empty() {
        "latency, ms".to_owned()
    } else {
        format!("{cell}: latency, ms")
    };
    area.title(canvas, &title);
    let spreads = || {
        curves
            .iter()
            .flat_map(|(_, points)| points.iter().map(|(_, spread)| spread))
    };
    let least = spreads().map(|s| s.min).fold(f64::MAX, f64::min).max(1e-4);
    let most = spreads()
        .map(|s| s.max)
        .fold(0.0, f64::max)
        .max(least * 1.01);
    let (from, to) = (least.log10().floor(), most.log10().ceil());
    let y_of = |value: f64| {
        area.bottom - (area.bottom - area.top) * (value.max(1e-4).log10() - from) / (to - from)
    };
    // Decades between 0.1 µs and hours: the numbers are small.
    for decade in from as i32..=to as i32 {
        let value = 10f64.powi(decade);
        area.grid(canvas, y_of(value), value);
    }
    let used: Vec<usize> = (0..CURVE.len())
        .filter(|at| {
            curves
                .iter()
                .any(|(_, points)| points.iter().any(|(p, _)| p == at))
        })
        .collect();
    let slot = (area.right - area.left) / used.len() as f64;
    let x_of = |percentile: usize| {
        let at = used.iter().position(|u| *u == percentile).unwrap_or(0);
        area.left + slot * (at as f64 + 0.5)
    };
    for at in &used {
        let name = CURVE[*at].trim_end_matches(" ms");
        canvas.text((x_of(*at), area.bottom + 18.0), Anchor::Middle, name);
    }
    for (side, points) in curves {
        let line: Vec<(f64, f64)> = points
            .iter()
            .map(|(at, s)| (x_of(*at), y_of(s.median)))
            .collect();
        canvas.path(&line, colour(*side));
        for (at, spread) in points {
            let x = x_of(*at);
            canvas.line((x, y_of(spread.min)), (x, y_of(spread.max)), colour(*side));
            canvas.dot((x, y_of(spread.median)), colour(*side));
            canvas.text(
                (x + 7.0, y_of(spread.median) - 6.0),
                Anchor::Start,
                &figure(spread.median),
            );
        }
    }
    area.ground(canvas);
}

/// The end of an axis that begins at 0, and the step of its ticks: four or five of them, at round
/// numbers.
fn linear_axis(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 0.25);
    }
    let raw = most * 1.1 / 4.0;
    let size = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|s| s * size)
        .find(|s| *s >= raw)
        .unwrap_or(raw);
    ((most * 1.1 / step).ceil() * step, step)
}

fn tick_text(value: f64) -> String {
    if value >= 1000.0 {
        return figure(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::round;

    fn record(measures: &[&'static str]) -> Record {
        let rounds = [Side::Tarn, Side::Kafka].into_iter().map(|side| {
            let mut one = round(1, side, "P7", measures[0], 1.0);
            for measure in &measures[1..] {
                one.samples
                    .extend(round(1, side, "P7", measure, 2.0).samples);
            }
            one
        });
        Record {
            rounds: rounds.collect(),
            ..Record::default()
        }
    }

    #[test]
    fn an_axis_ends_above_the_largest_value_at_a_round_step() {
        assert_eq!(linear_axis(9.0), (10.0, 2.5));
        assert_eq!(linear_axis(0.0), (1.0, 0.25));
        let (top, step) = linear_axis(4.87);
        assert!(top >= 4.87 && (top / step).fract() < 1e-9);
    }

    #[test]
    fn three_percentiles_make_a_curve_and_one_makes_bars() {
        let curve = row(
            &record(&[measure::P50_MS, measure::P99_MS, measure::MAX_MS]),
            "P7",
        )
        .unwrap();
        assert_eq!(curve.matches("<polyline").count(), 2);
        let bars = row(&record(&[measure::P99_MS]), "P7").unwrap();
        assert_eq!(bars.matches("<polyline").count(), 0);
        assert!(bars.contains(">1.00<"));
    }

    #[test]
    fn a_row_without_figures_has_no_picture() {
        assert!(row(&Record::default(), "P7").is_none());
    }
}
