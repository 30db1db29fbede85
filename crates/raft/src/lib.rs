//! The KRaft core: elections and replication of the metadata log as a pure step function.
//!
//! Owns the decisions of KIP-595 (epochs, votes, pull-based replication, high watermark by
//! majority) and of KIP-996 (pre-vote). Does not own the log's bytes, files, sockets, clock or
//! randomness: time arrives with every step, randomness is a seed, and everything that has to
//! happen comes out as an ordered list of [`Action`]s. One voter and three voters run the same
//! code.
//!
//! Invariants (docs/invariants.md), checked by the simulator in `tests/simulation.rs`:
//! * R-1 at most one leader an epoch;
//! * R-2 the high watermark of a node never goes back;
//! * R-3 what is below any node's high watermark is the same on every node, for ever.

mod core;
mod election;
mod history;
mod message;
mod replication;
mod role;

pub use core::{Action, Core, Election, Event, Settings, Status, VoterProgress};
pub use history::{EpochHistory, LogEnd};
pub use message::{BatchSpan, FetchOutcome, Message};
pub use role::Role;

/// Id of a node of the quorum (Kafka's node.id, 0 or more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

/// Why a core could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaftError {
    /// The voter set is empty.
    #[error("the quorum has no voters: set controller.quorum.voters")]
    NoVoters,
    /// The stored election state is older than the log.
    #[error(
        "the log holds epoch {log_epoch} but the stored election state ends at epoch {stored_epoch}: quorum-state is missing or was replaced by an old copy"
    )]
    EpochBehindLog {
        /// Newest epoch in the log.
        log_epoch: i32,
        /// Epoch of the stored election state.
        stored_epoch: i32,
    },
}
