//! Levels of the log by target, changeable while the broker runs: what Kafka's tools call broker
//! loggers (resource type 8).
//!
//! A target is a crate of this program, or whatever the filter of the start names; `root` stands
//! for all others. Nothing is stored: a restart begins with the filter of the start, as in Kafka.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The target that stands for all others.
pub const ROOT: &str = "root";

/// Crates that log, beside [`ROOT`].
const TARGETS: [&str; 12] = [
    "tarn_cli",
    "tarn_client",
    "tarn_controller",
    "tarn_coordinator",
    "tarn_group",
    "tarn_log",
    "tarn_metadata",
    "tarn_mirror",
    "tarn_raft",
    "tarn_records",
    "tarn_replica",
    "tarn_server",
];

/// Kafka's names of levels; FATAL is shown as ERROR here.
const LEVELS: [(&str, &str); 6] = [
    ("TRACE", "trace"),
    ("DEBUG", "debug"),
    ("INFO", "info"),
    ("WARN", "warn"),
    ("ERROR", "error"),
    ("FATAL", "error"),
];

/// Puts a filter in force, in the form `info,tarn_mirror=debug`.
type Apply = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Why a level was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// The target is not in the list.
    #[error("logger {0} does not exist")]
    UnknownTarget(String),
    /// The level has no such name.
    #[error(
        "{level} is not a level of logger {target}: use TRACE, DEBUG, INFO, WARN, ERROR or FATAL"
    )]
    UnknownLevel {
        /// Target named.
        target: String,
        /// Level named.
        level: String,
    },
    /// The root has nothing to fall back to.
    #[error("the level of the root logger cannot be removed")]
    NoRoot,
    /// The program that embeds the broker keeps its log to itself.
    #[error("the log levels of this process cannot be changed")]
    Fixed,
    /// The filter was not accepted.
    #[error("the log filter was refused: {0}")]
    Refused(String),
}

#[derive(Default)]
struct State {
    /// Filter of the start.
    base: String,
    /// What was changed since, as levels of a filter.
    changed: BTreeMap<String, &'static str>,
    apply: Option<Apply>,
}

static STATE: Mutex<State> = Mutex::new(State {
    base: String::new(),
    changed: BTreeMap::new(),
    apply: None,
});

/// Tells how the log of this process is filtered: the filter of the start, and how another one is
/// put in force.
pub fn install(base: &str, apply: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
    let mut state = STATE.lock();
    state.base = base.to_owned();
    state.apply = Some(Box::new(apply));
}

/// Every target with its level in force, as Kafka names levels.
pub(crate) fn all() -> Vec<(String, &'static str)> {
    STATE.lock().levels()
}

/// Changes the level of a target; `None` gives it back to the root.
pub(crate) fn set(target: &str, level: Option<&str>) -> Result<(), LevelError> {
    STATE.lock().set(target, level)
}

/// Whether [`set`] would take it.
pub(crate) fn check(target: &str, level: Option<&str>) -> Result<(), LevelError> {
    STATE.lock().checked(target, level).map(|_| ())
}

impl State {
    /// Levels that the filter of the start and the changes name, by target.
    fn named(&self) -> BTreeMap<String, &'static str> {
        let mut named = BTreeMap::from([(ROOT.to_owned(), "INFO")]);
        for part in self.base.split(',').map(str::trim) {
            let (target, level) = part.split_once('=').unwrap_or((ROOT, part));
            if let Some((shown, _)) = LEVELS.iter().find(|(_, l)| l.eq_ignore_ascii_case(level)) {
                named.insert(target.to_owned(), shown);
            }
        }
        for (target, level) in &self.changed {
            if let Some((shown, _)) = LEVELS.iter().find(|(_, l)| l == level) {
                named.insert(target.clone(), shown);
            }
        }
        named
    }

    fn levels(&self) -> Vec<(String, &'static str)> {
        let mut levels = self.named();
        let root = levels.get(ROOT).copied().unwrap_or("INFO");
        for target in TARGETS {
            levels.entry(target.to_owned()).or_insert(root);
        }
        levels.into_iter().collect()
    }

    fn checked(
        &self,
        target: &str,
        level: Option<&str>,
    ) -> Result<Option<&'static str>, LevelError> {
        if !self.levels().iter().any(|(known, _)| known == target) {
            return Err(LevelError::UnknownTarget(target.to_owned()));
        }
        match level {
            None if target == ROOT => Err(LevelError::NoRoot),
            None => Ok(None),
            Some(level) => LEVELS
                .iter()
                .find(|(name, _)| *name == level)
                .map(|(_, level)| Some(*level))
                .ok_or_else(|| LevelError::UnknownLevel {
                    target: target.to_owned(),
                    level: level.to_owned(),
                }),
        }
    }

    fn set(&mut self, target: &str, level: Option<&str>) -> Result<(), LevelError> {
        let level = self.checked(target, level)?;
        let before = self.changed.clone();
        let root = match level {
            Some(level) => Some(level),
            // Later directives win, so that even a target of the first filter falls back to the
            // root.
            None => LEVELS
                .iter()
                .find(|(name, _)| self.named().get(ROOT) == Some(name))
                .map(|(_, level)| *level),
        };
        if let Some(level) = root {
            self.changed.insert(target.to_owned(), level);
        }
        let applied = match &self.apply {
            Some(apply) => apply(&self.filter()).map_err(LevelError::Refused),
            None => Err(LevelError::Fixed),
        };
        if applied.is_err() {
            self.changed = before;
        }
        applied
    }

    fn filter(&self) -> String {
        let mut parts = vec![self.base.clone()];
        parts.extend(self.changed.iter().map(|(target, level)| {
            if target == ROOT {
                (*level).to_owned()
            } else {
                format!("{target}={level}")
            }
        }));
        parts.retain(|part| !part.is_empty());
        parts.join(",")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn state(base: &str) -> (State, Arc<Mutex<Vec<String>>>) {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let sink = applied.clone();
        let state = State {
            base: base.to_owned(),
            changed: BTreeMap::new(),
            apply: Some(Box::new(move |filter| {
                sink.lock().push(filter.to_owned());
                Ok(())
            })),
        };
        (state, applied)
    }

    fn level(state: &State, target: &str) -> &'static str {
        let levels = state.levels();
        levels.iter().find(|(name, _)| name == target).unwrap().1
    }

    #[test]
    fn levels_come_from_the_first_filter_and_from_changes() {
        let (mut state, applied) = state("warn,tarn_mirror::fetcher=trace");
        assert_eq!(level(&state, ROOT), "WARN");
        assert_eq!(level(&state, "tarn_log"), "WARN");
        assert_eq!(level(&state, "tarn_mirror::fetcher"), "TRACE");
        state.set("tarn_log", Some("DEBUG")).unwrap();
        assert_eq!(level(&state, "tarn_log"), "DEBUG");
        state.set("tarn_log", None).unwrap();
        assert_eq!(level(&state, "tarn_log"), "WARN");
        let base = "warn,tarn_mirror::fetcher=trace";
        let expected = [
            format!("{base},tarn_log=debug"),
            format!("{base},tarn_log=warn"),
        ];
        assert_eq!(*applied.lock(), expected);
    }

    #[test]
    fn what_is_unknown_changes_nothing() {
        let (mut state, applied) = state("info");
        let unknown = LevelError::UnknownTarget("kafka".to_owned());
        assert_eq!(state.set("kafka", Some("INFO")), Err(unknown));
        assert_eq!(state.set(ROOT, None), Err(LevelError::NoRoot));
        assert!(state.set(ROOT, Some("LOUD")).is_err());
        state.apply = Some(Box::new(|_| Err("no".to_owned())));
        let refused = LevelError::Refused("no".to_owned());
        assert_eq!(state.set(ROOT, Some("DEBUG")), Err(refused));
        assert_eq!(level(&state, ROOT), "INFO");
        state.apply = None;
        assert_eq!(state.set(ROOT, Some("DEBUG")), Err(LevelError::Fixed));
        assert!(applied.lock().is_empty());
    }
}
