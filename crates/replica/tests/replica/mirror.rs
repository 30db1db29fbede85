//! The way of mirrored batches: visible as they arrive, below the epoch gate.

use std::time::{Duration, Instant};

use tarn_replica::{Isolation, LATEST_TIMESTAMP, ReplicaError, fetch};

use crate::world::{
    NOW, World, batch, bytes_of, fetch_now, mirror, params, produce, read, source_batch,
    until_waiting,
};

#[tokio::test]
async fn batches_are_kept_as_they_are_and_visible_before_the_append_ends() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    let (one, two) = (source_batch(0, 0, 3), source_batch(7, 0, 2));
    let mut append = partition.mirror_append(0, NOW).expect("may mirror");
    append.push(&one).expect("pushes");
    append.push(&two[..20]).expect("pushes");
    assert_eq!(partition.high_watermark(), 3);
    append.push(&two[20..]).expect("pushes");
    let info = append.finish().expect("finishes");
    assert_eq!((info.end_offset, partition.high_watermark()), (9, 9));
    let mut both = one.clone();
    both.extend_from_slice(&two);
    assert_eq!(bytes_of(&fetch_now(&partition, 0).await), both);
}

#[tokio::test]
async fn a_batch_cut_off_in_the_middle_leaves_nothing() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    let mut append = partition.mirror_append(0, NOW).expect("may mirror");
    append.push(&source_batch(0, 0, 3)).expect("pushes");
    append.push(&source_batch(3, 0, 3)[..50]).expect("pushes");
    drop(append);
    assert_eq!(partition.log().log_end_offset(), 3);
    mirror(&partition, &source_batch(3, 0, 1));
    assert_eq!(partition.high_watermark(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_an_unpublished_epoch_is_hidden_until_the_image_shows_the_epoch() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(0, 0, 2));
    mirror(&partition, &source_batch(2, 5, 2));
    assert_eq!(
        (partition.log().log_end_offset(), partition.high_watermark()),
        (4, 2)
    );
    let reads = [read(&partition, 2)];
    let waiting =
        tokio::spawn(async move { (fetch(&params(5_000, 1), &reads).await, Instant::now()) });
    until_waiting(&partition).await;
    world.bump("t", 4).await;
    assert_eq!(partition.high_watermark(), 2, "4 is not enough");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    let bumped = Instant::now();
    world.bump("t", 15).await;
    let (answers, answered) = waiting.await.expect("no panic");
    assert!(!answers[0].is_empty());
    assert!(
        answered - bumped < Duration::from_millis(500),
        "woken by the image, not by the wait"
    );
    assert_eq!(partition.high_watermark(), 4);
}

#[tokio::test]
async fn the_gate_holds_after_a_restart() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(0, 0, 2));
    mirror(&partition, &source_batch(2, 5, 2));
    drop(partition);
    world.restart(true).await;
    let partition = world.partition("t");
    assert_eq!(
        (partition.log().log_end_offset(), partition.high_watermark()),
        (4, 2)
    );
    assert!(
        partition.check_writable().is_err(),
        "read-only right after the start"
    );
}

#[tokio::test]
async fn the_log_end_is_listed_with_the_sources_epoch_and_local_epochs_start_there() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    world.bump("t", 12).await;
    mirror(&partition, &source_batch(0, 3, 2));
    let latest = partition
        .list_offset(
            LATEST_TIMESTAMP,
            Isolation::ReadUncommitted,
            -1,
            &mut tarn_records::Unpaced,
        )
        .expect("lists");
    assert_eq!((latest.offset, latest.leader_epoch), (2, 3));
    let end = partition
        .offset_for_leader_epoch(12, -1)
        .expect("knows")
        .expect("an end");
    assert_eq!((end.epoch, end.end_offset), (12, 2));
    assert_eq!(
        partition.offset_for_leader_epoch(13, -1).expect("answers"),
        None
    );
}

#[tokio::test]
async fn cuts_move_the_high_watermark_back_and_are_refused_on_ordinary_topics() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(3));
    let error = partition.mirror_truncate_to(1).expect_err("not a mirror");
    assert!(
        matches!(error, ReplicaError::NotMirroring { .. }),
        "{error}"
    );
    world.join_mirror("t", false, 10).await;
    mirror(&partition, &source_batch(3, 0, 2));
    assert_eq!(partition.mirror_truncate_to(3).expect("cuts"), 3);
    assert_eq!(partition.high_watermark(), 3);
    partition
        .mirror_truncate_fully_and_start_at(50)
        .expect("discards");
    assert_eq!(
        (
            partition.high_watermark(),
            partition.log().log_start_offset()
        ),
        (50, 50)
    );
    mirror(&partition, &source_batch(50, 0, 4));
    assert_eq!(partition.mirror_advance_log_start(52).expect("moves"), 52);
    assert_eq!(partition.mirror_advance_log_start(51).expect("stays"), 52);
}
