//! The generated messages: one struct a message, its nested structs in a module named after it
//! (`messages::FetchRequest`, `messages::fetch_request::FetchTopic`).
//!
//! Fields have Kafka's names in snake case and Kafka's defaults. A trap that is Kafka's: a nullable
//! string or array whose schema names no default has the default "empty", not null.
//!
//! The schemas stand in `schema/`, the form of the files in `build/parse.rs`, the generator in
//! `build/emit.rs`.
#![allow(
    missing_docs,
    reason = "the field names are Kafka's; what they mean is the protocol's documentation"
)]
#![allow(clippy::all, unused_variables, unused_imports, reason = "generated")]

use crate::{ApiKey, VersionRange};

/// What every generated module uses.
mod gen_prelude {
    pub(super) use bytes::Bytes;

    pub(super) use crate::codec::{
        Codec, absent, read_tagged_struct, write_not_null, write_tagged_struct,
    };
    pub(super) use crate::{
        ApiKey, ErrorForm, Message, Reader, RecordMessage, Records, Request, Str, Uuid,
        VersionRange, WireError, Writer,
    };

    pub(super) type Tags = Vec<(u32, Bytes)>;
    pub(super) type Res<T> = Result<T, WireError>;
}

include!(concat!(env!("OUT_DIR"), "/messages.rs"));
