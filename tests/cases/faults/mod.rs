//! One file for each kind of fault that was found by running, attacking and comparing the broker.

mod compacted;
mod content;
mod control;
mod decompression;
mod identity;
mod limits;
mod protocol;
mod prototype;
mod records;
mod shortage;
