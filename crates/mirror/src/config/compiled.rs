//! Compiled lists of patterns, kept while they are in use: the lists of a mirror are asked for at
//! each refresh, by each decision and by each unknown name, and compiling one can take tens of
//! milliseconds, which no async worker may spend (F-6).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::patterns::{PatternError, Patterns};

/// Lists that are kept although nobody holds them.
const RECENT_MAX: usize = 16;

/// Lists known, those that nobody holds any more among them, before the latter are looked for.
const KNOWN_MAX: usize = 256;

#[derive(Debug, Default)]
struct Cache {
    known: HashMap<Vec<String>, Weak<Patterns>>,
    recent: VecDeque<Arc<Patterns>>,
}

impl Cache {
    fn find(&mut self, list: &[String]) -> Option<Arc<Patterns>> {
        let found = self.known.get(list)?.upgrade()?;
        self.keep(&found);
        Some(found)
    }

    fn keep(&mut self, patterns: &Arc<Patterns>) {
        self.recent.retain(|p| !Arc::ptr_eq(p, patterns));
        self.recent.push_back(patterns.clone());
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }

    fn insert(&mut self, list: Vec<String>, patterns: &Arc<Patterns>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, held| held.strong_count() > 0);
        }
        self.known.insert(list, Arc::downgrade(patterns));
        self.keep(patterns);
    }
}

fn cache() -> &'static Mutex<Cache> {
    static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
    CACHE.get_or_init(Mutex::default)
}

impl Patterns {
    /// The list compiled, at once when it is known. For threads that may block, or where
    /// [`Patterns::prepared`] went before.
    pub fn shared(list: &[String]) -> Result<Arc<Patterns>, PatternError> {
        if let Some(found) = cache().lock().find(list) {
            return Ok(found);
        }
        // Not under the lock: who asks for another list does not wait.
        let compiled = Arc::new(Patterns::new(list)?);
        cache().lock().insert(list.to_vec(), &compiled);
        Ok(compiled)
    }

    /// As [`Patterns::shared`] from an async worker: what must be compiled is compiled on a thread
    /// that may block. It stays known for as long as the result is held.
    pub async fn prepared(list: Vec<String>) -> Result<Arc<Patterns>, PatternError> {
        if let Some(found) = cache().lock().find(&list) {
            return Ok(found);
        }
        if list.len() <= RECENT_MAX && Patterns::are_plain(&list) {
            return Patterns::shared(&list);
        }
        blocking(move || Patterns::shared(&list)).await
    }
}

/// Runs what may take long on a thread that may block. A panic in it goes on in the caller.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime shuts down: nobody waits for the answer any more.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str) -> Vec<String> {
        vec![format!("{name}-[0-9]+"), "plain".to_owned()]
    }

    #[tokio::test]
    async fn a_list_is_compiled_once_while_it_is_in_use() {
        let first = Patterns::prepared(list("held")).await.unwrap();
        assert!(first.matches("held-7") && first.matches("plain"));
        for n in 0..2 * KNOWN_MAX {
            Patterns::shared(&list(&format!("other{n}"))).unwrap();
        }
        assert!(Arc::ptr_eq(
            &first,
            &Patterns::shared(&list("held")).unwrap()
        ));
        assert!(cache().lock().recent.len() <= RECENT_MAX);
        assert!(cache().lock().known.len() <= KNOWN_MAX + 1);
    }

    /// F-6: other tasks of the worker go on while a list is compiled.
    #[tokio::test]
    async fn the_worker_goes_on_while_a_list_is_compiled() {
        let long: Vec<String> = (0..500).map(|n| format!("team-{n}\\.\\w+")).collect();
        let turns = std::cell::Cell::new(0);
        let other = async {
            loop {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            compiled = Patterns::prepared(long) => assert!(compiled.unwrap().matches("team-7.x")),
            () = other => {}
        }
        assert!(turns.get() > 0);
    }

    #[tokio::test]
    async fn a_bad_list_is_refused_each_time() {
        for _ in 0..2 {
            let bad = Patterns::prepared(vec!["a(".to_owned()]).await;
            assert_eq!(bad.unwrap_err().pattern, "a(");
        }
    }
}
