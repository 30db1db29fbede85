//! Data plane: making the local log a prefix of the source log (PREPARING, ULE_RECOVERY).

pub mod chain;
pub mod decide;
