//! Lines have at most 100 columns: comments, code and documents. What cannot be broken is excepted.

use super::{Repository, Violations};

/// Columns of a line.
const COLUMNS_MAX: usize = 100;

/// Written by programs, or notes that a program takes over as they are.
const GENERATED: &[&str] = &[
    "docs/limits.md",
    "docs/protocol.md",
    "docs/performance.md",
    "docs/performance/",
    "crates/wire/schema/",
];

/// Finds lines that are too long.
pub(super) fn check(repository: &Repository, violations: &mut Violations) {
    for file in &repository.files {
        if GENERATED.iter().any(|name| file.name.starts_with(name)) {
            continue;
        }
        if file.is_rust() {
            lines(&file.text, is_excepted_code, &file.name, violations);
        } else if file.name.ends_with(".md") {
            let mut is_code = false;
            let excepted = move |line: &str| {
                is_code ^= line.trim_start().starts_with("```");
                let is_indented = line.starts_with("    ");
                is_code || is_indented || line.starts_with('|') || is_one_word(line)
            };
            lines(&file.text, excepted, &file.name, violations);
        }
    }
}

fn lines(
    text: &str,
    mut is_excepted: impl FnMut(&str) -> bool,
    name: &str,
    violations: &mut Violations,
) {
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if !is_excepted(line) && columns > COLUMNS_MAX {
            let text = format!(
                "line {} has {columns} columns, {COLUMNS_MAX} are allowed",
                at + 1
            );
            violations.add(name, text);
        }
    }
}

/// rustfmt breaks code; what it leaves long is a text in quotes, or a table that it was told to
/// leave alone.
fn is_excepted_code(line: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") {
        let comment = code.trim_start_matches(['/', '!']);
        return is_one_word(comment) || comment.starts_with("     ");
    }
    code.contains('"') || code.ends_with('\\') || !code.contains("//")
}

/// An address or a quotation, which have no place to break.
fn is_one_word(line: &str) -> bool {
    let line = line.trim();
    let is_address = line.split_whitespace().count() <= 2 && line.contains("://");
    let is_quotation = line.starts_with('`') && line.matches('`').count() == 2;
    is_address || (is_quotation && line.trim_end_matches('.').ends_with('`'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violations_of;

    #[test]
    fn a_long_comment_and_a_long_line_of_a_document_are_found() {
        let long = "word ".repeat(25);
        let found = |name: &str, text: String| violations_of(check, &[(name, &text)]);
        assert_eq!(found("crates/a/src/a.rs", format!("/// {long}\n")).len(), 1);
        assert_eq!(found("docs/a.md", format!("{long}\n")).len(), 1);
        let trailing = format!("let a = 1; // {long}\n");
        assert_eq!(found("crates/a/src/a.rs", trailing).len(), 1);
    }

    #[test]
    fn tables_addresses_texts_and_generated_files_are_excepted() {
        let long = "word ".repeat(25);
        let address = format!("// https://{}\n", "a".repeat(120));
        for (name, text) in [
            ("docs/a.md", format!("| {long} |\n")),
            ("docs/a.md", format!("```\n{long}\n```\n")),
            ("docs/limits.md", format!("{long}\n")),
            ("crates/a/src/a.rs", format!("let a = \"{long}\";\n")),
            ("crates/a/src/a.rs", address),
        ] {
            assert_eq!(violations_of(check, &[(name, &text)]), [""; 0], "{text}");
        }
    }
}
