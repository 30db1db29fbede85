//! Request and response headers, and whole frames.
//!
//! Versions: a request header is 1 (client id, plain string) or 2 (tagged fields) by the
//! flexibility of the body; 0 existed for ControlledShutdown v0 only. A response header is 0 or 1
//! likewise, except that ApiVersions always answers with 0, so that a client of any age can read
//! the error (KIP-511).

use bytes::Bytes;

use crate::apis;
use crate::{
    ApiKey, ErrorCode, ErrorForm, Frame, Message, Reader, Request, Str, WireError, Writer,
};

/// Room for a frame's bytes outside of record sets before the buffer grows.
const FRAME_CAPACITY: usize = 256;

/// The header of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestHeader {
    /// Which API.
    pub key: ApiKey,
    /// Version of the body.
    pub version: i16,
    /// Returned in the answer.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<Str>,
    /// Tagged fields nobody here knows.
    pub unknown_tagged: Vec<(u32, Bytes)>,
}

/// The header of a response.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseHeader {
    /// That of the request.
    pub correlation_id: i32,
    /// Tagged fields nobody here knows.
    pub unknown_tagged: Vec<(u32, Bytes)>,
}

/// Header version of a request whose body is flexible from `flexible_from`.
fn header_version_of_request(version: i16, flexible_from: i16) -> i16 {
    if version >= flexible_from { 2 } else { 1 }
}

/// Header version of request `R` in `version`.
pub fn request_header_version<R: Request>(version: i16) -> i16 {
    header_version_of_request(version, R::FLEXIBLE_FROM)
}

/// Header version of the answer to request `R` in `version`.
pub fn response_header_version<R: Request>(version: i16) -> i16 {
    response_version(R::KEY, version, R::Response::FLEXIBLE_FROM)
}

fn response_version(key: ApiKey, version: i16, flexible_from: i16) -> i16 {
    i16::from(key != ApiKey::API_VERSIONS && version >= flexible_from)
}

/// Key, version and correlation id of a request frame (without its length), if it is long enough to
/// have them. They stand at the same place in every header version, so this also works for keys and
/// versions nobody knows.
pub fn peek_request(frame: &[u8]) -> Option<(ApiKey, i16, i32)> {
    let [k0, k1, v0, v1, c0, c1, c2, c3] = *frame.first_chunk::<8>()?;
    Some((
        ApiKey(i16::from_be_bytes([k0, k1])),
        i16::from_be_bytes([v0, v1]),
        i32::from_be_bytes([c0, c1, c2, c3]),
    ))
}

/// Reads the header of a request frame (without its length) and returns the body.
///
/// An unknown key is read as header version 1; the body is then of no use, but the header can be
/// answered.
pub fn decode_request_header(frame: Bytes) -> Result<(RequestHeader, Bytes), WireError> {
    let mut r = Reader::new(frame);
    let key = ApiKey(r.i16()?);
    let version = r.i16()?;
    let correlation_id = r.i32()?;
    // The client id is a plain string in all header versions (KIP-482 left it so on purpose).
    let client_id = r.nullable_str(false)?;
    let mut unknown_tagged = Vec::new();
    if version >= apis::request_flexible_from(key) {
        r.unknown_tags(&mut unknown_tagged)?;
    }
    Ok((
        RequestHeader {
            key,
            version,
            correlation_id,
            client_id,
            unknown_tagged,
        },
        r.rest(),
    ))
}

/// Reads the header of a response frame (without its length) and returns the body. `header_version`
/// comes from [`response_header_version`].
pub fn decode_response_header(
    frame: Bytes,
    header_version: i16,
) -> Result<(ResponseHeader, Bytes), WireError> {
    let mut r = Reader::new(frame);
    let mut header = ResponseHeader {
        correlation_id: r.i32()?,
        ..ResponseHeader::default()
    };
    if header_version >= 1 {
        r.unknown_tags(&mut header.unknown_tagged)?;
    }
    Ok((header, r.rest()))
}

/// A whole request: length, header, body.
pub fn request_frame<R: Request>(
    correlation_id: i32,
    client_id: Option<&str>,
    version: i16,
    request: &R,
) -> Result<Frame, WireError> {
    let mut w = Writer::frame(FRAME_CAPACITY);
    w.i16(R::KEY.0);
    w.i16(version);
    w.i32(correlation_id);
    w.nullable_str(false, client_id.map(str::as_bytes))?;
    if request_header_version::<R>(version) >= 2 {
        w.uvarint(0);
    }
    request.encode(&mut w, version)?;
    w.finish_frame()
}

/// A whole response: length, header, body. `key` is that of the request.
pub fn response_frame<M: Message>(
    key: ApiKey,
    correlation_id: i32,
    version: i16,
    response: &M,
) -> Result<Frame, WireError> {
    let mut w = Writer::frame(FRAME_CAPACITY);
    w.i32(correlation_id);
    if response_version(key, version, M::FLEXIBLE_FROM) >= 1 {
        w.uvarint(0);
    }
    response.encode(&mut w, version)?;
    w.finish_frame()
}

/// As [`response_frame`], for a server, which must answer: a response that cannot be encoded goes
/// out in its error form with `code`, and the reason comes along. Errors: not even the error form
/// can be encoded.
pub fn answer_frame<M: Message + ErrorForm>(
    key: ApiKey,
    correlation_id: i32,
    version: i16,
    response: &M,
    code: ErrorCode,
) -> Result<(Frame, Option<WireError>), WireError> {
    match response_frame(key, correlation_id, version, response) {
        Ok(frame) => Ok((frame, None)),
        Err(reason) => {
            let failed = response.error_form(version, code.0);
            let frame = response_frame(key, correlation_id, version, &failed)?;
            Ok((frame, Some(reason)))
        }
    }
}
