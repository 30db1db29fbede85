//! Writes one Rust module a message: structs, their defaults, their codecs.
//!
//! The code is kept terse (`v` version, `x` flexible) because there is a lot of it and its compile
//! time is paid by everybody.

use std::fmt::Write as _;

use crate::model::{Field, Kind, Message, Struct, Type, Versions, snake};

/// The whole of `messages.rs`.
pub(crate) fn all(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        let module = snake(&message.name);
        let name = &message.name;
        writeln!(out, "pub use {module}::{name};\n#[doc = \"`{name}` and its nested structs.\"]\npub mod {module} {{\nuse super::gen_prelude::*;").unwrap();
        for s in &message.structs {
            emit_struct(&mut out, message, s);
        }
        emit_message(&mut out, message, messages);
        out.push_str("}\n");
    }
    emit_tables(&mut out, messages);
    out
}

fn emit_tables(out: &mut String, messages: &[Message]) {
    let requests = || {
        let is_main = |m: &&Message| m.kind == Kind::Request && !m.is_dialect;
        messages
            .iter()
            .filter(is_main)
            .filter_map(|m| Some((m.key?, m)))
    };
    out.push_str("pub(crate) fn request_flexible_from(key: ApiKey) -> i16 { match key.0 {\n");
    for (key, message) in requests() {
        writeln!(out, "{key} => {},", message.flexible).unwrap();
    }
    out.push_str("_ => i16::MAX } }\npub(crate) fn request_versions(key: ApiKey) -> Option<VersionRange> { Some(match key.0 {\n");
    for (key, message) in requests() {
        writeln!(
            out,
            "{key} => VersionRange::new({}, {}),",
            message.versions.min, message.versions.max
        )
        .unwrap();
    }
    out.push_str("_ => return None }) }\n");
}

fn emit_message(out: &mut String, message: &Message, all: &[Message]) {
    let Message {
        name,
        versions,
        flexible,
        ..
    } = message;
    writeln!(
        out,
        "impl Message for {name} {{ const NAME: &'static str = \"{name}\"; \
         const VERSIONS: VersionRange = VersionRange::new({}, {}); const FLEXIBLE_FROM: i16 = {flexible}; }}",
        versions.min, versions.max
    )
    .unwrap();
    let Some(key) = message.key else { return };
    match message.kind {
        Kind::Request => {
            let response = name.replace("Request", "Response");
            assert!(
                all.iter().any(|m| m.name == response),
                "{name} has no response"
            );
            writeln!(
                out,
                "impl Request for {name} {{ const KEY: ApiKey = ApiKey({key}); type Response = super::{response}; }}"
            )
            .unwrap();
        }
        Kind::Record => {
            writeln!(
                out,
                "impl RecordMessage for {name} {{ const TYPE: i16 = {key}; }}"
            )
            .unwrap();
        }
        Kind::Response | Kind::Data => {}
    }
}

fn emit_struct(out: &mut String, message: &Message, s: &Struct) {
    let plain_default = s.fields.iter().all(has_plain_default);
    let derive_default = if plain_default { "Default, " } else { "" };
    writeln!(
        out,
        "#[derive({derive_default}Clone, Debug, PartialEq)]\npub struct {} {{",
        s.name
    )
    .unwrap();
    for field in &s.fields {
        writeln!(out, "pub {}: {},", field.ident(), field.rust_type()).unwrap();
    }
    out.push_str("pub unknown_tagged: Tags }\n");
    if !plain_default {
        writeln!(
            out,
            "impl Default for {0} {{ fn default() -> {0} {{ {0} {{",
            s.name
        )
        .unwrap();
        for field in &s.fields {
            writeln!(out, "{}: {},", field.ident(), default_of(field)).unwrap();
        }
        out.push_str("unknown_tagged: Tags::new() } } }\n");
    }
    writeln!(
        out,
        "impl Codec for {} {{ const MIN_SIZE: usize = {};",
        s.name,
        message.min_size(s)
    )
    .unwrap();
    emit_read(out, message, s);
    emit_write(out, message, s);
    out.push_str("}\n");
    if message.kind == Kind::Response {
        emit_error_form(out, s);
    }
}

/// The form of a struct in an answer that only tells an error; see `ErrorForm`.
fn emit_error_form(out: &mut String, s: &Struct) {
    let mut body = String::new();
    for field in &s.fields {
        let ident = field.ident();
        let is_code = field.name == "ErrorCode" && field.ty == Type::Primitive("int16".to_owned());
        let kept = if is_code {
            "c".to_owned()
        } else {
            format!("self.{ident}.error_form(v, c)")
        };
        let not_null = format!("Some({kept}.unwrap_or_default())");
        let value = match field
            .nullable
            .map(|null| condition(null, field.versions.and(s.versions)))
        {
            None | Some(None) => kept,
            Some(Some(null)) => format!("if {null} {{ {kept} }} else {{ {not_null} }}"),
        };
        match condition(field.versions, s.versions) {
            None => writeln!(body, "{ident}: {value},").unwrap(),
            Some(present) => writeln!(
                body,
                "{ident}: if {present} {{ {value} }} else {{ {} }},",
                default_of(field)
            )
            .unwrap(),
        }
    }
    writeln!(
        out,
        "impl ErrorForm for {0} {{ fn error_form(&self, v: i16, c: i16) -> {0} {{ {0} {{\n{body}unknown_tagged: Tags::new() }} }} }}",
        s.name
    )
    .unwrap();
}

/// Whether the field's default is the default of its Rust type.
fn has_plain_default(field: &Field) -> bool {
    match field.default.as_deref() {
        Some("null") => true,
        None if is_records(&field.ty) => true,
        None | Some("" | "0" | "false") => field.nullable.is_none(),
        Some(_) => false,
    }
}

fn is_nullable_struct(field: &Field) -> bool {
    field.nullable.is_some() && matches!(field.ty, Type::Struct(_))
}

fn is_records(ty: &Type) -> bool {
    *ty == Type::Primitive("records".to_owned())
}

fn default_of(field: &Field) -> String {
    if has_plain_default(field) {
        return "Default::default()".to_owned();
    }
    let value = match (&field.ty, field.default.as_deref().unwrap_or_default()) {
        (Type::Primitive(name), text) if name == "string" => format!("Str::from_static({text:?})"),
        (Type::Primitive(name), text) if name == "float64" && !text.is_empty() => {
            format!("{text}_f64")
        }
        (_, "") => "Default::default()".to_owned(),
        (_, text) => text.to_owned(),
    };
    if field.nullable.is_some() {
        format!("Some({value})")
    } else {
        value
    }
}

/// An expression that is true when the field (as `self.f`) has its default. `lenient`: null counts
/// as default, too.
fn is_default(field: &Field, lenient: bool) -> String {
    let f = format!("self.{}", field.ident());
    if field.nullable.is_some() {
        let text = field.default.as_deref();
        return match text {
            Some("null") => format!("{f}.is_none()"),
            None if is_records(&field.ty) => format!("{f}.is_none()"),
            _ if is_nullable_struct(field) => {
                format!("{f}.as_ref().is_some_and(|f| *f == Default::default())")
            }
            None | Some("") if lenient => format!("{f}.as_ref().is_none_or(|f| f.is_empty())"),
            None | Some("") => format!("{f}.as_ref().is_some_and(|f| f.is_empty())"),
            Some(_) => format!("{f} == {}", default_of(field)),
        };
    }
    match (&field.ty, field.default.as_deref().unwrap_or_default()) {
        (Type::Array(_), _) => format!("{f}.is_empty()"),
        (Type::Struct(name), _) => format!("{f} == {name}::default()"),
        (Type::Primitive(name), text) => match (name.as_str(), text) {
            ("string" | "bytes" | "records", "") => format!("{f}.is_empty()"),
            ("string", text) => format!("{f} == {text:?}"),
            ("uuid", _) => format!("{f}.is_zero()"),
            ("bool", "true") => f,
            ("bool", _) => format!("!{f}"),
            ("float64", "" | "0") => format!("{f} == 0.0"),
            (_, "") => format!("{f} == 0"),
            (_, text) => format!("{f} == {text}"),
        },
    }
}

/// A condition on `v`; `None` if it always holds within `within`.
pub(crate) fn condition(range: Versions, within: Versions) -> Option<String> {
    if range.covers(within) {
        return None;
    }
    Some(match (range.min <= within.min, range.max >= within.max) {
        (false, true) => format!("v >= {}", range.min),
        (true, false) => format!("v <= {}", range.max),
        _ if range.and(within).is_empty() => "false".to_owned(),
        _ => format!("({}..={}).contains(&v)", range.min, range.max),
    })
}

/// The condition for the field to stand in its place, or `Some("false")` if it is always tagged.
fn plain_condition(field: &Field, within: Versions) -> Option<String> {
    let present = condition(field.versions, within);
    let Some((_, tagged)) = field.tag else {
        return present;
    };
    match (present, condition(tagged, field.versions.and(within))) {
        (_, None) => Some("false".to_owned()),
        (None, Some(tagged)) => Some(format!("!({tagged})")),
        (Some(present), Some(tagged)) => Some(format!("{present} && !({tagged})")),
    }
}

fn tag_condition(field: &Field, within: Versions) -> Option<String> {
    field
        .tag
        .and_then(|(_, tagged)| condition(tagged.and(field.versions), within))
}

fn emit_read(out: &mut String, message: &Message, s: &Struct) {
    let mut body = String::new();
    for field in &s.fields {
        let ident = field.ident();
        let nullable = field
            .nullable
            .and_then(|null| condition(null, field.versions.and(s.versions)));
        let value = match nullable {
            None => "Codec::read(r, v, x)?".to_owned(),
            Some(null) => format!(
                "if {null} {{ Codec::read(r, v, x)? }} else {{ Some(Codec::read(r, v, x)?) }}"
            ),
        };
        match plain_condition(field, s.versions).as_deref() {
            None => writeln!(body, "m.{ident} = {value};").unwrap(),
            Some("false") => {}
            Some(present) => writeln!(body, "if {present} {{ m.{ident} = {value}; }}").unwrap(),
        }
    }
    if message.flexible <= s.versions.max {
        let mut tagged: Vec<_> = s
            .fields
            .iter()
            .filter_map(|f| Some((f.tag?.0, f)))
            .collect();
        tagged.sort_by_key(|(tag, _)| *tag);
        if message.flexible > s.versions.min {
            body.push_str("if x { ");
        }
        if tagged.is_empty() {
            body.push_str("r.unknown_tags(&mut m.unknown_tagged)?;");
        } else {
            body.push_str(
                "let mut unknown = Tags::new(); r.tags(&mut unknown, |tag, r| { match tag {\n",
            );
            for (tag, field) in tagged {
                let guard =
                    tag_condition(field, s.versions).map_or(String::new(), |c| format!(" if {c}"));
                let read = if is_nullable_struct(field) {
                    "read_tagged_struct"
                } else {
                    "Codec::read"
                };
                writeln!(
                    body,
                    "{tag}{guard} => m.{} = {read}(r, v, x)?,",
                    field.ident()
                )
                .unwrap();
            }
            body.push_str("_ => return Ok(false) } Ok(true) })?; m.unknown_tagged = unknown;");
        }
        body.push_str(if message.flexible > s.versions.min {
            " }\n"
        } else {
            "\n"
        });
    }
    let (m, end) = if body.is_empty() {
        ("", "Ok(Self::default())")
    } else {
        ("let mut m = Self::default();\n", "Ok(m)")
    };
    let (r, v, x) = names(&body);
    writeln!(
        out,
        "fn read({r}: &mut Reader, {v}: i16, {x}: bool) -> Res<Self> {{\n{m}{body}{end} }}"
    )
    .unwrap();
}

/// Parameter names, with an underscore for those the body does not use.
fn names(body: &str) -> (&'static str, &'static str, &'static str) {
    let uses = |name: char| {
        let is_word =
            |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
        body.match_indices(name).any(|(at, _)| {
            !is_word(body[..at].chars().last()) && !is_word(body[at + 1..].chars().next())
        })
    };
    (
        if uses('r') || uses('w') {
            if uses('w') { "w" } else { "r" }
        } else {
            "_"
        },
        if uses('v') { "v" } else { "_" },
        if uses('x') { "x" } else { "_" },
    )
}

fn emit_write(out: &mut String, message: &Message, s: &Struct) {
    let mut body = String::new();
    for field in &s.fields {
        emit_write_plain(&mut body, field, s);
    }
    if message.flexible <= s.versions.max {
        if message.flexible > s.versions.min {
            body.push_str("if x { ");
        }
        emit_write_tags(&mut body, s);
        body.push_str(if message.flexible > s.versions.min {
            " }\n"
        } else {
            "\n"
        });
    }
    let (w, v, x) = names(&body);
    writeln!(
        out,
        "fn write(&self, {w}: &mut Writer, {v}: i16, {x}: bool) -> Res<()> {{\n{body}Ok(()) }}"
    )
    .unwrap();
}

fn emit_write_plain(body: &mut String, field: &Field, s: &Struct) {
    let (ident, name) = (field.ident(), &field.name);
    let nullable = field
        .nullable
        .and_then(|null| condition(null, field.versions.and(s.versions)));
    let value = match nullable {
        None => format!("self.{ident}.write(w, v, x)?;"),
        Some(null) => format!(
            "if {null} {{ self.{ident}.write(w, v, x)?; }} else {{ write_not_null(&self.{ident}, \"{name}\", w, v, x)?; }}"
        ),
    };
    match plain_condition(field, s.versions).as_deref() {
        None => writeln!(body, "{value}").unwrap(),
        Some("false") => {}
        Some(present) => writeln!(body, "if {present} {{ {value} }}").unwrap(),
    }
    if let Some(present) = condition(field.versions, s.versions).filter(|_| !field.ignorable) {
        writeln!(
            body,
            "if !({present}) {{ absent({}, \"{name}\", v)?; }}",
            is_default(field, true)
        )
        .unwrap();
    }
}

fn emit_write_tags(body: &mut String, s: &Struct) {
    let mut tagged: Vec<_> = s
        .fields
        .iter()
        .filter_map(|f| Some((f.tag?.0, f)))
        .collect();
    tagged.sort_by_key(|(tag, _)| *tag);
    if tagged.is_empty() {
        body.push_str("w.unknown_tags(&self.unknown_tagged);");
        return;
    }
    for (tag, field) in &tagged {
        let guard = tag_condition(field, s.versions).map_or(String::new(), |c| format!("{c} && "));
        writeln!(body, "let t{tag} = {guard}!({});", is_default(field, false)).unwrap();
    }
    let count: Vec<String> = tagged
        .iter()
        .map(|(tag, _)| format!("u32::from(t{tag})"))
        .collect();
    writeln!(
        body,
        "w.uvarint({} + self.unknown_tagged.len() as u32);",
        count.join(" + ")
    )
    .unwrap();
    let mut from = 0;
    for (tag, field) in &tagged {
        if *tag > from {
            writeln!(body, "w.raw_tags(&self.unknown_tagged, {from}, {tag});").unwrap();
        }
        let write = if is_nullable_struct(field) {
            "write_tagged_struct"
        } else {
            "Codec::write"
        };
        writeln!(
            body,
            "if t{tag} {{ w.tag({tag}, |w| {write}(&self.{}, w, v, x))?; }}",
            field.ident()
        )
        .unwrap();
        from = *tag;
    }
    writeln!(body, "w.raw_tags(&self.unknown_tagged, {from}, u32::MAX);").unwrap();
}
