//! Lists of names and regular expressions: how operators name topics. A name matches if it equals an entry or if an entry, as a regular
//! expression, matches the whole name.

use regex::{Regex, RegexBuilder};

/// Longest single pattern, in bytes.
pub const PATTERN_LEN_MAX: usize = 4 * 1024;

/// Most patterns of one list.
pub const PATTERNS_MAX: usize = 10_000;

/// Largest compiled form of one pattern, in bytes: a pattern costs its own connection at most this much.
const COMPILED_SIZE_MAX: usize = 1 << 20;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid topic pattern '{pattern}': {reason}")]
pub struct PatternError {
    /// The pattern as written.
    pub pattern: String,
    /// What is wrong.
    pub reason: String,
}

/// A compiled list.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    names: Vec<String>,
    regexes: Vec<Regex>,
}

impl Patterns {
    /// Compiles a list; empty parts are dropped.
    pub fn new<S: AsRef<str>>(list: &[S]) -> Result<Patterns, PatternError> {
        let fail = |pattern: &str, reason: &str| PatternError {
            pattern: pattern.to_owned(),
            reason: reason.to_owned(),
        };
        if list.len() > PATTERNS_MAX {
            return Err(fail(
                "…",
                &format!("more than {PATTERNS_MAX} patterns in one list"),
            ));
        }
        let mut patterns = Patterns::default();
        for pattern in list
            .iter()
            .map(|s| s.as_ref().trim())
            .filter(|s| !s.is_empty())
        {
            if pattern.len() > PATTERN_LEN_MAX {
                return Err(fail(
                    &pattern.chars().take(40).collect::<String>(),
                    "longer than 4096 bytes",
                ));
            }
            patterns.names.push(pattern.to_owned());
            // A plain name needs no automaton: dots in it must not match other characters twice over, but they may (Kafka's tools agree).
            let anchored = format!("^(?:{pattern})$");
            match RegexBuilder::new(&anchored)
                .size_limit(COMPILED_SIZE_MAX)
                .build()
            {
                Ok(regex) => patterns.regexes.push(regex),
                Err(e) => return Err(fail(pattern, &last_line(&e.to_string()))),
            }
        }
        Ok(patterns)
    }

    /// Whether nothing can match.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the name equals an entry or is matched as a whole.
    pub fn matches(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name) || self.regexes.iter().any(|r| r.is_match(name))
    }
}

/// The reason in a regex error, without the drawing above it.
fn last_line(text: &str) -> String {
    text.lines()
        .last()
        .unwrap_or(text)
        .trim()
        .trim_start_matches("error: ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_name_or_equals_it() {
        let p = Patterns::new(&["orders-.*", "foo|bar", " a.b "]).unwrap();
        for yes in ["orders-", "orders-eu", "foo", "bar", "a.b", "axb"] {
            assert!(p.matches(yes), "{yes}");
        }
        for no in ["xorders-eu", "foobar", "fo", ""] {
            assert!(!p.matches(no), "{no}");
        }
    }

    #[test]
    fn bad_patterns_say_why() {
        let e = Patterns::new(&["a("]).unwrap_err();
        assert_eq!(e.pattern, "a(");
        assert!(
            e.to_string().starts_with("Invalid topic pattern 'a(': "),
            "{e}"
        );
        assert!(!e.reason.contains('\n'));
        assert!(
            Patterns::new(&["(a{1000}){1000}"]).is_err(),
            "a compiled form has a limit"
        );
    }
}
