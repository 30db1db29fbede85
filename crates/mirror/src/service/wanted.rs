//! What mirrors want by pattern, compiled once per change of their lists: every unknown name that a
//! client asks for is held against it.

use std::sync::Arc;

use tarn_metadata::Image;

use crate::config::patterns::Patterns;
use crate::config::{BrokerSettings, MirrorConfig};

/// Include and exclude patterns of one mirror.
type Lists = (Arc<Patterns>, Arc<Patterns>);

/// The same as written.
type Written = (Vec<String>, Vec<String>);

/// The lists of all mirrors as of one image.
#[derive(Debug, Default)]
pub(super) struct WantedTopics {
    /// Offset of the image.
    offset: Option<i64>,
    /// The lists as written, and compiled; those that do not compile are left out.
    mirrors: Vec<(Written, Lists)>,
    compiled: Arc<Vec<Lists>>,
    /// What was compiled ahead, for this and for the refreshes.
    held: Vec<Arc<Patterns>>,
}

impl WantedTopics {
    /// Keeps what was compiled ahead for the newest image.
    pub(super) fn keep(&mut self, held: Vec<Arc<Patterns>>) {
        self.held = held;
    }

    /// The compiled lists of an image; cheap unless it is a new one, and then only what changed is
    /// compiled.
    pub(super) fn of(&mut self, image: &Image, settings: &BrokerSettings) -> Arc<Vec<Lists>> {
        if self.offset == Some(image.offset()) {
            return self.compiled.clone();
        }
        let before = std::mem::take(&mut self.mirrors);
        for (name, _) in image.mirrors() {
            let config = MirrorConfig::of(image, name, settings);
            let written = config.topic_lists();
            let known = before.iter().find(|(lists, _)| *lists == written);
            let compiled = match known {
                Some((_, compiled)) => compiled.clone(),
                None => match config.topic_patterns() {
                    Ok(patterns) => patterns,
                    Err(_) => continue,
                },
            };
            self.mirrors.push((written, compiled));
        }
        self.compiled = Arc::new(
            self.mirrors
                .iter()
                .map(|(_, lists)| lists.clone())
                .collect(),
        );
        self.offset = Some(image.offset());
        self.compiled.clone()
    }
}
