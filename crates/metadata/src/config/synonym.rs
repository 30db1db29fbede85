//! Broker keys that stand in for a topic key (`log.retention.hours` for `retention.ms`).
//!
//! Owns the unit conversion between the two; the tables name the pairs.

/// Unit of a broker key whose topic key is in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The value is taken as it is.
    Same,
    /// Minutes, shown at the topic as milliseconds.
    Minutes,
    /// Hours, shown at the topic as milliseconds.
    Hours,
}

/// A broker key that gives a topic key its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerSynonym {
    /// The broker key.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
}

impl BrokerSynonym {
    /// A synonym in the same unit.
    pub const fn same(name: &'static str) -> Self {
        Self {
            name,
            unit: Unit::Same,
        }
    }

    /// A synonym in minutes.
    pub const fn minutes(name: &'static str) -> Self {
        Self {
            name,
            unit: Unit::Minutes,
        }
    }

    /// A synonym in hours.
    pub const fn hours(name: &'static str) -> Self {
        Self {
            name,
            unit: Unit::Hours,
        }
    }

    /// The broker key's value in the unit of the topic key. Negative values (no limit) and text
    /// pass unchanged; an overflow saturates.
    pub fn to_topic_value(&self, broker_value: &str) -> String {
        let factor = match self.unit {
            Unit::Same => return broker_value.to_owned(),
            Unit::Minutes => 60_000,
            Unit::Hours => 3_600_000,
        };
        match broker_value.trim().parse::<i64>() {
            Ok(number) if number >= 0 => number.saturating_mul(factor).to_string(),
            _ => broker_value.to_owned(),
        }
    }
}
