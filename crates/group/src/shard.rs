//! The groups of one `__consumer_offsets` partition: binds the pure groups to waiting requests, to
//! timers and to records.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use tarn_coordinator::{CoordinatorRecord, LoadedRecord, Outcome, ReplayError, Shard};
use tarn_wire::messages::ConsumerProtocolSubscription;
use tarn_wire::{ErrorCode, Message, Reader, Str};
use tokio::sync::oneshot;

use crate::classic::{
    ClassicGroup, Effect, GroupState, JoinReply, JoinRequest, Limits, SyncReply, SyncRequest, Token,
};
use crate::config::GroupConfig;
use crate::offsets::{CommittedOffset, GroupOffsets};
use crate::records::{self, GroupRecord};

/// A group of either kind: with members, or only offsets.
pub(crate) struct Group {
    pub(crate) classic: ClassicGroup,
    pub(crate) offsets: GroupOffsets,
    /// Its entry in the timers.
    timer: Option<i64>,
    /// The log holds a record of it that a tombstone has to remove.
    recorded: bool,
}

impl Group {
    fn new(now_ms: i64) -> Self {
        Group {
            classic: ClassicGroup::new(now_ms),
            offsets: GroupOffsets::default(),
            timer: None,
            recorded: false,
        }
    }

    /// Topics its members subscribe to; `None` when the group does not speak the consumer protocol
    /// or cannot be read.
    pub(crate) fn subscribed_topics(&self) -> Option<BTreeSet<Str>> {
        if self
            .classic
            .protocol_type()
            .is_none_or(|kind| *kind != "consumer")
        {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.classic.members().values() {
            for (_, metadata) in &member.protocols {
                let mut reader = Reader::new(metadata.clone());
                let version = reader
                    .i16()
                    .ok()?
                    .min(ConsumerProtocolSubscription::VERSIONS.max);
                let subscription =
                    ConsumerProtocolSubscription::decode(&mut reader, version).ok()?;
                topics.extend(subscription.topics.iter().map(Str::detach));
            }
        }
        Some(topics)
    }
}

/// Answers that leave once the records of the same turn are durable.
#[derive(Default)]
struct Answers {
    joins: Vec<(oneshot::Sender<JoinReply>, JoinReply)>,
    syncs: Vec<(oneshot::Sender<SyncReply>, SyncReply)>,
}

impl Answers {
    fn is_empty(&self) -> bool {
        self.joins.is_empty() && self.syncs.is_empty()
    }

    /// What the answers tell could not be written: every one of them becomes an error.
    fn refuse(&mut self, error: ErrorCode) {
        for (_, reply) in &mut self.joins {
            *reply = JoinReply::error(error, &reply.member_id);
        }
        for (_, reply) in &mut self.syncs {
            *reply = SyncReply::error(error);
        }
    }

    fn send(self) {
        // A client that has gone away needs no answer.
        for (sender, reply) in self.joins {
            let _ = sender.send(reply);
        }
        for (sender, reply) in self.syncs {
            let _ = sender.send(reply);
        }
    }

    fn outcome(self, records: Vec<CoordinatorRecord>) -> Outcome {
        let after =
            (!self.is_empty()).then(|| Box::new(move || self.send()) as Box<dyn FnOnce() + Send>);
        Outcome { records, after }
    }
}

/// The groups of one partition.
pub(crate) struct GroupShard {
    pub(crate) groups: HashMap<Str, Group>,
    limits: Limits,
    retention_ms: i64,
    cleanup_ms: i64,
    next_cleanup_ms: i64,
    loading: bool,
    joins: HashMap<Token, oneshot::Sender<JoinReply>>,
    syncs: HashMap<Token, oneshot::Sender<SyncReply>>,
    next_token: Token,
    timers: BTreeSet<(i64, Str)>,
}

impl GroupShard {
    pub(crate) fn new(config: &GroupConfig) -> Self {
        GroupShard {
            groups: HashMap::new(),
            limits: config.limits(),
            retention_ms: config.offsets_retention_ms,
            cleanup_ms: config.offsets_retention_check_ms.max(1),
            next_cleanup_ms: i64::MAX,
            loading: true,
            joins: HashMap::new(),
            syncs: HashMap::new(),
            next_token: 0,
            timers: BTreeSet::new(),
        }
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    fn collect(
        &mut self,
        id: &Str,
        effects: Vec<Effect>,
        records: &mut Vec<CoordinatorRecord>,
        answers: &mut Answers,
    ) {
        let mut persist = false;
        for effect in effects {
            match effect {
                Effect::Join(token, reply) => {
                    if let Some(sender) = self.joins.remove(&token) {
                        answers.joins.push((sender, reply));
                    }
                }
                Effect::Sync(token, reply) => {
                    if let Some(sender) = self.syncs.remove(&token) {
                        answers.syncs.push((sender, reply));
                    }
                }
                Effect::Persist => persist = true,
            }
        }
        // One record for the whole turn, as the group is at its end.
        if persist && let Some(group) = self.groups.get(id) {
            match records::group(id, Some(&group.classic.persisted())) {
                Ok(record) => records.push(record),
                // The sizes are checked where they come in, so this is a fault of ours; the log
                // must not see it.
                Err(error) => {
                    tracing::error!(group = %id, %error, "a group could not be written");
                    answers.refuse(ErrorCode::UNKNOWN_SERVER_ERROR);
                }
            }
        }
    }

    /// Puts the group's next deadline into the timers, and drops a group that has nothing in it.
    pub(crate) fn settle(&mut self, id: &Str) {
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        let deadline = group.classic.next_deadline_ms();
        if group.timer != deadline {
            if let Some(old) = group.timer {
                self.timers.remove(&(old, id.clone()));
            }
            if let Some(new) = deadline {
                self.timers.insert((new, id.clone()));
            }
            group.timer = deadline;
        }
        if group.classic.is_empty() && group.offsets.is_empty() && !group.recorded {
            self.groups.remove(id);
        }
    }

    pub(crate) fn join(
        &mut self,
        id: Str,
        request: JoinRequest,
        sender: oneshot::Sender<JoinReply>,
        now_ms: i64,
    ) -> Outcome {
        let mut answers = Answers::default();
        if !self.groups.contains_key(&id) && !request.member_id.is_empty() {
            answers.joins.push((
                sender,
                JoinReply::error(ErrorCode::UNKNOWN_MEMBER_ID, &request.member_id),
            ));
            return answers.outcome(Vec::new());
        }
        let token = self.token();
        self.joins.insert(token, sender);
        let limits = self.limits;
        let group = self
            .groups
            .entry(id.clone())
            .or_insert_with(|| Group::new(now_ms));
        let effects = group.classic.join(request, token, &limits, now_ms);
        self.finish(&id, effects, answers)
    }

    pub(crate) fn sync(
        &mut self,
        id: Str,
        request: SyncRequest,
        sender: oneshot::Sender<SyncReply>,
        now_ms: i64,
    ) -> Outcome {
        let mut answers = Answers::default();
        if !self.groups.contains_key(&id) {
            answers
                .syncs
                .push((sender, SyncReply::error(ErrorCode::UNKNOWN_MEMBER_ID)));
            return answers.outcome(Vec::new());
        }
        let token = self.token();
        self.syncs.insert(token, sender);
        let limits = self.limits;
        let effects = self
            .groups
            .get_mut(&id)
            .map(|group| group.classic.sync(request, token, &limits, now_ms))
            .unwrap_or_default();
        self.finish(&id, effects, answers)
    }

    fn finish(&mut self, id: &Str, effects: Vec<Effect>, mut answers: Answers) -> Outcome {
        let mut records = Vec::new();
        self.collect(id, effects, &mut records, &mut answers);
        self.settle(id);
        answers.outcome(records)
    }

    /// Heartbeat. Only moves a session later: the timers need not know, they look again when the
    /// old deadline comes.
    pub(crate) fn heartbeat(
        &mut self,
        id: &Str,
        member_id: &Str,
        instance_id: Option<&Str>,
        generation: i32,
        now_ms: i64,
    ) -> ErrorCode {
        match self.groups.get_mut(id) {
            Some(group) => group
                .classic
                .heartbeat(member_id, instance_id, generation, now_ms),
            None => ErrorCode::UNKNOWN_MEMBER_ID,
        }
    }

    /// Runs `change` on a group; its own result goes to the caller, what it sets in motion to whom
    /// it concerns.
    pub(crate) fn change<R>(
        &mut self,
        id: &Str,
        change: impl FnOnce(&mut ClassicGroup, &Limits) -> (R, Vec<Effect>),
    ) -> Option<(R, Outcome)> {
        let limits = self.limits;
        let group = self.groups.get_mut(id)?;
        let (result, effects) = change(&mut group.classic, &limits);
        Some((result, self.finish(id, effects, Answers::default())))
    }

    /// The group an OffsetCommit goes to, made if it has to be.
    pub(crate) fn group_for_commit(&mut self, id: &Str, now_ms: i64) -> &mut Group {
        self.groups
            .entry(id.clone())
            .or_insert_with(|| Group::new(now_ms))
    }

    /// Deletes a group with all its offsets, if nobody is in it.
    pub(crate) fn delete(&mut self, id: &Str) -> Result<Vec<CoordinatorRecord>, ErrorCode> {
        let group = self.groups.get(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        if !group.classic.is_empty() {
            return Err(ErrorCode::NON_EMPTY_GROUP);
        }
        let mut tombstones: Vec<_> = group
            .offsets
            .partitions()
            .filter_map(|(topic, index, _)| records::offset(id, topic, index, None).ok())
            .collect();
        tombstones.extend(records::group(id, None));
        Ok(tombstones)
    }

    /// Tombstones for every offset of these topics (they were deleted).
    pub(crate) fn forget_topics(&self, topics: &BTreeSet<Str>) -> Vec<CoordinatorRecord> {
        let mut tombstones = Vec::new();
        for (id, group) in &self.groups {
            let gone = group
                .offsets
                .partitions()
                .filter(|(topic, _, _)| topics.contains(*topic));
            tombstones
                .extend(gone.flat_map(|(topic, index, _)| records::offset(id, topic, index, None)));
        }
        tombstones
    }

    fn cleanup(&self, now_ms: i64) -> Vec<CoordinatorRecord> {
        let mut tombstones = Vec::new();
        for (id, group) in &self.groups {
            let empty = group.classic.is_empty();
            let since = group.classic.state_since_ms();
            let subscribed = if empty {
                None
            } else {
                group.subscribed_topics()
            };
            let is_simple = group.classic.protocol_type().is_none();
            let expired = group.offsets.expired(
                now_ms,
                self.retention_ms,
                |topic, offset: &CommittedOffset| match (empty, is_simple) {
                    (true, true) => Some(offset.commit_ms),
                    (true, false) => Some(since.max(offset.commit_ms)),
                    (false, _) => subscribed
                        .as_ref()
                        .filter(|topics| !topics.contains(topic))
                        .map(|_| offset.commit_ms),
                },
            );
            let all = expired.len() == group.offsets.partitions().count();
            tombstones.extend(
                expired
                    .iter()
                    .flat_map(|(topic, index)| records::offset(id, topic, *index, None)),
            );
            if all && empty {
                tombstones.extend(records::group(id, None));
            }
        }
        tombstones
    }
}

impl Shard for GroupShard {
    fn replay(&mut self, record: LoadedRecord) -> Result<(), ReplayError> {
        match records::parse(&record.key, record.value.as_ref())? {
            GroupRecord::Offset {
                group: id,
                topic,
                partition,
                value,
            } => match value {
                Some(value) => {
                    let now_ms = record.timestamp_ms;
                    self.groups
                        .entry(id)
                        .or_insert_with(|| Group::new(now_ms))
                        .offsets
                        .set(topic, partition, value);
                }
                None => {
                    // A group that lost its last offset stays until the next clean-up, so that
                    // DeleteGroups finds it.
                    if let Some(group) = self.groups.get_mut(&id) {
                        group.offsets.remove(&topic, partition);
                    }
                }
            },
            GroupRecord::Group { group: id, value } => {
                let timestamp_ms = record.timestamp_ms;
                let group = self
                    .groups
                    .entry(id.clone())
                    .or_insert_with(|| Group::new(timestamp_ms));
                group.recorded = value.is_some();
                if self.loading {
                    group.classic = value
                        .map_or_else(|| ClassicGroup::new(timestamp_ms), ClassicGroup::restore);
                } else {
                    if value.is_none() {
                        group.classic = ClassicGroup::new(timestamp_ms);
                    }
                    self.settle(&id);
                }
            }
            GroupRecord::Other(kind) => {
                tracing::debug!(kind, "a record of another group protocol is skipped")
            }
        }
        Ok(())
    }

    fn loaded(&mut self, now_ms: i64) {
        self.loading = false;
        self.next_cleanup_ms = now_ms.saturating_add(self.cleanup_ms);
        let ids: Vec<Str> = self.groups.keys().cloned().collect();
        for id in ids {
            if let Some(group) = self.groups.get_mut(&id) {
                group.classic.start_sessions(now_ms);
            }
            self.settle(&id);
        }
    }

    fn next_deadline_ms(&self) -> Option<i64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let cleanup = (!self.groups.is_empty()).then_some(self.next_cleanup_ms);
        timer.into_iter().chain(cleanup).min()
    }

    fn on_deadline(&mut self, now_ms: i64) -> Outcome {
        let (mut records, mut answers) = (Vec::new(), Answers::default());
        if self.next_cleanup_ms <= now_ms {
            self.next_cleanup_ms = now_ms.saturating_add(self.cleanup_ms);
            records = self.cleanup(now_ms);
        }
        let due: Vec<Str> = self
            .timers
            .iter()
            .take_while(|(at, _)| *at <= now_ms)
            .map(|(_, id)| id.clone())
            .collect();
        let limits = self.limits;
        for id in due {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let effects = group.classic.expire(&limits, now_ms);
            self.collect(&id, effects, &mut records, &mut answers);
            self.settle(&id);
        }
        answers.outcome(records)
    }
}

/// What a member sees of itself in DescribeGroups: its metadata for the protocol in force, once
/// there is one.
pub(crate) fn shown_metadata(group: &ClassicGroup, metadata: impl FnOnce(&str) -> Bytes) -> Bytes {
    match (group.state(), group.protocol()) {
        (GroupState::Stable, Some(protocol)) => metadata(protocol),
        _ => Bytes::new(),
    }
}
