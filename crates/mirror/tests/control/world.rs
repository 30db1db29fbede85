//! A broker in a temporary directory with the mirror room, and requests to it in the early form.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_controller::{Controller, Settings};
use tarn_metadata::{Image, ResourceType};
use tarn_mirror::config::BrokerSettings;
use tarn_mirror::dialect::{Caller, DialectMemory, WireDialect};
use tarn_mirror::seam::FetchEvents;
use tarn_mirror::service::reply::Body;
use tarn_mirror::service::{MirrorReply, MirrorService, alter_hook};
use tarn_records::BatchBuilder;
use tarn_replica::{AppendSource, Partition, ReplicaConfig, ReplicaError, ReplicaManager};
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Message, Str, Uuid, encode_body};
use tokio::task::JoinHandle;

use crate::scripted::Scripted;

pub(crate) const CLUSTER: &str = "our-cluster";
pub(crate) const MIRROR: &str = "m";
/// The log directory: partitions lie where the metadata says.
const DIRECTORY: Uuid = Uuid([0x77; 16]);

pub(crate) struct World {
    pub(crate) controller: Controller,
    pub(crate) replicas: Arc<ReplicaManager>,
    pub(crate) service: Arc<MirrorService>,
    pub(crate) plane: Scripted,
    applier: JoinHandle<()>,
}

impl World {
    pub(crate) async fn start(dir: &Path, plane: Scripted) -> World {
        World::start_with(dir, plane, 200).await
    }

    async fn start_with(dir: &Path, plane: Scripted, refresh_interval_ms: i64) -> World {
        let mut settings = Settings::single(1, CLUSTER, dir);
        settings
            .rules
            .alter_hooks
            .push((ResourceType::MIRROR, alter_hook()));
        let controller = Controller::start(settings)
            .await
            .expect("controller starts");
        controller
            .register_and_unfence(registration())
            .await
            .expect("registers");
        let logs = dir.join("logs");
        let meta = tarn_log::MetaProperties {
            cluster_id: CLUSTER.to_owned(),
            node_id: Some(1),
            directory_id: Some(DIRECTORY.to_string()),
        };
        meta.write(&logs).expect("is formatted");
        let config = ReplicaConfig {
            sync_threads: 1,
            ..ReplicaConfig::new(1, vec![logs])
        };
        let image = controller.image();
        let replicas = ReplicaManager::start(config, image)
            .await
            .expect("replicas start");
        let applier = tokio::spawn(follow(controller.clone(), replicas.clone()));
        let mut broker = BrokerSettings::new(1, Str::from(CLUSTER));
        broker.state_topic_partitions = 3;
        broker.refresh_interval_ms = refresh_interval_ms;
        broker.retry.initial_backoff_ms = 20;
        let after = "mirror.source.topic.deletion.after.ms";
        broker.defaults.insert(after.into(), "300".into());
        let service = MirrorService::start(
            controller.clone(),
            replicas.clone(),
            broker,
            Arc::new(plane.clone()),
            |_| {},
        );
        World {
            controller,
            replicas,
            service,
            plane,
            applier,
        }
    }

    /// A broker with the mirror `m` in it.
    pub(crate) async fn with_mirror(dir: &Path, plane: Scripted) -> World {
        World::with_interval(dir, plane, 200).await
    }

    /// As [`World::with_mirror`], refreshed this often.
    pub(crate) async fn with_interval(dir: &Path, plane: Scripted, ms: i64) -> World {
        let world = World::start_with(dir, plane, ms).await;
        let reply = world
            .create(MIRROR, &[("bootstrap.servers", "source:9092")])
            .await;
        assert_eq!(reply.error_code, 0, "{:?}", reply.error_message);
        world
    }

    /// Ends the process without any farewell to mirroring.
    pub(crate) async fn stop(self) {
        self.service.shutdown().await;
        self.applier.abort();
        let _ = self.applier.await;
        self.replicas.shutdown(1).await.expect("logs close");
        self.controller.shutdown().await.expect("controller stops");
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        self.controller.image()
    }

    pub(crate) fn events(&self) -> Arc<dyn FetchEvents> {
        self.service.events()
    }

    pub(crate) async fn send<M: Message>(&self, key: ApiKey, request: &M) -> MirrorReply {
        let body = encode_body(request, 0)
            .expect("encodes")
            .to_bytes()
            .unwrap_or_default();
        self.raw(key, body, &mut DialectMemory::new(WireDialect::Auto))
            .await
    }

    /// From a client of this product on this host: nothing is remembered of it beyond its connection.
    pub(crate) async fn raw(
        &self,
        key: ApiKey,
        body: Bytes,
        memory: &mut DialectMemory,
    ) -> MirrorReply {
        let own = Caller {
            is_own_product: true,
            is_broker: true,
            ..tool([127, 0, 0, 1], "tarn-mirrors")
        };
        self.raw_from(&own, key, body, memory).await
    }

    pub(crate) async fn raw_from(
        &self,
        caller: &Caller,
        key: ApiKey,
        body: Bytes,
        memory: &mut DialectMemory,
    ) -> MirrorReply {
        self.service.handle(key, body, caller, memory).await
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        configs: &[(&str, &str)],
    ) -> m::CreateMirrorResponse {
        let config = |(k, v): &(&str, &str)| m::create_mirror_request::MirrorConfig {
            name: Str::from(*k),
            value: Some(Str::from(*v)),
            ..Default::default()
        };
        let request = m::CreateMirrorRequest {
            mirror_name: Str::from(name),
            config: configs.iter().map(config).collect(),
            ..Default::default()
        };
        match self.send(ApiKey::CREATE_MIRROR, &request).await.body() {
            Body::CreateMirrorResponse(response) => response.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Adds by patterns, as our own tool does. Gives (topic, code, text).
    pub(crate) async fn add(&self, patterns: &[&str]) -> Vec<(String, i16, Option<String>)> {
        let request = m::AddTopicsToMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: patterns.iter().map(|p| Str::from(*p)).collect(),
            ..Default::default()
        };
        match self
            .send(ApiKey::ADD_TOPICS_TO_MIRROR, &request)
            .await
            .body()
        {
            Body::AddTopicsToMirrorResponse(r) => {
                assert!(
                    r.error_code == 0 || !r.topics.is_empty(),
                    "{:?}",
                    r.error_message
                );
                r.topics
                    .iter()
                    .map(|t| {
                        (
                            t.name.to_string(),
                            t.error_code,
                            t.error_message.as_ref().map(|e| e.to_string()),
                        )
                    })
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn remove(&self, patterns: &[&str]) -> i16 {
        let request = m::RemoveTopicsFromMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: patterns.iter().map(|p| Str::from(*p)).collect(),
            ..Default::default()
        };
        match self
            .send(ApiKey::REMOVE_TOPICS_FROM_MIRROR, &request)
            .await
            .body()
        {
            Body::RemoveTopicsFromMirrorResponse(r) => r.error_code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn pause(&self, topic: &str) -> i16 {
        let request = m::PauseMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        match self
            .send(ApiKey::PAUSE_MIRROR_TOPICS, &request)
            .await
            .body()
        {
            Body::PauseMirrorTopicsResponse(r) => r.error_code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn resume(&self, topic: &str) -> i16 {
        let request = m::ResumeMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        match self
            .send(ApiKey::RESUME_MIRROR_TOPICS, &request)
            .await
            .body()
        {
            Body::ResumeMirrorTopicsResponse(r) => r.error_code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn delete(&self) -> (i16, Option<String>) {
        let request = m::DeleteMirrorRequest {
            mirror_name: Str::from(MIRROR),
            ..Default::default()
        };
        match self.send(ApiKey::DELETE_MIRROR, &request).await.body() {
            Body::DeleteMirrorResponse(r) => (
                r.error_code,
                r.error_message.as_ref().map(|e| e.to_string()),
            ),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn describe(&self) -> m::DescribeMirrorsResponse {
        let request = m::DescribeMirrorsRequest::default();
        match self.send(ApiKey::DESCRIBE_MIRRORS, &request).await.body() {
            Body::DescribeMirrorsResponse(r) => r.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn partition_of(
        &self,
        topic: &str,
        partition: i32,
    ) -> Option<m::describe_mirrors_response::DescribedMirrorPartition> {
        let described = self.describe().await;
        let topics = described.mirrors.into_iter().flat_map(|m| m.topics);
        let found = topics.into_iter().find(|t| t.topic_name == *topic)?;
        found
            .partitions
            .into_iter()
            .find(|p| p.partition_index == partition)
    }

    pub(crate) async fn state(&self, topic: &str) -> String {
        self.partition_of(topic, 0)
            .await
            .map(|p| p.state.to_string())
            .unwrap_or_default()
    }

    pub(crate) async fn until(&self, topic: &str, state: &str) {
        let started = Instant::now();
        loop {
            let now = self.partition_of(topic, 0).await;
            if now.as_ref().is_some_and(|p| p.state == *state) {
                return;
            }
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{topic} does not become {state}: {now:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for something else.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < Duration::from_secs(10), "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Arc<Partition> {
        self.replicas
            .partition(topic, partition)
            .expect("the partition is open")
    }

    /// Records as they come from the source.
    pub(crate) fn mirror(&self, topic: &str, partition: i32, batch: &[u8]) {
        let partition = self.partition(topic, partition);
        let mut append = partition
            .mirror_append(partition.log().log_end_offset(), NOW)
            .expect("may mirror");
        append.push(batch).expect("pushes");
        append.finish().expect("finishes");
    }

    pub(crate) fn produce(&self, topic: &str) -> Result<i64, ReplicaError> {
        let mut builder = BatchBuilder::new();
        builder.add(NOW, None, Some(b"local"), &[]);
        let mut bytes = builder.build().expect("builds");
        self.partition(topic, 0)
            .append(&mut bytes, AppendSource::Client, NOW)
            .map(|info| info.first_offset)
    }
}

/// A tool somewhere in the network.
pub(crate) fn tool(address: [u8; 4], client_id: &str) -> Caller {
    Caller {
        address: address.into(),
        client_id: Str::from(client_id),
        is_broker: false,
        is_own_product: false,
    }
}

pub(crate) const NOW: i64 = 1_700_000_000_000;

/// A batch of a source.
pub(crate) fn source_batch(base_offset: i64, epoch: i32, count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(epoch);
    for index in 0..count {
        builder.add(NOW + index as i64, None, Some(b"mirrored"), &[]);
    }
    builder.build().expect("builds")
}

/// A batch of a transaction that stays open.
pub(crate) fn open_transaction(base_offset: i64, epoch: i32, producer_id: i64) -> Vec<u8> {
    let builder = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(epoch);
    let mut builder = builder.producer(producer_id, 0, 0).transactional();
    builder.add(NOW, None, Some(b"undecided"), &[]);
    builder.build().expect("builds")
}

async fn follow(controller: Controller, replicas: Arc<ReplicaManager>) {
    let mut images = controller.subscribe();
    while let Some((image, delta)) = images.next().await {
        replicas.apply(image, &delta).await;
    }
}

fn registration() -> m::BrokerRegistrationRequest {
    m::BrokerRegistrationRequest {
        broker_id: 1,
        cluster_id: Str::from(CLUSTER),
        incarnation_id: Uuid::random(),
        listeners: vec![m::broker_registration_request::Listener {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            ..Default::default()
        }],
        rack: None,
        log_dirs: vec![DIRECTORY],
        ..Default::default()
    }
}
