//! SyncGroup and Heartbeat.

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_wire::{ErrorCode, Str};

use super::{ClassicGroup, Effect, GroupState, Limits, SyncReply, Token, element_bytes};

/// A SyncGroup, as far as the protocol cares.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncRequest {
    pub(crate) member_id: Str,
    pub(crate) instance_id: Option<Str>,
    pub(crate) generation: i32,
    /// v5+; `None` is not checked.
    pub(crate) protocol_type: Option<Str>,
    /// v5+; `None` is not checked.
    pub(crate) protocol: Option<Str>,
    /// Member id → assignment; from the leader only.
    pub(crate) assignments: Vec<(Str, Bytes)>,
}

impl ClassicGroup {
    /// SyncGroup. The token is answered now or when the leader's assignment arrives.
    pub(crate) fn sync(
        &mut self,
        request: SyncRequest,
        token: Token,
        limits: &Limits,
        now_ms: i64,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Err(error) = self.check_sync(&request, limits) {
            effects.push(Effect::Sync(token, SyncReply::error(error)));
            return effects;
        }
        self.unsynced.remove(&request.member_id);
        if self.unsynced.is_empty() {
            self.sync_deadline_ms = None;
        }
        if self.state == GroupState::Stable {
            self.touch(&request.member_id, now_ms);
            let assignment = self
                .members
                .get(&request.member_id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default();
            let (protocol_type, protocol) = (self.protocol_type.clone(), self.protocol.clone());
            effects.push(Effect::Sync(
                token,
                SyncReply {
                    error: ErrorCode::NONE,
                    protocol_type,
                    protocol,
                    assignment,
                },
            ));
            return effects;
        }
        if let Some(member) = self.members.get_mut(&request.member_id)
            && let Some(older) = member.awaiting_sync.replace(token)
        {
            effects.push(Effect::Sync(
                older,
                SyncReply::error(ErrorCode::REBALANCE_IN_PROGRESS),
            ));
        }
        if self.leader.as_ref() == Some(&request.member_id) {
            let mut assignments: BTreeMap<Str, Bytes> = request.assignments.into_iter().collect();
            for (id, member) in &mut self.members {
                member.assignment = assignments.remove(id).unwrap_or_default();
            }
            self.enter(GroupState::Stable, now_ms);
            effects.push(Effect::Persist);
            self.answer_syncs(ErrorCode::NONE, now_ms, &mut effects);
        }
        effects
    }

    fn check_sync(&self, request: &SyncRequest, limits: &Limits) -> Result<(), ErrorCode> {
        self.check_member(&request.member_id, request.instance_id.as_ref())?;
        if request.generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let differs = |given: &Option<Str>, ours: &Option<Str>| given.is_some() && given != ours;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if element_bytes(&request.assignments) > limits.group_bytes_max {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        match self.state {
            GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        member_id: &Str,
        instance_id: Option<&Str>,
        generation: i32,
        now_ms: i64,
    ) -> ErrorCode {
        if let Err(error) = self.check_member(member_id, instance_id) {
            return error;
        }
        if generation != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        self.touch(member_id, now_ms);
        match self.state {
            GroupState::Empty => ErrorCode::UNKNOWN_MEMBER_ID,
            GroupState::PreparingRebalance => ErrorCode::REBALANCE_IN_PROGRESS,
            GroupState::CompletingRebalance | GroupState::Stable => ErrorCode::NONE,
        }
    }
}
