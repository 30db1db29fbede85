//! The store of actual states: a fenced, compare-and-set table per partition of `__mirror_state` (mirroring.md §5).

pub mod record;
pub mod table;
