//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use tarn_records::BatchBuilder;
use tarn_replica::{
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, Isolation, LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP, ListedOffset, MAX_TIMESTAMP, Partition,
};
use tarn_wire::ErrorCode;

use crate::world::{NOW, World, batch, fetch_now, produce};

fn list(partition: &Partition, timestamp: i64) -> ListedOffset {
    partition
        .list_offset(
            timestamp,
            Isolation::ReadUncommitted,
            -1,
            &mut tarn_records::Unpaced,
        )
        .expect("lists")
}

#[tokio::test]
async fn offsets_are_listed_by_time_and_by_the_special_values() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    partition.delete_records(2).expect("deletes");
    assert_eq!(list(&partition, EARLIEST_TIMESTAMP).offset, 2);
    assert_eq!(list(&partition, EARLIEST_LOCAL_TIMESTAMP).offset, 2);
    assert_eq!(list(&partition, LATEST_TIMESTAMP).offset, 5);
    assert_eq!(
        list(&partition, LATEST_TIERED_TIMESTAMP),
        ListedOffset::NONE
    );
    let newest = list(&partition, MAX_TIMESTAMP);
    assert_eq!((newest.offset, newest.timestamp), (4, NOW + 4));
    let found = list(&partition, NOW + 3);
    assert_eq!(
        (found.offset, found.timestamp, found.leader_epoch),
        (3, NOW + 3, 0)
    );
    assert_eq!(list(&partition, NOW + 100), ListedOffset::NONE);
}

#[tokio::test]
async fn the_end_is_the_high_watermark_or_the_stable_offset_by_isolation() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(2));
    let mut builder = BatchBuilder::new().producer(5, 0, 0).transactional();
    builder.add(NOW + 50, None, Some(b"open"), &[]);
    produce(&partition, builder.build().expect("builds"));
    let end = |isolation| {
        partition
            .list_offset(LATEST_TIMESTAMP, isolation, -1, &mut tarn_records::Unpaced)
            .expect("lists")
    };
    assert_eq!(end(Isolation::ReadUncommitted).offset, 3);
    assert_eq!(end(Isolation::ReadCommitted).offset, 2);
    let open = partition
        .list_offset(
            NOW + 50,
            Isolation::ReadCommitted,
            -1,
            &mut tarn_records::Unpaced,
        )
        .expect("lists");
    assert_eq!(open, ListedOffset::NONE);
    assert_eq!(partition.producers().expect("lists").len(), 1);
}

#[tokio::test]
async fn delete_records_moves_the_log_start_within_its_bounds() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    assert_eq!(partition.delete_records(3).expect("deletes"), 3);
    assert_eq!(
        fetch_now(&partition, 2).await.error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
    assert_eq!(partition.delete_records(1).expect("stays"), 3);
    for offset in [6, -2] {
        let error = partition.delete_records(offset).expect_err("out of range");
        assert_eq!(error.code(), ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    assert_eq!(partition.delete_records(-1).expect("deletes"), 5);
}

#[tokio::test]
async fn delete_records_is_refused_on_compacted_topics_and_on_mirrors() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(5));
    world.configure("t", "cleanup.policy", "compact").await;
    let error = partition.delete_records(1).expect_err("compacted");
    assert_eq!(error.code(), ErrorCode::POLICY_VIOLATION);
    world.configure("t", "cleanup.policy", "delete").await;
    world.join_mirror("t", false, 10).await;
    let error = partition.delete_records(1).expect_err("a mirror");
    assert_eq!(
        error.to_string(),
        "topic t is a read-only mirror of m (UNKNOWN)"
    );
}

#[tokio::test]
async fn epochs_end_where_the_next_one_starts() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(4));
    world.bump("t", 3).await;
    produce(&partition, batch(2));
    let end = |epoch| {
        let end = partition
            .offset_for_leader_epoch(epoch, -1)
            .expect("answers");
        end.map(|end| (end.epoch, end.end_offset))
    };
    assert_eq!(end(0), Some((0, 4)));
    assert_eq!(end(2), Some((0, 4)));
    assert_eq!(end(3), Some((3, 6)));
    assert_eq!(end(4), None);
}
