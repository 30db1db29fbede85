//! [`GroupCoordinator`]: the room as the server sees it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_coordinator::{
    Clock, CoordinatorError, ReplicaStore, Runtime, RuntimeConfig, TopicCreator,
};
use tarn_metadata::{Change, Delta, Image};
use tarn_replica::ReplicaManager;
use tarn_wire::{ErrorCode, Str};

use crate::OFFSETS_TOPIC;
use crate::config::{GroupConfig, ID_BYTES_MAX};
use crate::shard::GroupShard;

/// Partitions that one turn of a partition's event loop looks at or writes; longer requests take
/// several turns.
pub(crate) const PIECE_PARTITIONS: usize = 2_000;

/// Says whether so many more bytes of an answer are allowed, and counts them; the code is for whom
/// the answer then goes without. Called with the part in hand, so an answer exceeds what is allowed
/// by one part at most.
pub type AnswerRoom<'a> = &'a (dyn Fn(usize) -> Result<(), ErrorCode> + Sync);

/// Who sends a request.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Client id of the request header; empty when it has none.
    pub client_id: Str,
    /// Address of the peer as Kafka shows it, e.g. `/127.0.0.1`.
    pub client_host: Str,
}

/// The group coordinator of this broker: every method takes a request of the wire and gives its
/// response, errors included.
pub struct GroupCoordinator {
    pub(crate) config: GroupConfig,
    pub(crate) runtime: Arc<Runtime<GroupShard>>,
    pub(crate) replicas: Arc<ReplicaManager>,
}

impl GroupCoordinator {
    /// A coordinator that serves nothing until [`GroupCoordinator::apply`] has seen an image.
    /// `creator` creates `__consumer_offsets`.
    pub fn new(
        config: GroupConfig,
        replicas: Arc<ReplicaManager>,
        creator: TopicCreator,
        clock: Clock,
    ) -> Arc<Self> {
        let store = ReplicaStore::new(replicas.clone(), Str::from_static(OFFSETS_TOPIC));
        let shard_config = config.clone();
        let factory = move |_| GroupShard::new(&shard_config);
        let runtime = Runtime::new(
            RuntimeConfig::new(config.topic()),
            store,
            creator,
            clock,
            factory,
        );
        Arc::new(GroupCoordinator {
            config,
            runtime,
            replicas,
        })
    }

    /// Follows the metadata: partitions led here are served, offsets of deleted topics are
    /// forgotten. Call it for each image in order, after the replica room has applied it. Does not
    /// wait.
    pub fn apply(&self, image: &Image, delta: &Delta) {
        self.runtime.apply(image, self.replicas.node_id());
        let deleted: BTreeSet<Str> = delta
            .topics
            .values()
            .filter(|change| {
                change.change == Change::Deleted && image.topic(&change.name).is_none()
            })
            .map(|change| change.name.clone())
            .collect();
        if deleted.is_empty() {
            return;
        }
        let deleted = Arc::new(deleted);
        for partition in self.runtime.led() {
            let topics = deleted.clone();
            let forgotten =
                self.runtime
                    .submit(partition, move |shard, _| tarn_coordinator::Outcome {
                        records: shard.forget_topics(&topics),
                        after: None,
                    });
            if let Err(error) = forgotten {
                tracing::warn!(partition, %error, "offsets of deleted topics stay until they expire");
            }
        }
    }

    /// Ends every event loop; waiting requests get an answer.
    pub async fn shutdown(&self) {
        self.runtime.shutdown().await;
    }

    /// The partition of a group, if `__consumer_offsets` exists. Every request about a group comes
    /// by here, so that no id gets in that the records have no room for.
    pub(crate) fn partition_of(&self, group: &str) -> Result<i32, Refused> {
        if group.len() > self.config.id_bytes_max.min(ID_BYTES_MAX) {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        let missing = || CoordinatorError::Unavailable {
            topic: OFFSETS_TOPIC.to_owned(),
            reason: "it does not exist yet, look up the coordinator first".to_owned(),
        };
        Ok(self.runtime.partition_for(group).ok_or_else(missing)?)
    }
}

/// Why a group request failed: the coordinator itself, or the group's rules.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) ErrorCode);

impl From<CoordinatorError> for Refused {
    fn from(error: CoordinatorError) -> Self {
        tracing::debug!(%error, "group request refused");
        Refused(error.code())
    }
}
