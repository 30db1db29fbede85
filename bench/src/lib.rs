//! The benchmark harness: scenarios that measure Tarn beside a real Kafka and beside MirrorMaker 2
//! in one run, the rounds they are measured in, the table of goals, and the page made from the
//! figures.
//!
//! It starts systems as black boxes through the harness of the tests and never links the server.
//! What is measured is said by the files in `scenarios`; nothing here bends a figure on its way to
//! the page.

// Modules in the order of the alphabet, one line each.
pub mod busy;
pub mod load;
pub mod machine;
pub mod mirroring;
pub mod mm2;
pub mod page;
pub mod pages;
pub mod plot;
pub mod process;
pub mod profile;
pub mod rows;
pub mod runner;
pub mod scenario;
pub mod scenarios;
pub mod settings;
pub mod stats;
pub mod store;
mod svg;
pub mod table;
pub mod wan;
