//! What a refresh does with topic configs: they follow the source.

use std::sync::Arc;

use tarn_metadata::Image;
use tarn_wire::Str;

use super::Refresher;
use super::ask::{self, NAMES_PER_REQUEST_MAX};
use super::problems::{Found, ProblemKind};
use crate::commands::{ConfigChanges, sync_configs};
use crate::config::MirrorConfig;
use crate::seam::{Source, SourceError};

impl Refresher {
    /// Topic configs follow the source; what cannot is noted per key.
    pub(super) async fn sync_configs(
        &self,
        mirror: &Str,
        source: &Arc<dyn Source>,
        config: &MirrorConfig,
        topics: &[Str],
        found: &mut Found,
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
                            let text = format!("not set here: {}", usable.skipped.join("; "));
                            found.note(ProblemKind::Configs, &topic.name, &text);
                        }
                        changes.push(ConfigChanges {
                            topic: topic.name.detach(),
                            wanted: usable.own,
                            carried: usable.carried,
                        });
                    }
                    Err(reason) => {
                        let text = format!(
                            "the source does not tell the topic's configs ({reason}); \
                             what is set here stays as it is, and retention after failover may differ"
                        );
                        found.note(ProblemKind::Configs, &topic.name, &text);
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
            self.decide("synchronise topic configs", records)
                .await
                .map_err(|e| SourceError::Other(e.to_string()))?;
        }
        Ok(())
    }
}
