//! Writes, for the tests, a generator of values for every struct and a list of all messages.

use std::fmt::Write as _;

use crate::emit::condition;
use crate::model::{Field, Kind, Message, Struct, snake};

/// The whole of `samples.rs`.
pub(crate) fn all(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        for s in &message.structs {
            emit_struct(&mut out, &snake(&message.name), s);
        }
    }
    out.push_str("pub(super) fn visit_all(visitor: &mut impl Visitor) {\n");
    for message in messages {
        writeln!(
            out,
            "visitor.message::<tarn_wire::messages::{}>();",
            message.name
        )
        .unwrap();
    }
    out.push_str("}\npub(super) fn visit_requests(visitor: &mut impl Visitor) {\n");
    for message in messages
        .iter()
        .filter(|message| message.kind == Kind::Request)
    {
        writeln!(
            out,
            "visitor.message::<tarn_wire::messages::{}>();",
            message.name
        )
        .unwrap();
    }
    out.push_str("}\npub(super) fn visit_responses(visitor: &mut impl ResponseVisitor) {\n");
    for message in messages
        .iter()
        .filter(|message| message.kind == Kind::Response)
    {
        writeln!(
            out,
            "visitor.response::<tarn_wire::messages::{}>();",
            message.name
        )
        .unwrap();
    }
    out.push_str("}\n");
    out
}

fn emit_struct(out: &mut String, module: &str, s: &Struct) {
    writeln!(
        out,
        "impl Sample for tarn_wire::messages::{module}::{} {{ fn sample(g: &mut Gen, v: i16, x: bool) -> Self {{ \
         let mut m = Self::default();",
        s.name
    )
    .unwrap();
    for field in &s.fields {
        let value = sample_of(field, s);
        match condition(field.versions, s.versions) {
            None => writeln!(out, "m.{} = {value};", field.ident()).unwrap(),
            Some(present) => {
                writeln!(out, "if {present} {{ m.{} = {value}; }}", field.ident()).unwrap()
            }
        }
    }
    out.push_str("if x { m.unknown_tagged = g.tags(); } m } }\n");
}

fn sample_of(field: &Field, s: &Struct) -> String {
    let value = "Sample::sample(g, v, x)";
    match field
        .nullable
        .and_then(|null| condition(null, field.versions.and(s.versions)))
    {
        None => value.to_owned(),
        Some(null) => format!("if {null} {{ {value} }} else {{ Some({value}) }}"),
    }
}
