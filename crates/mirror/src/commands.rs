//! What the mirror APIs make of the metadata: pure decisions for the controller's `submit`
//! (docs/mirroring.md §2, §1.2).
//!
//! Each takes the image and the request and gives records, or says why not. Nothing here knows a
//! source, a clock or a dialect: whatever the source said is part of the request. A topic that
//! reports an error gets no record at all; its neighbours go on.

mod carried;
mod definition;
mod growth;
mod members;
mod patterns;
mod plan;
mod topics;
mod wishes;

pub use self::carried::carried_configs;
pub(crate) use self::definition::check_create;
pub use self::definition::{
    AlterOp, CreateMirror, alter_mirror, create_mirror, creators_dialect, delete_mirror,
    set_cluster_id, synced_keys,
};
pub use self::growth::{
    ConfigChanges, adopt_source_id, exclude_topic, grow_topic, set_stopped, sync_configs,
};
pub use self::plan::{BumpRefusal, LEADER_EPOCH_MAX, NewTopic, Planner, bump_epochs, bump_members};
pub use self::topics::{AddTopic, AddTopics, EarlierParts, SourceFacts, add_topics, fulfil_wanted};
pub use self::wishes::{ChangeTopics, Wish, change_topics, choose};

use tarn_metadata::Record;
use tarn_wire::Str;

use crate::dialect::MirrorError;

/// What happened to one topic of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicResult {
    /// Topic name, always filled.
    pub name: Str,
    /// `None` = done.
    pub error: Option<MirrorError>,
}

impl TopicResult {
    pub(crate) fn done(name: &Str) -> TopicResult {
        TopicResult {
            name: name.clone(),
            error: None,
        }
    }

    pub(crate) fn refused(name: &Str, error: MirrorError) -> TopicResult {
        TopicResult {
            name: name.clone(),
            error: Some(error),
        }
    }
}

/// Records to commit together, and the answer per topic in the order of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Records.
    pub records: Vec<Record>,
    /// Results.
    pub topics: Vec<TopicResult>,
}

/// Names of topics a mirror never touches: they belong to this cluster.
pub fn is_internal(topic: &str) -> bool {
    matches!(
        topic,
        "__consumer_offsets"
            | "__transaction_state"
            | "__share_group_state"
            | "__mirror_state"
            | "__cluster_metadata"
    )
}
