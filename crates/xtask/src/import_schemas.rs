//! `import-schemas`: reads the message schemas inside released Kafka jars and writes the facts of
//! each (names, types, versions, tags, defaults) as one small text file into
//! `crates/wire/schema/kafka`. No prose is taken over.
//!
//! The form is described where it is read: `crates/wire/build/parse.rs`. Our own messages stand in
//! `crates/wire/schema/tarn` and are written by hand.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    api_key: Option<i16>,
    valid_versions: String,
    flexible_versions: Option<String>,
    #[serde(default)]
    listeners: Vec<String>,
    #[serde(default)]
    latest_version_unstable: bool,
    #[serde(default)]
    fields: Vec<Field>,
    #[serde(default)]
    common_structs: Vec<Common>,
}

#[derive(Deserialize)]
struct Common {
    name: String,
    versions: String,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Field {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    versions: Option<String>,
    nullable_versions: Option<String>,
    tag: Option<u32>,
    tagged_versions: Option<String>,
    default: Option<Value>,
    #[serde(default)]
    ignorable: bool,
    #[serde(default)]
    map_key: bool,
    #[serde(default)]
    fields: Vec<Field>,
}

/// Reads every `--jar` and writes the schema files.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut jars = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match (arg.as_str(), rest.next()) {
            ("--jar", Some(jar)) => jars.push(PathBuf::from(jar)),
            _ => bail!("import-schemas takes --jar FILE, one or more times"),
        }
    }
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/schema/kafka");
    fs::create_dir_all(&out)?;
    let mut written = 0;
    for jar in &jars {
        written +=
            import_jar(jar, &out).with_context(|| format!("cannot import {}", jar.display()))?;
    }
    println!("{written} schemas written");
    Ok(())
}

fn import_jar(jar: &Path, out: &Path) -> Result<usize> {
    let mut archive = zip::ZipArchive::new(File::open(jar)?)?;
    let mut written = 0;
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at)?;
        let name = entry.name().to_owned();
        let is_schema = ["message/", "metadata/"]
            .iter()
            .any(|dir| name.contains(dir))
            && name.ends_with(".json");
        if !is_schema {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        let schema: Schema = serde_json::from_str(&without_comments(&text))
            .with_context(|| format!("cannot read {name}"))?;
        // APIs that were removed keep a schema without versions; headers are written by hand in
        // tarn-wire.
        if schema.valid_versions == "none" || schema.kind == "header" {
            continue;
        }
        fs::write(out.join(format!("{}.msg", schema.name)), compact(&schema)?)?;
        written += 1;
    }
    Ok(written)
}

/// Drops `//` comments, but not inside of strings.
fn without_comments(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut previous = ' ';
        for (at, c) in line.char_indices() {
            if c == '"' && previous != '\\' {
                in_string = !in_string;
            }
            if !in_string && line[at..].starts_with("//") {
                break;
            }
            clean.push(c);
            previous = c;
        }
        clean.push('\n');
    }
    clean
}

fn compact(schema: &Schema) -> Result<String> {
    let mut text = format!("message {} {}", schema.name, schema.kind);
    if let Some(key) = schema.api_key {
        write!(text, " {key}")?;
    }
    writeln!(text, "\nversions {}", schema.valid_versions)?;
    if let Some(flexible) = schema
        .flexible_versions
        .as_ref()
        .filter(|versions| *versions != "none")
    {
        writeln!(text, "flexible {flexible}")?;
    }
    if !schema.listeners.is_empty() {
        writeln!(text, "listeners {}", schema.listeners.join(" "))?;
    }
    if schema.latest_version_unstable {
        writeln!(text, "unstable-latest")?;
    }
    writeln!(text, "fields")?;
    schema
        .fields
        .iter()
        .try_for_each(|field| write_field(&mut text, field, 1))?;
    for common in &schema.common_structs {
        writeln!(text, "struct {} {}", common.name, common.versions)?;
        common
            .fields
            .iter()
            .try_for_each(|field| write_field(&mut text, field, 1))?;
    }
    Ok(text)
}

fn write_field(text: &mut String, field: &Field, depth: usize) -> Result<()> {
    let versions = field
        .versions
        .as_ref()
        .or(field.tagged_versions.as_ref())
        .context("field without versions")?;
    write!(
        text,
        "{:indent$}{} {} {versions}",
        "",
        field.name,
        field.kind,
        indent = depth * 2
    )?;
    if let Some(nullable) = &field.nullable_versions {
        write!(text, " null={nullable}")?;
    }
    if let Some(tag) = field.tag {
        write!(text, " tag={tag}")?;
        if let Some(tagged) = field
            .tagged_versions
            .as_ref()
            .filter(|tagged| *tagged != versions)
        {
            write!(text, " tagged={tagged}")?;
        }
    }
    match &field.default {
        Some(Value::String(default)) if default.is_empty() => text.push_str(" default=\"\""),
        Some(Value::String(default)) => write!(text, " default={default}")?,
        Some(default) => write!(text, " default={default}")?,
        None => {}
    }
    if field.ignorable {
        text.push_str(" ignorable");
    }
    if field.map_key {
        text.push_str(" key");
    }
    text.push('\n');
    field
        .fields
        .iter()
        .try_for_each(|nested| write_field(text, nested, depth + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_reduced_to_its_facts() {
        let json = r#"// prose
            { "apiKey": 1, "type": "request", "name": "ARequest", "listeners": ["broker"], // more prose
              "validVersions": "0-2", "flexibleVersions": "2+",
              "fields": [ { "name": "A", "type": "[]B", "versions": "1+", "nullableVersions": "2+", "default": "null",
                            "about": "see http://example", "fields": [
                { "name": "C", "type": "string", "versions": "2+", "tag": 0, "taggedVersions": "2+", "default": "" } ] } ] }"#;
        let schema: Schema = serde_json::from_str(&without_comments(json)).unwrap();
        let expected = "message ARequest request 1\nversions 0-2\nflexible 2+\nlisteners broker\nfields\n\
                        \x20 A []B 1+ null=2+ default=null\n\x20   C string 2+ tag=0 default=\"\"\n";
        assert_eq!(compact(&schema).unwrap(), expected);
    }
}
