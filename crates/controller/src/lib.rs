//! The controller: commands in, committed metadata records out.
//!
//! Owns the metadata log `__cluster_metadata-0` with its `quorum-state` and snapshots, the one
//! event loop in which decisions are made one at a time, and the decisions of Kafka's own admin
//! requests ([`plan`]). Other rooms bring decisions of their own through [`Controller::submit`];
//! the controller knows nothing of mirroring beyond the records. Does not own listeners,
//! authorisation, or what brokers do with an image.
//!
//! Invariants (docs/invariants.md):
//! * C-1 a decision's records are applied to the image all together or not at all, also across a
//!   crash (one batch, or a KIP-868 transaction);
//! * C-2 nobody sees an image, or an answer, whose records are not committed and on disk;
//! * C-3 after a failed write or sync nothing more is decided: the caller learns that the
//!   controller halted, and why;
//! * C-4 what was once synced is never cut: damage below the synced end refuses the start.

mod atomic_file;
mod ballast;
mod commands;
mod controller;
mod error;
mod event_loop;
mod journal;
pub mod plan;
mod quorum_state;
mod settings;
mod snapshot;
mod subscription;
mod synced_end;
mod tail_check;

pub use controller::Controller;
pub use error::{ApiError, ControllerError};
pub use plan::{AlterHook, ConfigChange, ConfigOp, Ctx, Rules};
pub use settings::{Endpoint, Settings};
pub use subscription::Subscription;
