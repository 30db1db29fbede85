//! The mirror room as the server holds it.

use std::sync::Arc;

use tarn_controller::{Controller, Rules};
use tarn_metadata::{Delta, Image};
use tarn_replica::ReplicaManager;

use crate::config::Config;
use crate::error::StartError;

/// Handle to everything of mirroring.
pub(crate) struct MirrorRoom {}

impl MirrorRoom {
    /// Whether a mirror wants (or would discover) a topic of this name.
    pub(crate) fn wants_topic(&self, image: &Image, name: &str) -> bool {
        image
            .membership(name)
            .is_some_and(|membership| membership.is_wanted())
    }

    /// Follows the metadata.
    pub(crate) fn apply(&self, image: &Arc<Image>, delta: &Arc<Delta>) {
        let _ = (image, delta);
    }

    /// Ends every task of the room.
    pub(crate) async fn shutdown(&self) {}
}

/// Rules of the controller that the mirror room brings.
pub(crate) fn rules(config: &Config) -> Rules {
    let _ = config;
    Rules::default()
}

/// Starts the room, unless it is switched off.
pub(crate) fn mirror(
    config: &Config,
    replicas: &Arc<ReplicaManager>,
    controller: &Controller,
) -> Result<Option<MirrorRoom>, StartError> {
    let _ = (config, replicas, controller);
    Ok(None)
}
