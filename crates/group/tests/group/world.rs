//! A broker with a group coordinator and an image made by hand.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_coordinator::{InternalTopic, TopicCreator, system_clock};
use tarn_group::{GroupConfig, GroupCoordinator, RequestContext};
use tarn_metadata::{Image, Record};
use tarn_replica::{ReplicaConfig, ReplicaManager};
use tarn_wire::messages::join_group_request::JoinGroupRequestProtocol;
use tarn_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use tarn_wire::messages::{
    FindCoordinatorRequest, JoinGroupRequest, JoinGroupResponse, PartitionRecord,
    RemoveTopicRecord, SyncGroupRequest, SyncGroupResponse, TopicRecord,
};
use tarn_wire::{Message, Str, Uuid, encode_body};

const NODE: i32 = 1;

pub(crate) struct World {
    _dir: tempfile::TempDir,
    pub(crate) groups: Arc<GroupCoordinator>,
    replicas: Arc<ReplicaManager>,
    image: Arc<Mutex<Image>>,
}

impl World {
    /// A broker with `__consumer_offsets` and the topics `t` (2 partitions) and `u` (1).
    pub(crate) async fn new() -> World {
        let world = World::bare().await;
        world.add_topic("t", 2).await;
        world.add_topic("u", 1).await;
        world.add_topic("__consumer_offsets", 4).await;
        world.loaded().await;
        world
    }

    /// A broker without any topic.
    pub(crate) async fn bare() -> World {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = ReplicaConfig::new(NODE, vec![dir.path().to_owned()]);
        let replicas = ReplicaManager::start(config, Arc::new(Image::default()))
            .await
            .expect("starts");
        let image = Arc::new(Mutex::new(Image::default()));
        let groups = coordinator(&replicas, &image);
        World {
            _dir: dir,
            groups,
            replicas,
            image,
        }
    }

    /// The coordinator forgets everything and loads again.
    pub(crate) async fn reload(&mut self) {
        self.groups.shutdown().await;
        self.groups = coordinator(&self.replicas, &self.image);
        self.groups
            .apply(&self.replicas.image(), &Default::default());
        self.loaded().await;
    }

    /// The coordinator forgets everything and does not load: no partition is led here.
    pub(crate) async fn without_coordinator(&mut self) {
        self.groups.shutdown().await;
        self.groups = coordinator(&self.replicas, &self.image);
    }

    async fn loaded(&self) {
        loop {
            let listed = self.groups.list_groups(Default::default()).await;
            if listed.error_code == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn add_topic(&self, name: &str, partitions: i32) {
        apply(
            &self.replicas,
            &self.image,
            &topic_records(name, partitions),
            &self.groups,
        )
        .await;
    }

    pub(crate) async fn remove_topic(&self, name: &str) {
        let record = RemoveTopicRecord {
            topic_id: id(name),
            ..Default::default()
        };
        apply(
            &self.replicas,
            &self.image,
            &[Record::RemoveTopic(record)],
            &self.groups,
        )
        .await;
    }

    pub(crate) async fn join(&self, request: JoinGroupRequest, version: i16) -> JoinGroupResponse {
        checked(
            self.groups.join(request, version, &context()).await,
            version,
        )
    }

    pub(crate) async fn sync(&self, request: SyncGroupRequest, version: i16) -> SyncGroupResponse {
        checked(self.groups.sync(request, version).await, version)
    }
}

fn coordinator(replicas: &Arc<ReplicaManager>, image: &Arc<Mutex<Image>>) -> Arc<GroupCoordinator> {
    let (manager, shared) = (replicas.clone(), image.clone());
    let creator: TopicCreator = Arc::new(move |topic: InternalTopic| {
        let (manager, shared) = (manager.clone(), shared.clone());
        Box::pin(async move {
            if shared.lock().topic(&topic.name).is_some() {
                return Ok(());
            }
            let records = topic_records(&topic.name, topic.partitions);
            let (image, delta) = advance(&shared, &records);
            manager.apply(Arc::new(image), &delta).await;
            Ok(())
        })
    });
    let config = GroupConfig {
        offsets_topic_partitions: 4,
        initial_rebalance_delay_ms: 50,
        ..GroupConfig::default()
    };
    GroupCoordinator::new(config, replicas.clone(), creator, system_clock())
}

fn advance(image: &Mutex<Image>, records: &[Record]) -> (Image, tarn_metadata::Delta) {
    let mut image = image.lock();
    let offset = image.offset() + records.len() as i64;
    let (next, delta) = image.apply(records, offset, 1).expect("records fit");
    *image = next.clone();
    (next, delta)
}

async fn apply(
    replicas: &Arc<ReplicaManager>,
    image: &Mutex<Image>,
    records: &[Record],
    groups: &GroupCoordinator,
) {
    let (image, delta) = advance(image, records);
    replicas.apply(Arc::new(image.clone()), &delta).await;
    groups.apply(&image, &delta);
}

pub(crate) fn id(name: &str) -> Uuid {
    let mut bytes = [9u8; 16];
    for (index, byte) in name.bytes().enumerate() {
        bytes[index % 16] ^= byte.rotate_left(index as u32 / 16);
    }
    Uuid(bytes)
}

fn topic_records(name: &str, partitions: i32) -> Vec<Record> {
    let topic = TopicRecord {
        name: Str::from(name),
        topic_id: id(name),
        ..Default::default()
    };
    let partition = |partition_id| {
        Record::Partition(PartitionRecord {
            partition_id,
            topic_id: id(name),
            replicas: vec![NODE],
            isr: vec![NODE],
            leader: NODE,
            leader_epoch: 0,
            partition_epoch: 0,
            ..Default::default()
        })
    };
    std::iter::once(Record::Topic(topic))
        .chain((0..partitions).map(partition))
        .collect()
}

pub(crate) fn context() -> RequestContext {
    RequestContext {
        client_id: Str::from("client"),
        client_host: Str::from("/127.0.0.1"),
    }
}

/// A response that can be written in its version.
pub(crate) fn checked<M: Message>(response: M, version: i16) -> M {
    encode_body(&response, version).expect("the response can be written");
    response
}

pub(crate) fn join_request(group: &str, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: Str::from(group),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: Str::from(member_id),
        protocol_type: Str::from("consumer"),
        protocols: vec![JoinGroupRequestProtocol {
            name: Str::from("range"),
            // Version 0, the topic "t", no user data.
            metadata: bytes::Bytes::from_static(&[
                0, 0, 0, 0, 0, 1, 0, 1, b't', 255, 255, 255, 255,
            ]),
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(crate) fn sync_request(
    group: &str,
    joined: &JoinGroupResponse,
    assign: bool,
) -> SyncGroupRequest {
    let assignments =
        joined
            .members
            .iter()
            .filter(|_| assign)
            .map(|member| SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: bytes::Bytes::copy_from_slice(member.member_id.as_bytes()),
                ..Default::default()
            });
    SyncGroupRequest {
        group_id: Str::from(group),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: Some(Str::from("consumer")),
        protocol_name: Some(Str::from("range")),
        assignments: assignments.collect(),
        ..Default::default()
    }
}

pub(crate) fn find_request(key: &str, version: i16) -> FindCoordinatorRequest {
    if version >= 4 {
        FindCoordinatorRequest {
            coordinator_keys: vec![Str::from(key)],
            ..Default::default()
        }
    } else {
        FindCoordinatorRequest {
            key: Str::from(key),
            ..Default::default()
        }
    }
}
