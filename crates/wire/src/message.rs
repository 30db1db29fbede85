//! What every message has: a name, versions, and bytes.

use bytes::Bytes;

use crate::{ApiKey, Codec, ErrorForm, Frame, Reader, WireError, Writer};

/// An inclusive range of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// First version.
    pub min: i16,
    /// Last version.
    pub max: i16,
}

impl VersionRange {
    /// The versions from `min` to `max`, both included.
    pub const fn new(min: i16, max: i16) -> VersionRange {
        VersionRange { min, max }
    }

    /// Whether `version` lies in the range.
    pub const fn contains(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The highest version in both ranges.
    pub fn highest_common(&self, other: VersionRange) -> Option<i16> {
        let max = self.max.min(other.max);
        (max >= self.min.max(other.min)).then_some(max)
    }
}

/// A message with a schema. The struct holds the fields of all versions; a field that a version
/// lacks keeps its default when read, and must have its default (or be ignorable) when written.
pub trait Message: Codec + Default + Clone + std::fmt::Debug + PartialEq {
    /// Kafka's name.
    const NAME: &'static str;
    /// Versions the codec knows, unstable ones included. What is announced stands in
    /// [`crate::apis`].
    const VERSIONS: VersionRange;
    /// First version with compact lengths and tagged fields; `i16::MAX` if there is none.
    const FLEXIBLE_FROM: i16;

    /// Reads a message and leaves the reader behind it.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, WireError> {
        check_version::<Self>(version)?;
        Self::read(r, version, version >= Self::FLEXIBLE_FROM)
    }

    /// Appends the message. On an error the writer holds half a message and must be thrown away.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), WireError> {
        check_version::<Self>(version)?;
        self.write(w, version, version >= Self::FLEXIBLE_FROM)
    }
}

/// A request and the response that answers it.
pub trait Request: Message {
    /// API key on the wire.
    const KEY: ApiKey;
    /// Its answer.
    type Response: Message + ErrorForm;
}

/// A record of the metadata log or of a coordinator's topic: the type number stands in front of the
/// body.
pub trait RecordMessage: Message {
    /// Record type (metadata: the record's API key; coordinators: the type of key and value).
    const TYPE: i16;
}

fn check_version<M: Message>(version: i16) -> Result<(), WireError> {
    if M::VERSIONS.contains(version) {
        return Ok(());
    }
    Err(WireError::UnsupportedVersion {
        message: M::NAME,
        version,
        min: M::VERSIONS.min,
        max: M::VERSIONS.max,
    })
}

/// Reads a body that must end with its last byte. Mirror dialects are told apart by this.
pub fn decode_exact<M: Message>(body: Bytes, version: i16) -> Result<M, WireError> {
    let mut r = Reader::new(body);
    let message = M::decode(&mut r, version)?;
    match r.remaining() {
        0 => Ok(message),
        left => Err(WireError::TrailingBytes {
            message: M::NAME,
            left,
        }),
    }
}

/// The body alone, without header and length.
pub fn encode_body<M: Message>(message: &M, version: i16) -> Result<Frame, WireError> {
    let mut w = Writer::new();
    message.encode(&mut w, version)?;
    Ok(w.finish())
}
