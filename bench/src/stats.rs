//! Medians with their spread, and how figures are written for people.

/// The middle of the rounds and their ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; of an even count the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// Of the values that are numbers; `None` when there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self {
            median,
            min,
            max,
            count: sorted.len(),
        })
    }
}

/// A figure with three digits that mean something, and commas in thousands.
#[must_use]
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "∞".to_owned();
    }
    let size = value.abs();
    if size >= 99.95 {
        return thousands(value.round());
    }
    let decimals = match size {
        s if s >= 9.995 => 1,
        s if s >= 0.9995 || s == 0.0 => 2,
        s if s >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn thousands(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if whole < 0.0 {
        text.insert(0, '-');
    }
    text
}

/// A moment as `2026-11-29 21:07:03` in UTC.
#[must_use]
pub fn moment(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a day counted from 1970, by walking: the harness asks for a handful of
/// days.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_and_an_even_count() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        let even = Spread::of(&[4.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(
            (even.median, even.min, even.max, even.count),
            (3.0, 1.0, 10.0, 4)
        );
    }

    #[test]
    fn what_is_no_number_has_no_spread() {
        assert_eq!(Spread::of(&[f64::NAN]), None);
        assert_eq!(Spread::of(&[f64::NAN, 1.0]).unwrap().count, 1);
    }

    #[test]
    fn figures_keep_three_digits() {
        let texts = [
            0.0,
            0.01234,
            0.456,
            1.234,
            45.67,
            999.9,
            12345.0,
            f64::INFINITY,
        ]
        .map(figure);
        assert_eq!(
            texts,
            [
                "0.00", "0.0123", "0.456", "1.23", "45.7", "1,000", "12,345", "∞"
            ]
        );
    }

    #[test]
    fn moments_are_calendar_days() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(1_709_164_800 + 3_723), "2024-02-29 01:02:03");
        assert_eq!(moment(1_795_986_000), "2026-11-29 21:00:00");
    }
}
