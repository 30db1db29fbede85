//! Deadlines of a group: sessions, announced members, join phase, missing syncs.

use tarn_wire::Str;

use super::{ClassicGroup, Effect, JoinPhase, Limits};

impl ClassicGroup {
    /// When [`ClassicGroup::expire`] has something to do next. A heartbeat only moves it later.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        let members = self.members.values().filter_map(super::Member::deadline);
        let pending = self.pending.values().copied();
        let join = self.join_phase.map(|phase| match phase {
            JoinPhase::Initial { deadline_ms, .. } | JoinPhase::Until(deadline_ms) => deadline_ms,
        });
        members
            .chain(pending)
            .chain(join)
            .chain(self.sync_deadline_ms)
            .min()
    }

    /// Acts on every deadline that has passed.
    pub(crate) fn expire(&mut self, limits: &Limits, now_ms: i64) -> Vec<Effect> {
        let mut effects = Vec::new();
        let silent: Vec<Str> = self
            .members
            .iter()
            .filter(|(_, member)| member.deadline().is_some_and(|at| at <= now_ms))
            .map(|(id, _)| id.clone())
            .collect();
        let before = self.pending.len();
        self.pending.retain(|_, deadline_ms| *deadline_ms > now_ms);
        let gone = !silent.is_empty() || self.pending.len() != before;
        for id in &silent {
            self.remove_member(id, &mut effects);
        }
        if gone {
            self.after_removal(limits, now_ms, &mut effects);
        }
        if self.sync_deadline_ms.is_some_and(|at| at <= now_ms) {
            self.sync_deadline_ms = None;
            let late = std::mem::take(&mut self.unsynced);
            for id in &late {
                self.remove_member(id, &mut effects);
            }
            if !late.is_empty() {
                self.after_removal(limits, now_ms, &mut effects);
            }
        }
        self.expire_join_phase(limits, now_ms, &mut effects);
        effects
    }

    fn expire_join_phase(&mut self, limits: &Limits, now_ms: i64, effects: &mut Vec<Effect>) {
        match self.join_phase {
            Some(JoinPhase::Initial {
                deadline_ms,
                remaining_ms,
                member_added,
            }) if deadline_ms <= now_ms => {
                if member_added && remaining_ms > 0 {
                    let delay_ms = i64::from(limits.initial_rebalance_delay_ms).min(remaining_ms);
                    self.join_phase = Some(JoinPhase::Initial {
                        deadline_ms: now_ms + delay_ms,
                        remaining_ms: remaining_ms - delay_ms,
                        member_added: false,
                    });
                } else {
                    self.complete_join(now_ms, effects);
                }
            }
            Some(JoinPhase::Until(deadline_ms)) if deadline_ms <= now_ms => {
                self.complete_join(now_ms, effects)
            }
            _ => {}
        }
    }
}
