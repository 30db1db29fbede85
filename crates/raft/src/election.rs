//! Votes: who gets one, and what they lead to (KIP-595, pre-vote of KIP-996).

use crate::core::Core;
use crate::{LogEnd, Message, NodeId, Role};

impl Core {
    pub(crate) fn ask_for_votes(&mut self, pre_vote: bool) {
        let message = Message::Vote {
            epoch: self.election.epoch,
            log_end: self.history.end(),
            pre_vote,
        };
        for id in self.other_voters() {
            self.send(id, message.clone());
        }
        if pre_vote && self.majority() == 1 {
            // A lone voter needs nobody's opinion; it gets here only after it resigned.
            if let Role::Prospective(ballot) = &self.role {
                let now_ms = ballot.deadline_ms;
                self.become_candidate(now_ms);
            }
        }
    }

    pub(crate) fn on_vote(
        &mut self,
        from: NodeId,
        epoch: i32,
        log_end: LogEnd,
        pre_vote: bool,
        now_ms: i64,
    ) {
        let granted = epoch == self.election.epoch
            && self.voters.contains(&from)
            && self.would_vote(from, log_end, pre_vote);
        if granted && !pre_vote {
            self.persist(crate::Election {
                voted: Some(from),
                ..self.election
            });
            let election_deadline_ms = self.election_deadline(now_ms);
            self.role = Role::Unattached {
                election_deadline_ms,
            };
        }
        let reply = Message::VoteReply {
            epoch: self.election.epoch,
            leader: self.election.leader,
            granted,
            pre_vote,
        };
        self.send(from, reply);
    }

    fn would_vote(&self, from: NodeId, log_end: LogEnd, pre_vote: bool) -> bool {
        let up_to_date = log_end >= self.history.end();
        match &self.role {
            // A node that still hears its leader helps nobody to disturb it; one that lost it has
            // become prospective itself.
            Role::Leader(_) | Role::Follower { .. } | Role::Resigned { .. } => false,
            _ if pre_vote => up_to_date,
            _ => match self.election.voted {
                Some(voted) => voted == from,
                None => up_to_date,
            },
        }
    }

    pub(crate) fn on_vote_reply(
        &mut self,
        from: NodeId,
        epoch: i32,
        leader: Option<NodeId>,
        granted: bool,
        pre_vote: bool,
        now_ms: i64,
    ) {
        if epoch != self.election.epoch {
            return;
        }
        // A pre-vote is asked because the leader fell silent: that others still name it proves
        // nothing. If it lives, its BeginEpoch comes.
        if let Some(leader) = leader.filter(|_| !pre_vote)
            && matches!(self.role, Role::Candidate(_) | Role::Unattached { .. })
        {
            self.learn_leader(epoch, leader, now_ms);
            return;
        }
        let majority = self.majority();
        let (ballot, is_pre_vote) = match &mut self.role {
            Role::Prospective(ballot) => (ballot, true),
            Role::Candidate(ballot) => (ballot, false),
            _ => return,
        };
        if is_pre_vote != pre_vote || !self.voters.contains(&from) {
            return;
        }
        if granted {
            ballot.granted.insert(from);
        } else {
            ballot.rejected.insert(from);
        }
        // A lost ballot waits for its deadline, which is the back-off before the next try.
        if ballot.granted.len() >= majority {
            if is_pre_vote {
                self.become_candidate(now_ms);
            } else {
                self.become_leader(now_ms);
            }
        }
    }

    pub(crate) fn on_end_epoch(
        &mut self,
        from: NodeId,
        epoch: i32,
        successors: &[NodeId],
        now_ms: i64,
    ) {
        let follows_sender = matches!(&self.role, Role::Follower { leader, .. } if *leader == from);
        if epoch != self.election.epoch || !follows_sender {
            return;
        }
        if !self.is_voter() {
            self.ask_some_voter(now_ms);
            return;
        }
        if successors.first() == Some(&self.settings.me) {
            self.become_prospective(now_ms);
        } else {
            self.election.leader = None;
            let election_deadline_ms = self.election_deadline(now_ms);
            self.role = Role::Unattached {
                election_deadline_ms,
            };
        }
    }
}
