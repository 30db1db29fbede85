//! A broker with the mirror room and the real data plane, mirroring from a scripted source.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_mirror::fetcher::FetchPlane;
use tarn_mirror::seam::{BoxFuture, FetchEvents, FetchFailure, MirrorPartition};
use tarn_replica::Partition;
use tarn_wire::Str;
use tarn_wire::messages::describe_mirrors_response::DescribedMirrorPartition;

use crate::broker::{self, Broker, MIRROR, Node};
use crate::fake::Fake;

/// Generous: the machine may be busy.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) broker: Broker,
    plane: Arc<FetchPlane>,
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
        let created = world.broker.create(MIRROR, &all).await;
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        world
    }

    async fn open(dir: &Path, source: &Fake, retry_ms: i64) -> World {
        let node = Node::open(dir).await;
        let plane = FetchPlane::new(node.replicas.clone());
        let panics = Arc::new(AtomicBool::new(false));
        let panicky = |inner| Panicky {
            inner,
            panics: panics.clone(),
        };
        let settings = broker::settings(300, retry_ms);
        let broker = node.with_mirroring(settings, plane.clone(), |events| {
            plane.bind(Arc::new(panicky(events)));
        });
        World {
            broker,
            plane,
            source: source.clone(),
            panics,
            _dir: None,
        }
    }

    /// Ends everything.
    pub(crate) async fn stop(self) {
        self.broker.service.shutdown().await;
        self.plane.shutdown().await;
        self.broker.close().await;
    }

    /// Adds a topic and waits until all of it is here.
    pub(crate) async fn mirrored(&self, topic: &str) {
        self.add(topic).await;
        self.until_caught_up(topic).await;
    }

    pub(crate) async fn add(&self, topic: &str) {
        let results = self.broker.add(&[topic]).await;
        assert!(results.iter().all(|(_, code, _)| *code == 0), "{results:?}");
    }

    pub(crate) async fn remove(&self, topic: &str) {
        self.broker.remove(&[topic]).await;
    }

    pub(crate) async fn pause(&self, topic: &str) {
        self.broker.pause(topic).await;
        self.until_state(topic, "PAUSED").await;
    }

    pub(crate) async fn resume(&self, topic: &str) {
        self.broker.resume(topic).await;
    }

    /// Partition 0 of a topic as describe shows it.
    pub(crate) async fn described(&self, topic: &str) -> Option<DescribedMirrorPartition> {
        self.broker.partition_of(topic, 0).await
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

    /// Waits until describe shows partition 0 with a text that has all these parts.
    pub(crate) async fn until_told(&self, topic: &str, parts: &[&str]) -> DescribedMirrorPartition {
        let what = format!("a text with {parts:?}");
        let told = |p: &DescribedMirrorPartition| {
            let text = p.error_message.as_deref().unwrap_or_default();
            parts.iter().all(|part| text.contains(part))
        };
        self.until_shown(topic, &what, told).await
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
            let found = self.broker.replicas.partition(topic, 0).ok()?;
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
        self.broker.partition(topic, 0)
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
