//! The controller as this room sees it: the image, and having a decision of [`crate::commands`]
//! made. The one place that knows how errors of the controller look to our callers.

use std::sync::Arc;

use tarn_controller::{Controller, ControllerError, Ctx};
use tarn_metadata::Image;

use crate::commands::{Decision, Planner, TopicResult};
use crate::dialect::MirrorError;
use crate::seam::BoxFuture;

/// A pure decision on its way to the controller's event loop.
pub type DecideFn =
    Box<dyn FnOnce(&Image, &mut dyn Planner) -> Result<Decision, MirrorError> + Send>;

/// Metadata, read and decided.
pub trait Metadata: Send + Sync + 'static {
    /// The newest committed image.
    fn image(&self) -> Arc<Image>;
    /// Has a decision made; resolves when its records are committed and applied to the image.
    fn decide(
        &self,
        name: &'static str,
        decide: DecideFn,
    ) -> BoxFuture<'_, Result<Vec<TopicResult>, MirrorError>>;
}

impl From<ControllerError> for MirrorError {
    fn from(error: ControllerError) -> MirrorError {
        MirrorError::Other {
            code: error.code(),
            text: error.to_string(),
        }
    }
}

impl Metadata for Controller {
    fn image(&self) -> Arc<Image> {
        Controller::image(self)
    }

    fn decide(
        &self,
        name: &'static str,
        decide: DecideFn,
    ) -> BoxFuture<'_, Result<Vec<TopicResult>, MirrorError>> {
        Box::pin(self.submit(name, move |image: &Image, ctx: &mut Ctx| {
            let decision = decide(image, ctx)?;
            Ok((decision.records, decision.topics))
        }))
    }
}
