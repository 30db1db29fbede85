//! A partition to fetch into, over a real log in a temporary directory, for the unit tests beside
//! this.

use std::sync::Arc;
use std::time::Duration;

use tarn_metadata::{Image, Record};
use tarn_records::BatchBuilder;
use tarn_replica::{ReplicaConfig, ReplicaManager};
use tarn_wire::messages::{MirrorMembershipRecord, PartitionRecord, TopicRecord};
use tarn_wire::{Str, Uuid};
use tokio::time::Instant;

use super::partition_state::{PartitionFetchState, SourceLeader, Tracked};
use crate::seam::{FetchAssignment, MirrorPartition};

pub(super) const NOW: i64 = 1_700_000_000_000;
pub(super) const BACKOFF: Duration = Duration::from_millis(500);
pub(super) const LEADER: SourceLeader = SourceLeader { node: 7, epoch: 4 };
const NODE: i32 = 1;
const ID: Uuid = Uuid([7; 16]);

/// A partition of a mirror topic, empty, and what it lives on.
pub(super) struct World {
    pub(super) partition: Arc<PartitionFetchState>,
    _replicas: Arc<ReplicaManager>,
    _dir: tempfile::TempDir,
}

impl World {
    /// As [`World::new`], with a known leader whose content was compared.
    pub(super) async fn ready() -> World {
        let world = World::new().await;
        world.partition.with(|s| s.set_leader(Some(LEADER)));
        let turn = world.partition.begin_check(Instant::now());
        assert_eq!(turn, Some(LEADER));
        world.partition.end_check(false);
        world
    }

    pub(super) async fn new() -> World {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = ReplicaConfig {
            sync_threads: 1,
            ..ReplicaConfig::new(NODE, vec![dir.path().to_owned()])
        };
        let image = Image::default();
        let replicas = ReplicaManager::start(config, Arc::new(image.clone()))
            .await
            .expect("starts");
        let (image, delta) = image.apply(&records(), 3, 1).expect("records fit");
        replicas.apply(Arc::new(image), &delta).await;
        let local = replicas.partition("t", 0).expect("the partition is open");
        let assignment = FetchAssignment {
            partition: MirrorPartition {
                mirror: "m".into(),
                topic: "t".into(),
                topic_id: ID,
                partition: 0,
            },
            source_topic_id: Some(ID),
            leader_epoch: 0,
        };
        let tracked: Arc<parking_lot::Mutex<Tracked>> = Arc::default();
        World {
            partition: PartitionFetchState::new(assignment, local, tracked, BACKOFF),
            _replicas: replicas,
            _dir: dir,
        }
    }

    pub(super) fn end(&self) -> i64 {
        self.partition.local.log().log_end_offset()
    }
}

fn records() -> [Record; 3] {
    let topic = TopicRecord {
        name: Str::from("t"),
        topic_id: ID,
        ..Default::default()
    };
    let partition = PartitionRecord {
        topic_id: ID,
        replicas: vec![NODE],
        isr: vec![NODE],
        leader: NODE,
        partition_id: 0,
        leader_epoch: 0,
        partition_epoch: 0,
        ..Default::default()
    };
    let membership = MirrorMembershipRecord {
        topic_id: ID,
        topic_name: Str::from("t"),
        mirror_name: Some(Str::from("m")),
        desired_state: 1,
        ..Default::default()
    };
    [
        Record::Topic(topic),
        Record::Partition(partition),
        Record::MirrorMembership(membership),
    ]
}

/// A batch of ten records as it comes from a source.
pub(super) fn batch(base_offset: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(LEADER.epoch);
    for index in 0..10 {
        builder.add(NOW + index, None, Some(b"mirrored"), &[]);
    }
    builder.build().expect("builds")
}
