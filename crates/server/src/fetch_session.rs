//! Incremental fetch sessions (KIP-227): which partitions a client follows, and what it was told
//! last. Pure; the clock comes in as `now_ms`.
//!
//! Not here: reading partitions (`tarn_replica`), the wire form (`handlers::fetch`). Public for the
//! regression gates (`tarn-gates`).

use std::collections::{BTreeMap, HashMap};

use tarn_wire::{ErrorCode, Str, Uuid};

/// How a session names topics; it never changes within a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicKey {
    /// Fetch versions below 13.
    Name(Str),
    /// Fetch 13 and above.
    Id(Uuid),
}

impl TopicKey {
    fn is_id(&self) -> bool {
        matches!(self, TopicKey::Id(_))
    }
}

/// A partition within a session.
pub type PartitionKey = (TopicKey, i32);

/// What the client wants of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Most bytes of this partition in one answer.
    pub max_bytes: i32,
    /// Leader epoch the client knows; −1 = none.
    pub current_leader_epoch: i32,
    /// Epoch of the last record the client has; −1 = none.
    pub last_fetched_epoch: i32,
}

/// What the client was told of one partition last; `None` fields force the next answer to name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
    /// High watermark.
    pub high_watermark: i64,
    /// Log start offset.
    pub log_start_offset: i64,
}

#[derive(Debug)]
struct Entry {
    key: PartitionKey,
    wanted: Wanted,
    told: Option<Told>,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    used_ms: i64,
    /// Partitions in the order in which they are read; those that gave data move to the end, so
    /// that none starves.
    order: BTreeMap<u64, Entry>,
    places: HashMap<PartitionKey, u64>,
    next_place: u64,
}

impl Session {
    fn put(&mut self, key: PartitionKey, wanted: Wanted) {
        match self
            .places
            .get(&key)
            .and_then(|place| self.order.get_mut(place))
        {
            Some(entry) => entry.wanted = wanted,
            None => {
                self.places.insert(key.clone(), self.next_place);
                self.order.insert(
                    self.next_place,
                    Entry {
                        key,
                        wanted,
                        told: None,
                    },
                );
                self.next_place += 1;
            }
        }
    }

    fn forget(&mut self, key: &PartitionKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    fn move_to_end(&mut self, key: &PartitionKey) {
        let Some(place) = self.places.get_mut(key) else {
            return;
        };
        if let Some(entry) = self.order.remove(place) {
            *place = self.next_place;
            self.order.insert(self.next_place, entry);
            self.next_place += 1;
        }
    }
}

/// A session idle for this long gives way to a new one when the cache is full (Kafka's figure).
const EVICTABLE_AFTER_MS: i64 = 120_000;

/// What to read for a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The session to answer with; 0 = none.
    pub session_id: i32,
    /// Whether unchanged partitions are left out of the answer.
    pub incremental: bool,
    /// Partitions in reading order.
    pub partitions: Vec<(PartitionKey, Wanted)>,
}

/// The session part of a request.
#[derive(Debug)]
pub struct Asked {
    /// Session of the request; 0 = none yet.
    pub session_id: i32,
    /// Its epoch: 0 makes a session, −1 ends it.
    pub session_epoch: i32,
    /// Whether topics are named by id.
    pub by_id: bool,
    /// Partitions that are new or changed.
    pub partitions: Vec<(PartitionKey, Wanted)>,
    /// Partitions that leave the session.
    pub forgotten: Vec<PartitionKey>,
}

/// Limits of the cache.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// `max.incremental.fetch.session.cache.slots`; with 0 there are no sessions.
    pub sessions: usize,
    /// `fetch.session.max.partitions`.
    pub partitions_per_session: usize,
    /// `fetch.sessions.max.partitions`: all sessions together.
    pub partitions: usize,
}

/// All sessions of a broker.
#[derive(Debug)]
pub struct SessionCache {
    sessions: HashMap<i32, Session>,
    /// Partitions of all sessions.
    partitions: usize,
    limits: SessionLimits,
}

const INITIAL_EPOCH: i32 = 0;
const FINAL_EPOCH: i32 = -1;

impl SessionCache {
    /// An empty cache.
    pub fn new(limits: SessionLimits) -> SessionCache {
        SessionCache {
            sessions: HashMap::new(),
            partitions: 0,
            limits,
        }
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.places.len();
        }
    }

    /// Decides what a request reads. `random` gives ids for new sessions. The error is the code of
    /// the whole answer.
    pub fn begin(
        &mut self,
        asked: Asked,
        now_ms: i64,
        mut random: impl FnMut() -> i32,
    ) -> Result<Plan, ErrorCode> {
        if asked.session_epoch == INITIAL_EPOCH || asked.session_epoch == FINAL_EPOCH {
            if asked.session_id != 0 {
                self.remove(asked.session_id);
            }
            let session_id = if asked.session_epoch == FINAL_EPOCH {
                0
            } else {
                self.create(&asked, now_ms, &mut random)
            };
            return Ok(Plan {
                session_id,
                incremental: false,
                partitions: asked.partitions,
            });
        }
        let session = self
            .sessions
            .get_mut(&asked.session_id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != asked.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != asked.by_id {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        let before = session.places.len();
        for key in &asked.forgotten {
            session.forget(key);
        }
        for (key, wanted) in asked.partitions {
            session.put(key, wanted);
        }
        session.epoch = next_epoch(session.epoch);
        session.used_ms = now_ms;
        let now = session.places.len();
        self.partitions = self.partitions - before + now;
        let grew_too_large =
            now > self.limits.partitions_per_session || self.partitions > self.limits.partitions;
        if now > before && grew_too_large {
            // The client begins anew with all it follows, and is then served without a session.
            self.remove(asked.session_id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        let Some(session) = self.sessions.get(&asked.session_id) else {
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        let partitions = session
            .order
            .values()
            .map(|entry| (entry.key.clone(), entry.wanted))
            .collect();
        Ok(Plan {
            session_id: asked.session_id,
            incremental: true,
            partitions,
        })
    }

    fn create(&mut self, asked: &Asked, now_ms: i64, random: &mut impl FnMut() -> i32) -> i32 {
        let wanted = asked.partitions.len();
        let too_large = wanted > self.limits.partitions_per_session;
        if wanted == 0 || too_large || !self.make_room(wanted, now_ms) {
            return 0;
        }
        let id = loop {
            let id = random() & i32::MAX;
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        debug_assert!(
            asked
                .partitions
                .iter()
                .all(|((topic, _), _)| topic.is_id() == asked.by_id)
        );
        let mut session = Session {
            epoch: 1,
            by_id: asked.by_id,
            used_ms: now_ms,
            order: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        };
        for ((topic, partition), wanted) in &asked.partitions {
            let topic = match topic {
                TopicKey::Name(name) => TopicKey::Name(name.detach()),
                TopicKey::Id(id) => TopicKey::Id(*id),
            };
            session.put((topic, *partition), *wanted);
        }
        self.partitions += session.places.len();
        self.sessions.insert(id, session);
        id
    }

    /// Lets idle sessions give way until one more of `wanted` partitions fits; false when those
    /// that are left are all in use.
    fn make_room(&mut self, wanted: usize, now_ms: i64) -> bool {
        while self.sessions.len() >= self.limits.sessions
            || self.partitions.saturating_add(wanted) > self.limits.partitions
        {
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, session)| session.used_ms)
                .map(|(id, session)| (*id, session.used_ms));
            match oldest {
                Some((id, used_ms)) if now_ms - used_ms >= EVICTABLE_AFTER_MS => self.remove(id),
                _ => return false,
            }
        }
        true
    }

    /// Whether an incremental answer names the partition; notes what it tells. `urgent` = error,
    /// divergence; `has_data` = records.
    pub fn tell(
        &mut self,
        session_id: i32,
        key: &PartitionKey,
        told: Told,
        urgent: bool,
        has_data: bool,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return true;
        };
        let Some(entry) = session
            .places
            .get(key)
            .and_then(|place| session.order.get_mut(place))
        else {
            return true;
        };
        let changed = urgent || has_data || entry.told != Some(told);
        // After an error the next good answer is news, whatever the offsets are.
        entry.told = if urgent { None } else { Some(told) };
        if has_data {
            session.move_to_end(key);
        }
        changed
    }

    /// Number of sessions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &'static str) -> PartitionKey {
        (TopicKey::Name(Str::from_static(name)), 0)
    }

    fn wanted(fetch_offset: i64) -> Wanted {
        Wanted {
            fetch_offset,
            max_bytes: 1,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
        }
    }

    fn ask(session_id: i32, session_epoch: i32, names: &[&'static str]) -> Asked {
        let partitions = names.iter().map(|name| (key(name), wanted(0))).collect();
        Asked {
            session_id,
            session_epoch,
            by_id: false,
            partitions,
            forgotten: Vec::new(),
        }
    }

    fn limits(sessions: usize) -> SessionLimits {
        SessionLimits {
            sessions,
            partitions_per_session: 3,
            partitions: 5,
        }
    }

    fn ids() -> impl FnMut() -> i32 {
        let mut next = 0;
        move || {
            next += 1;
            next
        }
    }

    #[test]
    fn a_session_reads_all_its_partitions_and_names_only_the_changed_ones() {
        let mut cache = SessionCache::new(limits(10));
        let full = cache.begin(ask(0, 0, &["a", "b"]), 0, ids()).unwrap();
        assert_eq!((full.session_id, full.incremental), (1, false));
        for name in ["a", "b"] {
            assert!(cache.tell(1, &key(name), Told::default(), false, false));
        }
        let next = cache.begin(ask(1, 1, &[]), 0, ids()).unwrap();
        assert_eq!((next.partitions.len(), next.incremental), (2, true));
        assert!(!cache.tell(1, &key("a"), Told::default(), false, false));
        assert!(cache.tell(
            1,
            &key("b"),
            Told {
                high_watermark: 1,
                log_start_offset: 0
            },
            false,
            false
        ));
        assert!(cache.tell(1, &key("a"), Told::default(), true, false));
        assert!(
            cache.tell(1, &key("a"), Told::default(), false, false),
            "after an error the next answer names it"
        );
    }

    #[test]
    fn partitions_with_data_go_to_the_end() {
        let mut cache = SessionCache::new(limits(10));
        cache.begin(ask(0, 0, &["a", "b"]), 0, ids()).unwrap();
        cache.tell(1, &key("a"), Told::default(), false, true);
        let next = cache.begin(ask(1, 1, &[]), 0, ids()).unwrap();
        assert_eq!(next.partitions[0].0, key("b"));
    }

    #[test]
    fn wrong_ids_epochs_and_naming_have_their_own_errors() {
        let mut cache = SessionCache::new(limits(10));
        cache.begin(ask(0, 0, &["a"]), 0, ids()).unwrap();
        assert_eq!(
            cache.begin(ask(9, 1, &[]), 0, ids()).unwrap_err(),
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND
        );
        assert_eq!(
            cache.begin(ask(1, 2, &[]), 0, ids()).unwrap_err(),
            ErrorCode::INVALID_FETCH_SESSION_EPOCH
        );
        let mut by_id = ask(1, 1, &[]);
        by_id.by_id = true;
        assert_eq!(
            cache.begin(by_id, 0, ids()).unwrap_err(),
            ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
        );
    }

    #[test]
    fn forgotten_partitions_leave_and_a_final_epoch_closes() {
        let mut cache = SessionCache::new(limits(10));
        cache.begin(ask(0, 0, &["a", "b"]), 0, ids()).unwrap();
        let mut forget = ask(1, 1, &[]);
        forget.forgotten = vec![key("a")];
        assert_eq!(cache.begin(forget, 0, ids()).unwrap().partitions.len(), 1);
        let last = cache.begin(ask(1, -1, &["a"]), 0, ids()).unwrap();
        assert_eq!((last.session_id, cache.len()), (0, 0));
    }

    #[test]
    fn a_full_cache_refuses_until_a_session_is_old() {
        let mut cache = SessionCache::new(limits(1));
        let mut random = ids();
        assert_eq!(
            cache
                .begin(ask(0, 0, &["a"]), 0, &mut random)
                .unwrap()
                .session_id,
            1
        );
        assert_eq!(
            cache
                .begin(ask(0, 0, &["a"]), 1_000, &mut random)
                .unwrap()
                .session_id,
            0
        );
        assert_eq!(
            cache
                .begin(ask(0, 0, &["a"]), EVICTABLE_AFTER_MS, &mut random)
                .unwrap()
                .session_id,
            2
        );
    }

    /// Sessions are bounded each and together; who finds no place is served without one, and the
    /// places of idle sessions come back.
    #[test]
    fn partitions_of_sessions_are_bounded() {
        let (mut cache, mut random) = (SessionCache::new(limits(10)), ids());
        let mut begin = |cache: &mut SessionCache, asked: Asked, now_ms: i64| {
            cache
                .begin(asked, now_ms, &mut random)
                .map(|plan| plan.session_id)
        };
        let full = ask(0, 0, &["a", "b", "c", "d"]);
        assert_eq!(begin(&mut cache, full, 0), Ok(0), "larger than one session");
        assert_eq!(begin(&mut cache, ask(0, 0, &["a", "b", "c"]), 0), Ok(1));
        assert_eq!(
            begin(&mut cache, ask(0, 0, &["a", "b", "c"]), 0),
            Ok(0),
            "all together"
        );
        assert_eq!(begin(&mut cache, ask(0, 0, &["a", "b"]), 0), Ok(2));
        // A session that grows past the limit ends; what it held is free.
        let grown = begin(&mut cache, ask(1, 1, &["d"]), 0);
        assert_eq!(grown, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
        assert_eq!(cache.partitions, 2);
        assert_eq!(begin(&mut cache, ask(0, 0, &["x", "y", "z"]), 1), Ok(3));
        let later = EVICTABLE_AFTER_MS + 1;
        assert_eq!(begin(&mut cache, ask(0, 0, &["k"]), later), Ok(4));
        assert_eq!(cache.partitions, 4, "the oldest gave way");
    }
}
