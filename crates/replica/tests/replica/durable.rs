//! What readers see in durability mode `disk`, and of a mirror with `mirror.visible.after`.

use tarn_metadata::{Record, ResourceType};
use tarn_replica::{Durability, Isolation, LATEST_TIMESTAMP, Partition, fetch};
use tarn_wire::Str;
use tarn_wire::messages::ConfigRecord;

use crate::world::{World, batch, fetch_now, mirror, params, produce, read, source_batch};

fn visible_is_durable(partition: &Partition) -> bool {
    // The watermark first: the recovery point only rises.
    partition.high_watermark() <= partition.log().recovery_point()
}

/// In `disk` mode nothing is visible before it is on disk; the acknowledgement and the visibility
/// come together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_visible_before_it_is_durable() {
    let mut world = World::with(Durability::Disk).await;
    let partition = world.topic("t").await;
    produce(&partition, batch(3));
    assert_eq!(
        (partition.high_watermark(), partition.log().recovery_point()),
        (0, 0)
    );
    let data = fetch_now(&partition, 0).await;
    assert!(data.is_empty() && data.high_watermark == 0);
    partition.wait_committed(3, -1).await.expect("syncs");
    assert_eq!(partition.high_watermark(), 3);
    for i in 0..200 {
        let end = produce(&partition, batch(1)) + 1;
        assert!(visible_is_durable(&partition));
        if i % 3 == 0 {
            partition.wait_committed(end, -1).await.expect("syncs");
            assert!(partition.high_watermark() >= end);
        }
        assert!(visible_is_durable(&partition));
    }
}

/// A waiting reader is a reason to sync, whether it came before or after a record that nobody waits
/// to be acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_reader_is_a_reason_to_sync() {
    let mut world = World::with(Durability::Disk).await;
    let partition = world.topic("t").await;
    for round in 0..5 {
        let reads = [read(&partition, 2 * round)];
        let waiting = tokio::spawn(async move { fetch(&params(20_000, 1), &reads).await });
        if round % 2 == 0 {
            crate::world::until_waiting(&partition).await;
        }
        let end = produce(&partition, batch(2)) + 2;
        // As the handler of Produce does with acks=1.
        assert!(partition.begin_wait(end, 1).is_none());
        let answers = waiting.await.expect("runs");
        assert!(!answers[0].is_empty());
        assert!(visible_is_durable(&partition));
    }
    produce(&partition, batch(2));
    // As the handler of ListOffsets does.
    partition.wait_visible().expect("not on disk yet").await;
    let latest = partition
        .list_offset(
            LATEST_TIMESTAMP,
            Isolation::ReadUncommitted,
            -1,
            &mut tarn_records::Unpaced,
        )
        .expect("lists");
    assert_eq!(latest.offset, 12);
    assert!(partition.wait_visible().is_none());
}

/// Copied records are visible at once, or once they are on disk where the mirror says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_shows_what_it_copied_at_once_unless_its_key_says_durable() {
    let mut world = World::with(Durability::Disk).await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(0, 0, 3));
    assert_eq!(partition.high_watermark(), 3);
    let durable = ConfigRecord {
        resource_type: ResourceType::MIRROR.0,
        resource_name: Str::from("m"),
        name: Str::from("mirror.visible.after"),
        value: Some(Str::from("durable")),
        ..Default::default()
    };
    world.apply(&[Record::Config(durable)]).await;
    assert_eq!(partition.high_watermark(), 3, "never backwards");
    mirror(&partition, &source_batch(3, 0, 2));
    assert!(partition.high_watermark() == 3 || visible_is_durable(&partition));
    let reads = [read(&partition, 3)];
    let answers = fetch(&params(20_000, 1), &reads).await;
    assert!(!answers[0].is_empty() && visible_is_durable(&partition));
}
