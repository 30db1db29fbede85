//! What a refresh does with the source's other topics: those that match the patterns join, members
//! that an exclusion matches are failed over.

use std::sync::Arc;

use tarn_metadata::{DesiredState, Image};
use tarn_wire::{Str, Uuid};
use tracing::info;

use super::Refresher;
use super::ask;
use super::problems::{Found, ProblemKind};
use crate::commands::{AddTopic, AddTopics, Planner, SourceFacts, add_topics};
use crate::config::compiled::blocking;
use crate::config::patterns::Patterns;
use crate::config::{MirrorConfig, TOPICS_EXCLUDE};
use crate::dialect::MirrorError;
use crate::seam::{Source, SourceError, SourceTopic};

impl Refresher {
    /// Patterns: source topics that match join, members that a written exclusion matches are failed
    /// over.
    pub(super) async fn discover(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        image: &Image,
        found: &mut Found,
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
        let mut fresh = ask::select(all, &include, &exclude).await;
        fresh.retain(|t| image.membership(&t.name).is_none());
        if fresh.is_empty() {
            return Ok(());
        }
        self.join(mirror, source, (config, image), &fresh, found)
            .await
    }

    /// Adds discovered topics; each that cannot join says why in describe.
    async fn join(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        (config, image): (&MirrorConfig, &Image),
        fresh: &[SourceTopic],
        found: &mut Found,
    ) -> Result<(), SourceError> {
        let (facts, loops) = ask::joining(&self.tools, source, config, fresh).await?;
        let topic = |(name, facts): (Str, SourceFacts)| {
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
                            let text = error.to_string();
                            found.note(ProblemKind::Join, &result.name, &text);
                        }
                    }
                }
            }
            Err(error) => return Err(SourceError::Other(error.to_string())),
        }
        Ok(())
    }

    async fn stop_excluded(&self, mirror: &Str, image: &Image, exclude: &Arc<Patterns>) {
        let mut topics: Vec<Str> = image
            .members_of(mirror)
            .filter(|(_, m)| m.desired == DesiredState::Mirroring)
            .map(|(topic, _)| topic.clone())
            .collect();
        let exclude = exclude.clone();
        let topics = blocking(move || {
            topics.retain(|topic| exclude.matches(topic));
            topics
        })
        .await;
        if !topics.is_empty() {
            self.fail_over(mirror, &topics, "stop excluded topics")
                .await;
        }
    }
}
