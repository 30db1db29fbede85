//! The core itself: its state, its inputs and outputs, and the rules that hold in every role.
//!
//! Owns transitions between roles (all of them are in this file). What happens inside elections is
//! in `election.rs`, what happens between a leader and those who fetch from it in `replication.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::role::{Ballot, Leadership, Progress};
use crate::{BatchSpan, EpochHistory, LogEnd, Message, NodeId, RaftError, Role};

/// What a core needs to know about its node and its quorum. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub me: NodeId,
    /// The static voter set; this node need not be in it (then it only observes).
    pub voters: Vec<NodeId>,
    /// controller.quorum.election.timeout.ms: shortest wait before an election; up to twice that at
    /// random.
    pub election_timeout_ms: i64,
    /// controller.quorum.fetch.timeout.ms: a leader not heard for this long is lost; a leader not
    /// heard by a majority for 1.5 times this resigns.
    pub fetch_timeout_ms: i64,
    /// Seed of the election timers; must differ between nodes.
    pub seed: u64,
}

impl Settings {
    /// Kafka's default timeouts for a quorum of these voters.
    pub fn new(me: NodeId, voters: Vec<NodeId>) -> Self {
        let seed = 0x9e37_79b9_7f4a_7c15 ^ (u64::from(me.0.unsigned_abs()) << 17);
        Self {
            me,
            voters,
            election_timeout_ms: 1_000,
            fetch_timeout_ms: 2_000,
            seed,
        }
    }
}

/// What a node must remember of elections across restarts (the `quorum-state` file).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Election {
    /// Newest epoch this node has seen.
    pub epoch: i32,
    /// For whom it voted in that epoch.
    pub voted: Option<NodeId>,
    /// Who leads that epoch, if known.
    pub leader: Option<NodeId>,
}

/// What can happen to a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node starts; exactly once, first.
    Start,
    /// Time passed; at least every 50 ms in a quorum of several.
    Tick,
    /// Another node said something.
    Receive(NodeId, Message),
    /// The leader's shell appended records of this node's epoch; the log now ends here.
    Appended {
        /// Offset after the last record.
        end_offset: i64,
    },
    /// Everything below this offset is on disk.
    Durable {
        /// Offset after the last durable record.
        end_offset: i64,
    },
    /// A snapshot that ends here is in place and the log starts there now (fetched, or taken
    /// locally and the prefix deleted).
    LogStartsAt(LogEnd),
    /// The node stops on purpose; a leader tells the others.
    Resign,
}

/// What the shell has to do, in this order, each before the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store and sync this election state before anything after it.
    Persist(Election),
    /// Send a message.
    Send(NodeId, Message),
    /// Append the control batch that opens an epoch (the shell answers with [`Event::Appended`]).
    AppendLeaderChange {
        /// The new epoch.
        epoch: i32,
        /// All voters.
        voters: Vec<NodeId>,
        /// Those who voted for this leader.
        granting: Vec<NodeId>,
    },
    /// Append the fetched batches that came beside the message just received, then sync and answer
    /// [`Event::Durable`].
    AppendFetched(Vec<BatchSpan>),
    /// Cut the log: this offset becomes its end.
    TruncateTo(i64),
    /// Fetch from this leader the snapshot that ends here, then answer [`Event::LogStartsAt`].
    FetchSnapshot(NodeId, LogEnd),
    /// Everything below this offset is committed.
    HighWatermark(i64),
    /// The leader or the epoch changed.
    LeaderChanged {
        /// The epoch.
        epoch: i32,
        /// Its leader, if known.
        leader: Option<NodeId>,
    },
    /// The quorum contradicts what this node knows to be committed: stop, and tell the operator.
    Halt(String),
}

/// How far one voter or observer is, for DescribeQuorum. −1 = unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterProgress {
    /// The node.
    pub id: NodeId,
    /// End of its log.
    pub end_offset: i64,
    /// When it last fetched, epoch ms.
    pub last_fetch_ms: i64,
    /// When it last had everything, epoch ms.
    pub last_caught_up_ms: i64,
}

/// A picture of the quorum as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The epoch.
    pub epoch: i32,
    /// Its leader, if known.
    pub leader: Option<NodeId>,
    /// Committed end, if known.
    pub high_watermark: Option<i64>,
    /// The voters; progress of others is known to a leader only.
    pub voters: Vec<VoterProgress>,
    /// Nodes that fetch without a vote; known to a leader only.
    pub observers: Vec<VoterProgress>,
}

/// The KRaft core of one node.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) voters: BTreeSet<NodeId>,
    pub(crate) election: Election,
    pub(crate) role: Role,
    pub(crate) history: EpochHistory,
    pub(crate) durable_end: i64,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) actions: Vec<Action>,
    random: u64,
    next_to_ask: usize,
}

impl Core {
    /// A core over what was found on disk. `history` must be durable as a whole. `committed` is the
    /// end of the newest local snapshot, if any.
    pub fn new(
        settings: Settings,
        stored: Election,
        history: EpochHistory,
        committed: Option<i64>,
    ) -> Result<Self, RaftError> {
        if settings.voters.is_empty() {
            return Err(RaftError::NoVoters);
        }
        let log_epoch = history.end().epoch;
        // A lost quorum-state may have held a vote; in a quorum of several, starting over could
        // vote twice in one epoch.
        if stored.epoch < log_epoch && settings.voters.len() > 1 {
            return Err(RaftError::EpochBehindLog {
                log_epoch,
                stored_epoch: stored.epoch,
            });
        }
        let election = if stored.epoch < log_epoch {
            Election {
                epoch: log_epoch,
                ..Election::default()
            }
        } else {
            stored
        };
        Ok(Self {
            voters: settings.voters.iter().copied().collect(),
            election,
            role: Role::Unattached {
                election_deadline_ms: i64::MAX,
            },
            durable_end: history.end().offset,
            high_watermark: committed,
            history,
            actions: Vec::new(),
            random: settings.seed | 1,
            next_to_ask: 0,
            settings,
        })
    }

    /// Feeds one event; gives what has to be done, in order.
    pub fn step(&mut self, event: Event, now_ms: i64) -> Vec<Action> {
        match event {
            Event::Start => self.start(now_ms),
            Event::Tick => self.tick(now_ms),
            Event::Receive(from, message) => self.receive(from, message, now_ms),
            Event::Appended { end_offset } => self.history.extend(self.election.epoch, end_offset),
            Event::Durable { end_offset } => self.durable(end_offset, now_ms),
            Event::LogStartsAt(end) => self.log_starts_at(end, now_ms),
            Event::Resign => self.resign(now_ms),
        }
        std::mem::take(&mut self.actions)
    }

    /// The present role.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The present epoch.
    pub fn epoch(&self) -> i32 {
        self.election.epoch
    }

    /// True if this node leads its epoch.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Committed end of the log, once known.
    pub fn high_watermark(&self) -> Option<i64> {
        self.high_watermark
    }

    /// End of the local log.
    pub fn log_end(&self) -> LogEnd {
        self.history.end()
    }

    /// Epoch starts of the local log.
    pub fn history(&self) -> &EpochHistory {
        &self.history
    }

    /// The quorum as this node sees it.
    pub fn status(&self, now_ms: i64) -> Status {
        let mine = VoterProgress {
            id: self.settings.me,
            end_offset: self.history.end().offset,
            last_fetch_ms: now_ms,
            last_caught_up_ms: now_ms,
        };
        let known = |id: &NodeId, progress: Option<&Progress>| {
            progress.filter(|p| p.last_fetch_ms > 0).map_or(
                VoterProgress {
                    id: *id,
                    end_offset: -1,
                    last_fetch_ms: -1,
                    last_caught_up_ms: -1,
                },
                |p| VoterProgress {
                    id: *id,
                    end_offset: p.end_offset,
                    last_fetch_ms: p.last_fetch_ms,
                    last_caught_up_ms: p.last_caught_up_ms,
                },
            )
        };
        let leadership = match &self.role {
            Role::Leader(leadership) => Some(leadership),
            _ => None,
        };
        let voters = self.voters.iter().map(|id| match id {
            id if *id == self.settings.me => mine,
            id => known(id, leadership.and_then(|l| l.followers.get(id))),
        });
        let observers = leadership.iter().flat_map(|l| {
            l.observers
                .iter()
                .map(|(id, progress)| known(id, Some(progress)))
        });
        Status {
            epoch: self.election.epoch,
            leader: self.election.leader,
            high_watermark: self.high_watermark,
            voters: voters.collect(),
            observers: observers.collect(),
        }
    }

    pub(crate) fn is_voter(&self) -> bool {
        self.voters.contains(&self.settings.me)
    }

    pub(crate) fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    pub(crate) fn other_voters(&self) -> Vec<NodeId> {
        self.voters
            .iter()
            .copied()
            .filter(|id| *id != self.settings.me)
            .collect()
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.actions.push(Action::Send(to, message));
    }

    /// Between one and two election timeouts from now, at random so that candidates do not collide
    /// for ever.
    pub(crate) fn election_deadline(&mut self, now_ms: i64) -> i64 {
        // xorshift64: no quality needed, only that nodes with different seeds differ.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let spread = self.settings.election_timeout_ms.max(1) as u64;
        now_ms + self.settings.election_timeout_ms + (self.random % spread) as i64
    }

    fn start(&mut self, now_ms: i64) {
        if self.is_voter() && self.voters.len() == 1 {
            self.become_candidate(now_ms);
            return;
        }
        match self
            .election
            .leader
            .filter(|leader| *leader != self.settings.me)
        {
            Some(leader) => self.become_follower(self.election.epoch, leader, now_ms),
            None => {
                // A former leader must not go on in an epoch whose tail it may have lost: it waits
                // for, or starts, a newer one.
                self.election.leader = None;
                let election_deadline_ms = self.election_deadline(now_ms);
                self.role = Role::Unattached {
                    election_deadline_ms,
                };
            }
        }
    }

    fn tick(&mut self, now_ms: i64) {
        match &self.role {
            Role::Unattached {
                election_deadline_ms,
            }
            | Role::Resigned {
                election_deadline_ms,
            } if now_ms >= *election_deadline_ms => {
                if self.is_voter() {
                    self.become_prospective(now_ms);
                } else {
                    self.ask_some_voter(now_ms);
                }
            }
            Role::Prospective(ballot) | Role::Candidate(ballot) if now_ms >= ballot.deadline_ms => {
                self.become_prospective(now_ms)
            }
            Role::Follower { .. } => self.tick_follower(now_ms),
            Role::Leader(_) => self.tick_leader(now_ms),
            _ => {}
        }
    }

    fn receive(&mut self, from: NodeId, message: Message, now_ms: i64) {
        if message.epoch() > self.election.epoch {
            let leader = match &message {
                Message::BeginEpoch { .. } => Some(from),
                Message::VoteReply { leader, .. } | Message::FetchReply { leader, .. } => *leader,
                _ => None,
            };
            self.enter_epoch(message.epoch(), leader, now_ms);
        }
        match message {
            Message::Vote {
                epoch,
                log_end,
                pre_vote,
            } => self.on_vote(from, epoch, log_end, pre_vote, now_ms),
            Message::VoteReply {
                epoch,
                leader,
                granted,
                pre_vote,
            } => self.on_vote_reply(from, epoch, leader, granted, pre_vote, now_ms),
            Message::BeginEpoch { epoch } => self.learn_leader(epoch, from, now_ms),
            Message::EndEpoch { epoch, successors } => {
                self.on_end_epoch(from, epoch, &successors, now_ms)
            }
            Message::Fetch { epoch, log_end } => self.on_fetch(from, epoch, log_end, now_ms),
            Message::FetchReply {
                epoch,
                leader,
                high_watermark,
                outcome,
            } => self.on_fetch_reply(epoch, leader, high_watermark, outcome, now_ms),
        }
    }

    fn log_starts_at(&mut self, end: LogEnd, now_ms: i64) {
        self.history.start_at(end);
        self.durable_end = self.durable_end.max(end.offset);
        self.raise_high_watermark(end.offset);
        if let Role::Follower { .. } = self.role {
            self.fetch(now_ms);
        }
    }

    pub(crate) fn ask_some_voter(&mut self, now_ms: i64) {
        let others = self.other_voters();
        let election_deadline_ms = self.election_deadline(now_ms);
        self.role = Role::Unattached {
            election_deadline_ms,
        };
        if let Some(voter) = others.get(self.next_to_ask % others.len().max(1)) {
            self.next_to_ask = self.next_to_ask.wrapping_add(1);
            self.send(
                *voter,
                Message::Fetch {
                    epoch: self.election.epoch,
                    log_end: self.history.end(),
                },
            );
        }
    }

    /// Learns of a newer epoch; the one way into it that is not this node's own candidacy.
    pub(crate) fn enter_epoch(&mut self, epoch: i32, leader: Option<NodeId>, now_ms: i64) {
        match leader.filter(|leader| *leader != self.settings.me) {
            Some(leader) => self.become_follower(epoch, leader, now_ms),
            None => {
                self.persist(Election {
                    epoch,
                    voted: None,
                    leader: None,
                });
                let election_deadline_ms = self.election_deadline(now_ms);
                self.role = Role::Unattached {
                    election_deadline_ms,
                };
            }
        }
    }

    /// Learns who leads the present epoch.
    pub(crate) fn learn_leader(&mut self, epoch: i32, leader: NodeId, now_ms: i64) {
        if epoch == self.election.epoch
            && self.election.leader.is_none()
            && leader != self.settings.me
        {
            self.become_follower(epoch, leader, now_ms);
        }
    }

    pub(crate) fn become_follower(&mut self, epoch: i32, leader: NodeId, now_ms: i64) {
        let voted = if epoch == self.election.epoch {
            self.election.voted
        } else {
            None
        };
        self.persist(Election {
            epoch,
            voted,
            leader: Some(leader),
        });
        self.role = Role::Follower {
            leader,
            fetch_deadline_ms: now_ms + self.settings.fetch_timeout_ms,
            fetching_since_ms: None,
        };
        self.fetch(now_ms);
    }

    pub(crate) fn become_prospective(&mut self, now_ms: i64) {
        let deadline_ms = self.election_deadline(now_ms);
        // The old leader is given up here only in memory: a pre-vote changes nothing that a restart
        // would have to know.
        self.election.leader = None;
        self.role = Role::Prospective(Ballot {
            granted: BTreeSet::from([self.settings.me]),
            rejected: BTreeSet::new(),
            deadline_ms,
        });
        self.ask_for_votes(true);
    }

    pub(crate) fn become_candidate(&mut self, now_ms: i64) {
        let me = self.settings.me;
        let Some(epoch) = self.election.epoch.checked_add(1) else {
            self.actions.push(Action::Halt(
                "the quorum epoch is used up: 2147483647 elections were held".to_owned(),
            ));
            return;
        };
        self.persist(Election {
            epoch,
            voted: Some(me),
            leader: None,
        });
        let deadline_ms = self.election_deadline(now_ms);
        self.role = Role::Candidate(Ballot {
            granted: BTreeSet::from([me]),
            rejected: BTreeSet::new(),
            deadline_ms,
        });
        if self.majority() == 1 {
            self.become_leader(now_ms);
        } else {
            self.ask_for_votes(false);
        }
    }

    pub(crate) fn become_leader(&mut self, now_ms: i64) {
        let Role::Candidate(ballot) = &self.role else {
            return;
        };
        let granting = ballot.granted.iter().copied().collect();
        let epoch = self.election.epoch;
        let others = self.other_voters();
        self.persist(Election {
            leader: Some(self.settings.me),
            ..self.election
        });
        self.role = Role::Leader(Leadership {
            epoch_start_offset: self.history.end().offset,
            followers: others
                .iter()
                .map(|id| {
                    (
                        *id,
                        Progress {
                            end_offset: -1,
                            ..Progress::default()
                        },
                    )
                })
                .collect(),
            observers: BTreeMap::new(),
            quorum_deadline_ms: now_ms + self.settings.fetch_timeout_ms * 3 / 2,
            begin_deadline_ms: now_ms + self.settings.fetch_timeout_ms / 2,
        });
        self.actions.push(Action::AppendLeaderChange {
            epoch,
            voters: self.voters.iter().copied().collect(),
            granting,
        });
        for id in others {
            self.send(id, Message::BeginEpoch { epoch });
        }
    }

    /// Gives up leadership in the present epoch and tells the voters who should try first.
    pub(crate) fn resign(&mut self, now_ms: i64) {
        let Role::Leader(leadership) = &self.role else {
            return;
        };
        let mut successors: Vec<(i64, NodeId)> = leadership
            .followers
            .iter()
            .map(|(id, progress)| (progress.end_offset, *id))
            .collect();
        successors.sort_unstable_by(|a, b| b.cmp(a));
        let successors: Vec<NodeId> = successors.into_iter().map(|(_, id)| id).collect();
        let epoch = self.election.epoch;
        let election_deadline_ms = self.election_deadline(now_ms);
        self.role = Role::Resigned {
            election_deadline_ms,
        };
        for id in self.other_voters() {
            self.send(
                id,
                Message::EndEpoch {
                    epoch,
                    successors: successors.clone(),
                },
            );
        }
        self.actions.push(Action::LeaderChanged {
            epoch,
            leader: None,
        });
    }

    pub(crate) fn persist(&mut self, election: Election) {
        if election == self.election {
            return;
        }
        let known_before = (self.election.epoch, self.election.leader);
        self.election = election;
        self.actions.push(Action::Persist(election));
        if known_before != (election.epoch, election.leader) {
            self.actions.push(Action::LeaderChanged {
                epoch: election.epoch,
                leader: election.leader,
            });
        }
    }

    pub(crate) fn raise_high_watermark(&mut self, offset: i64) {
        if self.high_watermark.is_none_or(|known| known < offset) {
            self.high_watermark = Some(offset);
            self.actions.push(Action::HighWatermark(offset));
        }
    }
}
