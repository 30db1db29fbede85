//! Tests of the whole crate.

mod golden;
mod primitives;
