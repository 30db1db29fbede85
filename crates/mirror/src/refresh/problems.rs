//! What a mirror's refresh cannot do, for describe: each problem with its text and since when, said
//! in the log once when it appears.
//!
//! Nothing in it decides anything. Bounded: texts are cut, problems and log lines are limited in
//! number.
//!
//! Guards F-11: what only the log knows, an operator does not know.

use std::collections::BTreeMap;

use tarn_client::text_cut;
use tarn_wire::Str;
use tracing::{info, warn};

/// Most problems of one mirror that are kept.
const PROBLEMS_MAX: usize = 1_000;

/// Most lines that one refresh writes into the log.
const LOG_LINES_MAX: usize = 20;

/// Shortest time between two log lines about the same problem when only its text changes.
const LOG_AGAIN_MS: i64 = 60_000;

/// What a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// A step of the refresh; the item is the step.
    Refresh,
    /// A member topic that could not be looked at or changed; the item is the topic.
    Topic,
    /// Configs of a member topic that do not follow the source; the item is the topic.
    Configs,
    /// A topic that matches the patterns and cannot join; the item is the topic.
    Join,
}

impl ProblemKind {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Refresh => "refresh",
            ProblemKind::Topic => "topic",
            ProblemKind::Configs => "configs",
            ProblemKind::Join => "join",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub text: String,
    /// Since when, epoch ms.
    pub since_ms: i64,
    logged_ms: i64,
}

/// Kind and item.
pub type ProblemKey = (ProblemKind, Str);

/// The problems of one mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(BTreeMap<ProblemKey, Problem>);

/// What one refresh found. Kinds it did not get to keep the problems they had.
#[derive(Debug, Default)]
pub struct Found {
    problems: BTreeMap<ProblemKey, String>,
    looked_at: Vec<ProblemKind>,
}

impl Found {
    /// Notes a problem. What is beyond the limit is left out.
    pub fn note(&mut self, kind: ProblemKind, item: &str, text: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            let key = (kind, Str::from(text_cut(item)));
            self.problems.insert(key, text_cut(text).to_owned());
        }
    }

    /// This kind was looked at completely: what was not noted is over.
    pub fn complete(&mut self, kind: ProblemKind) {
        self.looked_at.push(kind);
    }
}

impl Problems {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&ProblemKey, &Problem)> {
        self.0.iter()
    }

    /// The problem of this kind with this item.
    pub fn get(&self, kind: ProblemKind, item: &str) -> Option<&Problem> {
        self.0.get(&(kind, Str::from(item)))
    }

    /// Takes over what a refresh found; says in the log what is new and what is over.
    pub fn take(&mut self, mirror: &str, found: Found, now_ms: i64) {
        let Found {
            problems,
            looked_at,
        } = found;
        let is_over = |key: &ProblemKey| looked_at.contains(&key.0) && !problems.contains_key(key);
        self.0.retain(|key, problem| {
            let over = is_over(key);
            if over {
                info!(%mirror, kind = key.0.name(), item = %key.1, was = %problem.text, "over");
            }
            !over
        });
        let mut lines = 0;
        for (key, text) in problems {
            let known = self.0.get(&key);
            let is_news = known.is_none_or(|k| {
                k.text != text && now_ms.saturating_sub(k.logged_ms) >= LOG_AGAIN_MS
            });
            if is_news && lines < LOG_LINES_MAX {
                warn!(%mirror, kind = key.0.name(), item = %key.1, "{text}");
            }
            lines += usize::from(is_news);
            let problem = Problem {
                since_ms: known.map_or(now_ms, |k| k.since_ms),
                logged_ms: known.filter(|_| !is_news).map_or(now_ms, |k| k.logged_ms),
                text,
            };
            self.0.insert(key, problem);
        }
        if lines > LOG_LINES_MAX {
            let more = lines - LOG_LINES_MAX;
            warn!(%mirror, more, "further problems: describe shows them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &[(ProblemKind, &str, &str)], complete: &[ProblemKind]) -> Found {
        let mut found = Found::default();
        for (kind, item, text) in list {
            found.note(*kind, item, text);
        }
        complete.iter().for_each(|kind| found.complete(*kind));
        found
    }

    #[test]
    fn a_problem_keeps_its_beginning_until_it_is_over() {
        use ProblemKind::{Configs, Join};
        let mut problems = Problems::default();
        problems.take("m", found(&[(Configs, "t", "denied")], &[Configs]), 10);
        problems.take(
            "m",
            found(&[(Configs, "t", "denied again")], &[Configs]),
            20,
        );
        let known = problems.get(Configs, "t").unwrap();
        assert_eq!((known.text.as_str(), known.since_ms), ("denied again", 10));
        // Another step was done, this one was not reached.
        problems.take("m", found(&[], &[Join]), 30);
        assert!(problems.get(Configs, "t").is_some());
        problems.take("m", found(&[], &[Configs]), 40);
        assert_eq!(problems.iter().count(), 0);
    }

    /// Texts and numbers are limited, whatever the source says.
    #[test]
    fn problems_are_bounded() {
        let mut all = Found::default();
        for n in 0..2 * PROBLEMS_MAX {
            all.note(ProblemKind::Join, &format!("t{n}"), &"x".repeat(40_000));
        }
        let mut problems = Problems::default();
        problems.take("m", all, 1);
        assert_eq!(problems.iter().count(), PROBLEMS_MAX);
        assert!(problems.iter().all(|(_, p)| p.text.len() <= 1024));
    }
}
