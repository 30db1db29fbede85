//! Typed commands: Kafka's admin requests in, their responses out, each as one decision.
//!
//! Owns the shape of the answers (every item of a request gets one item in the answer) and which
//! failure is an item's and which the whole request's. The rules themselves are in [`crate::plan`].
//! Who may ask is the server's question, before it calls.

mod cluster;
mod configs;
mod topics;
