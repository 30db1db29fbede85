//! The `server` crate: configuration, listeners, dispatch, handlers, and the wiring of every other
//! crate.
//!
//! It may use every crate of an earlier layer; only `cli` knows it. It owns the process-wide
//! decisions only: which keys the broker understands, in which order things start and stop, which
//! API versions are announced, and how errors of the crates become Kafka error codes.
//!
//! Invariants: a frame is never trusted with memory before its length was checked; no input of a
//! client makes a task panic; answers of one connection leave in the order of its requests; every
//! task belongs to the server and ends with it.

pub mod config;
mod decompression;
mod dispatch;
mod error;
pub mod fetch_session;
mod handlers;
mod live;
pub mod log_levels;
mod log_limit;
mod net;
mod node;
mod rooms;
mod server;
pub mod storage;
mod turn;

pub use config::{Config, ConfigError, ConfigWarning};
pub use error::StartError;
pub use server::{BoundListener, Server, ShutdownReport};
pub use tarn_replica::SpareWorkers;
