//! [`ErrorForm`]: what is left of an answer that cannot be encoded, so that its caller still gets
//! one.
//!
//! Not here: when it is needed (the server decides), and what the code means.

use bytes::Bytes;

use crate::{Records, Str, Uuid};

/// Longest text that an error form keeps, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A part of an answer that can say "failed" in its place.
///
/// The form keeps what names things (topics, ids, partitions, groups), sets every `ErrorCode` to
/// `code`, empties bytes and record sets, cuts long texts, and leaves out what `version` lacks. It
/// can always be encoded in `version`, unless the names alone are larger than a frame.
pub trait ErrorForm: Sized {
    /// The form in `version`.
    fn error_form(&self, version: i16, code: i16) -> Self;
}

macro_rules! kept {
    ($($type:ty)*) => {$(
        impl ErrorForm for $type {
            fn error_form(&self, _: i16, _: i16) -> Self {
                *self
            }
        }
    )*};
}

kept!(i8 i16 u16 i32 u32 i64 f64 bool Uuid);

impl ErrorForm for Str {
    fn error_form(&self, _: i16, _: i16) -> Self {
        if self.len() <= TEXT_BYTES_MAX {
            return self.clone();
        }
        let end = (0..=TEXT_BYTES_MAX)
            .rev()
            .find(|end| self.is_char_boundary(*end))
            .unwrap_or(0);
        Str::from(&self[..end])
    }
}

impl ErrorForm for Bytes {
    fn error_form(&self, _: i16, _: i16) -> Self {
        Bytes::new()
    }
}

impl ErrorForm for Records {
    fn error_form(&self, _: i16, _: i16) -> Self {
        Records::EMPTY
    }
}

impl<T: ErrorForm> ErrorForm for Vec<T> {
    fn error_form(&self, version: i16, code: i16) -> Self {
        self.iter()
            .map(|item| item.error_form(version, code))
            .collect()
    }
}

impl<T: ErrorForm> ErrorForm for Option<T> {
    fn error_form(&self, version: i16, code: i16) -> Self {
        self.as_ref().map(|item| item.error_form(version, code))
    }
}
