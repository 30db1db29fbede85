//! Random values of every message, from a seed.
#![allow(
    clippy::all,
    dead_code,
    unused_mut,
    unused_variables,
    reason = "most of it is generated, and each test uses a part"
)]

use bytes::Bytes;
use tarn_wire::{ErrorForm, Message, Records, Str, Uuid};

/// A source of reproducible randomness (xorshift).
pub(crate) struct Gen {
    state: u64,
    /// Strings that mean something to who reads the values; none = random ones only.
    names: &'static [&'static str],
}

impl Gen {
    pub(crate) fn new(seed: u64) -> Gen {
        Gen::with_names(seed, &[])
    }

    /// One string of three is one of `names`.
    pub(crate) fn with_names(seed: u64, names: &'static [&'static str]) -> Gen {
        Gen {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            names,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn bytes(&mut self) -> Bytes {
        (0..self.below(20)).map(|_| self.next() as u8).collect()
    }

    /// Now and then a tagged field of the future; known tags end at 107.
    pub(crate) fn tags(&mut self) -> Vec<(u32, Bytes)> {
        if self.below(4) == 0 {
            vec![(200 + self.below(300) as u32, self.bytes())]
        } else {
            Vec::new()
        }
    }
}

/// A value that can be expressed in version `v`; `x` says whether that version is flexible.
pub(crate) trait Sample: Sized {
    fn sample(g: &mut Gen, v: i16, x: bool) -> Self;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Sample for $type {
            fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
                // Small numbers hit the defaults, large ones all bytes.
                if g.below(3) == 0 { g.below(3) as $type } else { g.next() as $type }
            }
        }
    )*};
}

numbers!(i8 i16 u16 i32 u32 i64 f64);

impl Sample for bool {
    fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
        g.below(2) == 0
    }
}

impl Sample for Uuid {
    fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
        if g.below(4) == 0 {
            Uuid::ZERO
        } else {
            Uuid::from_halves(g.next(), g.next())
        }
    }
}

impl Sample for Str {
    fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
        if !g.names.is_empty() && g.below(3) == 0 {
            return Str::from_static(g.names[g.below(g.names.len() as u64) as usize]);
        }
        let alphabet = ['a', 'Z', '0', '-', '.', 'ä', '日'];
        let len = if g.below(50) == 0 { 200 } else { g.below(12) };
        (0..len).map(|_| alphabet[g.below(7) as usize]).collect()
    }
}

impl Sample for Bytes {
    fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
        g.bytes()
    }
}

impl Sample for Records {
    fn sample(g: &mut Gen, _: i16, _: bool) -> Self {
        g.bytes().into()
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(g: &mut Gen, v: i16, x: bool) -> Self {
        (0..g.below(3)).map(|_| T::sample(g, v, x)).collect()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(g: &mut Gen, v: i16, x: bool) -> Self {
        (g.below(4) != 0).then(|| T::sample(g, v, x))
    }
}

/// Something to do with every message type.
pub(crate) trait Visitor {
    fn message<M: Message + Sample>(&mut self);
}

/// Something to do with every response type.
pub(crate) trait ResponseVisitor {
    fn response<M: Message + Sample + ErrorForm>(&mut self);
}

/// A message of version `v`.
pub(crate) fn sample<M: Message + Sample>(g: &mut Gen, v: i16) -> M {
    M::sample(g, v, v >= M::FLEXIBLE_FROM)
}

include!(concat!(env!("OUT_DIR"), "/samples.rs"));
