//! The six states of a quorum node, each with exactly the data that is legal in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::NodeId;

/// What a node is in its epoch. Deadlines are in the shell's milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Knows an epoch but no leader of it.
    Unattached {
        /// When to start asking for votes; observers never do.
        election_deadline_ms: i64,
    },
    /// Fetches from the leader.
    Follower {
        /// Whom it fetches from.
        leader: NodeId,
        /// When the leader counts as lost unless a Fetch succeeds before.
        fetch_deadline_ms: i64,
        /// When the Fetch under way was sent; only one is, and a lost one is sent again.
        fetching_since_ms: Option<i64>,
    },
    /// Asks whether it would win (pre-vote), changing nothing yet.
    Prospective(Ballot),
    /// Asks for votes in a new epoch; has voted for itself.
    Candidate(Ballot),
    /// Leads its epoch.
    Leader(Leadership),
    /// Led its epoch and gave it up; waits for a successor.
    Resigned {
        /// When to start an election itself.
        election_deadline_ms: i64,
    },
}

/// Votes gathered so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ballot {
    pub(crate) granted: BTreeSet<NodeId>,
    pub(crate) rejected: BTreeSet<NodeId>,
    pub(crate) deadline_ms: i64,
}

/// What a leader knows about one node that fetches from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// End of that node's log as of its last valid Fetch; −1 before the first.
    pub(crate) end_offset: i64,
    /// Time of the last Fetch.
    pub(crate) last_fetch_ms: i64,
    /// Last time the node had everything the leader had.
    pub(crate) last_caught_up_ms: i64,
}

/// A leader's own data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// End of the log when leadership began: nothing is committed in this epoch before the high
    /// watermark passes it.
    pub(crate) epoch_start_offset: i64,
    /// The other voters.
    pub(crate) followers: BTreeMap<NodeId, Progress>,
    /// Nodes that fetch without a vote; the oldest are dropped beyond a limit.
    pub(crate) observers: BTreeMap<NodeId, Progress>,
    /// When leadership is given up unless a majority fetches before.
    pub(crate) quorum_deadline_ms: i64,
    /// When BeginEpoch is sent again to followers that did not fetch yet.
    pub(crate) begin_deadline_ms: i64,
}

impl Role {
    /// Kafka's name of the state.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unattached { .. } => "Unattached",
            Self::Follower { .. } => "Follower",
            Self::Prospective(_) => "Prospective",
            Self::Candidate(_) => "Candidate",
            Self::Leader(_) => "Leader",
            Self::Resigned { .. } => "Resigned",
        }
    }
}
