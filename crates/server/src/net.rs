//! Sockets: accepting, reading frames, writing answers. Knows lengths and limits, not what is
//! inside a frame.

pub(crate) mod budget;
mod cold;
pub(crate) mod connection;
pub(crate) mod frames;
pub(crate) mod listener;
pub(crate) mod meter;
pub(crate) mod write;
