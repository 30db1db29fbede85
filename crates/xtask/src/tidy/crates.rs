//! Crates: which may use which, dependencies that nothing uses, files that no module names.

use std::collections::BTreeSet;

use super::{Repository, Violations};

/// Crates by layer: a crate uses only crates of earlier layers.
const LAYERS: &[&[&str]] = &[
    &["records", "wire"],
    &["log"],
    &["metadata"],
    &["raft"],
    &["client"],
    &["controller"],
    &["fetch"],
    &["replica"],
    &["coordinator"],
    &["group", "mirror"],
    &["server"],
    &["cli"],
];

/// Finds arrows that point upward.
pub(super) fn check_layers(repository: &Repository, violations: &mut Violations) {
    for file in &repository.files {
        let of = file
            .name
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(of) = of.filter(|of| *of != "xtask") else {
            continue;
        };
        let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
        let Some(own) = layer(of) else {
            violations.add(
                &file.name,
                "the crate has no layer: name it in xtask's tidy",
            );
            continue;
        };
        for dependency in dependencies(&file.text, |section| section == "dependencies") {
            let Some(used) = dependency.strip_prefix("tarn-") else {
                continue;
            };
            if layer(used).is_none_or(|used| used >= own) {
                let text = format!("{of} must not use {used}: it is no earlier layer");
                violations.add(&file.name, text);
            }
        }
    }
}

/// Which sources of a package count.
type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// Finds dependencies that no source of their package names.
pub(super) fn check_dependencies(repository: &Repository, violations: &mut Violations) {
    for manifest in repository.files.iter() {
        let Some(folder) = manifest.name.strip_suffix("Cargo.toml") else {
            continue;
        };
        let sources: Vec<_> = repository
            .files
            .iter()
            .filter(|file| file.is_rust() && file.name.starts_with(folder))
            .filter(|file| {
                !folder.is_empty() && !is_in_inner_package(repository, folder, &file.name)
            })
            .collect();
        let is_named = |dependency: &str, wanted: Wanted<'_>| {
            let name = dependency.replace('-', "_");
            sources
                .iter()
                .filter(|file| wanted(&file.name[folder.len()..]))
                .any(|file| has_word(&file.text, &name))
        };
        let everywhere = |_: &str| true;
        let in_product = |name: &str| name.starts_with("src/") || name.starts_with("examples/");
        let in_build = |name: &str| name.starts_with("build");
        let kinds: [(&str, Wanted<'_>); 3] = [
            ("dependencies", &in_product),
            ("dev-dependencies", &everywhere),
            ("build-dependencies", &in_build),
        ];
        for (kind, wanted) in kinds {
            if folder.is_empty() {
                continue;
            }
            for dependency in dependencies(&manifest.text, |section| section == kind) {
                if !is_named(dependency, wanted) {
                    let text = format!("{dependency} stands in [{kind}], and nothing uses it");
                    violations.add(&manifest.name, text);
                }
            }
        }
    }
}

fn is_in_inner_package(repository: &Repository, folder: &str, name: &str) -> bool {
    repository.files.iter().any(|file| {
        file.name
            .strip_suffix("Cargo.toml")
            .is_some_and(|inner| inner.len() > folder.len() && name.starts_with(inner))
    })
}

fn dependencies(manifest: &str, wanted: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_section = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_section = wanted(section);
        } else if in_section && !line.starts_with([' ', '#']) {
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            found.extend((!name.is_empty()).then_some(name));
        }
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

/// Finds sources that are a part of no package.
pub(super) fn check_files(repository: &Repository, violations: &mut Violations) {
    let names: BTreeSet<&str> = repository.files.iter().map(|f| f.name.as_str()).collect();
    for file in repository.files.iter().filter(|file| file.is_rust()) {
        let Some((folder, base)) = file.name.rsplit_once('/') else {
            continue;
        };
        if is_root(&names, folder, base) {
            continue;
        }
        let (at, module) = match base {
            "mod.rs" => folder.rsplit_once('/').unwrap_or(("", folder)),
            _ => (folder, base.trim_end_matches(".rs")),
        };
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|name| format!("{at}/{name}"));
        let is_named = parents
            .iter()
            .chain([&format!("{at}.rs")])
            .filter_map(|name| repository.file(name))
            .any(|parent| {
                let declared = format!("mod {module};");
                parent
                    .text
                    .lines()
                    .any(|line| line.trim().ends_with(&declared))
            });
        if !is_named && !is_named_by_path(repository, &file.name, base) {
            violations.add(&file.name, "no module names this file");
        }
    }
}

/// Roots of packages, by Cargo's conventions.
fn is_root(names: &BTreeSet<&str>, folder: &str, base: &str) -> bool {
    let of_package = |package: &str| names.contains(format!("{package}/Cargo.toml").as_str());
    if base == "build.rs" && of_package(folder) {
        return true;
    }
    let Some((package, last)) = folder.rsplit_once('/') else {
        return false;
    };
    match last {
        "src" => ["lib.rs", "main.rs"].contains(&base) && of_package(package),
        "tests" | "examples" | "benches" => of_package(package),
        // tests/NAME/main.rs, src/bin/NAME.rs.
        _ if base == "main.rs" => package
            .rsplit_once('/')
            .is_some_and(|(package, _)| of_package(package)),
        "bin" => true,
        _ => false,
    }
}

/// `#[path = "…"]`, `include!("…")`, or a target of a manifest.
fn is_named_by_path(repository: &Repository, name: &str, base: &str) -> bool {
    let quoted = format!("\"{base}\"");
    let ends = format!("/{base}\"");
    repository.files.iter().any(|other| {
        other.name != name
            && (other.is_rust() || other.name.ends_with("Cargo.toml"))
            && other.text.lines().any(|line| {
                (line.contains("path") || line.contains("include!"))
                    && (line.contains(&quoted) || line.contains(&ends))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violations_of;

    #[test]
    fn a_crate_may_use_only_earlier_layers() {
        let manifest =
            "[dependencies]\ntarn-wire = { workspace = true }\ntarn-raft.workspace = true\n";
        assert_eq!(
            violations_of(check_layers, &[("crates/log/Cargo.toml", manifest)]),
            ["crates/log/Cargo.toml: log must not use raft: it is no earlier layer"]
        );
    }

    #[test]
    fn a_dependency_that_nothing_names_is_found() {
        let manifest = "[dependencies]\nbytes = { workspace = true }\ncrc-fast = \"1\"\n\n[dev-dependencies]\nproptest = \"1\"\n";
        let files = [
            ("crates/log/Cargo.toml", manifest),
            ("crates/log/src/lib.rs", "use crc_fast::X;\n// bytes_of\n"),
            ("crates/log/tests/a.rs", "use bytes::Bytes;\n"),
        ];
        assert_eq!(
            violations_of(check_dependencies, &files),
            [
                "crates/log/Cargo.toml: bytes stands in [dependencies], and nothing uses it",
                "crates/log/Cargo.toml: proptest stands in [dev-dependencies], and nothing uses it",
            ]
        );
    }

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let files = [
            ("crates/a/Cargo.toml", ""),
            ("crates/a/build.rs", ""),
            (
                "crates/a/src/lib.rs",
                "mod b;\n#[path = \"e_tests.rs\"]\nmod tests;\n",
            ),
            ("crates/a/src/b.rs", "pub(crate) mod c;\n"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/b/d.rs", ""),
            ("crates/a/src/e_tests.rs", ""),
            ("crates/a/tests/t.rs", ""),
            ("crates/a/tests/u/main.rs", "mod v;\n"),
            ("crates/a/tests/u/v.rs", ""),
            ("crates/a/tests/u/w.rs", ""),
        ];
        assert_eq!(
            violations_of(check_files, &files),
            [
                "crates/a/src/b/d.rs: no module names this file",
                "crates/a/tests/u/w.rs: no module names this file",
            ]
        );
    }
}
