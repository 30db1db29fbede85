//! The task of one mirror: when it asks, and the steps of a refresh. Each step fails by itself:
//! what one broker of the source, one topic or one permission spoils leaves the other steps alone.
//! What the steps do with members is in [`super::members`], with the source's other topics in
//! [`super::discovery`], with configs in [`super::configs`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_client::text_cut;
use tarn_metadata::{DesiredState, Image};
use tarn_wire::Str;
use tracing::{info, warn};

use super::ask::{self, NAMES_PER_REQUEST_MAX};
use super::plan::{Absence, DeletionRule, RefreshPlan, plan};
use super::problems::{Found, ProblemKind};
use super::{Refresher, Running, Trouble, wrong_cluster_text};
use crate::commands::{Decision, Planner, set_cluster_id};
use crate::config::MirrorConfig;
use crate::dialect::MirrorError;
use crate::epochs::EPOCH_LEAD;
use crate::seam::{FailureKind, Source, SourceError, SourceTopic, TopicAnswer};

/// Shortest pause between two looks at the source of one mirror.
const PAUSE_MS_MIN: u64 = 200;

/// First pause after a refresh that could not ask the source at all; doubled with each that
/// follows.
const FAILED_PAUSE_MS_MIN: i64 = 2_000;

/// Longest pause after such a refresh: a source that is back is noticed soon.
const FAILED_PAUSE_MS_MAX: i64 = 8_000;

/// How long one step of a refresh may take.
const STEP_MS_MAX: u64 = 60_000;

/// Shortest time between two log lines about a source that cannot be asked, when only the text
/// changes.
const LOG_AGAIN_MS: i64 = 60_000;

/// What the task of one mirror remembers between two looks.
#[derive(Default)]
pub(super) struct Memory {
    absences: BTreeMap<Str, Absence>,
    /// When everything is refreshed again, epoch ms.
    full_due_ms: i64,
    /// Refreshes in a row that could not ask the source.
    failures: u32,
    /// The last complete answer about the members, for the steps that follow.
    plan: RefreshPlan,
}

impl Memory {
    /// When a topic that was missing has been missing for long enough, epoch ms.
    fn absence_due_ms(&self, after_ms: i64, now_ms: i64) -> Option<i64> {
        let due = self
            .absences
            .values()
            .map(|a| a.first_ms.saturating_add(after_ms));
        due.filter(|due| *due > now_ms).min()
    }

    /// Topics that have been missing for long enough since the last look.
    fn absent_due(&self, after_ms: i64, last_ms: i64, now_ms: i64) -> Vec<Str> {
        let is_due = |a: &Absence| {
            let due = a.first_ms.saturating_add(after_ms);
            due > last_ms && due <= now_ms
        };
        let due = self.absences.iter().filter(|(_, a)| is_due(a));
        due.map(|(topic, _)| topic.clone()).collect()
    }
}

impl Refresher {
    pub(super) async fn run(self: Arc<Self>, mirror: Str, running: Running) {
        let mut memory = Memory::default();
        let mut last_ms = (self.tools.clock)();
        loop {
            let wait_ms = tokio::select! {
                () = running.cancel.cancelled() => return,
                wait_ms = self.look(&mirror, &running, &mut memory, &mut last_ms) => wait_ms,
            };
            let wait = Duration::from_millis(wait_ms);
            tokio::select! {
                () = running.cancel.cancelled() => return,
                () = running.kicks.rung() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::select! {
                () = running.cancel.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(PAUSE_MS_MIN)) => {}
            }
        }
    }

    /// Does what is due: everything, or the topics somebody waits for. Gives the time until
    /// something is due again.
    async fn look(
        &self,
        mirror: &Str,
        running: &Running,
        memory: &mut Memory,
        last_ms: &mut i64,
    ) -> u64 {
        let source = self
            .source(mirror)
            .unwrap_or_else(|| running.source.clone());
        let config = MirrorConfig::of(&self.tools.metadata.image(), mirror, &self.tools.settings);
        let interval_ms = config.refresh_interval_ms(&self.tools.settings).max(1);
        let after_ms = config.deletion_after_ms();
        let now_ms = (self.tools.clock)();
        if running.kicks.take_everything() || now_ms >= memory.full_due_ms {
            let outcome = self.everything(mirror, &source, running, memory).await;
            self.note(mirror, running, outcome.as_ref().err());
            memory.failures = match &outcome {
                Ok(()) => 0,
                Err(_) => memory.failures.saturating_add(1),
            };
            let pause_ms = match memory.failures {
                0 => interval_ms,
                n => (FAILED_PAUSE_MS_MIN << (n - 1).min(8))
                    .min(FAILED_PAUSE_MS_MAX)
                    .min(interval_ms),
            };
            memory.full_due_ms = (self.tools.clock)().saturating_add(pause_ms);
        } else {
            let mut topics = running
                .kicks
                .take_topics(now_ms, interval_ms, NAMES_PER_REQUEST_MAX);
            topics.extend(memory.absent_due(after_ms, *last_ms, now_ms));
            topics.sort();
            topics.dedup();
            if !topics.is_empty() {
                self.some(mirror, &source, running, memory, topics).await;
            }
        }
        *last_ms = now_ms;
        let due = [
            running.kicks.due_ms(),
            memory.absence_due_ms(after_ms, now_ms),
        ];
        let due_ms = due.into_iter().flatten().fold(memory.full_due_ms, i64::min);
        let wait_ms = due_ms.saturating_sub((self.tools.clock)());
        u64::try_from(wait_ms).unwrap_or(0)
    }

    /// Refreshes everything. An error means that the source could not be asked, or may not be.
    async fn everything(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        running: &Running,
        memory: &mut Memory,
    ) -> Result<(), SourceError> {
        let cluster = ask::within(STEP_MS_MAX, source.cluster()).await?;
        let image = self.tools.metadata.image();
        let config = MirrorConfig::of(&image, mirror, &self.tools.settings);
        let _compiled = config.prepare_patterns().await;
        self.check_cluster(mirror, &config, cluster.cluster_id.as_deref())
            .await?;
        let mut found = Found::default();
        let names = active_members(&image, mirror);
        let looked = self.members(mirror, source, &names, memory).await;
        let is_coordinator = self.tools.store.is_name_coordinator(mirror);
        let plan = std::mem::take(&mut memory.plan);
        if step(&mut found, "topics", looked) {
            found.complete(ProblemKind::Topic);
            for (topic, text) in &plan.unknown {
                found.note(ProblemKind::Topic, topic, text);
            }
            if is_coordinator {
                self.change(mirror, &plan, &mut found).await;
                let fulfilled = self.fulfil(mirror, source, &config, &plan, running);
                let fulfilled = ask::within(STEP_MS_MAX, fulfilled).await;
                step(&mut found, "wanted topics", fulfilled);
            }
        }
        if is_coordinator {
            let discovered = self.discover(mirror, source, &config, &image, &mut found);
            let discovered = ask::within(STEP_MS_MAX, discovered).await;
            if step(&mut found, "discovery", discovered) {
                found.complete(ProblemKind::Join);
            }
            let synced = self.sync_configs(mirror, source, &config, &plan.healthy, &mut found);
            let synced = ask::within(STEP_MS_MAX, synced).await;
            if step(&mut found, "topic configs", synced) {
                found.complete(ProblemKind::Configs);
            }
        }
        found.complete(ProblemKind::Refresh);
        let now_ms = (self.tools.clock)();
        running.status.lock().problems.take(mirror, found, now_ms);
        Ok(())
    }

    /// Looks at single topics whose fetching met something that fresh metadata may explain. Whoever
    /// answers has proven to be the right cluster.
    async fn some(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        running: &Running,
        memory: &mut Memory,
        topics: Vec<Str>,
    ) {
        let image = self.tools.metadata.image();
        let mut names = active_members(&image, mirror);
        names.retain(|name| topics.binary_search(name).is_ok());
        let looked = self.members(mirror, source, &names, memory).await;
        let plan = std::mem::take(&mut memory.plan);
        let mut found = Found::default();
        if looked.is_ok() && self.tools.store.is_name_coordinator(mirror) {
            self.change(mirror, &plan, &mut found).await;
        }
        let now_ms = (self.tools.clock)();
        running.status.lock().problems.take(mirror, found, now_ms);
    }

    /// Asks about members, tells the data plane, and fails what can only be failed. Leaves the plan
    /// in `memory`.
    async fn members(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        names: &[Str],
        memory: &mut Memory,
    ) -> Result<(), SourceError> {
        let mut answers = Vec::with_capacity(names.len());
        for chunk in names.chunks(NAMES_PER_REQUEST_MAX) {
            let answered = ask::within(STEP_MS_MAX, source.topics(chunk.to_vec())).await?;
            answers.extend(chunk.iter().cloned().zip(answered));
        }
        let present = |(_, answer): &(Str, TopicAnswer)| match answer {
            TopicAnswer::Present(topic) => Some(topic.clone()),
            _ => None,
        };
        let present: Vec<SourceTopic> = answers.iter().filter_map(present).collect();
        self.tools.data.source_metadata(mirror, &present);
        self.life.source_answers(mirror);
        // What was committed meanwhile counts, not what was there when the source was asked.
        let image = self.tools.metadata.image();
        let config = MirrorConfig::of(&image, mirror, &self.tools.settings);
        let rule = DeletionRule {
            policy: config.deletion_policy(),
            after_ms: config.deletion_after_ms(),
            now_ms: (self.tools.clock)(),
        };
        let plan = plan(&image, mirror, &answers, rule, &memory.absences);
        for (name, _) in &answers {
            memory.absences.remove(name);
        }
        memory.absences.extend(plan.absences.clone());
        memory
            .absences
            .retain(|name, _| image.membership(name).is_some_and(|m| m.mirror == *mirror));
        for (topic_id, text) in &plan.fail {
            self.life
                .fail_topic(*topic_id, FailureKind::Permanent, text);
        }
        for (topic_id, partition, epoch) in &plan.epochs {
            self.tools
                .bumper
                .request(*topic_id, *partition, epoch.saturating_add(EPOCH_LEAD));
        }
        memory.plan = plan;
        Ok(())
    }

    /// The id must be the stored one; the first one seen is stored.
    async fn check_cluster(
        &self,
        mirror: &Str,
        config: &MirrorConfig,
        found: Option<&str>,
    ) -> Result<(), SourceError> {
        let Some(found) = found else { return Ok(()) };
        if *found == *self.tools.settings.cluster_id {
            let text = format!("the source is this very cluster ({found})");
            self.life.fail_mirror(mirror, &text);
            return Err(SourceError::Other(text));
        }
        match config.source_cluster_id() {
            Some(stored) if *stored == *found => Ok(()),
            Some(stored) => {
                let text = wrong_cluster_text(&stored, found);
                self.life.fail_mirror(mirror, &text);
                Err(SourceError::Other(text))
            }
            None => {
                let (mirror, found) = (mirror.clone(), found.to_owned());
                let decide = move |image: &Image| set_cluster_id(image, &mirror, &found);
                self.decide("store the source cluster id", decide)
                    .await
                    .map_err(|e| SourceError::Other(e.to_string()))
            }
        }
    }

    pub(super) async fn decide(
        &self,
        name: &'static str,
        records: impl FnOnce(&Image) -> Result<Vec<tarn_metadata::Record>, MirrorError> + Send + 'static,
    ) -> Result<(), MirrorError> {
        let decide = move |image: &Image, _: &mut dyn Planner| {
            Ok(Decision {
                records: records(image)?,
                topics: Vec::new(),
            })
        };
        self.tools
            .metadata
            .decide(name, Box::new(decide))
            .await
            .map(|_| ())
    }

    /// Keeps why the source cannot be asked for describe, and logs it once when it appears, limited
    /// in rate when it changes.
    fn note(&self, mirror: &Str, running: &Running, error: Option<&SourceError>) {
        let now_ms = (self.tools.clock)();
        let mut status = running.status.lock();
        let Some(error) = error else {
            if status.error.take().is_some() {
                info!(%mirror, "the source can be refreshed again");
            }
            return;
        };
        let text = text_cut(&error.to_string()).to_owned();
        let known = status.error.take();
        let is_news = known
            .as_ref()
            .is_none_or(|k| k.text != text && now_ms.saturating_sub(k.logged_ms) >= LOG_AGAIN_MS);
        if is_news {
            warn!(%mirror, reason = %text, "the refresh from the source failed");
        }
        status.error = Some(Trouble {
            text,
            since_ms: known.as_ref().map_or(now_ms, |k| k.since_ms),
            logged_ms: known.filter(|_| !is_news).map_or(now_ms, |k| k.logged_ms),
        });
    }
}

/// Notes a step that failed; true when it did not.
fn step(found: &mut Found, name: &str, outcome: Result<(), SourceError>) -> bool {
    if let Err(error) = &outcome {
        found.note(ProblemKind::Refresh, name, &error.to_string());
    }
    outcome.is_ok()
}

/// Topics of a mirror that are wished to be mirrored, wanted ones included.
fn active_members(image: &Image, mirror: &str) -> Vec<Str> {
    image
        .members_of(mirror)
        .filter(|(_, m)| m.desired == DesiredState::Mirroring)
        .map(|(topic, _)| topic.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_looked_at_again_when_it_has_lasted_and_only_then() {
        let mut memory = Memory::default();
        let first_ms = 1_000;
        let absence = Absence { first_ms, seen: 1 };
        memory.absences.insert(Str::from("t"), absence);
        assert_eq!(memory.absence_due_ms(30_000, 5_000), Some(31_000));
        assert!(memory.absent_due(30_000, 4_000, 5_000).is_empty());
        assert_eq!(memory.absent_due(30_000, 5_000, 31_200).len(), 1);
        // Acted upon: the regular refresh goes on looking, nothing else.
        assert_eq!(memory.absence_due_ms(30_000, 31_200), None);
        assert!(memory.absent_due(30_000, 31_200, 31_400).is_empty());
    }
}
