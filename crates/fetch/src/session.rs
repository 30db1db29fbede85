//! The client's side of fetch sessions (KIP-227). Pure: what to put into the next Fetch so that the
//! source's view equals ours.
//!
//! Its work per Fetch grows with what changed, not with what is in the session. Without sessions
//! (source older than 1.1, or its cache is full) every Fetch names every partition.

/// A partition as Fetch asks for it, apart from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Leader epoch at the source as we know it, −1 = unknown.
    pub current_leader_epoch: i32,
    /// Our log end.
    pub fetch_offset: i64,
    /// Epoch of our last record, −1 = none.
    pub last_fetched_epoch: i32,
    /// Log start of a replica, −1 = a consumer.
    pub log_start_offset: i64,
    /// Most bytes.
    pub bytes_max: i32,
}

/// What shall be asked for, by index of the fetcher's assignment, and where that may differ from
/// what the source was told.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    asks: Vec<Option<Ask>>,
    some: usize,
    changed: Vec<usize>,
}

impl Wants {
    /// Nothing wanted yet of `partitions` partitions.
    pub fn new(partitions: usize) -> Wants {
        Wants {
            asks: vec![None; partitions],
            some: 0,
            changed: Vec::new(),
        }
    }

    /// Wants a partition like this; `None` = not now.
    pub fn set(&mut self, index: usize, ask: Option<Ask>) {
        let Some(known) = self.asks.get_mut(index) else {
            return;
        };
        if *known == ask {
            return;
        }
        self.some = self.some + usize::from(ask.is_some()) - usize::from(known.is_some());
        *known = ask;
        self.changed.push(index);
    }

    /// Nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.some == 0
    }
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

/// A session with one source broker. Partitions are indices into the fetcher's assignment; a new
/// assignment needs a [`FetchSession::reset`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchSession {
    id: i32,
    /// Epoch of the next request in the session.
    epoch: i32,
    /// What the source was told, by index.
    known: Vec<Option<Ask>>,
    turn: usize,
    /// A session that was given up but may still take room at the source; the next full Fetch ends
    /// it.
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

    /// The next Fetch for exactly what is wanted. `sessions` = the negotiated version has them.
    pub fn plan(&mut self, wants: &mut Wants, sessions: bool) -> Plan {
        if !sessions || self.id == 0 {
            return self.plan_all(wants, sessions);
        }
        let (mut named, mut forgotten) = (Vec::new(), Vec::new());
        for index in wants.changed.drain(..) {
            let (want, known) = (wants.asks[index], &mut self.known[index]);
            if want == *known {
                continue;
            }
            match want {
                Some(ask) => named.push((index, ask)),
                None => forgotten.push(index),
            }
            *known = want;
        }
        Plan {
            session_id: self.id,
            session_epoch: self.epoch,
            named,
            forgotten,
        }
    }

    fn plan_all(&mut self, wants: &mut Wants, sessions: bool) -> Plan {
        wants.changed.clear();
        self.known.clone_from(&wants.asks);
        self.turn = self.turn.wrapping_add(1);
        let all = wants.asks.iter().enumerate();
        let mut named: Vec<(usize, Ask)> = all.filter_map(|(i, ask)| Some((i, (*ask)?))).collect();
        // A source fills an answer in the order asked, so everybody comes first once.
        if !named.is_empty() {
            let by = self.turn % named.len();
            named.rotate_left(by);
        }
        Plan {
            session_id: std::mem::take(&mut self.stale_id),
            session_epoch: if sessions { 0 } else { -1 },
            named,
            forgotten: Vec::new(),
        }
    }

    /// How the partition was asked for, in this Fetch or an earlier one of the session; `None` = it
    /// was not.
    pub fn asked(&self, index: usize) -> Option<Ask> {
        self.known.get(index).copied().flatten()
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
    pub fn name_again(&mut self, index: usize, wants: &mut Wants) {
        if let Some(Some(ask)) = self.known.get_mut(index) {
            ask.fetch_offset = -1;
            wants.changed.push(index);
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
            log_start_offset: -1,
            bytes_max: 100,
        }
    }

    fn wants(asks: &[Option<Ask>]) -> Wants {
        let mut wants = Wants::new(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            wants.set(index, *ask);
        }
        wants
    }

    #[test]
    fn only_what_changed_is_named_again() {
        let mut session = FetchSession::default();
        let mut wants = wants(&[Some(ask(0)); 3]);
        let first = session.plan(&mut wants, true);
        assert_eq!(
            (first.session_id, first.session_epoch, first.named.len()),
            (0, 0, 3)
        );
        session.answered(77);
        wants.set(0, Some(ask(5)));
        let second = session.plan(&mut wants, true);
        assert_eq!((second.session_id, second.session_epoch), (77, 1));
        assert_eq!(second.named, [(0, ask(5))]);
        session.answered(77);
        wants.set(1, None);
        let third = session.plan(&mut wants, true);
        assert_eq!(
            (third.session_epoch, third.forgotten, third.named.len()),
            (2, vec![1], 0)
        );
        assert_eq!((session.asked(0), session.asked(1)), (Some(ask(5)), None));
        session.answered(77);
        wants.set(1, Some(ask(0)));
        let fourth = session.plan(&mut wants, true);
        assert_eq!(fourth.named, [(1, ask(0))]);
    }

    #[test]
    fn a_change_that_was_taken_back_is_not_told() {
        let mut session = FetchSession::default();
        let mut wants = wants(&[Some(ask(0)), Some(ask(0))]);
        session.plan(&mut wants, true);
        session.answered(5);
        wants.set(0, None);
        wants.set(0, Some(ask(0)));
        let plan = session.plan(&mut wants, true);
        assert_eq!((plan.named.len(), plan.forgotten.len()), (0, 0));
    }

    #[test]
    fn after_an_error_a_partition_is_named_again_although_nothing_of_it_changed() {
        let mut session = FetchSession::default();
        let mut wants = wants(&[Some(ask(0)), Some(ask(0))]);
        session.plan(&mut wants, true);
        session.answered(5);
        session.name_again(1, &mut wants);
        assert_eq!(session.plan(&mut wants, true).named, [(1, ask(0))]);
        session.answered(5);
        assert_eq!(session.plan(&mut wants, true).named, []);
    }

    #[test]
    fn what_is_wanted_is_counted() {
        let mut wants = wants(&[Some(ask(0)), None]);
        assert!(!wants.is_empty());
        wants.set(0, None);
        wants.set(9, Some(ask(0)));
        assert!(wants.is_empty(), "an index outside the table is nothing");
    }

    #[test]
    fn a_source_without_sessions_gets_everything_in_turning_order() {
        let mut session = FetchSession::default();
        let mut wants = wants(&[Some(ask(0)), Some(ask(0))]);
        let (a, b) = (
            session.plan(&mut wants, false),
            session.plan(&mut wants, false),
        );
        assert_eq!((a.session_epoch, a.named.len()), (-1, 2));
        assert_ne!(a.named[0], b.named[0]);
    }

    #[test]
    fn a_lost_session_begins_anew_with_everything() {
        let mut session = FetchSession::default();
        let mut wants = wants(&[Some(ask(0))]);
        session.plan(&mut wants, true);
        session.answered(5);
        session.reset();
        let plan = session.plan(&mut wants, true);
        assert_eq!(
            (plan.session_id, plan.session_epoch, plan.named.len()),
            (5, 0, 1),
            "the old one is ended"
        );
        session.lost();
        let plan = session.plan(&mut wants, true);
        assert_eq!(
            (plan.session_id, plan.session_epoch, plan.named.len()),
            (0, 0, 1)
        );
        session.answered(0);
        assert_eq!(
            session.plan(&mut wants, true).named.len(),
            1,
            "no session was granted"
        );
    }
}
