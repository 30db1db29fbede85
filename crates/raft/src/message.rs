//! What nodes of the quorum say to each other: the meaning of Vote, BeginQuorumEpoch,
//! EndQuorumEpoch and Fetch, without their wire forms.
//!
//! The shell translates to and from the wire and carries the bytes of fetched batches beside the
//! message.

use crate::{LogEnd, NodeId};

/// The offsets and the epoch of a run of fetched batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    /// Epoch the leader wrote them in.
    pub epoch: i32,
    /// Offset after the last of them.
    pub end_offset: i64,
}

/// What a leader answers to a Fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// Batches from the asked offset on, possibly none.
    Records(Vec<BatchSpan>),
    /// The asker's log is not a prefix of the leader's: cut to this end and ask again.
    Diverging(LogEnd),
    /// The asked offset was deleted: take the snapshot that ends here.
    Snapshot(LogEnd),
    /// Not the leader of the asked epoch; the envelope says who is.
    NotLeader,
}

/// One message. `epoch` is always the sender's epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for a vote, or with `pre_vote` whether a vote would be given.
    Vote {
        /// The candidate's epoch (for a pre-vote its present one).
        epoch: i32,
        /// End of the candidate's log.
        log_end: LogEnd,
        /// KIP-996: changes nothing at the voter.
        pre_vote: bool,
    },
    /// Answer to [`Message::Vote`].
    VoteReply {
        /// The voter's epoch.
        epoch: i32,
        /// The leader the voter knows in that epoch.
        leader: Option<NodeId>,
        /// Whether the vote was given.
        granted: bool,
        /// Whether this answers a pre-vote.
        pre_vote: bool,
    },
    /// The sender leads this epoch.
    BeginEpoch {
        /// The new leader's epoch.
        epoch: i32,
    },
    /// The sender stops leading this epoch.
    EndEpoch {
        /// The epoch that ends.
        epoch: i32,
        /// Voters in the order in which they should try, best log first.
        successors: Vec<NodeId>,
    },
    /// Asks the leader for records; also says what the sender has.
    Fetch {
        /// The sender's epoch.
        epoch: i32,
        /// The end of the sender's log.
        log_end: LogEnd,
    },
    /// Answer to [`Message::Fetch`].
    FetchReply {
        /// The answering node's epoch.
        epoch: i32,
        /// The leader of that epoch, if known.
        leader: Option<NodeId>,
        /// The leader's high watermark.
        high_watermark: Option<i64>,
        /// The result.
        outcome: FetchOutcome,
    },
}

impl Message {
    /// The sender's epoch.
    pub fn epoch(&self) -> i32 {
        match self {
            Self::Vote { epoch, .. }
            | Self::VoteReply { epoch, .. }
            | Self::BeginEpoch { epoch }
            | Self::EndEpoch { epoch, .. }
            | Self::Fetch { epoch, .. }
            | Self::FetchReply { epoch, .. } => *epoch,
        }
    }
}
