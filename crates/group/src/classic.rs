//! The classic group protocol as a state machine: join, sync, heartbeat, leave, generations, static
//! members (KIP-345).
//!
//! Pure: no clock, no socket, no log, no randomness. Time and fresh member ids come in; [`Effect`]s
//! go out: answers to requests that waited, and the wish that the group be written to the log. A
//! waiting request is known by a [`Token`] only.
//!
//! Invariants:
//! * A member has at most one waiting join and one waiting sync; a newer one of the same member
//!   answers the older one.
//! * Every token handed in is answered exactly once, by an effect of this or a later call.
//! * The generation goes up by one each time a join phase completes, and at no other time.
//! * Whatever changes who is in the group, or what they support, ends in a rebalance or in an empty
//!   group.

mod join;
mod leave;
mod sync;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use tarn_wire::{ErrorCode, Str};

pub(crate) use join::JoinRequest;
pub(crate) use leave::LeaveRequest;
pub(crate) use sync::SyncRequest;

/// A JoinGroup of a member that never had an id may wait this long, ms; the client is expected to
/// have retried by then.
const NEW_MEMBER_WAIT_MS: i64 = 300_000;
/// What a member, a protocol or an assignment costs beside its texts and bytes: empty ones are not
/// free.
const ELEMENT_BYTES: usize = 64;

/// A waiting request, as the shell numbers it.
pub(crate) type Token = u64;

/// Limits of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) session_timeout_ms_min: i32,
    pub(crate) session_timeout_ms_max: i32,
    pub(crate) initial_rebalance_delay_ms: i32,
    pub(crate) members_max: usize,
    pub(crate) id_bytes_max: usize,
    pub(crate) protocols_max: usize,
    pub(crate) group_bytes_max: usize,
    pub(crate) rebalance_timeout_ms_max: i32,
}

/// State of a group; `Dead` is the group's absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// No members; offsets may be there.
    Empty,
    /// Members are being gathered.
    PreparingRebalance,
    /// Everyone has joined; the leader's assignment is awaited.
    CompletingRebalance,
    /// Everyone has an assignment.
    Stable,
}

impl GroupState {
    /// Kafka's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// What a call wants done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Answers a JoinGroup.
    Join(Token, JoinReply),
    /// Answers a SyncGroup.
    Sync(Token, SyncReply),
    /// The group has to be written; answers of the same call go out after that.
    Persist,
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JoinReply {
    pub(crate) error: ErrorCode,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<Str>,
    pub(crate) protocol: Option<Str>,
    pub(crate) leader: Str,
    pub(crate) skip_assignment: bool,
    pub(crate) member_id: Str,
    /// Member id, instance id, metadata of the chosen protocol; for the leader only.
    pub(crate) members: Vec<(Str, Option<Str>, Bytes)>,
}

impl JoinReply {
    pub(crate) fn error(error: ErrorCode, member_id: &Str) -> Self {
        JoinReply {
            error,
            generation: -1,
            member_id: member_id.clone(),
            ..JoinReply::default()
        }
    }
}

/// The answer to a SyncGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncReply {
    pub(crate) error: ErrorCode,
    pub(crate) protocol_type: Option<Str>,
    pub(crate) protocol: Option<Str>,
    pub(crate) assignment: Bytes,
}

impl SyncReply {
    pub(crate) fn error(error: ErrorCode) -> Self {
        SyncReply {
            error,
            ..SyncReply::default()
        }
    }
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    /// Supported protocols with metadata, in the member's order of preference.
    pub(crate) protocols: Vec<(Str, Bytes)>,
    pub(crate) assignment: Bytes,
    awaiting_join: Option<Token>,
    awaiting_sync: Option<Token>,
    /// The member joined without an id and has not been answered yet.
    is_new: bool,
    /// When its session ends; not looked at while a request of it waits.
    deadline_ms: i64,
}

impl Member {
    /// Metadata for `protocol`, empty when the member does not support it.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        let ids = self.client_id.len() + self.instance_id.as_ref().map_or(0, |id| id.len());
        ELEMENT_BYTES + ids + element_bytes(&self.protocols) + self.assignment.len()
    }

    fn deadline(&self) -> Option<i64> {
        match (self.awaiting_join, self.awaiting_sync) {
            (Some(_), _) if self.is_new => Some(self.deadline_ms),
            (None, None) => Some(self.deadline_ms),
            _ => None,
        }
    }
}

/// Bytes that named elements stand for.
fn element_bytes(elements: &[(Str, Bytes)]) -> usize {
    elements
        .iter()
        .map(|(name, bytes)| ELEMENT_BYTES + name.len() + bytes.len())
        .sum()
}

/// How long the join phase still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinPhase {
    /// A group that was empty waits a little for more members, again while new ones come, up to
    /// `remaining_ms` more.
    Initial {
        deadline_ms: i64,
        remaining_ms: i64,
        member_added: bool,
    },
    /// Until everyone has re-joined, at the latest then.
    Until(i64),
}

/// A classic group.
#[derive(Clone, Debug)]
pub(crate) struct ClassicGroup {
    state: GroupState,
    /// When the state was entered, epoch ms.
    state_since_ms: i64,
    generation: i32,
    protocol_type: Option<Str>,
    protocol: Option<Str>,
    leader: Option<Str>,
    members: BTreeMap<Str, Member>,
    /// Instance id → member id.
    static_members: BTreeMap<Str, Str>,
    /// Ids handed out with MEMBER_ID_REQUIRED that have not joined yet → when they are forgotten.
    pending: BTreeMap<Str, i64>,
    join_phase: Option<JoinPhase>,
    /// Members of this generation that have not sent SyncGroup yet.
    unsynced: BTreeSet<Str>,
    sync_deadline_ms: Option<i64>,
}

/// A group as its record has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Persisted {
    pub(crate) protocol_type: Option<Str>,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<Str>,
    pub(crate) leader: Option<Str>,
    pub(crate) state_since_ms: i64,
    /// Member id, instance id, client id, client host, rebalance timeout, session timeout,
    /// subscription, assignment.
    pub(crate) members: Vec<PersistedMember>,
}

/// A member as the group's record has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistedMember {
    pub(crate) member_id: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Bytes,
    pub(crate) assignment: Bytes,
}

impl ClassicGroup {
    /// An empty group.
    pub(crate) fn new(now_ms: i64) -> Self {
        ClassicGroup {
            state: GroupState::Empty,
            state_since_ms: now_ms,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending: BTreeMap::new(),
            join_phase: None,
            unsynced: BTreeSet::new(),
            sync_deadline_ms: None,
        }
    }

    /// A group as it was last written. Sessions start when [`ClassicGroup::start_sessions`] is
    /// called.
    pub(crate) fn restore(persisted: Persisted) -> Self {
        let mut group = ClassicGroup::new(persisted.state_since_ms);
        group.generation = persisted.generation;
        group.protocol_type = persisted.protocol_type;
        group.protocol = persisted.protocol.clone();
        group.leader = persisted.leader;
        for member in persisted.members {
            if let Some(instance) = &member.instance_id {
                group
                    .static_members
                    .insert(instance.clone(), member.member_id.clone());
            }
            group.members.insert(
                member.member_id,
                Member {
                    instance_id: member.instance_id,
                    client_id: member.client_id,
                    client_host: member.client_host,
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    protocols: persisted
                        .protocol
                        .iter()
                        .map(|name| (name.clone(), member.subscription.clone()))
                        .collect(),
                    assignment: member.assignment,
                    awaiting_join: None,
                    awaiting_sync: None,
                    is_new: false,
                    deadline_ms: i64::MAX,
                },
            );
        }
        group.state = if group.members.is_empty() {
            GroupState::Empty
        } else {
            GroupState::Stable
        };
        group
    }

    /// Gives every member a full session from now on (after loading).
    pub(crate) fn start_sessions(&mut self, now_ms: i64) {
        for member in self.members.values_mut() {
            member.deadline_ms = now_ms + i64::from(member.session_timeout_ms);
        }
    }

    /// The group for its record.
    pub(crate) fn persisted(&self) -> Persisted {
        let protocol = self.protocol.clone();
        Persisted {
            protocol_type: self.protocol_type.clone(),
            generation: self.generation,
            leader: self.leader.clone(),
            state_since_ms: self.state_since_ms,
            members: self
                .members
                .iter()
                .map(|(id, member)| PersistedMember {
                    member_id: id.clone(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    subscription: protocol
                        .as_ref()
                        .map(|protocol| member.metadata(protocol))
                        .unwrap_or_default(),
                    assignment: member.assignment.clone(),
                })
                .collect(),
            protocol,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state
    }

    pub(crate) fn state_since_ms(&self) -> i64 {
        self.state_since_ms
    }

    pub(crate) fn protocol_type(&self) -> Option<&Str> {
        self.protocol_type.as_ref()
    }

    pub(crate) fn protocol(&self) -> Option<&Str> {
        self.protocol.as_ref()
    }

    pub(crate) fn members(&self) -> &BTreeMap<Str, Member> {
        &self.members
    }

    /// Nobody is in it and nobody is about to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == GroupState::Empty && self.pending.is_empty()
    }

    fn enter(&mut self, state: GroupState, now_ms: i64) {
        self.state = state;
        self.state_since_ms = now_ms;
    }

    /// The longest rebalance timeout of the members, ms.
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members
            .values()
            .map(|member| i64::from(member.rebalance_timeout_ms))
            .max()
            .unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        let pending = self.pending.keys().map(|id| ELEMENT_BYTES + id.len());
        self.members
            .values()
            .map(Member::bytes)
            .chain(pending)
            .sum()
    }

    /// Checks that a request comes from the member it names (not from an older life of a static
    /// member).
    fn check_member(&self, member_id: &Str, instance_id: Option<&Str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance_id {
            match self.static_members.get(instance) {
                None => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(current) if current != member_id => return Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UNKNOWN_MEMBER_ID)
        }
    }

    /// Whether an OffsetCommit may go ahead. Counts as a sign of life of the member.
    pub(crate) fn check_commit(
        &mut self,
        member_id: &Str,
        instance_id: Option<&Str>,
        generation: i32,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if self.state == GroupState::CompletingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.touch(member_id, now_ms);
        Ok(())
    }

    fn touch(&mut self, member_id: &Str, now_ms: i64) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.deadline_ms = now_ms + i64::from(member.session_timeout_ms);
        }
    }

    /// Starts to gather the members again.
    fn prepare_rebalance(&mut self, limits: &Limits, now_ms: i64, effects: &mut Vec<Effect>) {
        if self.state == GroupState::CompletingRebalance {
            for member in self.members.values_mut() {
                member.assignment = Bytes::new();
            }
        }
        self.answer_syncs(ErrorCode::REBALANCE_IN_PROGRESS, now_ms, effects);
        self.unsynced.clear();
        self.sync_deadline_ms = None;
        let timeout_ms = self.rebalance_timeout_ms();
        self.join_phase = Some(if self.state == GroupState::Empty {
            let delay_ms = i64::from(limits.initial_rebalance_delay_ms).min(timeout_ms);
            JoinPhase::Initial {
                deadline_ms: now_ms + delay_ms,
                remaining_ms: timeout_ms - delay_ms,
                member_added: false,
            }
        } else {
            JoinPhase::Until(now_ms + timeout_ms)
        });
        self.enter(GroupState::PreparingRebalance, now_ms);
    }

    /// After a change of the membership: start a rebalance, or go on with the one under way.
    fn rebalance(&mut self, limits: &Limits, now_ms: i64, effects: &mut Vec<Effect>) {
        if self.state != GroupState::PreparingRebalance {
            self.prepare_rebalance(limits, now_ms, effects);
        }
        self.try_complete_join(now_ms, effects);
    }

    fn try_complete_join(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let gathering = matches!(self.join_phase, Some(JoinPhase::Until(_)));
        let all_joined = self
            .members
            .values()
            .all(|member| member.awaiting_join.is_some())
            && self.pending.is_empty();
        if gathering && all_joined {
            self.complete_join(now_ms, effects);
        } else if self.state == GroupState::PreparingRebalance
            && self.members.is_empty()
            && self.pending.is_empty()
        {
            // Everyone left during the first delay.
            self.complete_join(now_ms, effects);
        }
    }

    /// Ends the join phase: who has not come is out (static members excepted), the next generation
    /// begins.
    fn complete_join(&mut self, now_ms: i64, effects: &mut Vec<Effect>) {
        let late: Vec<Str> = self
            .members
            .iter()
            .filter(|(_, member)| member.awaiting_join.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            self.remove_member(&id, effects);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members that have not come back: wait for them until their sessions end.
            self.join_phase = Some(JoinPhase::Until(now_ms + self.rebalance_timeout_ms()));
            return;
        }
        self.join_phase = None;
        self.generation = self.generation.wrapping_add(1).max(0);
        if self.members.is_empty() {
            self.protocol = None;
            self.leader = None;
            self.enter(GroupState::Empty, now_ms);
            effects.push(Effect::Persist);
            return;
        }
        self.protocol = self.select_protocol();
        self.enter(GroupState::CompletingRebalance, now_ms);
        self.sync_deadline_ms = Some(now_ms + self.rebalance_timeout_ms());
        let ids: Vec<Str> = self.members.keys().cloned().collect();
        for id in ids {
            let reply = self.join_reply(&id);
            self.answer_join(&id, reply, now_ms, effects);
            self.unsynced.insert(id);
        }
    }

    /// Makes sure the leader is a member that has just joined. False when nobody has.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |id: &Str| {
            self.members
                .get(id)
                .is_some_and(|member| member.awaiting_join.is_some())
        };
        if self.leader.as_ref().is_some_and(joined) {
            return true;
        }
        let elected = self
            .members
            .iter()
            .find(|(_, member)| member.awaiting_join.is_some())
            .map(|(id, _)| id.clone());
        let found = elected.is_some();
        if found {
            self.leader = elected;
        }
        found
    }

    /// The protocol every member supports with the most votes; a member votes for the first such
    /// protocol of its list.
    fn select_protocol(&self) -> Option<Str> {
        let leader = self
            .leader
            .as_ref()
            .and_then(|id| self.members.get(id))
            .or_else(|| self.members.values().next())?;
        let common = self.common_protocols();
        let mut votes: HashMap<&Str, usize> = HashMap::new();
        for member in self.members.values() {
            let names = member.protocols.iter().map(|(name, _)| name);
            if let Some(first) = names.into_iter().find(|name| common.contains(*name)) {
                *votes.entry(first).or_default() += 1;
            }
        }
        // Ties go to the leader's order: the first maximum.
        leader
            .protocols
            .iter()
            .map(|(name, _)| name)
            .filter(|name| common.contains(name))
            .rev()
            .max_by_key(|name| votes.get(name).copied().unwrap_or(0))
            .cloned()
    }

    /// The protocols every member supports. One walk over all of them.
    fn common_protocols(&self) -> HashSet<&Str> {
        // Name → how many members, one after the other from the first on, support it.
        let mut supported: HashMap<&Str, usize> = HashMap::new();
        for (index, member) in self.members.values().enumerate() {
            for (name, _) in &member.protocols {
                let by = supported.entry(name).or_default();
                // Named twice by one member, it counts once; missed by one before, it is out.
                *by += usize::from(*by == index);
            }
        }
        let all = self.members.len();
        let names = supported.into_iter().filter(|(_, by)| *by == all);
        names.map(|(name, _)| name).collect()
    }

    /// The answer of a completed join phase for one member.
    fn join_reply(&self, member_id: &Str) -> JoinReply {
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == *member_id {
            self.member_list()
        } else {
            Vec::new()
        };
        JoinReply {
            error: ErrorCode::NONE,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            skip_assignment: false,
            member_id: member_id.clone(),
            members,
        }
    }

    fn member_list(&self) -> Vec<(Str, Option<Str>, Bytes)> {
        let protocol = self.protocol.clone().unwrap_or_default();
        self.members
            .iter()
            .map(|(id, member)| {
                (
                    id.clone(),
                    member.instance_id.clone(),
                    member.metadata(&protocol),
                )
            })
            .collect()
    }

    fn answer_join(
        &mut self,
        member_id: &Str,
        reply: JoinReply,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(member) = self.members.get_mut(member_id) else {
            return;
        };
        if let Some(token) = member.awaiting_join.take() {
            member.is_new = false;
            member.deadline_ms = now_ms + i64::from(member.session_timeout_ms);
            effects.push(Effect::Join(token, reply));
        }
    }

    fn answer_syncs(&mut self, error: ErrorCode, now_ms: i64, effects: &mut Vec<Effect>) {
        for member in self.members.values_mut() {
            if let Some(token) = member.awaiting_sync.take() {
                member.deadline_ms = now_ms + i64::from(member.session_timeout_ms);
                let reply = if error.is_none() {
                    SyncReply {
                        error,
                        protocol_type: self.protocol_type.clone(),
                        protocol: self.protocol.clone(),
                        assignment: member.assignment.clone(),
                    }
                } else {
                    SyncReply::error(error)
                };
                effects.push(Effect::Sync(token, reply));
            }
        }
    }

    /// Takes a member out; whatever of it waits is told that it is unknown.
    fn remove_member(&mut self, member_id: &Str, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.remove(member_id) else {
            return;
        };
        if let Some(instance) = &member.instance_id
            && self.static_members.get(instance) == Some(member_id)
        {
            self.static_members.remove(instance);
        }
        self.unsynced.remove(member_id);
        if let Some(token) = member.awaiting_join {
            effects.push(Effect::Join(
                token,
                JoinReply::error(ErrorCode::UNKNOWN_MEMBER_ID, member_id),
            ));
        }
        if let Some(token) = member.awaiting_sync {
            effects.push(Effect::Sync(
                token,
                SyncReply::error(ErrorCode::UNKNOWN_MEMBER_ID),
            ));
        }
        if self.leader.as_ref() == Some(member_id) {
            self.leader = self
                .members
                .iter()
                .find(|(_, m)| m.awaiting_join.is_some())
                .or_else(|| self.members.iter().next())
                .map(|(id, _)| id.clone());
        }
    }
}
