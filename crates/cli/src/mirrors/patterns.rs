//! Topic patterns: a name, or a regular expression that must match the whole name. Pure.

use regex::Regex;

/// Parts of a comma list, trimmed, empty ones dropped.
pub(crate) fn comma_list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Compiles one pattern, anchored at both ends.
///
/// # Errors
/// `Invalid topic pattern '<p>': <reason>`.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    // Compiled alone first: `a)|(b` would be balanced by the group around it.
    Regex::new(pattern)
        .and_then(|_| Regex::new(&format!("^(?:{pattern})$")))
        .map_err(|e| format!("Invalid topic pattern '{pattern}': {}", reason(&e)))
}

/// The last line of the engine's report, which names the fault; the lines before it draw a picture.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Names that one of `patterns` equals or matches, sorted, without those that `exclude` matches.
pub(crate) fn select<'a>(
    names: impl Iterator<Item = &'a str>,
    patterns: &[String],
    exclude: &[String],
) -> Vec<String> {
    let compile_all = |list: &[String]| {
        list.iter()
            .filter_map(|p| compile(p).ok())
            .collect::<Vec<Regex>>()
    };
    let (wanted, unwanted) = (compile_all(patterns), compile_all(exclude));
    let hit = |list: &[String], regexes: &[Regex], name: &str| {
        list.iter().any(|p| p == name) || regexes.iter().any(|r| r.is_match(name))
    };
    let mut out: Vec<String> = names
        .filter(|name| hit(patterns, &wanted, name) && !hit(exclude, &unwanted, name))
        .map(str::to_owned)
        .collect();
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names_only() {
        let names = ["foo", "foo2", "bar", "xfoo"];
        let chosen = select(names.into_iter(), &["foo|bar".into()], &[]);
        assert_eq!(chosen, ["bar", "foo"]);
    }

    #[test]
    fn exclude_wins() {
        let names = ["orders-a", "orders-tmp", "x"];
        assert_eq!(
            select(names.into_iter(), &["orders-.*".into()], &[".*-tmp".into()]),
            ["orders-a"]
        );
    }

    #[test]
    fn an_invalid_pattern_is_named_with_its_reason() {
        assert_eq!(
            compile("a(").unwrap_err(),
            "Invalid topic pattern 'a(': unclosed group"
        );
        assert!(
            compile("*")
                .unwrap_err()
                .starts_with("Invalid topic pattern '*': repetition operator")
        );
        assert!(compile("a)|(b").is_err());
    }

    #[test]
    fn comma_lists_are_trimmed() {
        assert_eq!(comma_list(" a, ,b,"), ["a", "b"]);
    }
}
