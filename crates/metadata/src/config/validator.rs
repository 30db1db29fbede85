//! Ranges of configuration values, as data that can also say itself in words.
//!
//! Owns the checks; the type of a value is checked before, by [`super::ConfigDef::parse`].

use super::ConfigValue;

/// What a value must satisfy beyond its type.
#[derive(Clone, Copy, Debug)]
pub enum Validator {
    /// Everything of the right type.
    Any,
    /// An integer not below this.
    AtLeast(i64),
    /// An integer in this closed range.
    Between(i64, i64),
    /// A double in this closed range.
    Fraction(f64, f64),
    /// One of these words (exact case).
    OneOf(&'static [&'static str]),
    /// A list of these words, without repeats; empty allowed only if the flag says so.
    ListOf(&'static [&'static str], bool),
    /// Text or a list that is not empty.
    NonEmpty,
    /// `partition:broker` pairs, or `*`, or nothing.
    ThrottledReplicas,
    /// One exact integer, or a closed range: `-1` or 1 to 9, for instance.
    ExactOrBetween(i64, i64, i64),
    /// A rule of the table's owner: the check, and the rule in words.
    Rule(fn(&ConfigValue) -> Result<(), String>, &'static str),
}

impl Validator {
    /// Checks a parsed value; the error says what is allowed.
    pub fn check(&self, value: &ConfigValue) -> Result<(), String> {
        let holds = match (self, value) {
            (Self::Any, _) => true,
            (Self::AtLeast(min), ConfigValue::Integer(v)) => v >= min,
            (Self::Between(min, max), ConfigValue::Integer(v)) => (min..=max).contains(&v),
            (Self::ExactOrBetween(exact, min, max), ConfigValue::Integer(v)) => {
                v == exact || (min..=max).contains(&v)
            }
            (Self::Fraction(min, max), ConfigValue::Double(v)) => (min..=max).contains(&v),
            (Self::OneOf(words), ConfigValue::Text(v)) => words.contains(&v.as_str()),
            (Self::ListOf(words, empty_allowed), ConfigValue::List(list)) => {
                (*empty_allowed || !list.is_empty())
                    && list.iter().all(|v| words.contains(&v.as_str()))
                    && list.iter().enumerate().all(|(i, v)| !list[..i].contains(v))
            }
            (Self::NonEmpty, ConfigValue::Text(v)) => !v.trim().is_empty(),
            (Self::NonEmpty, ConfigValue::List(list)) => {
                !list.is_empty() && list.iter().all(|v| !v.is_empty())
            }
            (Self::ThrottledReplicas, ConfigValue::List(list)) => throttled_replicas_hold(list),
            (Self::Rule(rule, _), value) => return rule(value),
            // A table that pairs a range with a type it cannot judge is a mistake of the table;
            // refusing makes it visible.
            _ => false,
        };
        if holds { Ok(()) } else { Err(self.text()) }
    }

    /// The rule in words; empty for [`Validator::Any`].
    pub fn text(&self) -> String {
        match self {
            Self::Any => String::new(),
            Self::AtLeast(min) => format!("must be at least {min}"),
            Self::Between(min, max) => format!("must be between {min} and {max}"),
            Self::ExactOrBetween(exact, min, max) => {
                format!("must be {exact}, or between {min} and {max}")
            }
            Self::Fraction(min, max) => format!("must be between {min} and {max}"),
            Self::OneOf(words) => format!("must be one of {}", words.join(", ")),
            Self::ListOf(words, true) => {
                format!("must be a list of {}, each at most once", words.join(", "))
            }
            Self::ListOf(words, false) => format!(
                "must be a list, not empty, of {}, each at most once",
                words.join(", ")
            ),
            Self::NonEmpty => "must not be empty".to_owned(),
            Self::ThrottledReplicas => {
                "must be a list of partition:broker pairs, or *, or empty".to_owned()
            }
            Self::Rule(_, text) => (*text).to_owned(),
        }
    }
}

fn throttled_replicas_hold(list: &[String]) -> bool {
    if list.len() == 1 && list[0] == "*" {
        return true;
    }
    list.iter().all(|pair| match pair.split_once(':') {
        Some((partition, broker)) => {
            partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
        }
        None => false,
    })
}
