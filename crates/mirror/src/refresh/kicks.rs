//! Who wants a mirror to be refreshed before its time: an operator (everything, at once) or the
//! data plane (one topic, limited in rate). Pure but for the lock and the bell around it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tarn_wire::Str;
use tokio::sync::Notify;

/// Shortest time between two looks at one topic that the data plane asks for; doubled with each
/// that follows at once, up to the refresh interval.
const TOPIC_PAUSE_MS_MIN: i64 = 1_000;

/// Most topics that are remembered; beyond it the next refresh of everything serves them.
const TOPICS_MAX: usize = 100_000;

/// What is wanted of one mirror.
#[derive(Debug, Default)]
pub(super) struct Kicks {
    wanted: Mutex<Wanted>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Wanted {
    everything: bool,
    topics: BTreeMap<Str, Topic>,
}

/// When a topic may be looked at again, and whether somebody waits for it.
#[derive(Debug, Default)]
struct Topic {
    is_wanted: bool,
    not_before_ms: i64,
    pause_ms: i64,
}

impl Kicks {
    /// Everything, at once.
    pub(super) fn everything(&self) {
        self.wanted.lock().everything = true;
        self.bell.notify_one();
    }

    /// This topic, as soon as its turn comes.
    pub(super) fn topic(&self, topic: &Str) {
        let mut wanted = self.wanted.lock();
        if wanted.topics.len() >= TOPICS_MAX && !wanted.topics.contains_key(topic) {
            return;
        }
        let entry = wanted.topics.entry(topic.clone()).or_default();
        if !std::mem::replace(&mut entry.is_wanted, true) {
            self.bell.notify_one();
        }
    }

    /// Resolves when something new is wanted.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Whether everything is wanted; takes the wish.
    pub(super) fn take_everything(&self) -> bool {
        std::mem::take(&mut self.wanted.lock().everything)
    }

    /// Takes the topics whose turn it is, `limit` at most. `pause_ms_max` = the refresh interval.
    pub(super) fn take_topics(&self, now_ms: i64, pause_ms_max: i64, limit: usize) -> Vec<Str> {
        let mut wanted = self.wanted.lock();
        // Quiet for long enough: forgotten, so that the next wish is served at once.
        wanted
            .topics
            .retain(|_, t| t.is_wanted || now_ms < t.not_before_ms.saturating_add(t.pause_ms));
        let due = wanted
            .topics
            .iter_mut()
            .filter(|(_, t)| t.is_wanted && now_ms >= t.not_before_ms);
        due.take(limit)
            .map(|(topic, t)| {
                let pause = t.pause_ms.saturating_mul(2);
                t.pause_ms = pause.max(TOPIC_PAUSE_MS_MIN).min(pause_ms_max.max(1));
                t.not_before_ms = now_ms + t.pause_ms;
                t.is_wanted = false;
                topic.clone()
            })
            .collect()
    }

    /// When the next wanted topic's turn comes, epoch ms.
    pub(super) fn due_ms(&self) -> Option<i64> {
        let wanted = self.wanted.lock();
        let due = wanted.topics.values().filter(|t| t.is_wanted);
        due.map(|t| t.not_before_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A topic somebody asks for all the time is looked at ever more rarely, and its neighbours are
    /// not held up by it.
    #[test]
    fn wishes_of_the_data_plane_are_limited_by_topic() {
        let (kicks, t, u) = (Kicks::default(), Str::from("t"), Str::from("u"));
        let mut looks = 0;
        for now_ms in (0..60_000).step_by(10) {
            kicks.topic(&t);
            looks += kicks.take_topics(now_ms, 30_000, 10).len();
        }
        assert!((5..=8).contains(&looks), "{looks} looks in a minute");
        kicks.topic(&u);
        assert_eq!(kicks.take_topics(60_000, 30_000, 10), [u]);
        // The last wish is not lost, it waits for its turn.
        assert!(kicks.due_ms().is_some_and(|due| due > 60_000));
        let waited = kicks.take_topics(600_000, 30_000, 10);
        assert_eq!(waited, std::slice::from_ref(&t));
        // After a quiet time it is served at once again.
        assert!(kicks.take_topics(6_000_000, 30_000, 10).is_empty());
        kicks.topic(&t);
        assert_eq!(kicks.take_topics(6_000_000, 30_000, 10), [t]);
        assert!(!kicks.take_everything());
        kicks.everything();
        assert!(kicks.take_everything() && !kicks.take_everything());
    }
}
