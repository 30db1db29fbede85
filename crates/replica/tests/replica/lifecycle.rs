//! Partitions come, change and go with the image; restarts keep what was there.

use std::time::Duration;

use tarn_metadata::Image;
use tarn_replica::{AppendSource, fetch};
use tarn_wire::ErrorCode;

use crate::world::{
    NODE, NOW, World, batch, id, params, produce, read, topic_records, until_waiting,
};

#[tokio::test]
async fn partitions_are_found_by_name_and_id_and_idle_ones_cost_no_files() {
    let mut world = World::new().await;
    world.apply(&topic_records("t", 3)).await;
    let partition = world.replicas.partition_by_id(&id("t"), 2).expect("open");
    assert_eq!((&**partition.topic(), partition.index()), ("t", 2));
    assert!(
        !world.dir.path().join("t-2").exists(),
        "nothing on disk before the first append"
    );
    produce(&partition, batch(1));
    assert!(world.dir.path().join("t-2").exists());
    let unknown = world
        .replicas
        .partition_by_id(&id("other"), 0)
        .expect_err("unknown");
    assert_eq!(unknown.code(), ErrorCode::UNKNOWN_TOPIC_ID);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_topic_answers_who_waits_and_leaves_nothing_behind() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(1));
    let reads = [read(&partition, 1)];
    let waiting = tokio::spawn(async move { fetch(&params(5_000, 1), &reads).await });
    until_waiting(&partition).await;
    world.remove("t").await;
    let answers = waiting.await.expect("no panic");
    // Kafka answers 3, in versions that name topics by id, too.
    assert_eq!(answers[0].error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let late = partition.append(&mut batch(1), AppendSource::Client, 0);
    let code = late.expect_err("the topic is gone").code();
    assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert!(!world.dir.path().join("t-0").exists());
    assert!(world.replicas.partition("t", 0).is_err());
    // The same name again starts empty.
    let again = world.topic("t").await;
    assert_eq!(again.log().log_end_offset(), 0);
    produce(&again, batch(2));
}

#[tokio::test]
async fn a_changed_topic_config_reaches_the_open_log() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.configure("t", "retention.ms", "1234").await;
    assert_eq!(partition.log().config().retention_ms, 1234);
}

#[tokio::test]
async fn a_clean_restart_keeps_records_and_high_watermark() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    drop(partition);
    world.restart(true).await;
    let partition = world.partition("t");
    assert_eq!(partition.high_watermark(), 5);
    assert_eq!(produce(&partition, batch(1)), 5);
}

#[tokio::test]
async fn a_crash_keeps_what_was_written_and_the_tail_is_checked() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    drop(partition);
    world.restart(false).await;
    assert_eq!(world.partition("t").high_watermark(), 5);
}

#[tokio::test]
async fn what_the_image_does_not_know_is_set_aside_not_deleted() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    drop(partition);
    let stray = world.dir.path().join("stray-0");
    std::fs::create_dir(&stray).expect("creates");
    std::fs::write(stray.join("00000000000000000000.log"), b"something").expect("writes");
    world.restart(true).await;
    assert!(!stray.exists());
    let kept = std::fs::read_dir(world.dir.path())
        .expect("lists")
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().starts_with("stray-0."));
    assert!(kept);
    assert_eq!(world.partition("t").high_watermark(), 5);
}

#[tokio::test]
async fn shutdown_ends_waiting_fetches() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    let reads = [read(&partition, 0)];
    let waiting = tokio::spawn(async move { fetch(&params(60_000, 1), &reads).await });
    until_waiting(&partition).await;
    world.replicas.shutdown(1).await.expect("closes");
    let answers = tokio::time::timeout(Duration::from_secs(1), waiting).await;
    assert!(answers.is_ok());
}

#[tokio::test]
async fn log_directories_are_described_with_their_partitions() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    let dirs = world.replicas.describe_log_dirs();
    assert_eq!(dirs.len(), 1);
    assert!(dirs[0].offline.is_none());
    assert_eq!(dirs[0].partitions.len(), 1);
    assert_eq!(dirs[0].partitions[0].2, partition.log().size_bytes());
}

#[tokio::test]
async fn a_partition_that_cannot_be_opened_is_offline_alone() {
    let mut world = World::new().await;
    std::fs::write(world.dir.path().join("bad-0"), b"a file, not a directory").expect("writes");
    let mut records = topic_records("bad", 1);
    records.extend(topic_records("good", 1));
    world.apply(&records).await;
    let error = world.replicas.partition("bad", 0).expect_err("offline");
    assert_eq!(error.code(), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(world.replicas.offline_partitions().len(), 1);
    produce(&world.partition("good"), batch(1));
}

/// Partitions of an older version have no directory in the metadata: they are found where they lie,
/// and the rest goes where there is least, unless a directory is missing, which may hold them.
#[test]
fn partitions_without_a_directory_in_the_metadata_are_found_where_they_lie() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let dirs: Vec<_> = ["a", "b"]
        .map(|name| {
            let path = home.path().join(name);
            let meta = tarn_log::MetaProperties {
                cluster_id: "c".to_owned(),
                node_id: Some(NODE),
                directory_id: Some(id(name).to_string()),
            };
            meta.write(&path).expect("is formatted");
            tarn_log::LogDir::open(&path).expect("opens")
        })
        .into();
    let found = |topic: &str, directory: &str| tarn_replica::Located {
        topic_id: id(topic),
        partition: 0,
        directory: id(directory),
    };
    let topic_id = id("t").to_string();
    let config = tarn_log::LogConfig::default();
    let log = dirs[1].open_log("t", 0, Some(&topic_id), config, NOW);
    let log = log.expect("opens");
    log.append_as_leader(&mut batch(1), 0, tarn_log::AppendOrigin::Client, NOW)
        .expect("appends");
    let mut records = topic_records("t", 1);
    records.extend(topic_records("u", 1));
    let (image, _) = Image::default().apply(&records, 10, 1).expect("fits");
    let located = tarn_replica::locate(&dirs, &image, NODE, &[]).expect("lists");
    assert_eq!(located, [found("t", "b"), found("u", "a")]);
    let located = tarn_replica::locate(&dirs, &image, NODE, &[id("x")]).expect("lists");
    assert_eq!(located, [found("t", "b")]);
}
