//! Internal topics on demand: what to create, and the seam through which the server creates it with
//! the broker's own identity.

use std::sync::Arc;

use tarn_wire::Str;

use crate::store::BoxFuture;

/// An internal topic as it has to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalTopic {
    /// Name, e.g. `__consumer_offsets`.
    pub name: Str,
    /// Number of partitions at creation; afterwards only the topic itself is asked.
    pub partitions: i32,
    /// Replication factor at creation.
    pub replication_factor: i16,
    /// Topic configurations.
    pub configs: Vec<(Str, Str)>,
}

/// Creates an internal topic through the controller with the broker's own identity. "Exists
/// already" is success. Resolves when the topic is in the metadata image.
pub type TopicCreator =
    Arc<dyn Fn(InternalTopic) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
