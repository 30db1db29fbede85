//! Reads `.msg` files. The form, line by line:
//!
//! ```text
//! message NAME KIND [KEY]        request, response, metadata, coordinator-key, coordinator-value,
//!                                data
//! versions 0-3
//! flexible 2+                    left out if no version is
//! listeners broker controller    requests only
//! unstable-latest                the last version is not announced
//! dialect                        another body under a key that has a message already
//! fields
//!   Name TYPE VERSIONS [null=VERSIONS] [tag=N [tagged=VERSIONS]] [default=X] [ignorable] [key]
//!     Nested …                   fields of the struct that TYPE names, two spaces deeper
//! struct NAME VERSIONS           a struct that several fields use
//!   Name …
//! ```
//!
//! A file that starts with `extend NAME` adds fields at the end of structs of a message of another
//! file, and may set its `versions`. Its lines `ignorable STRUCT.FIELD` name fields that Kafka's
//! schema does not call ignorable because Kafka's own handlers leave them out by version: an answer
//! may lose them. Lines that start with `#` are comments.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::model::{Field, Kind, Message, Struct, Type, Versions};

const EVERY_VERSION: Versions = Versions {
    min: 0,
    max: i16::MAX,
};

type Result<T> = std::result::Result<T, String>;

/// Reads all files below `dir`; messages come sorted by name.
pub(crate) fn schema_dir(dir: &Path) -> Result<Vec<Message>> {
    let mut messages = BTreeMap::new();
    let mut extensions = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?
        {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let (message, is_extension) =
                file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            if is_extension {
                extensions.push(message);
            } else if let Some(twice) = messages.insert(message.name.clone(), message) {
                return Err(format!("{} is defined twice", twice.name));
            }
        }
    }
    for extension in extensions {
        let name = extension.name.clone();
        let message = messages
            .get_mut(&name)
            .ok_or_else(|| format!("extend {name}: no such message"))?;
        extend(message, extension)?;
    }
    Ok(messages.into_values().map(clamp).collect())
}

fn extend(message: &mut Message, extension: Message) -> Result<()> {
    if extension.versions != EVERY_VERSION {
        message.versions = extension.versions;
    }
    for (within, name) in extension.also_ignorable {
        let place = format!("{}: ignorable {within}.{name}", message.name);
        let fields = message
            .structs
            .iter_mut()
            .find(|s| s.name == within)
            .map(|s| &mut s.fields)
            .ok_or_else(|| format!("{place}: no such struct"))?;
        let field = fields
            .iter_mut()
            .find(|field| field.name == name)
            .ok_or_else(|| format!("{place}: no such field"))?;
        if std::mem::replace(&mut field.ignorable, true) {
            return Err(format!("{place}: it is already"));
        }
    }
    for addition in extension.structs {
        match message.structs.iter_mut().find(|s| s.name == addition.name) {
            Some(existing) => existing.fields.extend(addition.fields),
            None => message.structs.push(addition),
        }
    }
    Ok(())
}

/// Restricts everything to versions that exist and drops fields that no version has any more.
fn clamp(mut message: Message) -> Message {
    // Structs come after the ones that use them, except common ones; a fixed point is reached in a
    // few rounds.
    for _ in 0..4 {
        let mut reach: BTreeMap<String, Versions> = BTreeMap::new();
        reach.insert(message.name.clone(), message.versions);
        for s in &message.structs {
            let within = reach
                .get(&s.name)
                .copied()
                .unwrap_or(s.versions)
                .and(s.versions);
            for field in &s.fields {
                if let Some(name) = struct_name(&field.ty) {
                    let used = field.versions.and(within);
                    let all = reach.entry(name.to_owned()).or_insert(used);
                    *all = Versions {
                        min: all.min.min(used.min),
                        max: all.max.max(used.max),
                    };
                }
            }
        }
        for s in &mut message.structs {
            let Some(used) = reach.get(&s.name) else {
                continue;
            };
            s.versions = s.versions.and(*used).and(message.versions);
            let within = s.versions;
            s.fields
                .retain(|field| !field.versions.and(within).is_empty());
        }
        message.structs.retain(|s| !s.versions.is_empty());
    }
    message
}

fn struct_name(ty: &Type) -> Option<&str> {
    match ty {
        Type::Struct(name) => Some(name),
        Type::Array(of) => struct_name(of),
        Type::Primitive(_) => None,
    }
}

fn file(text: &str) -> Result<(Message, bool)> {
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let (mut message, is_extension) = head(lines.next().ok_or("empty file")?)?;
    // Indices of the structs the current line's fields belong to, one a depth.
    let mut open = vec![0];
    for line in lines {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let words: Vec<&str> = line.split_whitespace().collect();
        match (depth, words.as_slice()) {
            (0, ["struct", name, rest @ ..]) => {
                let range = rest
                    .first()
                    .map_or(Ok(EVERY_VERSION), |range| versions(range))?;
                open = vec![struct_at(&mut message, name, range)];
            }
            (0, words) => {
                property(&mut message, words).map_err(|error| format!("{line}: {error}"))?
            }
            (depth, words) => {
                open.truncate(depth);
                let parent = *open
                    .last()
                    .filter(|_| open.len() == depth)
                    .ok_or(format!("bad indent: {line}"))?;
                let field = field(words).map_err(|error| format!("{line}: {error}"))?;
                if let Some(name) = struct_name(&field.ty) {
                    let at = struct_at(&mut message, name, EVERY_VERSION);
                    open.push(at);
                }
                message.structs[parent].fields.push(field);
            }
        }
    }
    Ok((message, is_extension))
}

/// The first line; the flag says that the file extends a message of another file.
fn head(line: &str) -> Result<(Message, bool)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_extension = words.first() == Some(&"extend");
    let name = (*words.get(1).ok_or("no name")?).to_owned();
    let kind = match words.get(2).copied() {
        Some("request") => Kind::Request,
        Some("response") => Kind::Response,
        Some("metadata" | "coordinator-key" | "coordinator-value") => Kind::Record,
        Some("data") | None => Kind::Data,
        Some(other) => return Err(format!("unknown kind {other}")),
    };
    let key = words
        .get(3)
        .map(|key| key.parse())
        .transpose()
        .map_err(|_| "bad key")?;
    let root = Struct {
        name: name.clone(),
        versions: EVERY_VERSION,
        fields: Vec::new(),
    };
    let message = Message {
        name,
        kind,
        key,
        versions: EVERY_VERSION,
        flexible: i16::MAX,
        is_dialect: false,
        also_ignorable: Vec::new(),
        structs: vec![root],
    };
    Ok((message, is_extension))
}

fn property(message: &mut Message, words: &[&str]) -> Result<()> {
    match words {
        ["versions", range] => message.versions = versions(range)?,
        ["flexible", range] => message.flexible = versions(range)?.min,
        ["dialect"] => message.is_dialect = true,
        ["ignorable", place] => {
            let (within, field) = place.split_once('.').ok_or("STRUCT.FIELD expected")?;
            message
                .also_ignorable
                .push((within.to_owned(), field.to_owned()));
        }
        // Facts for people; the API table holds what is announced where.
        ["listeners", ..] | ["unstable-latest"] | ["fields"] => {}
        _ => return Err("no such property".to_owned()),
    }
    Ok(())
}

fn struct_at(message: &mut Message, name: &str, versions: Versions) -> usize {
    let at = message
        .structs
        .iter()
        .position(|s| s.name == name)
        .unwrap_or_else(|| {
            message.structs.push(Struct {
                name: name.to_owned(),
                versions,
                fields: Vec::new(),
            });
            message.structs.len() - 1
        });
    message.structs[at].versions = message.structs[at].versions.and(versions);
    at
}

fn field(words: &[&str]) -> Result<Field> {
    let [name, ty, range, options @ ..] = words else {
        return Err("a field needs name, type, versions".to_owned());
    };
    let versions_of_field = versions(range)?;
    let mut field = Field {
        name: (*name).to_owned(),
        ty: type_of(ty),
        versions: versions_of_field,
        nullable: None,
        tag: None,
        default: None,
        ignorable: false,
    };
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("null", range) => {
                field.nullable =
                    Some(versions(range)?).filter(|null| !null.and(field.versions).is_empty())
            }
            ("tag", number) => {
                field.tag = Some((number.parse().map_err(|_| "bad tag")?, versions_of_field))
            }
            ("tagged", range) => {
                field.tag = field.tag.map(|(number, _)| {
                    (
                        number,
                        Versions {
                            ..versions_or_empty(range)
                        },
                    )
                })
            }
            ("default", value) => field.default = Some(value.trim_matches('"').to_owned()),
            ("ignorable", "") => field.ignorable = true,
            // A map key says that the list is a set; the codec keeps lists as they come.
            ("key", "") => {}
            (other, _) => return Err(format!("unknown option {other}")),
        }
    }
    Ok(field)
}

fn versions_or_empty(range: &str) -> Versions {
    versions(range).unwrap_or(Versions { min: 1, max: 0 })
}

fn type_of(text: &str) -> Type {
    match text.strip_prefix("[]") {
        Some(of) => Type::Array(Box::new(type_of(of))),
        None if text.starts_with(|c: char| c.is_uppercase()) => Type::Struct(text.to_owned()),
        None => Type::Primitive(text.to_owned()),
    }
}

fn versions(text: &str) -> Result<Versions> {
    let number = |text: &str| {
        text.parse::<i16>()
            .map_err(|_| format!("bad version {text}"))
    };
    if let Some(min) = text.strip_suffix('+') {
        return Ok(Versions {
            min: number(min)?,
            max: i16::MAX,
        });
    }
    match text.split_once('-') {
        Some((min, max)) => Ok(Versions {
            min: number(min)?,
            max: number(max)?,
        }),
        None => number(text).map(|only| Versions {
            min: only,
            max: only,
        }),
    }
}
