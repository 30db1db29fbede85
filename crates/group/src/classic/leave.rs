//! LeaveGroup.

use tarn_wire::{ErrorCode, Str};

use super::{ClassicGroup, Effect, Limits};

/// One member of a LeaveGroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaveRequest {
    /// May be empty when `instance_id` names a static member (an operator removes it).
    pub(crate) member_id: Str,
    pub(crate) instance_id: Option<Str>,
}

impl ClassicGroup {
    /// LeaveGroup of several members; the codes are in the order of `leaving`.
    pub(crate) fn leave(
        &mut self,
        leaving: &[LeaveRequest],
        limits: &Limits,
        now_ms: i64,
    ) -> (Vec<ErrorCode>, Vec<Effect>) {
        let mut effects = Vec::new();
        let mut left = false;
        let codes = leaving
            .iter()
            .map(|request| match self.leaver(request) {
                Ok(id) => {
                    left = true;
                    if self.pending.remove(&id).is_none() {
                        self.remove_member(&id, &mut effects);
                    }
                    ErrorCode::NONE
                }
                Err(error) => error,
            })
            .collect();
        if left {
            self.after_removal(limits, now_ms, &mut effects);
        }
        (codes, effects)
    }

    fn leaver(&self, request: &LeaveRequest) -> Result<Str, ErrorCode> {
        let id = match &request.instance_id {
            Some(instance) => {
                let current = self
                    .static_members
                    .get(instance)
                    .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                if !request.member_id.is_empty() && request.member_id != *current {
                    return Err(ErrorCode::FENCED_INSTANCE_ID);
                }
                current
            }
            None => &request.member_id,
        };
        if self.members.contains_key(id) || self.pending.contains_key(id) {
            Ok(id.clone())
        } else {
            Err(ErrorCode::UNKNOWN_MEMBER_ID)
        }
    }

    /// Members (or announced ones) are gone: gather the rest again, or let the join phase that
    /// waited for them end.
    pub(super) fn after_removal(
        &mut self,
        limits: &Limits,
        now_ms: i64,
        effects: &mut Vec<Effect>,
    ) {
        use super::GroupState::{CompletingRebalance, Empty, PreparingRebalance, Stable};
        match self.state {
            Stable | CompletingRebalance => self.rebalance(limits, now_ms, effects),
            PreparingRebalance => self.try_complete_join(now_ms, effects),
            Empty => {}
        }
    }
}
