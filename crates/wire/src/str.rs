//! [`Str`]: a UTF-8 string that is a slice of the bytes it came from.
//!
//! Does not intern and does not copy; [`Str::detach`] is the explicit copy.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

use crate::WireError;

/// An immutable UTF-8 string over shared [`Bytes`]; a clone is a reference count.
///
/// A decoded `Str` holds the whole frame it was read from. Call [`Str::detach`] before keeping one
/// in a table.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Str(Bytes);

impl Str {
    /// The empty string.
    pub const EMPTY: Str = Str(Bytes::new());

    /// A string that lives as long as the program.
    pub const fn from_static(text: &'static str) -> Str {
        Str(Bytes::from_static(text.as_bytes()))
    }

    /// Takes bytes that are UTF-8. Errors: [`WireError::NotUtf8`].
    pub fn from_utf8(bytes: Bytes) -> Result<Str, WireError> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Str(bytes)),
            Err(_) => Err(WireError::NotUtf8),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked at construction; checking again is the price of having no unsafe code, and cheap
        // for names.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The bytes of the text, without a second check.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy that holds its own text only, so that the frame it came from can be freed.
    pub fn detach(&self) -> Str {
        Str(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Hash for Str {
    // Must be the hash of `str`, because maps are searched through `Borrow<str>`.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Str {
        Str(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Str {
        Str(Bytes::from(text))
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Str {
        Str::from(text.as_str())
    }
}

impl From<&Str> for Str {
    fn from(text: &Str) -> Str {
        text.clone()
    }
}

impl From<Str> for String {
    fn from(text: Str) -> String {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<Str> for &str {
    fn eq(&self, other: &Str) -> bool {
        other == self
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl FromIterator<char> for Str {
    fn from_iter<I: IntoIterator<Item = char>>(chars: I) -> Str {
        Str::from(String::from_iter(chars))
    }
}
