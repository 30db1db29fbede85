//! The task of one mirror: asks, plans, has things decided. Errors of one topic are noted and leave the others alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tarn_metadata::{DesiredState, Image};
use tarn_wire::{Str, Uuid};
use tracing::{info, warn};

use super::ask::{self, NAMES_PER_REQUEST_MAX};
use super::plan::{RefreshPlan, plan};
use super::{MirrorStatus, Refresher, Running, WantedStatus, wrong_cluster_text};
use crate::commands::{
    self, AddTopic, AddTopics, ChangeTopics, ConfigChanges, Decision, Planner, Wish, add_topics,
    adopt_source_id, change_topics, fulfil_wanted, grow_topic, set_cluster_id, sync_configs,
};
use crate::config::{MirrorConfig, TOPICS_EXCLUDE};
use crate::dialect::MirrorError;
use crate::epochs::EPOCH_LEAD;
use crate::seam::{FailureKind, Source, SourceError, SourceTopic, TopicAnswer};

/// Shortest pause between two refreshes of one mirror.
const PAUSE_MS_MIN: u64 = 200;

/// Longest pause after a refresh that failed, or that found a topic absent for the first time: it is asked again soon.
const SOON_MS: u64 = 2_000;

/// How long one refresh may take in all.
const REFRESH_MS_MAX: u64 = 120_000;

impl Refresher {
    pub(super) async fn run(self: Arc<Self>, mirror: Str, running: Running) {
        let mut absences = BTreeMap::new();
        loop {
            let source = self
                .source(&mirror)
                .unwrap_or_else(|| running.source.clone());
            let refresh = self.refresh(&mirror, &source, &running, &mut absences);
            let outcome = tokio::select! {
                () = running.cancel.cancelled() => return,
                outcome = ask::within(REFRESH_MS_MAX, refresh) => outcome,
            };
            let now_ms = (self.tools.clock)();
            note(&mirror, &running, outcome.as_ref().err(), now_ms);
            let interval =
                MirrorConfig::of(&self.tools.metadata.image(), &mirror, &self.tools.settings)
                    .refresh_interval_ms(&self.tools.settings);
            let mut pause = u64::try_from(interval).unwrap_or(0).max(PAUSE_MS_MIN);
            if outcome.is_err() || !absences.is_empty() {
                pause = pause.min(SOON_MS);
            }
            tokio::select! {
                () = running.cancel.cancelled() => return,
                () = running.kick.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
            }
            tokio::select! {
                () = running.cancel.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(PAUSE_MS_MIN)) => {}
            }
        }
    }

    async fn refresh(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        running: &Running,
        absences: &mut BTreeMap<Str, u32>,
    ) -> Result<(), SourceError> {
        let cluster = source.cluster().await?;
        let image = self.tools.metadata.image();
        let config = MirrorConfig::of(&image, mirror, &self.tools.settings);
        self.check_cluster(mirror, &config, cluster.cluster_id.as_deref())
            .await?;
        let names = active_members(&image, mirror);
        let mut answers = Vec::with_capacity(names.len());
        for chunk in names.chunks(NAMES_PER_REQUEST_MAX) {
            answers.extend(
                chunk
                    .iter()
                    .cloned()
                    .zip(source.topics(chunk.to_vec()).await?),
            );
        }
        let present: Vec<SourceTopic> = answers
            .iter()
            .filter_map(|(_, a)| {
                if let TopicAnswer::Present(t) = a {
                    Some(t.clone())
                } else {
                    None
                }
            })
            .collect();
        self.tools.data.source_metadata(mirror, &present);
        // What was committed meanwhile counts, not what was there when the source was asked.
        let image = self.tools.metadata.image();
        let plan = plan(&image, mirror, &answers, config.deletion_policy(), absences);
        *absences = plan.absences.clone();
        for (topic_id, text) in &plan.fail {
            self.life
                .fail_topic(*topic_id, FailureKind::Permanent, text);
        }
        for (topic_id, partition, epoch) in &plan.epochs {
            self.tools
                .bumper
                .request(*topic_id, *partition, epoch.saturating_add(EPOCH_LEAD));
        }
        if !self.tools.store.is_name_coordinator(mirror) {
            return Ok(());
        }
        let mut status = MirrorStatus {
            error: running.status.lock().error.clone(),
            ..Default::default()
        };
        status.topic_errors.extend(plan.unknown.iter().cloned());
        self.change(mirror, &plan, &mut status).await;
        self.fulfil(mirror, source, &config, &plan, &mut status)
            .await?;
        self.discover(mirror, source, &config, &image).await?;
        self.sync_configs(mirror, source, &config, &plan.healthy, &mut status)
            .await?;
        report_configs(
            mirror,
            &running.status.lock().config_errors,
            &status.config_errors,
        );
        *running.status.lock() = status;
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

    async fn decide(
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

    /// Growth, source ids, and topics to fail over.
    async fn change(&self, mirror: &Str, plan: &RefreshPlan, status: &mut MirrorStatus) {
        for (topic, topic_id, partitions) in &plan.grow {
            let (m, t, id, n) = (mirror.clone(), topic.clone(), *topic_id, *partitions);
            let decide = move |image: &Image, planner: &mut dyn Planner| {
                Ok(Decision {
                    records: grow_topic(image, planner, &m, &t, id, n)?,
                    topics: Vec::new(),
                })
            };
            match self
                .tools
                .metadata
                .decide("grow a mirror topic", Box::new(decide))
                .await
            {
                Ok(_) => {
                    info!(%mirror, %topic, partitions, "the source topic has more partitions now")
                }
                Err(error) => {
                    status.topic_errors.insert(
                        topic.clone(),
                        format!("cannot grow to {partitions} partitions: {error}"),
                    );
                }
            }
        }
        if !plan.adopt.is_empty() {
            let (m, adopt) = (mirror.clone(), plan.adopt.clone());
            let records = move |image: &Image| {
                Ok(adopt
                    .iter()
                    .flat_map(|(topic, id)| adopt_source_id(image, &m, topic, *id))
                    .collect())
            };
            if let Err(error) = self.decide("store source topic ids", records).await {
                warn!(%mirror, %error, "the source's topic ids are stored at the next refresh");
            }
        }
        if !plan.stop.is_empty() {
            warn!(%mirror, topics = ?plan.stop, "deleted at the source, failing over by policy");
            let request = ChangeTopics {
                mirror: mirror.clone(),
                wish: Wish::Remove,
                topics: plan.stop.iter().map(|t| (t.clone(), Uuid::ZERO)).collect(),
                patterns: Vec::new(),
                resume_always: false,
                failed: Default::default(),
                checked_at: None,
            };
            let decide = move |image: &Image, _: &mut dyn Planner| change_topics(image, &request);
            if let Err(error) = self
                .tools
                .metadata
                .decide("stop deleted topics", Box::new(decide))
                .await
            {
                warn!(%mirror, %error, "deleted topics are failed over at the next refresh");
            }
        }
    }

    /// Creates wanted topics that the source has now.
    async fn fulfil(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        plan: &RefreshPlan,
        status: &mut MirrorStatus,
    ) -> Result<(), SourceError> {
        for (topic, reason) in &plan.missing {
            let error = Some(reason.clone());
            status.wanted.insert(
                topic.clone(),
                WantedStatus {
                    partitions: None,
                    error,
                },
            );
        }
        if plan.fulfil.is_empty() {
            return Ok(());
        }
        let excluded = config.excluded_properties().unwrap_or_default();
        let here = ask::here_values(&self.tools.replicas);
        let facts = ask::facts(source, &plan.fulfil, &excluded, &here).await?;
        let loops = ask::looping(
            &source
                .mirrors_from(self.tools.settings.cluster_id.clone())
                .await?,
        );
        for (topic, facts) in facts {
            let partitions = Some(facts.partitions);
            if let Some(foreign) = loops.get(&topic) {
                let error = Some(ask::loop_text(&topic, foreign));
                status
                    .wanted
                    .insert(topic, WantedStatus { partitions, error });
                continue;
            }
            let add = AddTopic {
                name: topic.clone(),
                source: Some(facts),
                fresh_id: Uuid::random(),
                ..Default::default()
            };
            let m = mirror.clone();
            let decide = move |image: &Image, planner: &mut dyn Planner| {
                Ok(Decision {
                    records: fulfil_wanted(image, planner, &m, &add)?,
                    topics: Vec::new(),
                })
            };
            if let Err(error) = self
                .tools
                .metadata
                .decide("create a wanted topic", Box::new(decide))
                .await
            {
                status.wanted.insert(
                    topic,
                    WantedStatus {
                        partitions,
                        error: Some(error.to_string()),
                    },
                );
            }
        }
        Ok(())
    }

    /// Patterns: source topics that match join, members that a written exclusion matches are failed over.
    async fn discover(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        image: &Image,
    ) -> Result<(), SourceError> {
        let (include, exclude) = config
            .topic_patterns()
            .map_err(|e| SourceError::Other(e.to_string()))?;
        if config.get(TOPICS_EXCLUDE).is_some() {
            self.stop_excluded(mirror, image, &exclude).await;
        }
        if include.is_empty() {
            return Ok(());
        }
        let all = source.all_topics().await?;
        let fresh: Vec<SourceTopic> = ask::select(&all, &include, &exclude)
            .into_iter()
            .filter(|t| image.membership(&t.name).is_none())
            .cloned()
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        self.join(mirror, source, config, image, &fresh).await
    }

    /// Adds discovered topics; each that cannot join says why in the log.
    async fn join(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        image: &Image,
        fresh: &[SourceTopic],
    ) -> Result<(), SourceError> {
        let excluded = config.excluded_properties().unwrap_or_default();
        let here = ask::here_values(&self.tools.replicas);
        let facts = ask::facts(source, fresh, &excluded, &here).await?;
        let loops = ask::looping(
            &source
                .mirrors_from(self.tools.settings.cluster_id.clone())
                .await?,
        );
        let topic = |(name, facts): (Str, commands::SourceFacts)| {
            let looped = loops
                .get(&name)
                .map(|foreign| MirrorError::Loop(ask::loop_text(&name, foreign)));
            let has_local_data = crate::local::has_data(&self.tools.replicas, image, &name);
            AddTopic {
                name,
                source: Some(facts),
                fresh_id: Uuid::random(),
                has_local_data,
                refused: looped,
                ..Default::default()
            }
        };
        let request = AddTopics {
            mirror: mirror.clone(),
            topics: facts.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let decide =
            move |image: &Image, planner: &mut dyn Planner| add_topics(image, planner, &request);
        match self
            .tools
            .metadata
            .decide("discover mirror topics", Box::new(decide))
            .await
        {
            Ok(results) => {
                for result in results {
                    match result.error {
                        None => info!(%mirror, topic = %result.name, "discovered by pattern"),
                        Some(error) => {
                            warn!(%mirror, topic = %result.name, %error, "matches the patterns but cannot join")
                        }
                    }
                }
            }
            Err(error) => {
                warn!(%mirror, %error, "topics that match the patterns are tried at the next refresh")
            }
        }
        Ok(())
    }

    async fn stop_excluded(
        &self,
        mirror: &Str,
        image: &Image,
        exclude: &crate::config::patterns::Patterns,
    ) {
        let topics: Vec<(Str, Uuid)> = image
            .members_of(mirror)
            .filter(|(topic, m)| m.desired == DesiredState::Mirroring && exclude.matches(topic))
            .map(|(topic, _)| (topic.clone(), Uuid::ZERO))
            .collect();
        if topics.is_empty() {
            return;
        }
        let request = ChangeTopics {
            mirror: mirror.clone(),
            wish: Wish::Remove,
            topics,
            patterns: Vec::new(),
            resume_always: false,
            failed: Default::default(),
            checked_at: None,
        };
        let decide = move |image: &Image, _: &mut dyn Planner| change_topics(image, &request);
        if let Err(error) = self
            .tools
            .metadata
            .decide("stop excluded topics", Box::new(decide))
            .await
        {
            warn!(%mirror, %error, "excluded topics are failed over at the next refresh");
        }
    }

    /// Topic configs follow the source; what cannot is noted per key.
    async fn sync_configs(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        topics: &[Str],
        status: &mut MirrorStatus,
    ) -> Result<(), SourceError> {
        let excluded = config
            .excluded_properties()
            .map_err(|e| SourceError::Other(e.to_string()))?;
        let here = ask::here_values(&self.tools.replicas);
        for names in topics.chunks(NAMES_PER_REQUEST_MAX) {
            let mut changes = Vec::new();
            for topic in source.topic_configs(names.to_vec()).await? {
                match topic.entries {
                    Ok(entries) => {
                        let usable = ask::usable_configs(&entries, &excluded, &here);
                        if !usable.skipped.is_empty() {
                            let skipped = usable.skipped;
                            status.config_errors.insert(topic.name.detach(), skipped);
                        }
                        changes.push(ConfigChanges {
                            topic: topic.name.detach(),
                            wanted: usable.own,
                            carried: usable.carried,
                        });
                    }
                    Err(reason) => {
                        status
                            .config_errors
                            .insert(topic.name.detach(), vec![reason]);
                    }
                }
            }
            // Most refreshes change nothing; then nothing is put before the controller.
            let image = self.tools.metadata.image();
            changes.retain(|c| !sync_configs(&image, mirror, c).is_empty());
            if changes.is_empty() {
                continue;
            }
            let m = mirror.clone();
            let records = move |image: &Image| {
                Ok(changes
                    .iter()
                    .flat_map(|c| sync_configs(image, &m, c))
                    .collect())
            };
            if let Err(error) = self.decide("synchronise topic configs", records).await {
                warn!(%mirror, %error, "topic configs are synchronised at the next refresh");
            }
        }
        Ok(())
    }
}

/// Topics of a mirror that are wished to be mirrored, wanted ones included.
fn active_members(image: &Image, mirror: &str) -> Vec<Str> {
    image
        .members_of(mirror)
        .filter(|(_, m)| m.desired == DesiredState::Mirroring)
        .map(|(topic, _)| topic.clone())
        .collect()
}

/// Says once per change which topic configs stay behind and why.
fn report_configs(
    mirror: &Str,
    before: &BTreeMap<Str, Vec<String>>,
    now: &BTreeMap<Str, Vec<String>>,
) {
    for (topic, reasons) in now {
        if before.get(topic) != Some(reasons) {
            warn!(%mirror, %topic, skipped = ?reasons, "some topic configs of the source are not set here");
        }
    }
}

/// Keeps the error for describe, and logs it once when it appears or changes.
fn note(mirror: &Str, running: &Running, error: Option<&SourceError>, now_ms: i64) {
    let mut status = running.status.lock();
    match error {
        None => {
            if status.error.take().is_some() {
                info!(%mirror, "the source can be refreshed again");
            }
        }
        Some(error) => {
            let text = error.to_string();
            let known = status.error.clone();
            if known.as_ref().is_none_or(|(before, _)| *before != text) {
                warn!(%mirror, reason = %text, "the refresh from the source failed");
            }
            status.error = Some((text, known.map_or(now_ms, |(_, since)| since)));
        }
    }
}
