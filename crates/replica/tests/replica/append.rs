//! Who may append, what it answers, and when it counts as done.

use std::time::Duration;

use tarn_records::BatchBuilder;
use tarn_replica::{AppendSource, Durability, MirrorGuard, ReplicaError};
use tarn_wire::{ErrorCode, Str};

use crate::world::{
    NOW, World, abort_marker, batch, fetch_now, mirror, produce, sized, source_batch,
};

#[tokio::test]
async fn an_append_is_visible_at_once_under_the_leader_epoch() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    assert_eq!(produce(&partition, batch(3)), 0);
    assert_eq!(produce(&partition, batch(2)), 3);
    assert_eq!(partition.high_watermark(), 5);
    world.bump("t", 4).await;
    produce(&partition, batch(1));
    assert_eq!(partition.log().latest_epoch(), Some(4));
    let data = fetch_now(&partition, 0).await;
    assert_eq!((data.error, data.high_watermark), (ErrorCode::NONE, 6));
}

#[tokio::test]
async fn only_the_leader_appends() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.set_leader("t", -1).await;
    let error = partition
        .append(&mut batch(1), AppendSource::Client, NOW)
        .expect_err("no leader");
    assert_eq!(error.code(), ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let unknown = world.replicas.partition("nosuch", 0).expect_err("unknown");
    assert_eq!(unknown.code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let unknown = world.replicas.partition("t", 9).expect_err("unknown");
    assert_eq!(unknown.code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[tokio::test]
async fn refusals_of_the_log_become_kafkas_codes() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.configure("t", "max.message.bytes", "500").await;
    let mut large = sized(1, 1000);
    let error = partition
        .append(&mut large, AppendSource::Client, NOW)
        .expect_err("too large");
    assert_eq!(error.code(), ErrorCode::MESSAGE_TOO_LARGE);
    let mut damaged = batch(1);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let error = partition
        .append(&mut damaged, AppendSource::Client, NOW)
        .expect_err("bad crc");
    assert_eq!(error.code(), ErrorCode::CORRUPT_MESSAGE);
    let sequence = |first| {
        let mut builder = BatchBuilder::new().producer(5, 0, first);
        builder.add(NOW, None, Some(b"v"), &[]);
        builder.build().expect("builds")
    };
    produce(&partition, sequence(0));
    let error = partition
        .append(&mut sequence(5), AppendSource::Client, NOW)
        .expect_err("a gap");
    assert_eq!(error.code(), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    let again = partition
        .append(&mut sequence(0), AppendSource::Client, NOW)
        .expect("a repeat");
    assert!(again.duplicate && again.first_offset == 0);
}

#[tokio::test]
async fn disk_durability_waits_for_the_disk_and_page_cache_does_not() {
    let mut world = World::with(Durability::Disk).await;
    let partition = world.topic("t").await;
    produce(&partition, batch(3));
    partition
        .wait_committed(3, 1)
        .await
        .expect("acks=1 does not wait");
    partition.wait_committed(3, -1).await.expect("syncs");
    assert!(partition.log().recovery_point() >= 3);

    let mut world = World::with(Durability::PageCache).await;
    let partition = world.topic("t").await;
    produce(&partition, batch(3));
    partition
        .wait_committed(3, -1)
        .await
        .expect("does not wait");
    assert_eq!(partition.log().recovery_point(), 0);
    let internal = world.topic("__consumer_offsets").await;
    let mut records = batch(2);
    internal
        .append(&mut records, AppendSource::Coordinator, NOW)
        .expect("appends");
    internal.wait_committed(2, -1).await.expect("syncs");
    assert_eq!(
        internal.log().recovery_point(),
        2,
        "internal topics always wait"
    );
}

#[tokio::test]
async fn a_mirror_topic_is_read_only_from_its_creation_with_the_mirrors_name_and_state() {
    let mut world = World::new().await;
    let mut records = crate::world::topic_records("t", 1);
    records.push(crate::world::membership("t", false, 10));
    world.apply(&records).await;
    let partition = world.partition("t");
    let error = partition
        .append(&mut batch(1), AppendSource::Client, NOW)
        .expect_err("refused");
    assert_eq!(error.code(), ErrorCode::POLICY_VIOLATION);
    assert_eq!(
        error.to_string(),
        "topic t is a read-only mirror of m (UNKNOWN)"
    );
    let guard = MirrorGuard::ReadOnly {
        mirror: Str::from("m"),
        state: Str::from_static("MIRRORING"),
    };
    partition.set_mirror_guard(10, guard).expect("sets");
    let error = partition
        .append(&mut batch(1), AppendSource::Client, NOW)
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "topic t is a read-only mirror of m (MIRRORING)"
    );
    let error = partition
        .append(&mut batch(1), AppendSource::Coordinator, NOW)
        .expect_err("refused");
    assert!(
        matches!(error, ReplicaError::ReadOnly { .. }),
        "markers of coordinators too"
    );
}

#[tokio::test]
async fn while_stopping_only_markers_of_the_stop_sequence_get_in() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(0, 0, 2));
    let guard = MirrorGuard::StoppingInternalOnly {
        mirror: Str::from("m"),
        state: Str::from_static("STOPPING"),
    };
    partition.set_mirror_guard(10, guard).expect("sets");
    let mut marker = abort_marker(5);
    partition
        .append(&mut marker, AppendSource::MirrorStop, NOW)
        .expect("a marker");
    let error = partition
        .append(&mut batch(1), AppendSource::MirrorStop, NOW)
        .expect_err("records");
    assert!(matches!(error, ReplicaError::NotAMarker { .. }), "{error}");
    let error = partition
        .append(&mut batch(1), AppendSource::Client, NOW)
        .expect_err("clients");
    assert_eq!(error.code(), ErrorCode::POLICY_VIOLATION);
    let error = partition.mirror_append(3, NOW).expect_err("the fetcher");
    assert!(
        matches!(error, ReplicaError::NotMirroring { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_stopped_topic_is_writable_without_a_word_from_the_mirror_room() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    assert!(partition.check_writable().is_err());
    world.join_mirror("t", true, 10).await;
    produce(&partition, batch(1));
}

#[tokio::test]
async fn a_late_stop_does_not_open_a_topic_that_was_added_again() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    partition
        .set_mirror_guard(10, MirrorGuard::Writable)
        .expect("sets");
    produce(&partition, batch(1));
    world.join_mirror("t", false, 20).await;
    assert!(partition.check_writable().is_err());
    partition
        .set_mirror_guard(10, MirrorGuard::Writable)
        .expect("is kept");
    assert!(partition.check_writable().is_err());
}

#[tokio::test]
async fn the_guard_is_not_lifted_under_a_mirror_append() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    let append = partition.mirror_append(0, NOW).expect("may mirror");
    let error = partition
        .set_mirror_guard(10, MirrorGuard::Writable)
        .expect_err("in flight");
    assert!(
        matches!(error, ReplicaError::AppendInFlight { .. }),
        "{error}"
    );
    drop(append);
    partition
        .set_mirror_guard(10, MirrorGuard::Writable)
        .expect("sets");
}

#[tokio::test]
async fn a_local_append_waits_for_an_epoch_above_the_mirrored_ones() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(0, 5, 2));
    world.join_mirror("t", true, 10).await;
    let error = partition
        .append(&mut batch(1), AppendSource::Client, NOW)
        .expect_err("too low");
    assert!(
        matches!(
            error,
            ReplicaError::EpochBehindLog {
                latest: 5,
                current: 0,
                ..
            }
        ),
        "{error}"
    );
    world.bump("t", 6).await;
    produce(&partition, batch(1));
    let _ = tokio::time::timeout(Duration::from_secs(1), partition.wait_committed(3, -1)).await;
}
