//! [`Reader`]: bounded decoding of primitives from shared bytes.
//!
//! The bound: a length never exceeds the bytes that are left, and an array of `n` elements is
//! refused when `n` times the smallest element does not fit into them. So what a decoder reserves
//! is paid for by input that was really received.

use bytes::Bytes;

use crate::{Str, WireError};

/// Most bytes of memory reserved for an array before its elements have been seen; it grows by
/// reading after that.
const ARRAY_RESERVE_BYTES_MAX: usize = 64 * 1024;

/// Memory that decoded lists may take for each byte of input. Real requests stay below 6; the rest
/// is room for future fields.
const LIST_BYTES_PER_INPUT_BYTE_MAX: usize = 16;

/// Memory that decoded lists may take however short the input is.
const LIST_BYTES_FREE: usize = 64 * 1024;

/// Reads values one after another; strings and bytes are slices of the input.
#[derive(Debug, Clone)]
pub struct Reader {
    input: Bytes,
    at: usize,
    /// Memory that lists may still take: elements can be many times larger than their bytes on the
    /// wire.
    list_bytes_left: usize,
    /// Elements that lists, nested ones included, may still have; and what was allowed at first.
    elements_left: usize,
    elements_max: usize,
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {$(
        $(#[$doc])*
        pub fn $name(&mut self) -> Result<$type, WireError> {
            Ok(<$type>::from_be_bytes(self.array()?))
        }
    )*};
}

impl Reader {
    /// Starts at the first byte of `input`.
    pub fn new(input: Bytes) -> Reader {
        let list_bytes_left = input.len() * LIST_BYTES_PER_INPUT_BYTE_MAX + LIST_BYTES_FREE;
        Reader {
            input,
            at: 0,
            list_bytes_left,
            elements_left: usize::MAX,
            elements_max: usize::MAX,
        }
    }

    /// Starts at the first byte of `input`, which may have `elements_max` elements in all of its
    /// lists together: nested ones count too.
    pub fn with_elements_max(input: Bytes, elements_max: usize) -> Reader {
        Reader {
            elements_left: elements_max,
            elements_max,
            ..Reader::new(input)
        }
    }

    /// Bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.input.len() - self.at
    }

    /// The unread rest, as a slice of the input.
    pub fn rest(&self) -> Bytes {
        self.input.slice(self.at..)
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        self.need(len)?;
        let piece = self.input.slice(self.at..self.at + len);
        self.at += len;
        Ok(piece)
    }

    fn need(&self, len: usize) -> Result<(), WireError> {
        let remaining = self.remaining();
        if len > remaining {
            Err(WireError::UnexpectedEnd {
                needed: len,
                remaining,
            })
        } else {
            Ok(())
        }
    }

    /// Takes `N` bytes by value.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let piece = self
            .input
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>());
        let value = *piece.ok_or(WireError::UnexpectedEnd {
            needed: N,
            remaining: self.input.len() - self.at,
        })?;
        self.at += N;
        Ok(value)
    }

    fixed! {
        /// One signed byte.
        i8: i8,
        /// One byte.
        u8: u8,
        /// Two bytes, signed.
        i16: i16,
        /// Two bytes.
        u16: u16,
        /// Four bytes, signed.
        i32: i32,
        /// Four bytes.
        u32: u32,
        /// Eight bytes, signed.
        i64: i64,
        /// Eight bytes, IEEE 754.
        f64: f64,
    }

    /// An unsigned variable length integer of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, WireError> {
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.u8()?;
            if shift == 28 && byte > 0x0f {
                return Err(WireError::VarintTooLong);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::VarintTooLong)
    }

    fn compact_len(&mut self) -> Result<Option<usize>, WireError> {
        Ok((self.uvarint()? as usize).checked_sub(1))
    }

    fn signed_len(len: i32) -> Result<Option<usize>, WireError> {
        match len {
            -1 => Ok(None),
            len => usize::try_from(len)
                .map(Some)
                .map_err(|_| WireError::InvalidLength(i64::from(len))),
        }
    }

    /// A nullable string; `flexible` selects the compact form.
    pub fn nullable_str(&mut self, flexible: bool) -> Result<Option<Str>, WireError> {
        let len = if flexible {
            self.compact_len()?
        } else {
            Reader::signed_len(i32::from(self.i16()?))?
        };
        match len {
            None => Ok(None),
            Some(len) if len > i16::MAX as usize => Err(WireError::InvalidLength(len as i64)),
            Some(len) => Ok(Some(Str::from_utf8(self.take(len)?)?)),
        }
    }

    /// A string that must not be null.
    pub fn str(&mut self, flexible: bool) -> Result<Str, WireError> {
        self.nullable_str(flexible)?
            .ok_or(WireError::UnexpectedNull)
    }

    /// Nullable bytes; `flexible` selects the compact form.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, WireError> {
        let len = if flexible {
            self.compact_len()?
        } else {
            Reader::signed_len(self.i32()?)?
        };
        len.map(|len| self.take(len)).transpose()
    }

    /// The length of a nullable array whose elements have at least `min_size` bytes each (0 counts
    /// as 1).
    pub fn array_len(
        &mut self,
        flexible: bool,
        min_size: usize,
    ) -> Result<Option<usize>, WireError> {
        let len = if flexible {
            self.compact_len()?
        } else {
            Reader::signed_len(self.i32()?)?
        };
        let min_size = min_size.max(1);
        match len {
            Some(count) if count > self.remaining() / min_size => Err(WireError::TooManyElements {
                count,
                min_size,
                remaining: self.remaining(),
            }),
            Some(count) => {
                let left = self.elements_left.checked_sub(count);
                self.elements_left = left.ok_or(WireError::ElementsOverLimit {
                    max: self.elements_max,
                })?;
                Ok(Some(count))
            }
            None => Ok(None),
        }
    }

    /// An empty vector for `count` elements that are about to be read, with a capped reservation.
    pub(crate) fn vec_for<T>(&mut self, count: usize) -> Result<Vec<T>, WireError> {
        self.spend(count.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(
            count.min(ARRAY_RESERVE_BYTES_MAX / size_of::<T>().max(1)),
        ))
    }

    fn spend(&mut self, needed: usize) -> Result<(), WireError> {
        let left = self.list_bytes_left;
        self.list_bytes_left = left
            .checked_sub(needed)
            .ok_or(WireError::ListsTooLarge { needed, left })?;
        Ok(())
    }

    /// Reads a tagged-field section of which no tag is known.
    pub fn unknown_tags(&mut self, unknown: &mut Vec<(u32, Bytes)>) -> Result<(), WireError> {
        // Nearly always empty: one comparison on the hot path.
        if self.input.get(self.at) == Some(&0) {
            self.at += 1;
            return Ok(());
        }
        self.tags(unknown, |_, _| Ok(false))
    }

    /// Reads a tagged-field section. `known` gets every tag with a reader over exactly its bytes
    /// and returns false for a tag it does not know; those are kept in `unknown`.
    pub fn tags(
        &mut self,
        unknown: &mut Vec<(u32, Bytes)>,
        mut known: impl FnMut(u32, &mut Reader) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        let count = self.uvarint()? as usize;
        // A tag costs at least two bytes: its number and its size.
        if count > self.remaining() / 2 {
            return Err(WireError::TooManyElements {
                count,
                min_size: 2,
                remaining: self.remaining(),
            });
        }
        self.spend(count * size_of::<(u32, Bytes)>())?;
        for _ in 0..count {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let content = self.take(size)?;
            let mut field = Reader::with_elements_max(content.clone(), self.elements_left);
            field.elements_max = self.elements_max;
            let is_known = known(tag, &mut field)?;
            self.elements_left = field.elements_left;
            if !is_known {
                unknown.push((tag, content));
            } else if field.remaining() > 0 {
                return Err(WireError::TagSize {
                    tag,
                    left: field.remaining(),
                });
            }
        }
        Ok(())
    }
}
