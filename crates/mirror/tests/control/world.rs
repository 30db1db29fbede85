//! A broker with the mirror room over a scripted data plane.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_metadata::Image;
use tarn_mirror::dialect::{Caller, DialectMemory};
use tarn_mirror::seam::FetchEvents;
use tarn_mirror::service::MirrorReply;
use tarn_mirror::service::reply::Body;
use tarn_records::BatchBuilder;
use tarn_replica::{AppendSource, ReplicaError};
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Str};

use crate::broker::{self, Broker, Node};
pub(crate) use crate::broker::{CLUSTER, MIRROR};
use crate::scripted::Scripted;

/// The broker, and what it mirrors through.
pub(crate) struct World {
    broker: Broker,
    pub(crate) plane: Scripted,
}

impl Deref for World {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

impl World {
    pub(crate) async fn start(dir: &Path, plane: Scripted) -> World {
        World::start_with(dir, plane, 200).await
    }

    async fn start_with(dir: &Path, plane: Scripted, refresh_interval_ms: i64) -> World {
        let mut settings = broker::settings(refresh_interval_ms, 20);
        let after = "mirror.source.topic.deletion.after.ms";
        settings.defaults.insert(after.into(), "300".into());
        let node = Node::open(dir).await;
        let broker = node.with_mirroring(settings, Arc::new(plane.clone()), |_| {});
        World { broker, plane }
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
        self.broker.service.shutdown().await;
        self.broker.close().await;
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        self.controller.image()
    }

    pub(crate) fn events(&self) -> Arc<dyn FetchEvents> {
        self.service.events()
    }

    /// From a client of this product on this host: nothing is remembered of it beyond its
    /// connection.
    pub(crate) async fn raw(
        &self,
        key: ApiKey,
        body: Bytes,
        memory: &mut DialectMemory,
    ) -> MirrorReply {
        self.raw_from(&broker::own_tool(), key, body, memory).await
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
