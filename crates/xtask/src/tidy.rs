//! `tidy`: the rules of the repository that a program can check. Also a test, so that no reviewer
//! has to.
//!
//! Here: length of files and functions, the `//!` head of every file, words that mean unfinished,
//! paths of somebody's machine. In the modules: width, crates, references, invariants, tables.

mod crates;
mod invariants;
mod references;
mod tables;
mod width;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use regex::Regex;

/// Lines of a source file, be it product or test.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function of the product from its name to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Words that stand for unfinished work. Split, so that this file passes its own check.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimple", "mented!("),
    concat!("not built", " yet"),
];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/", "tarn"),
    concat!("/ho", "me/"),
];

/// Extensions of the files people write; scripts have none.
const TEXT_EXTENSIONS: &[&str] = &[
    "rs",
    "md",
    "toml",
    "msg",
    "sh",
    "properties",
    "java",
    "yml",
    "",
];

/// One text file.
struct File {
    /// Its path from the top of the repository.
    name: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.name.ends_with(".rs")
    }
}

/// All text files that people write.
struct Repository {
    files: Vec<File>,
}

impl Repository {
    fn read(root: &Path) -> Result<Repository> {
        let mut files = Vec::new();
        for path in paths(root)? {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let name = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .display()
                .to_string();
            files.push(File { name, text });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Repository { files })
    }

    fn file(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// What is wrong, a line each.
#[derive(Default)]
struct Violations(Vec<String>);

impl Violations {
    fn add(&mut self, file: &str, problem: impl Display) {
        self.0.push(format!("{file}: {problem}"));
    }
}

/// A pattern of this crate's own.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is right")
}

/// The checks, one after the other.
const CHECKS: &[fn(&Repository, &mut Violations)] = &[
    check_files,
    crates::check_layers,
    crates::check_dependencies,
    crates::check_files,
    width::check,
    references::check,
    invariants::check,
    tables::check_protocol,
    tables::check_mirror_protocol,
    tables::check_limits,
];

/// Prints every violation and fails if there is one.
pub(crate) fn run() -> Result<()> {
    let violations = check(&super::repository())?;
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        Ok(())
    } else {
        bail!("{} violations of the rules", violations.len())
    }
}

fn check(root: &Path) -> Result<Vec<String>> {
    let repository = Repository::read(root)?;
    let mut violations = Violations::default();
    for check in CHECKS {
        check(&repository, &mut violations);
    }
    violations.0.sort();
    Ok(violations.0)
}

fn check_files(repository: &Repository, violations: &mut Violations) {
    for file in &repository.files {
        for problem in problems(&file.name, &file.text) {
            violations.add(&file.name, problem);
        }
    }
}

/// All text files of the repository that people write.
fn paths(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let extension = path
                .extension()
                .map(|e| e.to_string_lossy().into_owned())
                .unwrap_or_default();
            // A worktree has `.git` as a file.
            if ["target", ".git", "proptest-regressions"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if TEXT_EXTENSIONS.contains(&extension.as_str()) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for path in MACHINE_PATHS.iter().filter(|path| text.contains(*path)) {
        problems.push(format!("names the machine path {path}"));
    }
    if name.ends_with(".rs") {
        source_problems(name, text, &mut problems);
    }
    problems
}

fn source_problems(name: &str, text: &str, problems: &mut Vec<String>) {
    if !text.starts_with("//!") {
        problems.push("does not open with a //! head".to_owned());
    }
    for word in UNFINISHED.iter().filter(|word| text.contains(*word)) {
        problems.push(format!("contains {word}"));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        problems.push(format!("has {lines} lines, {FILE_LINES_MAX} are allowed"));
    }
    let is_test =
        name.starts_with("tests/") || name.contains("/tests/") || name.ends_with("tests.rs");
    if is_test {
        return;
    }
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    for (function, lines) in functions(product)
        .into_iter()
        .filter(|(_, lines)| *lines > FUNCTION_LINES_MAX)
    {
        problems.push(format!(
            "fn {function} has {lines} lines, {FUNCTION_LINES_MAX} are allowed"
        ));
    }
}

/// Name and length of every function, by indentation: the sources are formatted.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut open: Vec<(usize, String, usize)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        let closes = code == "}" && open.last().is_some_and(|(depth, ..)| *depth == indent);
        if closes && let Some((_, name, from)) = open.pop() {
            found.push((name, at - from + 1));
        }
        if let Some(name) =
            function_name(code).filter(|_| !code.ends_with(';') && !code.ends_with('}'))
        {
            open.retain(|(depth, ..)| *depth < indent);
            open.push((indent, name.to_owned(), at));
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let (before, after) = code.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        ["pub", "const", "async", "unsafe", "extern"].contains(&word) || word.starts_with("pub(")
    });
    is_head.then(|| after.split(['(', '<']).next().unwrap_or(after))
}

/// What a check finds in a repository of these files, sorted.
#[cfg(test)]
fn violations_of(
    check: impl Fn(&Repository, &mut Violations),
    files: &[(&str, &str)],
) -> Vec<String> {
    let file = |(name, text): &(&str, &str)| File {
        name: (*name).to_owned(),
        text: (*text).to_owned(),
    };
    let files = files.iter().map(file).collect();
    let mut violations = Violations::default();
    check(&Repository { files }, &mut violations);
    violations.0.sort();
    violations.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let violations = check(&crate::repository()).unwrap();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let text = "impl A {\n    pub(crate) async fn f<T>(&self)\n    where\n        T: B,\n    {\n        x;\n    }\n}\nfn g() {\n}\n";
        assert_eq!(functions(text), [("f".to_owned(), 6), ("g".to_owned(), 2)]);
    }

    #[test]
    fn a_long_file_is_split_also_where_it_is_a_test() {
        let text = format!("//! Head.\n{}", "\n".repeat(FILE_LINES_MAX - 1));
        for name in ["crates/a/src/b.rs", "crates/a/tests/b.rs"] {
            assert_eq!(problems(name, &text), Vec::<String>::new());
            let longer = problems(name, &format!("{text}\n"));
            assert_eq!(longer, ["has 801 lines, 800 are allowed"]);
        }
    }

    #[test]
    fn a_file_needs_a_head_and_no_unfinished_work() {
        let text = format!("fn main() {{ {}) }}\n", UNFINISHED[0]);
        assert_eq!(problems("crates/a/src/b.rs", &text).len(), 2);
    }
}
