//! Owns requests made from the schemas alone: reads `crates/wire/schema`, writes a body of any
//! message in any version with values that the caller picks, and checks that a body is a message of
//! a version to its last byte.
//!
//! Shares no code with the server's codec, so that a fault there is not repeated here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes};

/// Versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// First.
    pub min: i16,
    /// Last.
    pub max: i16,
}

impl Versions {
    fn parse(text: &str) -> Result<Self> {
        if let Some(min) = text.strip_suffix('+') {
            return Ok(Self {
                min: min.parse()?,
                max: i16::MAX,
            });
        }
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        Ok(Self {
            min: min.parse()?,
            max: max.parse()?,
        })
    }

    /// Whether `version` is one of them.
    #[must_use]
    pub fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A bool or a whole number, so many bytes long.
    Int(usize),
    /// A number with a fraction.
    Float,
    /// An id.
    Id,
    /// Text.
    Text,
    /// Bytes or a record set.
    Bytes,
    /// A struct of the message.
    Struct(String),
    /// A list.
    List(Box<Kind>),
}

impl Kind {
    fn parse(text: &str) -> Self {
        if let Some(of) = text.strip_prefix("[]") {
            return Self::List(Box::new(Self::parse(of)));
        }
        match text {
            "bool" | "int8" => Self::Int(1),
            "int16" | "uint16" => Self::Int(2),
            "int32" | "uint32" => Self::Int(4),
            "int64" => Self::Int(8),
            "float64" => Self::Float,
            "uuid" => Self::Id,
            "string" => Self::Text,
            "bytes" | "records" => Self::Bytes,
            name => Self::Struct(name.to_owned()),
        }
    }

    fn struct_name(&self) -> Option<&str> {
        match self {
            Self::Struct(name) => Some(name),
            Self::List(of) => of.struct_name(),
            _ => None,
        }
    }
}

/// A field of a struct.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name of the struct it stands in.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Where it exists.
    pub versions: Versions,
    /// Where it may be null.
    pub nullable: Option<Versions>,
    /// Its default, as the schema writes it.
    pub default: Option<String>,
    tag: Option<(u32, Versions)>,
}

impl Field {
    fn parse(owner: &str, words: &[&str]) -> Result<Self> {
        let [name, kind, versions, options @ ..] = words else {
            bail!("a field needs name, type and versions: {words:?}")
        };
        let versions = Versions::parse(versions)?;
        let mut field = Self {
            owner: owner.to_owned(),
            name: (*name).to_owned(),
            kind: Kind::parse(kind),
            versions,
            nullable: None,
            default: None,
            tag: None,
        };
        for option in options {
            match option.split_once('=') {
                Some(("null", range)) => field.nullable = Some(Versions::parse(range)?),
                Some(("tag", number)) => field.tag = Some((number.parse()?, versions)),
                Some(("tagged", range)) => {
                    let range = Versions::parse(range)?;
                    field.tag = field.tag.map(|(number, _)| (number, range));
                }
                Some(("default", value)) => {
                    field.default = Some(value.trim_matches('"').to_owned());
                }
                _ => {}
            }
        }
        Ok(field)
    }

    fn tag_in(&self, version: i16) -> Option<u32> {
        self.tag
            .filter(|(_, tagged)| tagged.contains(version))
            .map(|(tag, _)| tag)
    }

    fn nullable_in(&self, version: i16) -> bool {
        self.nullable.is_some_and(|null| null.contains(version))
    }
}

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its name, with `Request` or `Response`.
    pub name: String,
    /// API key of requests and responses.
    pub key: Option<i16>,
    /// Versions with a body.
    pub versions: Versions,
    flexible: i16,
    structs: BTreeMap<String, Vec<Field>>,
}

/// Who says what the fields of a request hold.
pub trait Values {
    /// Whether a nullable field is null.
    fn is_null(&mut self, field: &Field) -> bool;
    /// Elements of a list.
    fn count(&mut self, field: &Field) -> usize;
    /// A number.
    fn int(&mut self, field: &Field) -> i64;
    /// A text.
    fn text(&mut self, field: &Field) -> String;
    /// Bytes or a record set.
    fn bytes(&mut self, field: &Field) -> Bytes;
    /// An id.
    fn id(&mut self, field: &Field) -> [u8; 16];
    /// Whether a tagged field is there at all.
    fn has_tagged(&mut self, field: &Field) -> bool;
}

/// All messages, by name.
///
/// # Errors
/// A file is missing or has an unknown form.
pub fn load() -> Result<BTreeMap<String, Message>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wire/schema");
    let (mut messages, mut extensions) = (BTreeMap::new(), Vec::new());
    for folder in ["kafka", "tarn"] {
        for entry in fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            let (message, extends) = parse(&text).with_context(|| path.display().to_string())?;
            if extends {
                extensions.push(message);
            } else {
                messages.insert(message.name.clone(), message);
            }
        }
    }
    for extension in extensions {
        let message = messages.get_mut(&extension.name);
        let message = message.with_context(|| format!("extend {}", extension.name))?;
        if extension.versions.max != i16::MAX {
            message.versions = extension.versions;
        }
        for (name, fields) in extension.structs {
            message.structs.entry(name).or_default().extend(fields);
        }
    }
    Ok(messages)
}

fn parse(text: &str) -> Result<(Message, bool)> {
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let head: Vec<&str> = lines.next().context("empty")?.split(' ').collect();
    let name = (*head.get(1).context("no name")?).to_owned();
    let mut message = Message {
        key: head.get(3).map(|key| key.parse()).transpose()?,
        versions: Versions::parse("0+")?,
        flexible: i16::MAX,
        structs: BTreeMap::from([(name.clone(), Vec::new())]),
        name: name.clone(),
    };
    let mut open = vec![name];
    for line in lines {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let words: Vec<&str> = line.split_whitespace().collect();
        match (depth, words.as_slice()) {
            (0, ["versions", range]) => message.versions = Versions::parse(range)?,
            (0, ["flexible", range]) => message.flexible = Versions::parse(range)?.min,
            (0, ["struct", name, ..]) => open = vec![(*name).to_owned()],
            (0, _) => {}
            (depth, words) => {
                open.truncate(depth);
                let owner = open.last().context("bad indent")?.clone();
                let field = Field::parse(&owner, words)?;
                open.extend(field.kind.struct_name().map(str::to_owned));
                message.structs.entry(owner).or_default().push(field);
            }
        }
    }
    Ok((message, head[0] == "extend"))
}

impl Message {
    /// Whether the version has compact lengths and tagged fields.
    #[must_use]
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible
    }

    /// A body with the values that `values` picks.
    #[must_use]
    pub fn body(&self, version: i16, values: &mut dyn Values) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_struct(&mut out, &self.name, version, values);
        out
    }

    fn fields(&self, name: &str) -> &[Field] {
        self.structs.get(name).map_or(&[], Vec::as_slice)
    }

    fn write_struct(&self, out: &mut Vec<u8>, name: &str, version: i16, values: &mut dyn Values) {
        let mut tagged = BTreeMap::new();
        for field in self.fields(name) {
            if !field.versions.contains(version) {
                continue;
            }
            match field.tag_in(version) {
                None => self.write_field(out, field, version, values),
                Some(tag) if values.has_tagged(field) => {
                    let mut content = Vec::new();
                    self.write_field(&mut content, field, version, values);
                    tagged.insert(tag, content);
                }
                Some(_) => {}
            }
        }
        if self.is_flexible(version) {
            put_uvarint(out, tagged.len());
            for (tag, content) in tagged {
                put_uvarint(out, tag as usize);
                put_uvarint(out, content.len());
                out.extend(content);
            }
        }
    }

    fn write_field(&self, out: &mut Vec<u8>, field: &Field, version: i16, values: &mut dyn Values) {
        let flexible = self.is_flexible(version);
        let null = field.nullable_in(version) && values.is_null(field);
        match &field.kind {
            Kind::Text => {
                let text = (!null).then(|| values.text(field));
                match (flexible, &text) {
                    (true, text) => put_compact_len(out, text.as_ref().map(String::len)),
                    (false, None) => out.put_i16(-1),
                    (false, Some(text)) => out.put_i16(text.len() as i16),
                }
                out.extend(text.unwrap_or_default().into_bytes());
            }
            Kind::Bytes => {
                let bytes = (!null).then(|| values.bytes(field));
                put_len(out, flexible, bytes.as_ref().map(Bytes::len));
                out.extend(bytes.unwrap_or_default());
            }
            Kind::List(of) => {
                let count = (!null).then(|| values.count(field));
                put_len(out, flexible, count);
                let element = Field {
                    kind: (**of).clone(),
                    nullable: None,
                    ..field.clone()
                };
                for _ in 0..count.unwrap_or(0) {
                    self.write_field(out, &element, version, values);
                }
            }
            Kind::Struct(name) => {
                if field.nullable_in(version) {
                    out.put_i8(if null { -1 } else { 1 });
                }
                if !null {
                    self.write_struct(out, name, version, values);
                }
            }
            Kind::Int(size) => out.put_int(values.int(field), *size),
            Kind::Float => out.put_f64(values.int(field) as f64),
            Kind::Id => out.extend(values.id(field)),
        }
    }

    /// Reads a body to its last byte and gives every number that is called `ErrorCode`.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub fn read(&self, version: i16, mut body: Bytes) -> Result<Vec<i16>> {
        let mut codes = Vec::new();
        self.read_struct(&mut body, &self.name, version, &mut codes)?;
        ensure!(body.is_empty(), "{} bytes are left over", body.len());
        Ok(codes)
    }

    fn read_struct(
        &self,
        body: &mut Bytes,
        name: &str,
        version: i16,
        codes: &mut Vec<i16>,
    ) -> Result<()> {
        let there = |field: &&Field| field.versions.contains(version);
        for field in self.fields(name).iter().filter(there) {
            if field.tag_in(version).is_none() {
                self.read_field(body, field, version, codes)
                    .with_context(|| format!("{name}.{}", field.name))?;
            }
        }
        if !self.is_flexible(version) {
            return Ok(());
        }
        for _ in 0..get_uvarint(body)? {
            let (tag, size) = (get_uvarint(body)?, get_uvarint(body)?);
            ensure!(size <= body.len(), "tag {tag} of {name} ends early");
            let mut content = body.split_to(size);
            let field = self
                .fields(name)
                .iter()
                .filter(there)
                .find(|field| field.tag_in(version) == u32::try_from(tag).ok())
                .with_context(|| format!("{name} has no tag {tag}"))?;
            self.read_field(&mut content, field, version, codes)?;
            ensure!(content.is_empty(), "tag {tag} of {name} is too long");
        }
        Ok(())
    }

    fn read_field(
        &self,
        body: &mut Bytes,
        field: &Field,
        version: i16,
        codes: &mut Vec<i16>,
    ) -> Result<()> {
        let flexible = self.is_flexible(version);
        let nullable = field.nullable_in(version);
        let size = match &field.kind {
            Kind::Text if !flexible => {
                let len = body.try_get_i16()?;
                usize::try_from(len).ok()
            }
            Kind::Text | Kind::Bytes | Kind::List(_) => get_len(body, flexible)?,
            Kind::Int(size) => Some(*size),
            Kind::Float => Some(8),
            Kind::Id => Some(16),
            Kind::Struct(_) if nullable => (body.try_get_i8()? >= 0).then_some(0),
            Kind::Struct(_) => Some(0),
        };
        let Some(size) = size else {
            ensure!(nullable, "null where none is allowed");
            return Ok(());
        };
        match &field.kind {
            Kind::List(of) => {
                let element = Field {
                    kind: (**of).clone(),
                    nullable: None,
                    ..field.clone()
                };
                (0..size).try_for_each(|_| self.read_field(body, &element, version, codes))
            }
            Kind::Struct(name) => self.read_struct(body, name, version, codes),
            kind => {
                ensure!(
                    size <= body.len(),
                    "{size} bytes needed, {} left",
                    body.len()
                );
                let mut value = body.split_to(size);
                if *kind == Kind::Int(2) && field.name == "ErrorCode" {
                    codes.push(value.get_i16());
                }
                Ok(())
            }
        }
    }
}

fn put_uvarint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_compact_len(out: &mut Vec<u8>, len: Option<usize>) {
    put_uvarint(out, len.map_or(0, |len| len + 1));
}

fn put_len(out: &mut Vec<u8>, flexible: bool, len: Option<usize>) {
    if flexible {
        put_compact_len(out, len);
    } else {
        out.put_i32(len.map_or(-1, |len| len as i32));
    }
}

fn get_uvarint(body: &mut Bytes) -> Result<usize> {
    let (mut value, mut shift) = (0_usize, 0);
    loop {
        let byte = body.try_get_u8()?;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
        shift += 7;
        ensure!(shift < 35, "a length that does not end");
    }
}

fn get_len(body: &mut Bytes, flexible: bool) -> Result<Option<usize>> {
    if flexible {
        Ok(get_uvarint(body)?.checked_sub(1))
    } else {
        Ok(usize::try_from(body.try_get_i32()?).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_read() {
        let messages = load().unwrap();
        assert!(messages.len() > 200, "{}", messages.len());
        let fetch = &messages["FetchRequest"];
        assert_eq!((fetch.key, fetch.versions.max), (Some(1), 19));
        assert!(fetch.structs["FetchPartition"].len() > 5);
        assert_eq!(messages["ProduceRequest"].versions.min, 0);
    }
}
