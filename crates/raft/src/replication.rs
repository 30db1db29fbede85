//! Pull-based replication: what a leader answers to a Fetch, what a fetching node does with the
//! answer, and how the high watermark moves.

use crate::core::{Action, Core};
use crate::role::Progress;
use crate::{BatchSpan, FetchOutcome, LogEnd, Message, NodeId, Role};

/// Observers a leader remembers; the one silent for longest makes room.
const OBSERVERS_MAX: usize = 1_000;

impl Core {
    pub(crate) fn tick_leader(&mut self, now_ms: i64) {
        let epoch = self.election.epoch;
        let Role::Leader(leadership) = &mut self.role else {
            return;
        };
        if leadership.followers.is_empty() {
            return;
        }
        if now_ms >= leadership.quorum_deadline_ms {
            self.resign(now_ms);
            return;
        }
        if now_ms >= leadership.begin_deadline_ms {
            leadership.begin_deadline_ms = now_ms + self.settings.fetch_timeout_ms / 2;
            let silent_since_ms = now_ms - self.settings.fetch_timeout_ms / 2;
            let silent: Vec<NodeId> = leadership
                .followers
                .iter()
                .filter(|(_, p)| p.last_fetch_ms < silent_since_ms)
                .map(|(id, _)| *id)
                .collect();
            for id in silent {
                self.send(id, Message::BeginEpoch { epoch });
            }
        }
    }

    pub(crate) fn on_fetch(&mut self, from: NodeId, epoch: i32, log_end: LogEnd, now_ms: i64) {
        let outcome = if epoch == self.election.epoch && self.is_leader() {
            self.answer_fetch(from, log_end, now_ms)
        } else {
            FetchOutcome::NotLeader
        };
        let reply = Message::FetchReply {
            epoch: self.election.epoch,
            leader: self.election.leader,
            high_watermark: self.high_watermark,
            outcome,
        };
        self.send(from, reply);
    }

    fn answer_fetch(&mut self, from: NodeId, log_end: LogEnd, now_ms: i64) -> FetchOutcome {
        if log_end.offset < self.history.start_offset() {
            let start = self.history.end_of_epoch(0).offset;
            let epoch = self.history.end_of_epoch(i32::MAX).epoch;
            return FetchOutcome::Snapshot(LogEnd {
                epoch,
                offset: start,
            });
        }
        // The asker's log is a prefix of ours exactly if ours holds its last epoch at least up to
        // its end.
        let ours = self.history.end_of_epoch(log_end.epoch);
        if log_end.offset > self.history.start_offset()
            && (ours.epoch != log_end.epoch || ours.offset < log_end.offset)
        {
            return FetchOutcome::Diverging(ours);
        }
        self.note_progress(from, log_end.offset, now_ms);
        self.advance_high_watermark();
        FetchOutcome::Records(self.spans_from(log_end.offset))
    }

    fn spans_from(&self, offset: i64) -> Vec<BatchSpan> {
        let end = self.history.end();
        let mut spans = Vec::new();
        let mut epoch = end.epoch;
        // Walk the epochs backwards until the asked offset; each span ends where the next epoch
        // starts.
        while epoch >= 0 {
            let span = self.history.end_of_epoch(epoch);
            if span.offset <= offset
                || (span.epoch == 0 && span.offset == self.history.start_offset())
            {
                break;
            }
            spans.push(BatchSpan {
                epoch: span.epoch,
                end_offset: span.offset,
            });
            epoch = span.epoch - 1;
        }
        spans.reverse();
        spans
    }

    fn note_progress(&mut self, from: NodeId, end_offset: i64, now_ms: i64) {
        let leader_end = self.history.end().offset;
        let majority_others = self.majority() - 1;
        let window_ms = self.settings.fetch_timeout_ms * 3 / 2;
        let Role::Leader(leadership) = &mut self.role else {
            return;
        };
        if let Some(progress) = leadership.followers.get_mut(&from) {
            update(progress, end_offset, leader_end, now_ms);
            let mut last_fetches: Vec<i64> = leadership
                .followers
                .values()
                .map(|p| p.last_fetch_ms)
                .collect();
            last_fetches.sort_unstable_by(|a, b| b.cmp(a));
            if let Some(heard_ms) = majority_others
                .checked_sub(1)
                .and_then(|index| last_fetches.get(index))
                .filter(|ms| **ms > 0)
            {
                leadership.quorum_deadline_ms =
                    leadership.quorum_deadline_ms.max(heard_ms + window_ms);
            }
            return;
        }
        if leadership.observers.len() >= OBSERVERS_MAX && !leadership.observers.contains_key(&from)
        {
            let oldest = leadership
                .observers
                .iter()
                .min_by_key(|(_, p)| p.last_fetch_ms)
                .map(|(id, _)| *id);
            oldest.map(|id| leadership.observers.remove(&id));
        }
        update(
            leadership.observers.entry(from).or_default(),
            end_offset,
            leader_end,
            now_ms,
        );
    }

    /// A leader commits what a majority of voters has on disk, but never an older epoch's tail
    /// alone (Raft's figure 8).
    pub(crate) fn advance_high_watermark(&mut self) {
        let Role::Leader(leadership) = &self.role else {
            return;
        };
        let mut ends: Vec<i64> = leadership
            .followers
            .values()
            .map(|p| p.end_offset)
            .collect();
        ends.push(self.durable_end);
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let epoch_start_offset = leadership.epoch_start_offset;
        if let Some(committed) = ends
            .get(self.majority() - 1)
            .copied()
            .filter(|end| *end > epoch_start_offset)
        {
            self.raise_high_watermark(committed);
        }
    }

    pub(crate) fn durable(&mut self, end_offset: i64, now_ms: i64) {
        self.durable_end = self
            .durable_end
            .max(end_offset.min(self.history.end().offset));
        match &self.role {
            Role::Leader(_) => self.advance_high_watermark(),
            Role::Follower { .. } => self.fetch(now_ms),
            _ => {}
        }
    }

    pub(crate) fn tick_follower(&mut self, now_ms: i64) {
        let Role::Follower {
            fetch_deadline_ms,
            fetching_since_ms,
            ..
        } = &self.role
        else {
            return;
        };
        if now_ms < *fetch_deadline_ms {
            if fetching_since_ms
                .is_some_and(|since_ms| now_ms >= since_ms + self.settings.fetch_timeout_ms / 4)
            {
                self.fetch(now_ms);
            }
            return;
        }
        if self.is_voter() {
            self.become_prospective(now_ms);
        } else {
            self.election.leader = None;
            self.ask_some_voter(now_ms);
        }
    }

    /// Asks the leader for what comes after the durable end: what a leader counts towards the high
    /// watermark must survive a crash here.
    pub(crate) fn fetch(&mut self, now_ms: i64) {
        let log_end = self.history.end();
        if self.durable_end < log_end.offset {
            return;
        }
        let epoch = self.election.epoch;
        let Role::Follower {
            leader,
            fetching_since_ms,
            ..
        } = &mut self.role
        else {
            return;
        };
        *fetching_since_ms = Some(now_ms);
        let leader = *leader;
        self.send(leader, Message::Fetch { epoch, log_end });
    }

    pub(crate) fn on_fetch_reply(
        &mut self,
        epoch: i32,
        leader: Option<NodeId>,
        leader_high_watermark: Option<i64>,
        outcome: FetchOutcome,
        now_ms: i64,
    ) {
        if epoch != self.election.epoch {
            return;
        }
        if let Some(leader) = leader {
            self.learn_leader(epoch, leader, now_ms);
        }
        let timeout_ms = self.settings.fetch_timeout_ms;
        let Role::Follower {
            leader,
            fetch_deadline_ms,
            fetching_since_ms,
        } = &mut self.role
        else {
            return;
        };
        if outcome == FetchOutcome::NotLeader || fetching_since_ms.is_none() {
            return;
        }
        *fetching_since_ms = None;
        *fetch_deadline_ms = now_ms + timeout_ms;
        let leader = *leader;
        match outcome {
            FetchOutcome::NotLeader => {}
            FetchOutcome::Snapshot(end) => self.actions.push(Action::FetchSnapshot(leader, end)),
            FetchOutcome::Diverging(theirs) => self.cut_divergence(theirs, now_ms),
            FetchOutcome::Records(spans) => self.take_records(spans, leader_high_watermark, now_ms),
        }
    }

    fn cut_divergence(&mut self, theirs: LogEnd, now_ms: i64) {
        let ours = self.history.end_of_epoch(theirs.epoch);
        let cut = if ours.epoch == theirs.epoch {
            ours.offset.min(theirs.offset)
        } else {
            ours.offset
        };
        if self.high_watermark.is_some_and(|committed| cut < committed) {
            let committed = self.high_watermark.unwrap_or_default();
            self.actions.push(Action::Halt(format!(
                "the quorum leader's log ends epoch {} at offset {}, but this node holds committed records up to {committed}: refusing to cut them",
                theirs.epoch, theirs.offset
            )));
            return;
        }
        self.history.truncate(cut);
        self.durable_end = self.durable_end.min(cut);
        self.actions.push(Action::TruncateTo(cut));
        self.fetch(now_ms);
    }

    fn take_records(
        &mut self,
        spans: Vec<BatchSpan>,
        leader_high_watermark: Option<i64>,
        now_ms: i64,
    ) {
        let fresh: Vec<BatchSpan> = spans
            .into_iter()
            .filter(|span| span.end_offset > self.history.end().offset)
            .collect();
        for span in &fresh {
            self.history.extend(span.epoch, span.end_offset);
        }
        let nothing_new = fresh.is_empty();
        if !nothing_new {
            self.actions.push(Action::AppendFetched(fresh));
        }
        if let Some(committed) = leader_high_watermark {
            self.raise_high_watermark(committed.min(self.history.end().offset));
        }
        if nothing_new {
            self.fetch(now_ms);
        }
    }
}

fn update(progress: &mut Progress, end_offset: i64, leader_end: i64, now_ms: i64) {
    progress.end_offset = end_offset;
    progress.last_fetch_ms = now_ms;
    if end_offset >= leader_end {
        progress.last_caught_up_ms = now_ms;
    }
}
