//! What a refresh does with the members of its mirror: growth, source ids, topics to fail over,
//! wanted topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_metadata::Image;
use tarn_wire::{Str, Uuid};
use tracing::{info, warn};

use super::ask;
use super::plan::RefreshPlan;
use super::problems::{Found, ProblemKind};
use super::{Refresher, Running, WantedStatus};
use crate::commands::{
    AddTopic, ChangeTopics, Decision, Planner, Wish, adopt_source_id, change_topics, fulfil_wanted,
    grow_topic,
};
use crate::config::MirrorConfig;
use crate::seam::{Source, SourceError};

impl Refresher {
    /// Growth, source ids, and topics to fail over.
    pub(super) async fn change(&self, mirror: &Str, plan: &RefreshPlan, found: &mut Found) {
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
                    let text = format!("cannot grow to {partitions} partitions: {error}");
                    found.note(ProblemKind::Topic, topic, &text);
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
            self.fail_over(mirror, &plan.stop, "stop deleted topics")
                .await;
        }
    }

    /// Fails topics over. When it does not succeed, the next refresh finds them again.
    pub(super) async fn fail_over(&self, mirror: &Str, topics: &[Str], name: &'static str) {
        let request = ChangeTopics {
            mirror: mirror.clone(),
            wish: Wish::Remove,
            topics: topics.iter().map(|t| (t.clone(), Uuid::ZERO)).collect(),
            patterns: Vec::new(),
            resume_always: false,
            failed: Default::default(),
            checked_at: None,
        };
        let decide = move |image: &Image, _: &mut dyn Planner| change_topics(image, &request);
        let decided = self.tools.metadata.decide(name, Box::new(decide)).await;
        if let Err(error) = decided {
            warn!(%mirror, decision = name, %error, "topics are failed over at the next refresh");
        }
    }

    /// Creates wanted topics that the source has now.
    pub(super) async fn fulfil(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        plan: &RefreshPlan,
        running: &Running,
    ) -> Result<(), SourceError> {
        let mut wanted: BTreeMap<Str, WantedStatus> = BTreeMap::new();
        for (topic, reason) in &plan.missing {
            let status = WantedStatus {
                partitions: None,
                error: Some(reason.clone()),
            };
            wanted.insert(topic.clone(), status);
        }
        let created = self
            .create_wanted(mirror, source, config, plan, &mut wanted)
            .await;
        running.status.lock().wanted = wanted;
        created
    }

    async fn create_wanted(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        plan: &RefreshPlan,
        wanted: &mut BTreeMap<Str, WantedStatus>,
    ) -> Result<(), SourceError> {
        if plan.fulfil.is_empty() {
            return Ok(());
        }
        let (facts, loops) = ask::joining(&self.tools, source, config, &plan.fulfil).await?;
        for (topic, facts) in facts {
            let partitions = Some(facts.partitions);
            if let Some(foreign) = loops.get(&topic) {
                let error = Some(ask::loop_text(&topic, foreign));
                wanted.insert(topic, WantedStatus { partitions, error });
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
                let error = Some(error.to_string());
                wanted.insert(topic, WantedStatus { partitions, error });
            }
        }
        Ok(())
    }
}
