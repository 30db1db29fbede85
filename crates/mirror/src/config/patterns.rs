//! Lists of names and regular expressions: how operators name topics. A name matches if it equals
//! an entry or if an entry, as a regular expression, matches the whole name.

use std::collections::HashSet;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ast::{self, Ast, Flag, Flags, GroupKind};
use regex_syntax::hir::translate::TranslatorBuilder;

/// Longest single pattern, in bytes.
pub const PATTERN_LEN_MAX: usize = 4 * 1024;

/// Most patterns of one list.
pub const PATTERNS_MAX: usize = 10_000;

/// Most bytes of one list, names and expressions together.
pub const LIST_LEN_MAX: usize = 1 << 20;

/// Most bytes of all expressions of one list together; plain names are none. With
/// [`COMPILED_SIZE_MAX`] it bounds the time to compile a list: tens of milliseconds, so that a list
/// with expressions is compiled where a thread may block (`compiled.rs`).
pub const EXPRESSIONS_LEN_MAX: usize = 64 * 1024;

/// Largest compiled form of all patterns of one list together, in bytes.
const COMPILED_SIZE_MAX: usize = 1 << 20;

/// Memory of a list for the states met while matching, in bytes.
const MATCHING_SIZE_MAX: usize = 1 << 20;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid topic pattern '{pattern}': {reason}")]
pub struct PatternError {
    /// The pattern as written.
    pub pattern: String,
    /// What is wrong.
    pub reason: String,
}

/// A compiled list. Plain names cost no automaton, all others share one.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    names: HashSet<String>,
    /// Plain names with dots, which as patterns match any character there (Kafka's tools agree).
    dotted: Vec<String>,
    regex: Option<Regex>,
}

fn fail(pattern: &str, reason: &str) -> PatternError {
    PatternError {
        pattern: pattern.to_owned(),
        reason: reason.to_owned(),
    }
}

/// A name of letters, digits, `.`, `_` and `-`: as a regular expression only its dots mean
/// something else.
fn is_plain(pattern: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    pattern.bytes().all(plain)
}

impl Patterns {
    /// Compiles a list; empty parts are dropped.
    pub fn new<S: AsRef<str>>(list: &[S]) -> Result<Patterns, PatternError> {
        if list.len() > PATTERNS_MAX {
            let reason = format!("more than {PATTERNS_MAX} patterns in one list");
            return Err(fail("…", &reason));
        }
        let bytes: usize = list.iter().map(|s| s.as_ref().len()).sum();
        if bytes > LIST_LEN_MAX {
            let reason = format!("the list has {bytes} bytes, more than {LIST_LEN_MAX}");
            return Err(fail("…", &reason));
        }
        let mut patterns = Patterns::default();
        let (mut alternatives, mut bytes) = (Vec::new(), 0);
        for pattern in list.iter().map(|s| s.as_ref().trim()) {
            if pattern.is_empty() {
                continue;
            }
            if pattern.len() > PATTERN_LEN_MAX {
                let start: String = pattern.chars().take(40).collect();
                return Err(fail(&start, "longer than 4096 bytes"));
            }
            if !patterns.names.insert(pattern.to_owned()) {
                continue;
            }
            match is_plain(pattern) {
                true if pattern.contains('.') => patterns.dotted.push(pattern.to_owned()),
                true => {}
                false => {
                    bytes += pattern.len();
                    alternatives.push(pattern);
                }
            }
        }
        if bytes > EXPRESSIONS_LEN_MAX {
            let reason = format!(
                "the expressions of the list have {bytes} bytes, more than {EXPRESSIONS_LEN_MAX}"
            );
            return Err(fail(alternatives[0], &reason));
        }
        for pattern in &alternatives {
            check_syntax(pattern)?;
        }
        patterns.regex = compile(&alternatives)?;
        Ok(patterns)
    }

    /// Whether nothing can match.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether nothing needs to be compiled for this list, however long it is.
    pub(crate) fn are_plain<S: AsRef<str>>(list: &[S]) -> bool {
        list.iter().all(|s| is_plain(s.as_ref().trim()))
    }

    /// Whether an entry other than the name itself matches it.
    pub fn match_besides(&self, name: &str) -> bool {
        self.matches_dotted(name, |pattern| pattern != name) || self.matches_expression(name)
    }

    /// Whether the name equals an entry or is matched as a whole.
    pub fn matches(&self, name: &str) -> bool {
        self.names.contains(name)
            || self.matches_dotted(name, |_| true)
            || self.matches_expression(name)
    }

    fn matches_dotted(&self, name: &str, counts: impl Fn(&str) -> bool) -> bool {
        let dots_match = |pattern: &&String| {
            let mut pairs = pattern.bytes().zip(name.bytes());
            pattern.len() == name.len() && pairs.all(|(p, n)| p == b'.' || p == n)
        };
        self.dotted
            .iter()
            .filter(dots_match)
            .any(|pattern| counts(pattern))
    }

    fn matches_expression(&self, name: &str) -> bool {
        let regex = self.regex.as_ref();
        regex.is_some_and(|regex| regex.is_match(name.as_bytes()))
    }
}

/// Refuses what is no regular expression by itself, without compiling it; and what switches Unicode
/// on, where a class of two bytes becomes one of several hundred ranges: 4 KiB of them took 300 ms.
fn check_syntax(pattern: &str) -> Result<(), PatternError> {
    let bad = |text: String| fail(pattern, &last_line(&text));
    let ast = ast::parse::Parser::new().parse(pattern);
    let ast = ast.map_err(|e| bad(e.to_string()))?;
    ast::visit(&ast, NoUnicode).map_err(|()| {
        let reason = "the flag 'u' is not allowed, classes are those of ASCII";
        fail(pattern, reason)
    })?;
    let mut translator = TranslatorBuilder::new().unicode(false).utf8(false).build();
    let read = translator.translate(pattern, &ast);
    read.map(|_| ()).map_err(|e| bad(e.to_string()))
}

/// Fails at the first group or flag that switches Unicode on.
struct NoUnicode;

impl ast::Visitor for NoUnicode {
    type Output = ();
    type Err = ();

    fn finish(self) -> Result<(), ()> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        let on = |flags: &Flags| flags.flag_state(Flag::Unicode) == Some(true);
        let is_on = match ast {
            Ast::Flags(set) => on(&set.flags),
            Ast::Group(group) => matches!(&group.kind, GroupKind::NonCapturing(f) if on(f)),
            _ => false,
        };
        if is_on { Err(()) } else { Ok(()) }
    }
}

/// One automaton for all patterns, so that they share one size. As Java reads them: classes such as
/// `\w` mean ASCII, which is all that topic names have.
fn compile(alternatives: &[&str]) -> Result<Option<Regex>, PatternError> {
    let Some(first) = alternatives.first() else {
        return Ok(None);
    };
    let joined = format!("^(?:(?:{}))$", alternatives.join(")|(?:"));
    RegexBuilder::new(&joined)
        .unicode(false)
        .size_limit(COMPILED_SIZE_MAX)
        .dfa_size_limit(MATCHING_SIZE_MAX)
        .build()
        .map(Some)
        .map_err(|error| {
            let reason = match error {
                regex::Error::CompiledTooBig(_) => format!(
                    "the {} patterns of the list are larger than {COMPILED_SIZE_MAX} bytes when compiled together",
                    alternatives.len()
                ),
                error => last_line(&error.to_string()),
            };
            fail(first, &reason)
        })
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

    /// All patterns of a list share one size, so that a list costs what one pattern may cost, in
    /// memory and in time.
    #[test]
    fn a_list_has_one_size_for_all_its_patterns() {
        let bombs: Vec<String> = (0..200).map(|n| format!("a{n}\\w{{400}}")).collect();
        let started = std::time::Instant::now();
        let error = Patterns::new(&bombs).unwrap_err();
        assert!(error.reason.contains("compiled together"), "{error}");
        assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
        let started = std::time::Instant::now();
        // What people write: many names, and expressions over ASCII.
        let mut usual: Vec<String> = (0..5_000).map(|n| format!("team.topic-{n}")).collect();
        usual.extend((0..200).map(|n| format!("team-{n}\\.\\w+")));
        let patterns = Patterns::new(&usual).unwrap();
        for yes in ["team.topic-77", "team-topic-77", "team-3.orders"] {
            assert!(patterns.matches(yes), "{yes}");
        }
        assert!(!patterns.matches("team-3xorders") && !patterns.matches("team.topic-5000"));
        assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
    }

    /// F-6: what is large is refused before anything is compiled; Unicode classes are not what
    /// names are made of.
    #[test]
    fn what_would_take_long_to_compile_is_refused_by_its_length() {
        let started = std::time::Instant::now();
        let huge: Vec<String> = (0..10_000)
            .map(|n| format!("{n}{}", "\\w".repeat(2_000)))
            .collect();
        let reason = Patterns::new(&huge).unwrap_err().reason;
        assert!(reason.contains("more than 1048576"), "{reason}");
        let reason = Patterns::new(&huge[..20]).unwrap_err().reason;
        assert!(
            reason.contains("the expressions of the list have 80030 bytes"),
            "{reason}"
        );
        let unicode = ["(?u)\\w", "a(?iu:b)*", "(?u:\\pL{3})"];
        for pattern in unicode {
            let reason = Patterns::new(&[pattern]).unwrap_err().reason;
            assert!(reason.starts_with("the flag 'u'"), "{pattern}: {reason}");
        }
        Patterns::new(&["(?-u)\\w", "(?i:b)*", "\\(?u"]).unwrap();
        assert!(
            started.elapsed().as_millis() < 900,
            "{:?}",
            started.elapsed()
        );
    }

    #[test]
    fn an_entry_that_is_the_name_itself_can_be_left_out_of_a_match() {
        let p = Patterns::new(&["a.b", "cd", "x.*"]).unwrap();
        assert!(p.matches("a.b") && !p.match_besides("a.b") && !p.match_besides("cd"));
        assert!(p.match_besides("axb") && p.match_besides("xy"));
    }

    #[test]
    fn patterns_do_not_reach_into_each_other() {
        assert!(Patterns::new(&["a)|(?:b", "c*"]).is_err());
        let p = Patterns::new(&["(?i)ab*", "cd*"]).unwrap();
        assert!(p.matches("ABB") && p.matches("cdd") && !p.matches("CDD"));
    }
}
