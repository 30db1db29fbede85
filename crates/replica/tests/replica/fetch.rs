//! Fetch: long poll, limits, isolation, epochs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_records::{BatchBuilder, batches};
use tarn_replica::{AppendSource, EpochEnd, FetchParams, FetchRead, Isolation, Partition, fetch};
use tarn_wire::ErrorCode;

use crate::world::{
    NOW, World, abort_marker, batch, bytes_of, fetch_now, mirror, params, produce, read, sized,
    source_batch, topic_records, until_waiting,
};

/// How long a fetch that waits at `offset` still waits after `append`. The best of some tries:
/// other work on the machine is not the rule.
async fn wake_up_ms(partition: &Arc<Partition>, append: impl Fn(i64)) -> u128 {
    let mut best = u128::MAX;
    for offset in 0..5 {
        let reads = [read(partition, offset)];
        let waiting = tokio::spawn(async move {
            let answers = fetch(&params(5_000, 1), &reads).await;
            (answers, Instant::now())
        });
        until_waiting(partition).await;
        let appended = Instant::now();
        append(offset);
        let (answers, answered) = waiting.await.expect("no panic");
        assert!(!answers[0].is_empty());
        assert_eq!(partition.waiting_fetches(), 0);
        best = best.min((answered - appended).as_millis());
    }
    best
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_wakes_a_waiting_fetch_within_twenty_milliseconds() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    let waited = wake_up_ms(&partition, |_| {
        produce(&partition, batch(1));
    });
    assert!(waited.await < 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirrored_append_wakes_a_waiting_fetch_within_twenty_milliseconds() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.join_mirror("t", false, 10).await;
    let waited = wake_up_ms(&partition, |offset| {
        mirror(&partition, &source_batch(offset, 0, 1))
    });
    assert!(waited.await < 20);
}

#[tokio::test]
async fn an_empty_answer_comes_after_the_wait_and_not_before() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    let started = Instant::now();
    let answers = fetch(&params(200, 1), &[read(&partition, 0)]).await;
    assert!(answers[0].is_empty() && answers[0].error.is_none());
    assert!((190..700).contains(&(started.elapsed().as_millis() as u64)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_waits_until_its_minimum_is_there_over_all_partitions() {
    let mut world = World::new().await;
    world.apply(&topic_records("t", 2)).await;
    let (zero, one) = (
        world.partition("t"),
        world.replicas.partition("t", 1).expect("open"),
    );
    let reads = [read(&zero, 0), read(&one, 0)];
    let waiting = tokio::spawn(async move { fetch(&params(5_000, 1_500), &reads).await });
    until_waiting(&one).await;
    produce(&zero, sized(1, 900));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "900 bytes are not enough");
    produce(&one, sized(1, 900));
    let answers = waiting.await.expect("no panic");
    assert!(answers.iter().all(|data| !data.is_empty()));
}

#[tokio::test]
async fn a_fetch_does_not_wait_at_the_end_of_a_segment_that_has_a_successor() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.configure("t", "segment.bytes", "1048576").await;
    produce(&partition, sized(1, 1_000_000));
    produce(&partition, sized(1, 100));
    produce(&partition, sized(1, 1_000_000));
    assert_eq!(partition.log().segment_count(), 2);
    let started = Instant::now();
    let answers = fetch(&params(5_000, 10_000), &[read(&partition, 1)]).await;
    assert!((1..10_000).contains(&answers[0].len()));
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_over_a_thousand_partitions_is_woken_by_one_of_them() {
    let mut world = World::new().await;
    world.apply(&topic_records("t", 1_000)).await;
    let all: Vec<_> = (0..1_000)
        .map(|index| world.replicas.partition("t", index).expect("open"))
        .collect();
    let reads: Vec<FetchRead> = all.iter().map(|partition| read(partition, 0)).collect();
    let waiting = tokio::spawn(async move { fetch(&params(10_000, 1), &reads).await });
    until_waiting(&all[999]).await;
    produce(&all[777], batch(1));
    let answers = waiting.await.expect("no panic");
    let with_data: Vec<usize> = (0..1_000)
        .filter(|&index| !answers[index].is_empty())
        .collect();
    assert_eq!(with_data, [777]);
    assert!(all.iter().all(|partition| partition.waiting_fetches() == 0));
}

#[tokio::test]
async fn a_fetch_from_the_middle_of_a_batch_gets_that_batch() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(2));
    produce(&partition, batch(2));
    for (offset, first) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        let bytes = bytes_of(&fetch_now(&partition, offset).await);
        let header = batches(&bytes)
            .next()
            .expect("a batch")
            .expect("good")
            .header;
        assert_eq!(header.base_offset, first, "fetch at {offset}");
    }
    assert!(fetch_now(&partition, 4).await.is_empty());
    assert_eq!(
        fetch_now(&partition, 5).await.error,
        ErrorCode::OFFSET_OUT_OF_RANGE
    );
}

#[tokio::test]
async fn a_batch_larger_than_every_limit_still_comes_and_limits_the_others() {
    let mut world = World::new().await;
    world.apply(&topic_records("t", 2)).await;
    let (zero, one) = (
        world.partition("t"),
        world.replicas.partition("t", 1).expect("open"),
    );
    produce(&zero, sized(1, 100_000));
    produce(&zero, sized(1, 10));
    produce(&one, sized(1, 10));
    let tiny = FetchParams {
        max_bytes: 1,
        ..params(0, 1)
    };
    let small = |partition| FetchRead {
        max_bytes: 1,
        ..read(partition, 0)
    };
    let answers = fetch(&tiny, &[small(&zero), small(&one)]).await;
    assert!(answers[0].len() > 100_000);
    assert_eq!(answers[1].len(), 0);
    let next = FetchRead {
        fetch_offset: 1,
        ..small(&zero)
    };
    assert!(!fetch(&tiny, &[next]).await[0].is_empty());
}

#[tokio::test]
async fn read_committed_stops_at_an_open_transaction_and_names_the_aborted() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(10));
    let mut builder = BatchBuilder::new().producer(5, 0, 0).transactional();
    builder.add(NOW, None, Some(b"open"), &[]);
    produce(&partition, builder.build().expect("builds"));
    let committed = FetchParams {
        isolation: Isolation::ReadCommitted,
        ..params(0, 1)
    };
    let data = fetch(&committed, &[read(&partition, 0)]).await.remove(0);
    assert_eq!((data.high_watermark, data.last_stable_offset), (11, 10));
    let bytes = bytes_of(&data);
    let last = batches(&bytes)
        .filter_map(Result::ok)
        .last()
        .expect("a batch");
    assert_eq!(last.header.last_offset(), 9);
    assert_eq!(data.aborted.as_deref(), Some(&[][..]));

    let mut marker = abort_marker(5);
    partition
        .append(&mut marker, AppendSource::Coordinator, NOW)
        .expect("appends");
    let data = fetch(&committed, &[read(&partition, 0)]).await.remove(0);
    assert_eq!((data.high_watermark, data.last_stable_offset), (12, 12));
    let aborted: Vec<(i64, i64)> = data
        .aborted
        .iter()
        .flatten()
        .map(|txn| (txn.producer_id, txn.first_offset))
        .collect();
    assert_eq!(aborted, [(5, 10)]);
    assert_eq!(fetch_now(&partition, 0).await.aborted, None);
}

/// F-7: transaction indexes that rotted, or lost their checksums, cost a reader no error and no
/// wrong answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_is_right_whatever_became_of_the_transaction_indexes() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.configure("t", "segment.bytes", "1048576").await;
    for producer in [5, 6, 7] {
        let mut builder = BatchBuilder::new().producer(producer, 0, 0).transactional();
        builder.add(NOW, None, Some(&[0; 700_000]), &[]);
        produce(&partition, builder.build().expect("builds"));
        let mut marker = abort_marker(producer);
        partition
            .append(&mut marker, AppendSource::Coordinator, NOW)
            .expect("appends");
    }
    assert_eq!(partition.log().segment_count(), 3);
    let folder = partition.log().dir().to_path_buf();
    drop(partition);
    world.restart(true).await;
    let file = |base: i64, extension: &str| folder.join(format!("{base:020}.{extension}"));
    let mut bytes = std::fs::read(file(0, "txnindex")).expect("an index");
    bytes[9] ^= 1;
    std::fs::write(file(0, "txnindex"), bytes).expect("written");
    std::fs::remove_file(file(2, "txnindex.crc")).expect("removed");
    world.restart(true).await;
    let partition = world.partition("t");
    let committed = FetchParams {
        isolation: Isolation::ReadCommitted,
        ..params(0, 1)
    };
    for (offset, producer) in [(0, 5), (2, 6), (4, 7)] {
        let data = fetch(&committed, &[read(&partition, offset)])
            .await
            .remove(0);
        assert_eq!(data.error, ErrorCode::NONE);
        let aborted = data.aborted.iter().flatten();
        let aborted: Vec<_> = aborted.map(|t| (t.producer_id, t.first_offset)).collect();
        assert_eq!(aborted, [(producer, offset)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_the_leadership_answers_a_waiting_fetch_with_the_new_leader() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    let reads = [read(&partition, 0)];
    let waiting = tokio::spawn(async move { fetch(&params(5_000, 1), &reads).await });
    until_waiting(&partition).await;
    world.set_leader("t", 9).await;
    let answers = waiting.await.expect("no panic");
    assert_eq!(answers[0].error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(answers[0].current_leader, Some((9, 1)));
}

#[tokio::test]
async fn a_wrong_leader_epoch_is_told_apart_as_old_or_unknown() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    world.bump("t", 5).await;
    let with = |epoch| FetchRead {
        current_leader_epoch: epoch,
        ..read(&partition, 0)
    };
    let table = [
        (4, ErrorCode::FENCED_LEADER_EPOCH),
        (5, ErrorCode::NONE),
        (6, ErrorCode::UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode::NONE),
    ];
    for (epoch, code) in table {
        let data = fetch(&params(0, 1), &[with(epoch)]).await.remove(0);
        assert_eq!(data.error, code, "epoch {epoch}");
        assert_eq!(data.current_leader.is_some(), !code.is_none());
    }
}

#[tokio::test]
async fn a_reader_whose_log_left_ours_is_told_where() {
    let mut world = World::new().await;
    let partition = world.topic("t").await;
    produce(&partition, batch(4));
    world.bump("t", 3).await;
    produce(&partition, batch(2));
    let with = |epoch, offset| FetchRead {
        last_fetched_epoch: epoch,
        fetch_offset: offset,
        ..read(&partition, 0)
    };
    let ask = async |epoch, offset| fetch(&params(0, 1), &[with(epoch, offset)]).await.remove(0);
    assert_eq!(ask(0, 4).await.diverging_epoch, None);
    assert_eq!(ask(3, 6).await.diverging_epoch, None);
    // Epoch 0 ends at 4 here; the reader has it up to 5.
    let data = ask(0, 5).await;
    assert_eq!(
        data.diverging_epoch,
        Some(EpochEnd {
            epoch: 0,
            end_offset: 4
        })
    );
    assert!(data.is_empty());
    // Epoch 2 never was.
    assert_eq!(
        ask(2, 5).await.diverging_epoch,
        Some(EpochEnd {
            epoch: 0,
            end_offset: 4
        })
    );
    assert_eq!(ask(9, 6).await.error, ErrorCode::OFFSET_OUT_OF_RANGE);
}
