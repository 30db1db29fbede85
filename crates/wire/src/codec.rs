//! [`Codec`]: how one field value reads and writes itself; the generated code is made of calls to
//! it.

use bytes::Bytes;

use crate::{Reader, Records, Str, Uuid, WireError, Writer};

/// A value of a message field. `version` is the version of the whole message, `flexible` whether
/// that version uses compact lengths and tagged fields (KIP-482).
pub trait Codec: Sized {
    /// Fewest bytes the value can have in any version.
    const MIN_SIZE: usize;

    /// Reads a value that is not null.
    fn read(r: &mut Reader, version: i16, flexible: bool) -> Result<Self, WireError>;

    /// Writes a value.
    fn write(&self, w: &mut Writer, version: i16, flexible: bool) -> Result<(), WireError>;

    /// Reads a value that may be null; structs carry a marker byte, −1 for null.
    fn read_nullable(
        r: &mut Reader,
        version: i16,
        flexible: bool,
    ) -> Result<Option<Self>, WireError> {
        if r.i8()? < 0 {
            Ok(None)
        } else {
            Self::read(r, version, flexible).map(Some)
        }
    }

    /// Writes a value that may be null.
    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        version: i16,
        flexible: bool,
    ) -> Result<(), WireError> {
        w.i8(if value.is_some() { 1 } else { -1 });
        value.map_or(Ok(()), |value| value.write(w, version, flexible))
    }
}

macro_rules! number {
    ($($type:ident)*) => {$(
        impl Codec for $type {
            const MIN_SIZE: usize = size_of::<$type>();
            fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
                r.$type()
            }
            fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
                w.$type(*self);
                Ok(())
            }
        }
    )*};
}

number!(i8 i16 u16 i32 u32 i64 f64);

impl Codec for bool {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
        Ok(r.i8()? != 0)
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.i8(i8::from(*self));
        Ok(())
    }
}

impl Codec for Uuid {
    const MIN_SIZE: usize = 16;
    fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
        Ok(Uuid(r.array()?))
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.raw(&self.0);
        Ok(())
    }
}

impl Codec for Str {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, _: i16, flexible: bool) -> Result<Self, WireError> {
        r.str(flexible)
    }
    fn write(&self, w: &mut Writer, _: i16, flexible: bool) -> Result<(), WireError> {
        w.nullable_str(flexible, Some(self.as_bytes()))
    }
    fn read_nullable(r: &mut Reader, _: i16, flexible: bool) -> Result<Option<Self>, WireError> {
        r.nullable_str(flexible)
    }
    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        _: i16,
        flexible: bool,
    ) -> Result<(), WireError> {
        w.nullable_str(flexible, value.map(|text| &text.as_bytes()[..]))
    }
}

impl Codec for Bytes {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, _: i16, flexible: bool) -> Result<Self, WireError> {
        r.nullable_bytes(flexible)?.ok_or(WireError::UnexpectedNull)
    }
    fn write(&self, w: &mut Writer, _: i16, flexible: bool) -> Result<(), WireError> {
        w.nullable_bytes(flexible, Some(self))
    }
    fn read_nullable(r: &mut Reader, _: i16, flexible: bool) -> Result<Option<Self>, WireError> {
        r.nullable_bytes(flexible)
    }
    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        _: i16,
        flexible: bool,
    ) -> Result<(), WireError> {
        w.nullable_bytes(flexible, value)
    }
}

impl Codec for Records {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, version: i16, flexible: bool) -> Result<Self, WireError> {
        Bytes::read(r, version, flexible).map(Records::Bytes)
    }
    fn write(&self, w: &mut Writer, _: i16, flexible: bool) -> Result<(), WireError> {
        w.nullable_records(flexible, Some(self))
    }
    fn read_nullable(r: &mut Reader, _: i16, flexible: bool) -> Result<Option<Self>, WireError> {
        Ok(r.nullable_bytes(flexible)?.map(Records::Bytes))
    }
    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        _: i16,
        flexible: bool,
    ) -> Result<(), WireError> {
        w.nullable_records(flexible, value)
    }
}

impl<T: Codec> Codec for Vec<T> {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, version: i16, flexible: bool) -> Result<Self, WireError> {
        Self::read_nullable(r, version, flexible)?.ok_or(WireError::UnexpectedNull)
    }
    fn write(&self, w: &mut Writer, version: i16, flexible: bool) -> Result<(), WireError> {
        Self::write_nullable(Some(self), w, version, flexible)
    }
    fn read_nullable(
        r: &mut Reader,
        version: i16,
        flexible: bool,
    ) -> Result<Option<Self>, WireError> {
        let Some(count) = r.array_len(flexible, T::MIN_SIZE)? else {
            return Ok(None);
        };
        let mut elements = r.vec_for(count)?;
        for _ in 0..count {
            elements.push(T::read(r, version, flexible)?);
        }
        Ok(Some(elements))
    }
    fn write_nullable(
        value: Option<&Self>,
        w: &mut Writer,
        version: i16,
        flexible: bool,
    ) -> Result<(), WireError> {
        w.array_len(flexible, value.map(Vec::len))?;
        value
            .into_iter()
            .flatten()
            .try_for_each(|element| element.write(w, version, flexible))
    }
}

impl<T: Codec> Codec for Option<T> {
    const MIN_SIZE: usize = 1;
    fn read(r: &mut Reader, version: i16, flexible: bool) -> Result<Self, WireError> {
        T::read_nullable(r, version, flexible)
    }
    fn write(&self, w: &mut Writer, version: i16, flexible: bool) -> Result<(), WireError> {
        T::write_nullable(self.as_ref(), w, version, flexible)
    }
}

/// Writes a field that is nullable in other versions but not in this one.
pub(crate) fn write_not_null<T: Codec>(
    value: &Option<T>,
    field: &'static str,
    w: &mut Writer,
    version: i16,
    flexible: bool,
) -> Result<(), WireError> {
    value
        .as_ref()
        .ok_or(WireError::NullField { field, version })?
        .write(w, version, flexible)
}

/// Reads a nullable struct that is a tagged field: its marker is 0 for null and not −1 as
/// elsewhere.
pub(crate) fn read_tagged_struct<T: Codec>(
    r: &mut Reader,
    version: i16,
    flexible: bool,
) -> Result<Option<T>, WireError> {
    if r.uvarint()? == 0 {
        Ok(None)
    } else {
        T::read(r, version, flexible).map(Some)
    }
}

/// Writes a nullable struct that is a tagged field.
pub(crate) fn write_tagged_struct<T: Codec>(
    value: &Option<T>,
    w: &mut Writer,
    version: i16,
    flexible: bool,
) -> Result<(), WireError> {
    w.uvarint(u32::from(value.is_some()));
    value
        .as_ref()
        .map_or(Ok(()), |value| value.write(w, version, flexible))
}

/// Fails if a field that must not be lost is set in a version that lacks it.
pub(crate) fn absent(is_default: bool, field: &'static str, version: i16) -> Result<(), WireError> {
    if is_default {
        Ok(())
    } else {
        Err(WireError::FieldNotInVersion { field, version })
    }
}
