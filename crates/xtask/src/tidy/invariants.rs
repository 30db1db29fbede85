//! The catalogue of invariants, docs/invariants.md, and the code agree: each id once, with a test
//! that exists, and cited; what code cites is in the catalogue.

use std::collections::{BTreeMap, BTreeSet};

use super::{Repository, Violations, pattern};

/// The catalogue.
const CATALOGUE: &str = "docs/invariants.md";

/// Compares catalogue and code.
pub(super) fn check(repository: &Repository, violations: &mut Violations) {
    let Some(catalogue) = repository.file(CATALOGUE) else {
        return;
    };
    let row = pattern(r"^\|\s*([A-Z]-\d+)\s*\|[^|]*\|([^|]*)\|");
    let quoted = pattern(r"`([\w:]+)`");
    let id = pattern(r"\b([A-Z]-\d{1,2})\b");
    let known_names = names(repository);
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    for line in catalogue.text.lines() {
        let Some(found) = row.captures(line) else {
            continue;
        };
        if known.insert(found[1].to_owned(), false).is_some() {
            violations.add(CATALOGUE, format!("{} stands there twice", &found[1]));
        }
        let tests: Vec<String> = quoted
            .captures_iter(&found[2])
            .map(|t| t[1].to_owned())
            .collect();
        if tests.is_empty() {
            violations.add(CATALOGUE, format!("{} has no test", &found[1]));
        }
        for test in tests {
            let last = test
                .trim_end_matches(':')
                .rsplit("::")
                .next()
                .unwrap_or_default();
            if !known_names.contains(last) {
                let text = format!("{} names the test {test}, which is not there", &found[1]);
                violations.add(CATALOGUE, text);
            }
        }
    }
    let letters: BTreeSet<char> = known.keys().filter_map(|id| id.chars().next()).collect();
    let sources = repository.files.iter().filter(|file| file.is_rust());
    for file in sources.filter(|file| !file.name.starts_with("crates/xtask/")) {
        for found in id.captures_iter(&file.text) {
            match known.get_mut(&found[1]) {
                Some(is_cited) => *is_cited = true,
                None if found[1].starts_with(|c| letters.contains(&c)) => {
                    let text = format!("cites {}, which is not in {CATALOGUE}", &found[1]);
                    violations.add(&file.name, text);
                }
                None => {}
            }
        }
    }
    for (id, _) in known.iter().filter(|(_, is_cited)| !**is_cited) {
        violations.add(CATALOGUE, format!("{id} is cited nowhere in the code"));
    }
}

/// Names of functions, modules and files.
fn names(repository: &Repository) -> BTreeSet<String> {
    let item = pattern(r"\b(?:fn|mod) (\w+)");
    let mut names = BTreeSet::new();
    for file in repository.files.iter().filter(|file| file.is_rust()) {
        names.extend(
            item.captures_iter(&file.text)
                .map(|found| found[1].to_owned()),
        );
        let base = file.name.rsplit('/').next().unwrap_or_default();
        names.insert(base.trim_end_matches(".rs").to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violations_of;

    #[test]
    fn an_id_twice_without_test_unknown_or_cited_nowhere_is_found() {
        let catalogue = "| L-1 | holds | log `a::works` | |\n| L-1 | holds | log `gone` | |\n| L-2 | holds | none | |\n";
        let source = "// L-1, L-3, X-9\nfn works() {}\n";
        assert_eq!(
            violations_of(
                check,
                &[(CATALOGUE, catalogue), ("crates/a/src/b.rs", source)]
            ),
            [
                "crates/a/src/b.rs: cites L-3, which is not in docs/invariants.md",
                "docs/invariants.md: L-1 names the test gone, which is not there",
                "docs/invariants.md: L-1 stands there twice",
                "docs/invariants.md: L-2 has no test",
                "docs/invariants.md: L-2 is cited nowhere in the code",
            ]
        );
    }
}
