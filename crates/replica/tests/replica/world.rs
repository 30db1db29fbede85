//! A broker with id 1 in a temporary directory, and the records that give it topics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_metadata::{Image, Record, ResourceType};
use tarn_records::{BatchBuilder, EndTxnMarker, end_transaction_marker};
use tarn_replica::{
    AppendSource, Durability, FetchData, FetchParams, FetchRead, Isolation, Partition,
    ReplicaConfig, ReplicaManager,
};
use tarn_wire::messages::{
    ConfigRecord, MirrorMembershipRecord, PartitionChangeRecord, PartitionEpochRecord,
    PartitionRecord, RemoveTopicRecord, TopicRecord,
};
use tarn_wire::{Records, Str, Uuid};

/// The broker under test.
pub(crate) const NODE: i32 = 1;
/// A time for records.
pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) replicas: Arc<ReplicaManager>,
    image: Image,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(Durability::PageCache).await
    }

    pub(crate) async fn with(durability: Durability) -> World {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let replicas = start(dir.path(), durability, Image::default()).await;
        World {
            dir,
            replicas,
            image: Image::default(),
        }
    }

    /// Stops the broker and starts it again over the same directory.
    pub(crate) async fn restart(&mut self, clean: bool) {
        if clean {
            self.replicas.shutdown(7).await.expect("closes cleanly");
        } else {
            self.replicas.halt().await;
        }
        // The old one has to let go of the directory lock before the new one takes it.
        let elsewhere = tempfile::tempdir().expect("a temporary directory");
        self.replicas = start(elsewhere.path(), Durability::PageCache, Image::default()).await;
        self.replicas = start(self.dir.path(), Durability::PageCache, self.image.clone()).await;
    }

    pub(crate) async fn apply(&mut self, records: &[Record]) {
        let offset = self.image.offset() + records.len() as i64;
        let (image, delta) = self.image.apply(records, offset, 1).expect("records fit");
        self.image = image.clone();
        self.replicas.apply(Arc::new(image), &delta).await;
    }

    /// A topic with one partition led here at epoch 0.
    pub(crate) async fn topic(&mut self, name: &str) -> Arc<Partition> {
        let records = topic_records(name, 1);
        self.apply(&records).await;
        self.partition(name)
    }

    pub(crate) fn partition(&self, name: &str) -> Arc<Partition> {
        self.replicas
            .partition(name, 0)
            .expect("the partition is open")
    }

    /// Lifts the leader epoch of partition 0.
    pub(crate) async fn bump(&mut self, name: &str, leader_epoch: i32) {
        let id = id(name);
        let partition_epoch = self
            .image
            .partition(name, 0)
            .expect("exists")
            .partition_epoch
            + 1;
        let record = PartitionEpochRecord {
            topic_id: id,
            partition_id: 0,
            leader_epoch,
            partition_epoch,
            ..Default::default()
        };
        self.apply(&[Record::PartitionEpoch(record)]).await;
    }

    pub(crate) async fn set_leader(&mut self, name: &str, leader: i32) {
        let record = PartitionChangeRecord {
            topic_id: id(name),
            partition_id: 0,
            leader,
            ..Default::default()
        };
        self.apply(&[Record::PartitionChange(record)]).await;
    }

    pub(crate) async fn configure(&mut self, name: &str, key: &str, value: &str) {
        let record = ConfigRecord {
            resource_type: ResourceType::TOPIC.0,
            resource_name: Str::from(name),
            name: Str::from(key),
            value: Some(Str::from(value)),
            ..Default::default()
        };
        self.apply(&[Record::Config(record)]).await;
    }

    pub(crate) async fn join_mirror(&mut self, name: &str, stopped: bool, change_offset: i64) {
        self.apply(&[membership(name, stopped, change_offset)])
            .await;
    }

    pub(crate) async fn remove(&mut self, name: &str) {
        let record = RemoveTopicRecord {
            topic_id: id(name),
            ..Default::default()
        };
        self.apply(&[Record::RemoveTopic(record)]).await;
    }
}

async fn start(
    path: &std::path::Path,
    durability: Durability,
    image: Image,
) -> Arc<ReplicaManager> {
    let config = ReplicaConfig {
        durability,
        sync_threads: 1,
        ..ReplicaConfig::new(NODE, vec![path.to_owned()])
    };
    ReplicaManager::start(config, Arc::new(image))
        .await
        .expect("starts")
}

/// A stable id for a name.
pub(crate) fn id(name: &str) -> Uuid {
    let mut bytes = [7u8; 16];
    for (index, byte) in name.bytes().enumerate() {
        bytes[index % 16] ^= byte.rotate_left(index as u32 / 16);
    }
    Uuid(bytes)
}

pub(crate) fn topic_records(name: &str, partitions: i32) -> Vec<Record> {
    let topic = TopicRecord {
        name: Str::from(name),
        topic_id: id(name),
        ..Default::default()
    };
    let mut records = vec![Record::Topic(topic)];
    for partition_id in 0..partitions {
        records.push(Record::Partition(PartitionRecord {
            partition_id,
            topic_id: id(name),
            replicas: vec![NODE],
            isr: vec![NODE],
            leader: NODE,
            leader_epoch: 0,
            partition_epoch: 0,
            ..Default::default()
        }));
    }
    records
}

pub(crate) fn membership(name: &str, stopped: bool, change_offset: i64) -> Record {
    Record::MirrorMembership(MirrorMembershipRecord {
        topic_id: id(name),
        topic_name: Str::from(name),
        mirror_name: Some(Str::from("m")),
        desired_state: if stopped { 5 } else { 1 },
        stopped,
        change_offset,
        ..Default::default()
    })
}

/// One plain batch of `count` records.
pub(crate) fn batch(count: usize) -> Vec<u8> {
    sized(count, 10)
}

/// One plain batch of `count` records with values of `bytes` bytes.
pub(crate) fn sized(count: usize, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for index in 0..count {
        builder.add(NOW + index as i64, None, Some(&vec![b'x'; bytes]), &[]);
    }
    builder.build().expect("builds")
}

/// A batch as it comes from a source: with its offset and epoch.
pub(crate) fn source_batch(base_offset: i64, epoch: i32, count: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(epoch);
    for index in 0..count {
        builder.add(NOW + index as i64, None, Some(b"mirrored"), &[]);
    }
    builder.build().expect("builds")
}

/// The ABORT marker of a producer.
pub(crate) fn abort_marker(producer_id: i64) -> Vec<u8> {
    let marker = EndTxnMarker {
        committed: false,
        coordinator_epoch: 0,
    };
    end_transaction_marker(marker, producer_id, 0, NOW).expect("builds")
}

pub(crate) fn produce(partition: &Partition, mut bytes: Vec<u8>) -> i64 {
    partition
        .append(&mut bytes, AppendSource::Client, NOW)
        .expect("appends")
        .first_offset
}

/// Appends batches of a source.
pub(crate) fn mirror(partition: &Arc<Partition>, batches: &[u8]) {
    let end = partition.log().log_end_offset();
    let mut append = partition.mirror_append(end, NOW).expect("may mirror");
    append.push(batches).expect("pushes");
    append.finish().expect("finishes");
}

pub(crate) fn params(max_wait_ms: i32, min_bytes: i32) -> FetchParams {
    FetchParams {
        max_wait_ms,
        min_bytes,
        max_bytes: 1 << 20,
        isolation: Isolation::ReadUncommitted,
    }
}

pub(crate) fn read(partition: &Arc<Partition>, fetch_offset: i64) -> FetchRead {
    FetchRead {
        partition: partition.clone(),
        fetch_offset,
        max_bytes: 1 << 20,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
    }
}

/// Reads one partition without waiting.
pub(crate) async fn fetch_now(partition: &Arc<Partition>, offset: i64) -> FetchData {
    let mut answers = tarn_replica::fetch(&params(0, 1), &[read(partition, offset)]).await;
    answers.remove(0)
}

/// The record bytes of an answer.
pub(crate) fn bytes_of(data: &FetchData) -> Bytes {
    use std::os::unix::fs::FileExt;
    match &data.records {
        Records::Bytes(bytes) => bytes.clone(),
        Records::File(range) => {
            let mut bytes = vec![0; range.len as usize];
            range
                .file
                .read_exact_at(&mut bytes, range.offset)
                .expect("reads");
            Bytes::from(bytes)
        }
        Records::Segments(_) => panic!("one range is enough"),
    }
}

/// Waits until `partition` has a waiting fetch.
pub(crate) async fn until_waiting(partition: &Partition) {
    let started = Instant::now();
    while partition.waiting_fetches() == 0 {
        assert!(started.elapsed() < Duration::from_secs(5), "nobody waits");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
