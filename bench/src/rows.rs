//! The table of goals: every row of the two tables, its cells, what is counted, and what counts as
//! a goal and as a moonshot.
//!
//! A verdict is always computed from this table and the measured figures. Not here: how anything is
//! measured (`scenarios`).

use crate::scenario::Side;

/// What is counted, with its unit. Scenarios and this table use the same words, so that figures
/// find their goal.
pub mod measure {
    /// User and system time of the processes under test for 10^9 bytes: of values, or of whole
    /// batches where the scenario says so.
    pub const PROCESSOR_S_PER_GB: &str = "processor s/GB";
    /// User and system time of the processes under test for 1,000 requests.
    pub const PROCESSOR_S_PER_1000_REQUESTS: &str = "processor s/1,000 requests";
    /// User and system time of the processes under test, as a share of one core.
    pub const PERCENT_OF_A_CORE: &str = "% of a core";
    /// 10^6 bytes a second of wall time.
    pub const MB_PER_S: &str = "MB/s";
    /// 10^9 bytes a second of wall time.
    pub const GB_PER_S: &str = "GB/s";
    /// Requests that were answered in a second.
    pub const REQUESTS_SERVED_PER_S: &str = "requests served/s";
    /// Processor time of the load generator itself for 10^9 bytes.
    pub const GENERATOR_S_PER_GB: &str = "generator processor s/GB";
    /// Processor time of the load generator itself for 1,000 requests.
    pub const GENERATOR_S_PER_1000_REQUESTS: &str = "generator processor s/1,000 requests";
    /// What the link carries of what it could.
    pub const PERCENT_OF_LINK: &str = "% of the link";
    /// Median latency.
    pub const P50_MS: &str = "p50 ms";
    /// 90th percentile of the latency.
    pub const P90_MS: &str = "p90 ms";
    /// 99th percentile of the latency.
    pub const P99_MS: &str = "p99 ms";
    /// 99.9th percentile of the latency.
    pub const P999_MS: &str = "p99.9 ms";
    /// 99.99th percentile of the latency.
    pub const P9999_MS: &str = "p99.99 ms";
    /// Longest latency.
    pub const MAX_MS: &str = "max ms";
    /// Wall time.
    pub const SECONDS: &str = "s";
    /// Resident memory of the processes under test.
    pub const MIB: &str = "MiB";
    /// Resident memory for each partition beyond that of an empty broker.
    pub const KIB_PER_PARTITION: &str = "KiB/partition";
    /// Requests that the source got.
    pub const REQUESTS_PER_S: &str = "requests/s";
    /// A latency as a multiple of the same latency without disturbance, same side, same round.
    pub const TIMES_UNDISTURBED: &str = "times undisturbed";
    /// How many partitions the figures of a cell are of, where a Java broker held fewer than the
    /// cell's name says.
    pub const PARTITIONS_HELD: &str = "partitions held";
    /// How many processes do the job.
    pub const PROCESSES: &str = "processes";
    /// What the disk of this machine took in the same round, appended and synced.
    pub const DISK_MB_PER_S: &str = "disk MB/s";
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller figures win; the ratio is rival ÷ Tarn.
    Less,
    /// Larger figures win; the ratio is Tarn ÷ rival.
    More,
}

/// What has to hold for a figure. Everything given must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// Least ratio to the rival, formed so that more is better.
    pub ratio: Option<f64>,
    /// The figure itself: at most this when less is better, at least this when more is.
    pub absolute: Option<f64>,
    /// Holds already when the figure reaches this share of another measure of the same cell on
    /// Tarn's side, whatever the ratio says.
    pub or_share_of: Option<(&'static str, f64)>,
}

/// One figure of a row that has a goal.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Shape inside the row, as in [`crate::scenario::Sample::cell`].
    pub cell: &'static str,
    /// One of [`measure`].
    pub measure: &'static str,
    /// Which way is better.
    pub better: Better,
    /// What must be shown.
    pub goal: Bound,
    /// What to try for.
    pub moonshot: Bound,
}

/// One row of the tables.
#[derive(Clone, Debug)]
pub struct Row {
    /// "P1".
    pub id: &'static str,
    /// What the row is about, for the page.
    pub title: &'static str,
    /// Whom it is measured against; `None`: goals are absolute.
    pub rival: Option<Side>,
    /// Goal and moonshot in words, as agreed.
    pub wanted: (&'static str, &'static str),
    /// The figures with goals. Figures that have none are shown beside them.
    pub cells: Vec<Cell>,
}

/// How a row, or a cell of it, came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// There are no figures.
    NotMeasured,
    /// The goal was not reached.
    Missed,
    /// The goal was reached, the moonshot was not.
    Goal,
    /// The moonshot was reached.
    Moonshot,
}

impl Verdict {
    /// How the page says it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NotMeasured => "not measured",
            Self::Missed => "**missed**",
            Self::Goal => "met",
            Self::Moonshot => "moonshot",
        }
    }
}

impl Bound {
    const fn ratio(ratio: f64) -> Self {
        Self {
            ratio: Some(ratio),
            absolute: None,
            or_share_of: None,
        }
    }

    const fn absolute(absolute: f64) -> Self {
        Self {
            ratio: None,
            absolute: Some(absolute),
            or_share_of: None,
        }
    }

    const fn both(ratio: f64, absolute: f64) -> Self {
        Self {
            ratio: Some(ratio),
            absolute: Some(absolute),
            or_share_of: None,
        }
    }

    /// Whether it holds; `None` when what it compares with was not measured. `other` finds another
    /// measure of the same cell on Tarn's side.
    fn holds(
        &self,
        better: Better,
        own: f64,
        rival: Option<f64>,
        other: &dyn Fn(&str) -> Option<f64>,
    ) -> Option<bool> {
        if let Some((measure, share)) = self.or_share_of
            && other(measure).is_some_and(|bound| own >= bound * share)
        {
            return Some(true);
        }
        let by_value = self.absolute.is_none_or(|bound| match better {
            Better::Less => own <= bound,
            Better::More => own >= bound,
        });
        let Some(wanted) = self.ratio else {
            return Some(by_value);
        };
        if !by_value {
            return Some(false);
        }
        Some(ratio(better, own, rival?) >= wanted)
    }
}

/// How many times better `own` is than `rival`. Infinite when nothing was used or the rival did
/// nothing.
#[must_use]
pub fn ratio(better: Better, own: f64, rival: f64) -> f64 {
    match better {
        Better::Less => rival / own,
        Better::More => own / rival,
    }
}

impl Cell {
    /// The verdict on a median of Tarn and of the rival. `other` finds another measure of the same
    /// cell on Tarn's side.
    #[must_use]
    pub fn verdict(
        &self,
        own: Option<f64>,
        rival: Option<f64>,
        other: &dyn Fn(&str) -> Option<f64>,
    ) -> Verdict {
        let Some(own) = own else {
            return Verdict::NotMeasured;
        };
        let holds = |bound: &Bound| bound.holds(self.better, own, rival, other);
        match (holds(&self.goal), holds(&self.moonshot)) {
            (None, _) => Verdict::NotMeasured,
            (Some(false), _) => Verdict::Missed,
            (Some(true), Some(true)) => Verdict::Moonshot,
            (Some(true), _) => Verdict::Goal,
        }
    }
}

/// The verdict on a row from those on its cells: one missed cell loses the row, and a row with an
/// unmeasured cell has no good verdict.
#[must_use]
pub fn of_row(cells: &[Verdict]) -> Verdict {
    if cells.contains(&Verdict::Missed) {
        return Verdict::Missed;
    }
    cells.iter().copied().min().unwrap_or(Verdict::NotMeasured)
}

/// The row called `id`.
#[must_use]
pub fn find(id: &str) -> Option<Row> {
    all().into_iter().find(|row| row.id == id)
}

/// Every row, brokers first.
#[must_use]
pub fn all() -> Vec<Row> {
    let mut rows = broker_rows();
    rows.extend(mirror_rows());
    rows
}

fn less(cell: &'static str, measure: &'static str, goal: Bound, moonshot: Bound) -> Cell {
    Cell {
        cell,
        measure,
        better: Better::Less,
        goal,
        moonshot,
    }
}

fn more(cell: &'static str, measure: &'static str, goal: Bound, moonshot: Bound) -> Cell {
    Cell {
        better: Better::More,
        ..less(cell, measure, goal, moonshot)
    }
}

fn row(
    id: &'static str,
    rival: Option<Side>,
    title: &'static str,
    wanted: (&'static str, &'static str),
    cells: Vec<Cell>,
) -> Row {
    Row {
        id,
        title,
        rival,
        wanted,
        cells,
    }
}

fn broker_rows() -> Vec<Row> {
    let mut rows = broker_throughput_rows();
    rows.extend(broker_scale_rows());
    rows.extend(stock_client_rows());
    rows
}

fn broker_throughput_rows() -> Vec<Row> {
    use measure::*;
    let kafka = Some(Side::Kafka);
    let ratio = Bound::ratio;
    let disk_bound = Bound {
        or_share_of: Some((DISK_MB_PER_S, 0.95)),
        ..ratio(2.4)
    };
    vec![
        row(
            "P1",
            kafka,
            "broker processor time per GB produced, 1 KB records, 256 KiB batches",
            ("≥ 5× less", "8×"),
            vec![less("", PROCESSOR_S_PER_GB, ratio(5.0), ratio(8.0))],
        ),
        row(
            "P2",
            kafka,
            "broker processor time per 1,000 small requests, 50 connections",
            ("≥ 4× less", "8×"),
            vec![less(
                "",
                PROCESSOR_S_PER_1000_REQUESTS,
                ratio(4.0),
                ratio(8.0),
            )],
        ),
        row(
            "P3",
            kafka,
            "broker processor time per GB consumed, cached",
            ("≥ 4× less", "8×"),
            vec![less("", PROCESSOR_S_PER_GB, ratio(4.0), ratio(8.0))],
        ),
        row(
            "P4",
            kafka,
            "produced with our generator",
            ("≥ 2×", "2.4× or the measured disk bound"),
            vec![more("", MB_PER_S, ratio(2.0), disk_bound)],
        ),
        row(
            "P6",
            kafka,
            "produce p99 at 20 MB/s, 50 keyed producers",
            ("≤ 1/3", "1/5"),
            vec![less("", P99_MS, ratio(3.0), ratio(5.0))],
        ),
        row(
            "P7",
            kafka,
            "end to end p99 at 1,000 records/s",
            ("≤ 1/4", "≤ 1 ms"),
            vec![less("", P99_MS, ratio(4.0), Bound::absolute(1.0))],
        ),
        row(
            "P8",
            kafka,
            "fsync before the acknowledgement, against Kafka without fsync",
            ("throughput ≥ 1×, p99 ≤ 1×", "2×, 1/2"),
            vec![
                more("throughput", MB_PER_S, ratio(1.0), ratio(2.0)),
                less("latency", P99_MS, ratio(1.0), ratio(2.0)),
            ],
        ),
    ]
}

fn broker_scale_rows() -> Vec<Row> {
    use measure::*;
    let kafka = Some(Side::Kafka);
    let (ratio, absolute) = (Bound::ratio, Bound::absolute);
    vec![
        row(
            "P9",
            kafka,
            "resident memory, idle and under load",
            ("≥ 12× / ≥ 6× less", "20× / 10×"),
            vec![
                less("idle", MIB, ratio(12.0), ratio(20.0)),
                less("under load", MIB, ratio(6.0), ratio(10.0)),
            ],
        ),
        row(
            "P10",
            kafka,
            "start to the first accepted produce",
            ("≥ 30× faster", "80×"),
            vec![less("", SECONDS, ratio(30.0), ratio(80.0))],
        ),
        row(
            "P11",
            kafka,
            "restart after kill -9",
            ("≥ 10× faster", "30×"),
            vec![
                less("3 GB in 8 partitions", SECONDS, ratio(10.0), ratio(30.0)),
                less("3,000 partitions", SECONDS, ratio(10.0), ratio(30.0)),
            ],
        ),
        row(
            "P12",
            kafka,
            "10,000 partitions: create, idle, memory for each",
            ("≤ 3 s; ≤ 0.5 % of a core; ≤ 50 KiB", "1 s; 0.1 %; 20 KiB"),
            vec![
                less("create", SECONDS, absolute(3.0), absolute(1.0)),
                less("idle", PERCENT_OF_A_CORE, absolute(0.5), absolute(0.1)),
                less("memory", KIB_PER_PARTITION, absolute(50.0), absolute(20.0)),
            ],
        ),
    ]
}

fn stock_client_rows() -> Vec<Row> {
    use measure::*;
    let kafka = Some(Side::Kafka);
    let ratio = Bound::ratio;
    vec![
        row(
            "P13",
            kafka,
            "Kafka's own producer tool at its defaults, each broker with its own",
            ("processor time ≥ 4× less, p99 ≤ 1/3", "6×, 1/5"),
            vec![
                less("", PROCESSOR_S_PER_GB, ratio(4.0), ratio(6.0)),
                less("", P99_MS, ratio(3.0), ratio(5.0)),
            ],
        ),
        row(
            "P14",
            kafka,
            "Kafka's own consumer tool at its defaults, each broker with its own",
            ("processor time ≥ 4× less", "6×"),
            vec![less("", PROCESSOR_S_PER_GB, ratio(4.0), ratio(6.0))],
        ),
    ]
}

fn mirror_rows() -> Vec<Row> {
    let mut rows = mirror_copy_rows();
    rows.extend(mirror_wide_rows());
    rows.extend(mirror_end_rows());
    rows
}

fn mirror_copy_rows() -> Vec<Row> {
    use measure::*;
    let mm2 = Some(Side::Mm2);
    let (ratio, absolute, both) = (Bound::ratio, Bound::absolute, Bound::both);
    let mut lag = Vec::new();
    for rate in ["5 MB/s", "10 MB/s"] {
        lag.push(less(rate, P50_MS, absolute(1.5), absolute(0.7)));
        lag.push(less(rate, P99_MS, both(3.0, 5.0), both(3.0, 2.0)));
        lag.push(less(rate, P999_MS, absolute(15.0), absolute(5.0)));
    }
    vec![
        row(
            "X1",
            mm2,
            "processor time per GB, whole destination side, uncompressed",
            ("≥ 12× less", "25×"),
            vec![less("", PROCESSOR_S_PER_GB, ratio(12.0), ratio(25.0))],
        ),
        row(
            "X2",
            mm2,
            "the same, compressed data, per raw GB",
            ("≥ 40× less", "100×"),
            vec![
                less("zstd", PROCESSOR_S_PER_GB, ratio(40.0), ratio(100.0)),
                less("lz4", PROCESSOR_S_PER_GB, ratio(40.0), ratio(100.0)),
            ],
        ),
        row(
            "X3",
            mm2,
            "copy, 8 partitions, nothing else on the cores",
            ("≥ 4×", "6×"),
            vec![more("", MB_PER_S, ratio(4.0), ratio(6.0))],
        ),
        row(
            "X4",
            mm2,
            "1 GiB from \"add topic\" to lag 0",
            ("≥ 6× faster and ≤ 3 s", "12×"),
            vec![less("", SECONDS, both(6.0, 3.0), both(12.0, 3.0))],
        ),
        row(
            "X5",
            mm2,
            "lag, stamped at the source to seen by a reader here",
            (
                "p50 / p99 / p99.9 ≤ 1.5 / 5 / 15 ms, p99 ≥ 3× below",
                "0.7 / 2 / 5 ms",
            ),
            lag,
        ),
    ]
}

fn mirror_wide_rows() -> Vec<Row> {
    use measure::*;
    let mm2 = Some(Side::Mm2);
    let (ratio, absolute) = (Bound::ratio, Bound::absolute);
    let mut fan_in = Vec::new();
    for shape in ["1,000 partitions", "5,000 partitions"] {
        fan_in.push(less(shape, PERCENT_OF_A_CORE, ratio(10.0), ratio(20.0)));
        fan_in.push(less(shape, P99_MS, absolute(50.0), absolute(50.0)));
    }
    let wan = |cell, moonshot| more(cell, PERCENT_OF_LINK, absolute(80.0), absolute(moonshot));
    vec![
        row(
            "X6",
            mm2,
            "1,000 and 5,000 partitions at 1 record/s each",
            ("processor time ≥ 10× less; p99 lag ≤ 50 ms", "20×"),
            fan_in,
        ),
        row(
            "X7",
            None,
            "idle mirrored partitions",
            (
                "≤ 0.5 % / 1 % of a core, ≤ 2 requests/s per source broker",
                "0.1 % / 0.3 %",
            ),
            vec![
                less(
                    "1,000 partitions",
                    PERCENT_OF_A_CORE,
                    absolute(0.5),
                    absolute(0.1),
                ),
                less(
                    "1,000 partitions",
                    REQUESTS_PER_S,
                    absolute(2.0),
                    absolute(2.0),
                ),
                less(
                    "10,000 partitions",
                    PERCENT_OF_A_CORE,
                    absolute(1.0),
                    absolute(0.3),
                ),
                less(
                    "10,000 partitions",
                    REQUESTS_PER_S,
                    absolute(2.0),
                    absolute(2.0),
                ),
            ],
        ),
        row(
            "X8",
            None,
            "100 ms round trip, 50 MB/s link, 0.1 % loss",
            ("≥ 80 % of the link", "95 %; one partition 90 %"),
            vec![
                wan("1 partition", 90.0),
                wan("8 partitions", 95.0),
                wan("500 partitions", 95.0),
            ],
        ),
    ]
}

fn mirror_end_rows() -> Vec<Row> {
    use measure::*;
    let (ratio, absolute) = (Bound::ratio, Bound::absolute);
    vec![
        row(
            "X10",
            None,
            "produce on other topics while 5,000 partitions catch up",
            ("p99 ≤ 10 ms, ≤ 2× undisturbed", "1.3×"),
            vec![
                less(
                    "during the catch-up",
                    P99_MS,
                    absolute(10.0),
                    absolute(10.0),
                ),
                less(
                    "during the catch-up",
                    TIMES_UNDISTURBED,
                    absolute(2.0),
                    absolute(1.3),
                ),
            ],
        ),
        row(
            "X11",
            None,
            "remove with the source dead, to the first accepted produce",
            ("≤ 1 / 3 / 15 s", "0.3 / 1 / 5 s"),
            vec![
                less("1 partition", SECONDS, absolute(1.0), absolute(0.3)),
                less("1,000 partitions", SECONDS, absolute(3.0), absolute(1.0)),
                less("10,000 partitions", SECONDS, absolute(15.0), absolute(5.0)),
            ],
        ),
        row(
            "X12",
            Some(Side::Mm2),
            "processes and memory for the job",
            ("≥ 12× less", "20×"),
            vec![less("", MIB, ratio(12.0), ratio(20.0))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<f64> {
        None
    }

    #[test]
    fn less_wins_by_the_ratio_of_the_rival_to_tarn() {
        let cell = &find("P1").unwrap().cells[0];
        let verdict = |own, rival| cell.verdict(Some(own), Some(rival), &nothing);
        assert_eq!(verdict(1.0, 4.9), Verdict::Missed);
        assert_eq!(verdict(1.0, 5.0), Verdict::Goal);
        assert_eq!(verdict(0.5, 4.0), Verdict::Moonshot);
    }

    #[test]
    fn a_ratio_without_a_rival_is_not_measured() {
        let cell = &find("P1").unwrap().cells[0];
        assert_eq!(
            cell.verdict(Some(0.1), None, &nothing),
            Verdict::NotMeasured
        );
    }

    #[test]
    fn an_absolute_bound_that_is_missed_loses_also_without_a_rival() {
        let x4 = &find("X4").unwrap().cells[0];
        assert_eq!(x4.verdict(Some(3.1), None, &nothing), Verdict::Missed);
        assert_eq!(
            x4.verdict(Some(2.0), Some(30.0), &nothing),
            Verdict::Moonshot
        );
        assert_eq!(x4.verdict(Some(2.0), Some(11.0), &nothing), Verdict::Missed);
    }

    #[test]
    fn the_disk_bound_counts_as_the_moonshot_of_p4_once_the_goal_is_reached() {
        let p4 = &find("P4").unwrap().cells[0];
        let disk = |measure: &str| (measure == measure::DISK_MB_PER_S).then_some(1000.0);
        assert_eq!(
            p4.verdict(Some(960.0), Some(440.0), &disk),
            Verdict::Moonshot
        );
        assert_eq!(p4.verdict(Some(900.0), Some(440.0), &disk), Verdict::Goal);
        assert_eq!(p4.verdict(Some(960.0), Some(600.0), &disk), Verdict::Missed);
    }

    #[test]
    fn one_missed_cell_loses_the_row_and_an_unmeasured_one_leaves_it_open() {
        use Verdict::*;
        assert_eq!(of_row(&[Moonshot, Goal]), Goal);
        assert_eq!(of_row(&[Moonshot, NotMeasured]), NotMeasured);
        assert_eq!(of_row(&[NotMeasured, Missed]), Missed);
        assert_eq!(of_row(&[]), NotMeasured);
    }

    #[test]
    fn every_row_of_the_two_tables_is_here_once() {
        let ids: Vec<&str> = all().iter().map(|row| row.id).collect();
        let expected =
            "P1 P2 P3 P4 P6 P7 P8 P9 P10 P11 P12 P13 P14 X1 X2 X3 X4 X5 X6 X7 X8 X10 X11 X12";
        assert_eq!(ids.join(" "), expected);
    }
}
