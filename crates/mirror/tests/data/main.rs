//! The data plane against a scripted source over real sockets: what may be copied, what must not,
//! and what is done about it.

#[path = "../broker/mod.rs"]
mod broker;
mod content;
mod engine;
mod fake;
mod progress;
mod world;
