//! The control plane over a real controller, real logs and a real coordinator in a temporary
//! directory. Only the source cluster and the way to it are scripted.

#[path = "../broker/mod.rs"]
mod broker;
mod failover;
mod forms;
mod membership;
mod prototype;
mod refresh;
mod scripted;
mod world;
