//! JoinGroup.

use bytes::Bytes;
use tarn_wire::{ErrorCode, Str};

use super::{
    ClassicGroup, Effect, GroupState, JoinPhase, JoinReply, Limits, Member, NEW_MEMBER_WAIT_MS,
    SyncReply, Token, element_bytes,
};

/// A JoinGroup, as far as the protocol cares.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinRequest {
    /// Empty for a member that has none yet.
    pub(crate) member_id: Str,
    /// The id such a member gets.
    pub(crate) fresh_member_id: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocol_type: Str,
    pub(crate) protocols: Vec<(Str, Bytes)>,
    /// The client can be sent back with an id first (v4+).
    pub(crate) requires_known_id: bool,
    /// The client understands `skip_assignment` (v9+).
    pub(crate) supports_skip_assignment: bool,
}

impl ClassicGroup {
    /// JoinGroup. The token is answered now or when the join phase ends.
    pub(crate) fn join(
        &mut self,
        request: JoinRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut request = request;
        request.rebalance_timeout_ms = request
            .rebalance_timeout_ms
            .clamp(0, limits.rebalance_timeout_ms_max);
        let refusal = match self.check_join(&request, limits) {
            Err(error) => Some(error),
            Ok(()) if request.member_id.is_empty() => self
                .join_without_id(&request, token, limits, now_ms, &mut effects)
                .err(),
            Ok(()) => self
                .join_with_id(&request, token, limits, now_ms, &mut effects)
                .err(),
        };
        if let Some(error) = refusal {
            let member_id = if error == ErrorCode::MEMBER_ID_REQUIRED {
                &request.fresh_member_id
            } else {
                &request.member_id
            };
            effects.push(Effect::Join(token, JoinReply::error(error, member_id)));
        }
        effects
    }

    fn check_join(&self, request: &JoinRequest, limits: &Limits) -> Result<(), ErrorCode> {
        if request.session_timeout_ms < limits.session_timeout_ms_min
            || request.session_timeout_ms > limits.session_timeout_ms_max
        {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        check_sizes(request, limits)?;
        let known = self.members.contains_key(&request.member_id)
            || self.pending.contains_key(&request.member_id);
        let is_static_known = request
            .instance_id
            .as_ref()
            .is_some_and(|instance| self.static_members.contains_key(instance));
        let is_new = !known && !is_static_known;
        if is_new && self.members.len() + self.pending.len() >= limits.members_max {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        // A member that joins again may have grown: what it had is counted too, which errs on the
        // safe side.
        if self.bytes() + element_bytes(&request.protocols) > limits.group_bytes_max {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        if !self.accepts_protocols(request) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        Ok(())
    }

    /// Whether the group can go on with a member that supports these protocols.
    fn accepts_protocols(&self, request: &JoinRequest) -> bool {
        if request.protocol_type.is_empty() || request.protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        if self.protocol_type.as_ref() != Some(&request.protocol_type) {
            return false;
        }
        let common = self.common_protocols();
        request
            .protocols
            .iter()
            .any(|(name, _)| common.contains(name))
    }

    fn join_without_id(
        &mut self,
        request: &JoinRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance) = &request.instance_id {
            if let Some(old_id) = self.static_members.get(instance).cloned() {
                self.replace_static(&old_id, request, token, limits, now_ms, effects);
            } else {
                self.add_member(
                    request,
                    &request.fresh_member_id,
                    token,
                    limits,
                    now_ms,
                    effects,
                );
            }
            return Ok(());
        }
        if request.requires_known_id {
            self.pending.insert(
                request.fresh_member_id.clone(),
                now_ms + i64::from(request.session_timeout_ms),
            );
            return Err(ErrorCode::MEMBER_ID_REQUIRED);
        }
        self.add_member(
            request,
            &request.fresh_member_id,
            token,
            limits,
            now_ms,
            effects,
        );
        Ok(())
    }

    fn join_with_id(
        &mut self,
        request: &JoinRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ErrorCode> {
        let id = &request.member_id;
        if self.pending.contains_key(id) {
            if request.instance_id.is_some() {
                return Err(ErrorCode::UNKNOWN_MEMBER_ID);
            }
            self.add_member(request, id, token, limits, now_ms, effects);
            return Ok(());
        }
        self.check_member(id, request.instance_id.as_ref())?;
        match self.state {
            GroupState::PreparingRebalance => self.rejoin(request, token, limits, now_ms, effects),
            GroupState::CompletingRebalance if self.is_unchanged(request) => {
                // The answer to its join got lost: say it again.
                let reply = self.join_reply(id);
                self.touch(id, now_ms);
                effects.push(Effect::Join(token, reply));
            }
            GroupState::Stable
                if self.leader.as_ref() != Some(id) && self.is_unchanged(request) =>
            {
                let reply = self.join_reply(id);
                self.touch(id, now_ms);
                effects.push(Effect::Join(token, reply));
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.rejoin(request, token, limits, now_ms, effects)
            }
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
        }
        Ok(())
    }

    fn is_unchanged(&self, request: &JoinRequest) -> bool {
        self.members
            .get(&request.member_id)
            .is_some_and(|member| member.protocols == request.protocols)
    }

    fn add_member(
        &mut self,
        request: &JoinRequest,
        id: &Str,
        token: Token,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        self.pending.remove(id);
        if let Some(instance) = &request.instance_id {
            self.static_members.insert(instance.clone(), id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.members.insert(
            id.clone(),
            Member {
                instance_id: request.instance_id.clone(),
                client_id: request.client_id.clone(),
                client_host: request.client_host.clone(),
                rebalance_timeout_ms: request.rebalance_timeout_ms,
                session_timeout_ms: request.session_timeout_ms,
                protocols: request.protocols.clone(),
                assignment: Bytes::new(),
                awaiting_join: Some(token),
                awaiting_sync: None,
                is_new: true,
                deadline_ms: now_ms + NEW_MEMBER_WAIT_MS,
            },
        );
        if let Some(JoinPhase::Initial { member_added, .. }) = &mut self.join_phase {
            *member_added = true;
        }
        self.rebalance(limits, now_ms, effects);
    }

    /// A known member joins (again): its settings are taken over, and the group is gathered.
    fn rejoin(
        &mut self,
        request: &JoinRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(member) = self.members.get_mut(&request.member_id) {
            take_over(member, request);
            if let Some(older) = member.awaiting_join.replace(token) {
                effects.push(Effect::Join(
                    older,
                    JoinReply::error(ErrorCode::UNKNOWN_MEMBER_ID, &request.member_id),
                ));
            }
        }
        self.rebalance(limits, now_ms, effects);
    }

    /// A static member came back without its member id (a restart): it gets a new one, the older
    /// life is fenced. While the group is stable and its protocol stays, nobody else notices.
    fn replace_static(
        &mut self,
        old_id: &Str,
        request: &JoinRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        let new_id = &request.fresh_member_id;
        let Some(mut member) = self.members.remove(old_id) else {
            return;
        };
        if let Some(older) = member.awaiting_join.take() {
            effects.push(Effect::Join(
                older,
                JoinReply::error(ErrorCode::FENCED_INSTANCE_ID, old_id),
            ));
        }
        if let Some(older) = member.awaiting_sync.take() {
            effects.push(Effect::Sync(
                older,
                SyncReply::error(ErrorCode::FENCED_INSTANCE_ID),
            ));
        }
        let was_leader = self.leader.as_ref() == Some(old_id);
        take_over(&mut member, request);
        member.is_new = false;
        member.deadline_ms = now_ms + i64::from(member.session_timeout_ms);
        self.members.insert(new_id.clone(), member);
        if let Some(instance) = &request.instance_id {
            self.static_members.insert(instance.clone(), new_id.clone());
        }
        if was_leader {
            self.leader = Some(new_id.clone());
        }
        if self.unsynced.remove(old_id) {
            self.unsynced.insert(new_id.clone());
        }
        if self.state == GroupState::Stable && self.select_protocol() == self.protocol {
            let mut reply = self.join_reply(new_id);
            if was_leader && request.supports_skip_assignment {
                reply.skip_assignment = true;
            } else if was_leader {
                // An older client would compute an assignment as leader; naming its former id makes
                // it a follower.
                reply.leader = old_id.clone();
                reply.members.clear();
            }
            effects.push(Effect::Persist);
            effects.push(Effect::Join(token, reply));
            return;
        }
        if let Some(member) = self.members.get_mut(new_id) {
            member.awaiting_join = Some(token);
        }
        self.rebalance(limits, now_ms, effects);
    }
}

/// Refuses what the group's record has no room for, and lists no client sends.
fn check_sizes(request: &JoinRequest, limits: &Limits) -> Result<(), ErrorCode> {
    let names = request.protocols.iter().map(|(name, _)| name);
    let stored = [&request.client_id, &request.protocol_type]
        .into_iter()
        .chain(&request.instance_id)
        .chain(names);
    let fits = request.protocols.len() <= limits.protocols_max
        && stored
            .into_iter()
            .all(|text| text.len() <= limits.id_bytes_max);
    if fits {
        Ok(())
    } else {
        Err(ErrorCode::INVALID_REQUEST)
    }
}

fn take_over(member: &mut Member, request: &JoinRequest) {
    member.client_id = request.client_id.clone();
    member.client_host = request.client_host.clone();
    member.rebalance_timeout_ms = request.rebalance_timeout_ms;
    member.session_timeout_ms = request.session_timeout_ms;
    member.protocols = request.protocols.clone();
}
