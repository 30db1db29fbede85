//! A broker with the mirror room and the real data plane, mirroring from a scripted source.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_controller::{Controller, Settings};
use tarn_metadata::ResourceType;
use tarn_mirror::config::BrokerSettings;
use tarn_mirror::dialect::{Caller, DialectMemory, WireDialect};
use tarn_mirror::fetcher::FetchPlane;
use tarn_mirror::seam::{BoxFuture, FetchEvents, FetchFailure, MirrorPartition};
use tarn_mirror::service::reply::Body;
use tarn_mirror::service::{MirrorReply, MirrorService, alter_hook};
use tarn_replica::{Partition, ReplicaConfig, ReplicaManager};
use tarn_wire::messages as m;
use tarn_wire::messages::describe_mirrors_response::DescribedMirrorPartition;
use tarn_wire::{ApiKey, Message, Str, Uuid, encode_body};
use tokio::task::JoinHandle;

use crate::fake::Fake;

const CLUSTER: &str = "our-cluster";
const MIRROR: &str = "m";
/// The log directory: partitions lie where the metadata says.
const DIRECTORY: Uuid = Uuid([0x77; 16]);
/// Generous: the machine may be busy.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct World {
    controller: Controller,
    pub(crate) replicas: Arc<ReplicaManager>,
    service: Arc<MirrorService>,
    plane: Arc<FetchPlane>,
    applier: JoinHandle<()>,
    pub(crate) source: Fake,
    /// The next report of a failure panics in the task that reports it.
    pub(crate) panics: Arc<AtomicBool>,
    _dir: Option<tempfile::TempDir>,
}

/// Hands everything on, and panics once where a test asks for it.
struct Panicky {
    inner: Arc<dyn FetchEvents>,
    panics: Arc<AtomicBool>,
}

impl FetchEvents for Panicky {
    fn raise_epoch(
        &self,
        partition: &MirrorPartition,
        min_epoch: i32,
    ) -> BoxFuture<'static, Result<i32, String>> {
        self.inner.raise_epoch(partition, min_epoch)
    }

    fn diverged(&self, partition: &MirrorPartition, text: String) {
        self.inner.diverged(partition, text);
    }

    fn failed(&self, partition: &MirrorPartition, failure: FetchFailure) {
        assert!(
            !self.panics.swap(false, Ordering::AcqRel),
            "a panic that a test asked for"
        );
        self.inner.failed(partition, failure);
    }

    fn refresh_wanted(&self, mirror: &Str, topic: &Str) {
        self.inner.refresh_wanted(mirror, topic);
    }

    fn wrong_cluster(&self, mirror: &Str, found: &str) {
        self.inner.wrong_cluster(mirror, found);
    }
}

impl World {
    /// A broker whose mirror `m` has this source.
    pub(crate) async fn start(source: &Fake) -> World {
        Self::start_with(source, &[]).await
    }

    /// As [`World::start`], with configurations of the mirror on top.
    pub(crate) async fn start_with(source: &Fake, configs: &[(&str, &str)]) -> World {
        Self::start_retrying(source, configs, 20).await
    }

    /// As [`World::start_with`], with the first pause before a FAILED partition is retried.
    pub(crate) async fn start_retrying(
        source: &Fake,
        configs: &[(&str, &str)],
        retry_ms: i64,
    ) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let mut world = Self::open(dir.path(), source, retry_ms).await;
        world._dir = Some(dir);
        let bootstrap = source.bootstrap();
        let mut all = vec![
            ("bootstrap.servers", bootstrap.as_str()),
            ("mirror.fetch.wait.max.ms", "100"),
            ("mirror.fetch.backoff.ms", "20"),
        ];
        all.extend(configs);
        let config = |(k, v): &(&str, &str)| m::create_mirror_request::MirrorConfig {
            name: Str::from(*k),
            value: Some(Str::from(*v)),
            ..Default::default()
        };
        let request = m::CreateMirrorRequest {
            mirror_name: Str::from(MIRROR),
            config: all.iter().map(config).collect(),
            ..Default::default()
        };
        match world.send(ApiKey::CREATE_MIRROR, &request).await.body() {
            Body::CreateMirrorResponse(r) => {
                assert_eq!(r.error_code, 0, "{:?}", r.error_message);
            }
            other => panic!("{other:?}"),
        }
        world
    }

    async fn open(dir: &Path, source: &Fake, retry_ms: i64) -> World {
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
        let mut broker = BrokerSettings::new(1, Str::from(CLUSTER));
        broker.state_topic_partitions = 3;
        broker.refresh_interval_ms = 300;
        broker.retry.initial_backoff_ms = retry_ms;
        let plane = FetchPlane::new(replicas.clone());
        let panics = Arc::new(AtomicBool::new(false));
        let panicky = |inner| Panicky {
            inner,
            panics: panics.clone(),
        };
        let service = MirrorService::start(
            controller.clone(),
            replicas.clone(),
            broker,
            plane.clone(),
            |events| plane.bind(Arc::new(panicky(events))),
        );
        World {
            controller,
            replicas,
            service,
            plane,
            applier,
            source: source.clone(),
            panics,
            _dir: None,
        }
    }

    /// Ends everything.
    pub(crate) async fn stop(self) {
        self.service.shutdown().await;
        self.plane.shutdown().await;
        self.applier.abort();
        let _ = self.applier.await;
        self.replicas.shutdown(1).await.expect("logs close");
        self.controller.shutdown().await.expect("controller stops");
    }

    async fn send<M: Message>(&self, key: ApiKey, request: &M) -> MirrorReply {
        let body = encode_body(request, 0)
            .expect("encodes")
            .to_bytes()
            .unwrap_or_default();
        let own = Caller {
            address: [127, 0, 0, 1].into(),
            client_id: Str::from("tests"),
            is_broker: false,
            is_own_product: true,
        };
        self.service
            .handle(key, body, &own, &mut DialectMemory::new(WireDialect::Auto))
            .await
    }

    /// Adds a topic and waits until all of it is here.
    pub(crate) async fn mirrored(&self, topic: &str) {
        self.add(topic).await;
        self.until_caught_up(topic).await;
    }

    pub(crate) async fn add(&self, topic: &str) {
        let request = m::AddTopicsToMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        match self
            .send(ApiKey::ADD_TOPICS_TO_MIRROR, &request)
            .await
            .body()
        {
            Body::AddTopicsToMirrorResponse(r) => {
                assert!(r.topics.iter().all(|t| t.error_code == 0), "{r:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn remove(&self, topic: &str) {
        let request = m::RemoveTopicsFromMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        self.send(ApiKey::REMOVE_TOPICS_FROM_MIRROR, &request).await;
    }

    pub(crate) async fn pause(&self, topic: &str) {
        let request = m::PauseMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        self.send(ApiKey::PAUSE_MIRROR_TOPICS, &request).await;
        self.until_state(topic, "PAUSED").await;
    }

    pub(crate) async fn resume(&self, topic: &str) {
        let request = m::ResumeMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: vec![Str::from(topic)],
            ..Default::default()
        };
        self.send(ApiKey::RESUME_MIRROR_TOPICS, &request).await;
    }

    /// Partition 0 of a topic as describe shows it.
    pub(crate) async fn described(&self, topic: &str) -> Option<DescribedMirrorPartition> {
        let request = m::DescribeMirrorsRequest::default();
        let reply = self.send(ApiKey::DESCRIBE_MIRRORS, &request).await;
        let Body::DescribeMirrorsResponse(described) = reply.body() else {
            return None;
        };
        let topics = described.mirrors.iter().flat_map(|m| &m.topics);
        let found = topics.into_iter().find(|t| t.topic_name == *topic)?;
        found.partitions.first().cloned()
    }

    pub(crate) async fn until_state(&self, topic: &str, state: &str) -> DescribedMirrorPartition {
        let what = format!("{topic} becomes {state}");
        self.until_shown(topic, &what, |p| p.state == *state).await
    }

    /// Waits until describe shows partition 0 so.
    pub(crate) async fn until_shown(
        &self,
        topic: &str,
        what: &str,
        holds: impl Fn(&DescribedMirrorPartition) -> bool,
    ) -> DescribedMirrorPartition {
        let begun = Instant::now();
        loop {
            let now = self.described(topic).await;
            if let Some(found) = now.clone().filter(&holds) {
                return found;
            }
            assert!(begun.elapsed() < SOON, "never: {what}: {now:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for anything else.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < SOON, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until our log ends where the source's does.
    pub(crate) async fn until_caught_up(&self, topic: &str) {
        let begun = Instant::now();
        let end = || {
            let found = self.replicas.partition(topic, 0).ok()?;
            Some(found.log().log_end_offset())
        };
        let theirs = || self.source.state.lock().topics[topic].1[0].end();
        while end() != Some(theirs()) {
            if begun.elapsed() >= SOON {
                let shown = self.described(topic).await;
                panic!("{topic} ends at {:?}, not {}: {shown:?}", end(), theirs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn partition(&self, topic: &str) -> Arc<Partition> {
        self.replicas
            .partition(topic, 0)
            .expect("the partition is open")
    }

    pub(crate) fn end(&self, topic: &str) -> i64 {
        self.partition(topic).log().log_end_offset()
    }

    /// All bytes of partition 0.
    pub(crate) fn bytes(&self, topic: &str) -> Bytes {
        let partition = self.partition(topic);
        let log = partition.log();
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        match log.read(start, u64::MAX, end, true).expect("reads") {
            Some(slice) => slice.read().expect("reads"),
            None => Bytes::new(),
        }
    }
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
