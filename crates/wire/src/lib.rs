//! The Kafka wire: primitive types, messages, headers and frames, for requests, responses and every
//! record with a schema.
//!
//! Owns the bytes of a message and nothing else: no socket, no clock, no meaning. What a record
//! batch holds is `tarn-records`; which versions a server answers is decided by the server from the
//! one table in [`apis`].
//!
//! Rules of this crate:
//! * No input can make it panic or reserve memory that the input does not pay for ([`Reader`]).
//! * Strings, bytes and record sets are slices of the input ([`Str`], `Bytes`, [`Records`]).
//!   Whoever keeps one longer than the request calls [`Str::detach`], or the whole frame stays in
//!   memory.
//! * Record sets are never copied on the way out: they become segments of a [`Frame`].
//!
//! The structs in [`messages`] are made at build time from `schema/` by `build.rs`.

pub mod apis;
mod codec;
mod error;
mod error_code;
mod error_form;
pub mod fetch_stream;
mod frame;
mod header;
mod message;
pub mod messages;
mod reader;
mod records;
mod str;
mod uuid;
mod writer;

#[cfg(test)]
mod tests;

pub use self::str::Str;
pub use self::uuid::Uuid;
pub use apis::ApiKey;
pub use codec::Codec;
pub use error::WireError;
pub use error_code::ErrorCode;
pub use error_form::ErrorForm;
pub use frame::{FileRange, Frame, Segment};
pub use header::{
    RequestHeader, ResponseHeader, answer_frame, decode_request_header, decode_response_header,
    peek_request, request_frame, request_header_version, response_frame, response_header_version,
};
pub use message::{Message, RecordMessage, Request, VersionRange, decode_exact, encode_body};
pub use reader::Reader;
pub use records::Records;
pub use writer::Writer;
