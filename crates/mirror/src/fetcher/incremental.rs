//! The client's side of fetch sessions (KIP-227). Pure: what to put into the next Fetch so that the source's view equals ours.
//!
//! Without sessions (source older than 1.1, or its cache is full) every Fetch names every partition.

use std::collections::{BTreeMap, BTreeSet};

/// A partition as Fetch asks for it, apart from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Leader epoch at the source as we know it, −1 = unknown.
    pub current_leader_epoch: i32,
    /// Our log end.
    pub fetch_offset: i64,
    /// Epoch of our last record, −1 = none.
    pub last_fetched_epoch: i32,
    /// Most bytes.
    pub bytes_max: i32,
}

/// What the next Fetch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Session id, 0 = none. With epoch 0 it names a session to be ended.
    pub session_id: i32,
    /// Session epoch, −1 = no session wanted, 0 = a new one.
    pub session_epoch: i32,
    /// Partitions to name, by index.
    pub named: Vec<(usize, Ask)>,
    /// Partitions the session shall forget, by index of the table the session was made with.
    pub forgotten: Vec<usize>,
}

/// A session with one source broker. Partitions are indices into the fetcher's table; a new table needs a [`FetchSession::reset`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchSession {
    id: i32,
    /// Epoch of the next request in the session.
    epoch: i32,
    known: BTreeMap<usize, Ask>,
    turn: usize,
    /// A session that was given up but may still take room at the source; the next full Fetch ends it.
    stale_id: i32,
}

impl FetchSession {
    /// Forgets the session; the next Fetch names everything and asks for a new one.
    pub fn reset(&mut self) {
        let stale_id = if self.id != 0 { self.id } else { self.stale_id };
        *self = FetchSession {
            turn: self.turn,
            stale_id,
            ..FetchSession::default()
        };
    }

    /// As [`FetchSession::reset`], when the source does not know the session any more.
    pub fn lost(&mut self) {
        *self = FetchSession {
            turn: self.turn,
            ..FetchSession::default()
        };
    }

    /// The next Fetch for exactly these partitions. `sessions` = the negotiated version has them.
    pub fn plan(&mut self, asks: &[(usize, Ask)], sessions: bool) -> Plan {
        if !sessions || self.id == 0 {
            self.known = asks.iter().copied().collect();
            self.turn = self.turn.wrapping_add(1);
            let mut named = asks.to_vec();
            // A source fills an answer in the order asked, so everybody comes first once.
            if !named.is_empty() {
                let by = self.turn % named.len();
                named.rotate_left(by);
            }
            let session_epoch = if sessions { 0 } else { -1 };
            let session_id = std::mem::take(&mut self.stale_id);
            return Plan {
                session_id,
                session_epoch,
                named,
                forgotten: Vec::new(),
            };
        }
        let wanted: BTreeSet<usize> = asks.iter().map(|&(index, _)| index).collect();
        let forgotten: Vec<usize> = self
            .known
            .keys()
            .filter(|index| !wanted.contains(index))
            .copied()
            .collect();
        let named: Vec<(usize, Ask)> = asks
            .iter()
            .filter(|(index, ask)| self.known.get(index) != Some(ask))
            .copied()
            .collect();
        for index in &forgotten {
            self.known.remove(index);
        }
        self.known.extend(named.iter().copied());
        Plan {
            session_id: self.id,
            session_epoch: self.epoch,
            named,
            forgotten,
        }
    }

    /// Takes the session id of a good answer.
    pub fn answered(&mut self, session_id: i32) {
        if session_id == 0 || (self.id != 0 && session_id != self.id) {
            self.id = 0;
            self.epoch = 0;
        } else if self.id == 0 {
            self.id = session_id;
            self.epoch = 1;
        } else {
            self.epoch = if self.epoch == i32::MAX {
                1
            } else {
                self.epoch + 1
            };
        }
    }

    /// The partition must be named again: the source does not keep our view of it after an error.
    pub fn name_again(&mut self, index: usize) {
        if let Some(ask) = self.known.get_mut(&index) {
            ask.fetch_offset = -1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(offset: i64) -> Ask {
        Ask {
            current_leader_epoch: 0,
            fetch_offset: offset,
            last_fetched_epoch: -1,
            bytes_max: 100,
        }
    }

    #[test]
    fn only_what_changed_is_named_again() {
        let mut session = FetchSession::default();
        let all = [(0, ask(0)), (1, ask(0)), (2, ask(0))];
        let first = session.plan(&all, true);
        assert_eq!(
            (first.session_id, first.session_epoch, first.named.len()),
            (0, 0, 3)
        );
        session.answered(77);
        let second = session.plan(&[(0, ask(5)), (1, ask(0)), (2, ask(0))], true);
        assert_eq!((second.session_id, second.session_epoch), (77, 1));
        assert_eq!(second.named, [(0, ask(5))]);
        session.answered(77);
        let third = session.plan(&[(0, ask(5)), (2, ask(0))], true);
        assert_eq!(
            (third.session_epoch, third.forgotten, third.named.len()),
            (2, vec![1], 0)
        );
        session.answered(77);
        let fourth = session.plan(&[(0, ask(5)), (1, ask(0)), (2, ask(0))], true);
        assert_eq!(fourth.named, [(1, ask(0))]);
    }

    #[test]
    fn a_source_without_sessions_gets_everything_in_turning_order() {
        let mut session = FetchSession::default();
        let all = [(0, ask(0)), (1, ask(0))];
        let (a, b) = (session.plan(&all, false), session.plan(&all, false));
        assert_eq!((a.session_epoch, a.named.len()), (-1, 2));
        assert_ne!(a.named[0], b.named[0]);
    }

    #[test]
    fn a_lost_session_begins_anew_with_everything() {
        let mut session = FetchSession::default();
        session.plan(&[(0, ask(0))], true);
        session.answered(5);
        session.reset();
        let plan = session.plan(&[(0, ask(0))], true);
        assert_eq!(
            (plan.session_id, plan.session_epoch, plan.named.len()),
            (5, 0, 1),
            "the old one is ended"
        );
        session.lost();
        let plan = session.plan(&[(0, ask(0))], true);
        assert_eq!(
            (plan.session_id, plan.session_epoch, plan.named.len()),
            (0, 0, 1)
        );
        session.answered(0);
        assert_eq!(
            session.plan(&[(0, ask(0))], true).named.len(),
            1,
            "no session was granted"
        );
    }
}
