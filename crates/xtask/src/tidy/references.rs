//! What comments and documents cite is in the repository: documents, their sections, source files.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{Repository, Violations, pattern};

/// Findings and notes that were never in the repository: a comment says what it has to say itself.
const FOREIGN: &[&str] = &[
    concat!("pit", "fall"),
    concat!("Field ", "report"),
    concat!("prototype-", "observed"),
    concat!("mirror-", "rpcs"),
    concat!("mirror-", "cli"),
];

/// Finds citations of what is not there.
pub(super) fn check(repository: &Repository, violations: &mut Violations) {
    let sections = sections(repository);
    let cited = Cited {
        document: pattern(r"[\w./-]*\w\.md\b"),
        section: pattern(r"§\s?(\d+(?:\.\d+)*)"),
        own_section: pattern(r"\b[Ss]ections? (\d+(?:\.\d+)*)"),
        anchor: pattern(r"\]\(([\w./-]*\.md)?#([\w-]+)\)"),
        source: pattern(r"`((?:[\w-]+/)*[\w-]+\.rs)`"),
        number: pattern(r"(?:^|[\s(])([A-Z]\d{2})(?:[:,) ]|$)"),
    };
    for file in &repository.files {
        if file.is_rust() && !file.name.starts_with("crates/xtask/") {
            for (line, comment) in comments(&file.text) {
                check_text(&comment, file, &sections, &cited, (line, violations));
                if !file.name.starts_with("bench/") {
                    check_numbers(&comment, &file.name, &cited, (line, violations));
                }
            }
        }
        if file.name.ends_with(".md") && !file.name.starts_with("docs/performance") {
            for (line, paragraph) in paragraphs(&file.text) {
                check_text(&paragraph, file, &sections, &cited, (line, violations));
                check_sources(
                    &paragraph,
                    repository,
                    &cited,
                    &file.name,
                    (line, violations),
                );
            }
        }
    }
}

struct Cited {
    document: Regex,
    section: Regex,
    own_section: Regex,
    anchor: Regex,
    source: Regex,
    number: Regex,
}

/// Numbers and anchors of the headings of one document.
#[derive(Default)]
struct Headings {
    numbers: BTreeSet<String>,
    anchors: BTreeSet<String>,
}

/// By the document's name without folders.
fn sections(repository: &Repository) -> BTreeMap<&str, Headings> {
    let number = pattern(r"^#+ (\d+(?:\.\d+)*)\.? ");
    let mut sections: BTreeMap<&str, Headings> = BTreeMap::new();
    for file in repository.files.iter().filter(|f| f.name.ends_with(".md")) {
        let base = base_name(&file.name);
        let headings = sections.entry(base).or_default();
        for line in file.text.lines().filter(|line| line.starts_with('#')) {
            let numbers = number.captures(line);
            headings
                .numbers
                .extend(numbers.map(|found| found[1].to_owned()));
            headings
                .anchors
                .insert(anchor(line.trim_start_matches('#').trim()));
        }
    }
    sections
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    let lower = heading.to_lowercase();
    lower
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Comment blocks with the number of their first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let Some(comment) = code.strip_prefix("//") else {
            goes_on = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        match blocks.last_mut().filter(|_| goes_on) {
            Some((_, block)) => block.push_str(comment),
            None => blocks.push((at + 1, comment.to_owned())),
        }
        goes_on = true;
    }
    blocks
}

/// Paragraphs and rows of tables with the number of their first line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let is_row = line.starts_with('|');
        match blocks.last_mut().filter(|_| goes_on && !is_row) {
            Some((_, block)) => *block = format!("{block} {}", line.trim()),
            None => blocks.push((at + 1, line.to_owned())),
        }
        goes_on = !is_row && !line.trim().is_empty();
    }
    blocks
}

fn check_text(
    text: &str,
    file: &super::File,
    sections: &BTreeMap<&str, Headings>,
    cited: &Cited,
    (line, violations): (usize, &mut Violations),
) {
    let mut add = |text: String| violations.add(&file.name, format!("line {line} {text}"));
    for word in FOREIGN.iter().filter(|word| text.contains(*word)) {
        add(format!("cites {word}, which is not in the repository"));
    }
    let documents: Vec<_> = cited.document.find_iter(text).collect();
    for document in &documents {
        if !sections.contains_key(base_name(document.as_str())) {
            add(format!(
                "cites {}, which is not in the repository",
                document.as_str()
            ));
        }
    }
    let own = file.name.ends_with(".md").then(|| base_name(&file.name));
    let mut check_section = |document: Option<&str>, number: &str| match document {
        None => add(format!("cites section {number} of no document")),
        Some(document) => {
            let there = sections.get(document);
            if there.is_some_and(|headings| !headings.numbers.contains(number)) {
                add(format!(
                    "cites section {number} of {document}, which is not there"
                ));
            }
        }
    };
    for found in cited.section.captures_iter(text) {
        let at = found.get(0).map_or(0, |all| all.start());
        let nearest = documents.iter().rfind(|document| document.end() <= at);
        let nearest = nearest.map(|document| base_name(document.as_str()));
        check_section(nearest.or(own), &found[1]);
    }
    for found in cited
        .own_section
        .captures_iter(text)
        .filter(|_| own.is_some())
    {
        let at = found.get(0).map_or(0, |all| all.start());
        // "[mirroring.md](mirroring.md), section 2.3" is another document's.
        let before = documents.iter().rfind(|document| {
            document.end() <= at
                && text[document.end()..at]
                    .trim_matches([')', ',', ' ', '`'])
                    .is_empty()
        });
        check_section(
            before.map(|document| base_name(document.as_str())).or(own),
            &found[1],
        );
    }
    for found in cited.anchor.captures_iter(text) {
        let document = found.get(1).map(|path| base_name(path.as_str())).or(own);
        let there = document.and_then(|document| sections.get(document));
        if there.is_some_and(|headings| !headings.anchors.contains(&found[2])) {
            add(format!("links to #{}, which is not there", &found[2]));
        }
    }
}

/// Numbers of findings, like a letter and two digits.
fn check_numbers(
    text: &str,
    name: &str,
    cited: &Cited,
    (line, violations): (usize, &mut Violations),
) {
    for found in cited.number.captures_iter(text) {
        let text = format!(
            "line {line} cites {}, a finding that is not in the repository",
            &found[1]
        );
        violations.add(name, text);
    }
}

fn check_sources(
    text: &str,
    repository: &Repository,
    cited: &Cited,
    name: &str,
    (line, violations): (usize, &mut Violations),
) {
    for found in cited.source.captures_iter(text) {
        let ends = format!("/{}", &found[1]);
        let is_there = |file: &super::File| file.name.ends_with(&ends) || file.name == found[1];
        if !repository.files.iter().any(is_there) {
            violations.add(
                name,
                format!("line {line} names {}, which is not there", &found[1]),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violations_of;

    const DOCUMENT: (&str, &str) = (
        "docs/a.md",
        "# A\n\n## 1. One\n\n### 1.2 Two, and `b`\n\nSee section 1.2 and [two](#12-two-and-b).\n",
    );

    #[test]
    fn what_is_there_may_be_cited() {
        let source = "//! See a.md §1.2, §1.\n//! And docs/a.md\n//! §1.\n";
        assert_eq!(
            violations_of(check, &[DOCUMENT, ("crates/a/src/b.rs", source)]),
            [""; 0]
        );
    }

    #[test]
    fn a_section_that_is_not_there_is_found() {
        let source = "//! See a.md §1.3.\n\n// No document: §1.\n\n// b.md\n";
        assert_eq!(
            violations_of(check, &[DOCUMENT, ("crates/a/src/b.rs", source)]),
            [
                "crates/a/src/b.rs: line 1 cites section 1.3 of a.md, which is not there",
                "crates/a/src/b.rs: line 3 cites section 1 of no document",
                "crates/a/src/b.rs: line 5 cites b.md, which is not in the repository",
            ]
        );
    }

    #[test]
    fn a_document_names_sections_links_and_sources_that_are_there() {
        let text = "See section 2, [x](#y), [z](a.md#q), and `c.rs`, not `b/c.rs`.\n";
        assert_eq!(
            violations_of(check, &[DOCUMENT, ("docs/b.md", text), ("x/c.rs", "")]),
            [
                "docs/b.md: line 1 cites section 2 of b.md, which is not there",
                "docs/b.md: line 1 links to #q, which is not there",
                "docs/b.md: line 1 links to #y, which is not there",
                "docs/b.md: line 1 names b/c.rs, which is not there",
            ]
        );
    }

    #[test]
    fn findings_that_were_never_in_the_repository_are_found() {
        let source = "/// S07, N04: one flipped bit.\n\n// As it was (O73).\n";
        assert_eq!(
            violations_of(check, &[("crates/a/src/b.rs", source)]).len(),
            3
        );
    }
}
