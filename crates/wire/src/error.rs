//! The one error type of this crate.

/// Why bytes could not be read as a message, or a message could not be written as bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The input stops inside a value.
    #[error("input ends inside a value: {needed} bytes needed, {remaining} left")]
    UnexpectedEnd {
        /// Bytes the value needs.
        needed: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// A length that no value can have (below −1, or past the limit of its kind).
    #[error("length {0} is not possible here")]
    InvalidLength(i64),
    /// An array announces more elements than the rest of the input could hold.
    #[error(
        "array of {count} elements of at least {min_size} bytes does not fit into the {remaining} bytes left"
    )]
    TooManyElements {
        /// Announced number of elements.
        count: usize,
        /// Smallest possible size of one element in bytes.
        min_size: usize,
        /// Bytes that are left.
        remaining: usize,
    },
    /// The lists of the message have more elements, nested ones included, than the reader allows.
    #[error("the lists have more than {max} elements together")]
    ElementsOverLimit {
        /// Elements that are allowed.
        max: usize,
    },
    /// The lists of the message would take many times the memory of its bytes (only an attack has
    /// such lists).
    #[error("lists need {needed} bytes of memory, {left} are allowed for the rest of this input")]
    ListsTooLarge {
        /// Memory the next list needs in bytes.
        needed: usize,
        /// Memory that is left for lists in bytes.
        left: usize,
    },
    /// A string is not UTF-8.
    #[error("string is not UTF-8")]
    NotUtf8,
    /// A null where the version does not allow one.
    #[error("null is not allowed here")]
    UnexpectedNull,
    /// A variable length integer with more bits than its type.
    #[error("variable length integer is too long")]
    VarintTooLong,
    /// A tagged field whose content is shorter than its announced size.
    #[error("tagged field {tag} leaves {left} of its bytes unread")]
    TagSize {
        /// Tag number.
        tag: u32,
        /// Bytes that were not read.
        left: usize,
    },
    /// The message does not exist in this version.
    #[error("{message} has no version {version}, use {min} to {max}")]
    UnsupportedVersion {
        /// Kafka's name of the message.
        message: &'static str,
        /// Version asked for.
        version: i16,
        /// First version that exists.
        min: i16,
        /// Last version that exists.
        max: i16,
    },
    /// Bytes follow the end of the message.
    #[error("{left} bytes follow the end of {message}")]
    TrailingBytes {
        /// Kafka's name of the message.
        message: &'static str,
        /// Number of bytes too many.
        left: usize,
    },
    /// A field that matters has a value, but the version to be written has no room for it.
    #[error("field {field} cannot be expressed in version {version}")]
    FieldNotInVersion {
        /// Kafka's name of the field.
        field: &'static str,
        /// Version to be written.
        version: i16,
    },
    /// A field is null, but the version to be written has no null for it.
    #[error("field {field} must not be null in version {version}")]
    NullField {
        /// Kafka's name of the field.
        field: &'static str,
        /// Version to be written.
        version: i16,
    },
    /// A string, array or frame is longer than its length field can say.
    #[error("value of length {0} is too long for its length field")]
    TooLong(usize),
    /// Text that is not an id in Kafka's 22 character form.
    #[error("not an id of 22 base64url characters")]
    InvalidUuid,
}
