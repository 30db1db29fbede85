//! Tables of documents that repeat tables of the code are equal to them: the protocol, the limits,
//! the wire forms of mirroring.

use std::collections::BTreeSet;

use super::{Repository, Violations, pattern};
use crate::{mirror_protocol_doc, protocol_doc};

/// The table of routes.
const ROUTES: &str = "crates/server/src/dispatch/routes.rs";
/// Where keys with bounds are defined.
const KEYS: &[&str] = &[
    "crates/server/src/config/keys/",
    "crates/metadata/src/config/",
    "crates/mirror/src/config/",
];
/// The golden bytes of the mirror protocol.
const GOLDEN: &str = "crates/wire/src/tests/golden.rs";

/// Compares docs/protocol.md with the table of routes.
pub(super) fn check_protocol(repository: &Repository, violations: &mut Violations) {
    let (Some(page), Some(routes)) = (repository.file(protocol_doc::PAGE), repository.file(ROUTES))
    else {
        return;
    };
    match protocol_doc::page(&routes.text) {
        Ok(made) if made == page.text => {}
        Ok(_) => violations.add(&page.name, "is old: cargo run -p xtask -- protocol-doc"),
        Err(error) => violations.add(ROUTES, error),
    }
}

/// Compares the blocks of docs/mirror-protocol.md with the schemas, and its bytes with those of the
/// test.
pub(super) fn check_mirror_protocol(repository: &Repository, violations: &mut Violations) {
    let Some(page) = repository.file(mirror_protocol_doc::PAGE) else {
        return;
    };
    let schema = |name: &str| {
        let file = repository.file(&format!("{}{name}.msg", mirror_protocol_doc::SCHEMAS));
        file.map(|file| file.text.clone())
    };
    match mirror_protocol_doc::render(&page.text, &schema) {
        Ok(made) if made == page.text => {}
        Ok(_) => violations.add(&page.name, "is old: cargo run -p xtask -- protocol-doc"),
        Err(error) => violations.add(&page.name, error),
    }
    let Some(golden) = repository.file(GOLDEN) else {
        return;
    };
    let documented: BTreeSet<String> = words(r"\| `((?:[0-9a-f]{2})+)` \|", &page.text);
    let tests = golden.text.split("fn dialects_are_told_apart").next();
    let joined = pattern(r"\\\n\s*")
        .replace_all(tests.unwrap_or_default(), "")
        .into_owned();
    let tested: BTreeSet<String> = words(r#""((?:[0-9a-f]{2})+)""#, &joined);
    for bytes in tested.symmetric_difference(&documented) {
        let text = format!("the bytes {bytes} stand in only one of the page and {GOLDEN}");
        violations.add(&page.name, text);
    }
}

/// Compares the rows of docs/limits.md with the definitions of the keys: name, default and text.
/// That no bound is missing is a test of tarn-server, where the tables are.
pub(super) fn check_limits(repository: &Repository, violations: &mut Violations) {
    let Some(page) = repository.file("docs/limits.md") else {
        return;
    };
    let is_table = |name: &str| KEYS.iter().any(|folder| name.starts_with(folder));
    let tables = repository
        .files
        .iter()
        .filter(|f| f.is_rust() && is_table(&f.name));
    let tables: String = tables.map(|file| file.text.as_str()).collect();
    let tables = pattern(r"\\\n\s*").replace_all(&tables, "").into_owned();
    let row = pattern(r"^\| `([\w.]+)` \| (.*?) \| \w* ?\| (.*) \|$");
    for found in page.text.lines().filter_map(|line| row.captures(line)) {
        let (name, default, text) = (&found[1], &found[2], &found[3]);
        let defined = tables.match_indices(&format!("\"{name}\"")).any(|(at, _)| {
            let definition = &tables[at..];
            let Some(end) = definition.find(&format!("\"{text}\"")) else {
                return false;
            };
            let is_one = !definition[..end].contains(';') && definition[..end].lines().count() <= 4;
            // A default is a text in quotes, or a constant of that text.
            let is_default =
                |word: &str| tables.contains(&format!("const {word}: &str = \"{default}\";"));
            let mut words = definition[..end].split([' ', ',', '(', ')', '&']);
            is_one
                && (default.is_empty()
                    || definition[..end].contains(&format!("\"{default}\""))
                    || words.any(|word| !word.is_empty() && is_default(word)))
        });
        if !defined {
            let text = format!("{name} is defined differently: cargo run -p xtask -- limits-doc");
            violations.add(&page.name, text);
        }
    }
}

fn words(of: &str, text: &str) -> BTreeSet<String> {
    pattern(of)
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violations_of;

    #[test]
    fn a_protocol_page_that_is_not_made_from_the_routes_is_found() {
        let files = [
            (protocol_doc::PAGE, "old\n"),
            (ROUTES, "route!(FetchRequest, h::fetch::handle),\n"),
        ];
        assert_eq!(
            violations_of(check_protocol, &files),
            ["docs/protocol.md: is old: cargo run -p xtask -- protocol-doc"]
        );
    }

    #[test]
    fn a_limit_with_another_default_is_found() {
        let page = "| `a.max` | 5 | yes | Most of it. |\n| `b.max` | 6 |  | Most of that. |\n";
        let keys = "key(\"a.max\", Int, Some(\"5\"), \"Most of \\\n    it.\"),\nkey(\"b.max\", Int, Some(\"7\"), \"Most of that.\"),\n";
        let files = [
            ("docs/limits.md", page),
            ("crates/server/src/config/keys/own.rs", keys),
        ];
        assert_eq!(
            violations_of(check_limits, &files),
            ["docs/limits.md: b.max is defined differently: cargo run -p xtask -- limits-doc"]
        );
    }

    #[test]
    fn wire_forms_and_bytes_that_the_code_does_not_have_are_found() {
        let page = "<!-- message M -->\n```\nM\n  Old int8\n```\n| x | `00ff` |\n";
        let schema = "message M\nversions 0\nfields\n  New int8 0+\n";
        let files = [
            (mirror_protocol_doc::PAGE, page),
            ("crates/wire/schema/tarn/M.msg", schema),
            (GOLDEN, "golden(&m, \"00\\\n  fe\");\n"),
        ];
        assert_eq!(violations_of(check_mirror_protocol, &files).len(), 3);
    }
}
