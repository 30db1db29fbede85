//! A broker with the mirror room in a temporary directory, and requests to it from this product's
//! own tool, in the early form.

use std::path::Path;
use std::sync::Arc;

use tarn_controller::{Controller, Settings};
use tarn_metadata::ResourceType;
use tarn_mirror::config::BrokerSettings;
use tarn_mirror::dialect::{Caller, DialectMemory, WireDialect};
use tarn_mirror::seam::{DataPlane, FetchEvents};
use tarn_mirror::service::reply::Body;
use tarn_mirror::service::{MirrorReply, MirrorService, alter_hook};
use tarn_replica::{Partition, ReplicaConfig, ReplicaManager};
use tarn_wire::messages as m;
use tarn_wire::messages::describe_mirrors_response::DescribedMirrorPartition;
use tarn_wire::{ApiKey, Message, Str, Uuid, encode_body};
use tokio::task::JoinHandle;

pub(crate) const CLUSTER: &str = "our-cluster";
pub(crate) const MIRROR: &str = "m";
/// The log directory: partitions lie where the metadata says.
const DIRECTORY: Uuid = Uuid([0x77; 16]);

/// A controller, the logs, and the task that brings the metadata from one to the other: a broker
/// without the mirror room.
pub(crate) struct Node {
    pub(crate) controller: Controller,
    pub(crate) replicas: Arc<ReplicaManager>,
    applier: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn open(dir: &Path) -> Node {
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
        let replicas = ReplicaManager::start(config, controller.image())
            .await
            .expect("replicas start");
        let applier = tokio::spawn(follow(controller.clone(), replicas.clone()));
        Node {
            controller,
            replicas,
            applier,
        }
    }

    /// Starts the mirror room.
    pub(crate) fn with_mirroring(
        self,
        settings: BrokerSettings,
        plane: Arc<dyn DataPlane>,
        bind: impl FnOnce(Arc<dyn FetchEvents>),
    ) -> Broker {
        let service = MirrorService::start(
            self.controller.clone(),
            self.replicas.clone(),
            settings,
            plane,
            bind,
        );
        Broker {
            controller: self.controller,
            replicas: self.replicas,
            service,
            applier: self.applier,
        }
    }
}

pub(crate) struct Broker {
    pub(crate) controller: Controller,
    pub(crate) replicas: Arc<ReplicaManager>,
    pub(crate) service: Arc<MirrorService>,
    applier: JoinHandle<()>,
}

impl Broker {
    /// Ends everything but the mirror room, which its owner ends before.
    pub(crate) async fn close(self) {
        self.applier.abort();
        let _ = self.applier.await;
        self.replicas.shutdown(1).await.expect("logs close");
        self.controller.shutdown().await.expect("controller stops");
    }

    pub(crate) async fn send<M: Message>(&self, key: ApiKey, request: &M) -> MirrorReply {
        let body = encode_body(request, 0)
            .expect("encodes")
            .to_bytes()
            .unwrap_or_default();
        let mut connection = DialectMemory::new(WireDialect::Auto);
        self.service
            .handle(key, body, &own_tool(), &mut connection)
            .await
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
            patterns: strs(patterns),
            ..Default::default()
        };
        let reply = self.send(ApiKey::ADD_TOPICS_TO_MIRROR, &request).await;
        let Body::AddTopicsToMirrorResponse(r) = reply.body() else {
            panic!("{:?}", reply.body())
        };
        let told = r.error_code == 0 || !r.topics.is_empty();
        assert!(told, "{:?}", r.error_message);
        let result = |t: &m::add_topics_to_mirror_response::MirrorTopicResult| {
            let text = t.error_message.as_ref().map(|e| e.to_string());
            (t.name.to_string(), t.error_code, text)
        };
        r.topics.iter().map(result).collect()
    }

    pub(crate) async fn remove(&self, patterns: &[&str]) -> i16 {
        let request = m::RemoveTopicsFromMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: strs(patterns),
            ..Default::default()
        };
        let key = ApiKey::REMOVE_TOPICS_FROM_MIRROR;
        match self.send(key, &request).await.body() {
            Body::RemoveTopicsFromMirrorResponse(r) => r.error_code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn pause(&self, topic: &str) -> i16 {
        let request = m::PauseMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: strs(&[topic]),
            ..Default::default()
        };
        let key = ApiKey::PAUSE_MIRROR_TOPICS;
        match self.send(key, &request).await.body() {
            Body::PauseMirrorTopicsResponse(r) => r.error_code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn resume(&self, topic: &str) -> i16 {
        let request = m::ResumeMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: strs(&[topic]),
            ..Default::default()
        };
        let key = ApiKey::RESUME_MIRROR_TOPICS;
        match self.send(key, &request).await.body() {
            Body::ResumeMirrorTopicsResponse(r) => r.error_code,
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

    /// A partition as describe shows it.
    pub(crate) async fn partition_of(
        &self,
        topic: &str,
        partition: i32,
    ) -> Option<DescribedMirrorPartition> {
        let described = self.describe().await;
        let topics = described.mirrors.into_iter().flat_map(|m| m.topics);
        let found = topics.into_iter().find(|t| t.topic_name == *topic)?;
        found
            .partitions
            .into_iter()
            .find(|p| p.partition_index == partition)
    }

    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Arc<Partition> {
        self.replicas
            .partition(topic, partition)
            .expect("the partition is open")
    }
}

/// Settings for a small machine and short tests: the source is looked at this often, and this is
/// the first pause before a FAILED partition is retried.
pub(crate) fn settings(refresh_interval_ms: i64, retry_ms: i64) -> BrokerSettings {
    let mut settings = BrokerSettings::new(1, Str::from(CLUSTER));
    settings.state_topic_partitions = 3;
    settings.refresh_interval_ms = refresh_interval_ms;
    settings.retry.initial_backoff_ms = retry_ms;
    settings
}

/// A client of this product on this host: nothing is remembered of it beyond its connection.
pub(crate) fn own_tool() -> Caller {
    Caller {
        address: [127, 0, 0, 1].into(),
        client_id: Str::from("tarn-mirrors"),
        is_broker: true,
        is_own_product: true,
    }
}

fn strs(list: &[&str]) -> Vec<Str> {
    list.iter().map(|text| Str::from(*text)).collect()
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
