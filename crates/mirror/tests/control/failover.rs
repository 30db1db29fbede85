//! Failover: works with the source dead, in every state, and again after a restart.

use tarn_mirror::seam::{FailureKind, FetchFailure, MirrorPartition, PrepareOutcome};
use tarn_records::{ControlType, DECOMPRESSED_BYTES_MAX_DEFAULT, batches, parse_control_record};
use tarn_wire::Str;

use crate::scripted::Scripted;
use crate::world::{MIRROR, World, open_transaction, source_batch};

/// The control records at the end of a log: (type, leader epoch of the batch).
fn control_tail(world: &World, topic: &str, from: i64) -> Vec<(ControlType, i32)> {
    let partition = world.partition(topic, 0);
    let log = partition.log();
    let slice = log
        .read(from, 1 << 20, log.log_end_offset(), true)
        .unwrap()
        .expect("there is a tail");
    let bytes = slice.read().unwrap();
    let control = |b: tarn_records::BatchView<'_>| {
        let record = b
            .records(DECOMPRESSED_BYTES_MAX_DEFAULT)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        (
            parse_control_record(&record).unwrap().kind,
            b.header.leader_epoch,
        )
    };
    batches(&bytes)
        .map(Result::unwrap)
        .filter(|b| b.header.is_control())
        .map(control)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_with_a_dead_source_ends_open_transactions_and_makes_the_topic_writable() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    world.mirror("t", 0, &source_batch(0, 3, 2));
    world.mirror("t", 0, &open_transaction(2, 3, 1000));
    world.mirror("t", 0, &open_transaction(3, 3, 1001));
    assert!(world.produce("t").is_err(), "read-only while mirrored");
    world.plane.go_down("connection refused");
    let started = std::time::Instant::now();
    assert_eq!(world.remove(&["t"]).await, 0);
    world.until("t", "STOPPED").await;
    assert!(
        started.elapsed().as_millis() < 1_000,
        "took {:?}",
        started.elapsed()
    );
    let tail = control_tail(&world, "t", 4);
    let kinds: Vec<ControlType> = tail.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(
        kinds,
        [
            ControlType::Abort,
            ControlType::Abort,
            ControlType::MirrorPidReset
        ]
    );
    assert!(tail.iter().all(|(_, epoch)| *epoch > 3), "{tail:?}");
    let partition = world.partition("t", 0);
    assert_eq!(
        partition.log().log_end_offset(),
        4 + 2 + 1,
        "source + open transactions + reset"
    );
    assert_eq!(partition.log().last_stable_offset(), 7);
    let described = world.partition_of("t", 0).await.unwrap();
    assert_eq!(
        (
            described.last_mirror_epoch,
            described.source_offset,
            described.lag
        ),
        (3, -1, -1)
    );
    assert_eq!(world.produce("t").unwrap(), 7);
    world
        .eventually("the membership says stopped", |w| {
            w.image().membership("t").is_some_and(|m| m.stopped)
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_topic_is_writable_after_a_restart_and_its_epoch_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    world.mirror("t", 0, &source_batch(0, 5, 2));
    world.remove(&["t"]).await;
    world
        .eventually("the membership says stopped", |w| {
            w.image().membership("t").is_some_and(|m| m.stopped)
        })
        .await;
    let end = world.partition("t", 0).log().log_end_offset();
    world.stop().await;

    let plane = Scripted::new();
    plane.go_down("still dead");
    let world = World::start(dir.path(), plane).await;
    assert_eq!(
        world.produce("t").unwrap(),
        end,
        "nothing was appended again"
    );
    world.until("t", "STOPPED").await;
    world.eventually("states are loaded", |_| true).await;
    let mut epoch = -1;
    for _ in 0..400 {
        epoch = world.partition_of("t", 0).await.unwrap().last_mirror_epoch;
        if epoch >= 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(epoch, 5);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remove_works_while_preparing_paused_and_failed() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    for topic in ["preparing", "paused", "failed"] {
        world.plane.topic(topic, 1);
    }
    world.add(&["paused", "failed"]).await;
    world.until("paused", "MIRRORING").await;
    world.until("failed", "MIRRORING").await;
    assert_eq!(world.pause("paused").await, 0);
    world.until("paused", "PAUSED").await;
    let id = world.image().topic("failed").unwrap().id;
    let partition = MirrorPartition {
        mirror: Str::from(MIRROR),
        topic: Str::from("failed"),
        topic_id: id,
        partition: 0,
    };
    let failure = FetchFailure {
        kind: FailureKind::Permanent,
        text: "corrupt batch at offset 7".into(),
    };
    world.events().failed(&partition, failure);
    world.until("failed", "FAILED").await;
    let shown = world.partition_of("failed", 0).await.unwrap();
    assert_eq!(
        (shown.retry_attempt, shown.error_message.as_deref()),
        (-1, Some("corrupt batch at offset 7"))
    );
    world.plane.0.lock().prepare = Some(PrepareOutcome::Retry {
        reason: "source coordinator is loading".into(),
    });
    world.add(&["preparing"]).await;
    world.until("preparing", "PREPARING").await;
    world.plane.go_down("gone");
    assert_eq!(world.remove(&[".*"]).await, 0);
    for topic in ["preparing", "paused", "failed"] {
        world.until(topic, "STOPPED").await;
        assert!(world.produce(topic).is_ok(), "{topic}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_was_cut_off_by_a_restart_goes_on_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 4);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    for p in 0..4 {
        world.mirror("t", p, &source_batch(0, 2, 3));
    }
    world.remove(&["t"]).await;
    // At once, wherever the sequence is.
    world.stop().await;
    let plane = Scripted::new();
    plane.go_down("dead");
    let world = World::start(dir.path(), plane).await;
    world
        .eventually("the membership says stopped", |w| {
            w.image().membership("t").is_some_and(|m| m.stopped)
        })
        .await;
    for p in 0..4 {
        assert_eq!(
            world.partition("t", p).log().log_end_offset(),
            3 + 1,
            "one reset, not two, in partition {p}"
        );
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_partition_is_retried_and_an_operator_resets_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    let id = world.image().topic("t").unwrap().id;
    let partition = MirrorPartition {
        mirror: Str::from(MIRROR),
        topic: Str::from("t"),
        topic_id: id,
        partition: 0,
    };
    world.events().failed(
        &partition,
        FetchFailure {
            kind: FailureKind::Limited,
            text: "append refused".into(),
        },
    );
    // The wait before the retry may be as short as nothing, so FAILED itself is not waited for.
    let started = std::time::Instant::now();
    while world.partition_of("t", 0).await.unwrap().retry_attempt != 1 {
        assert!(started.elapsed().as_secs() < 10, "the failure is counted");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    world.until("t", "MIRRORING").await;
    world
        .eventually("the fetcher runs again", |w| w.plane.is_fetching("t", 0))
        .await;
    world.events().failed(
        &partition,
        FetchFailure {
            kind: FailureKind::Permanent,
            text: "for good".into(),
        },
    );
    world.until("t", "FAILED").await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(world.state("t").await, "FAILED");
    assert_eq!(world.resume("t").await, 0);
    world.until("t", "MIRRORING").await;
    assert_eq!(world.partition_of("t", 0).await.unwrap().retry_attempt, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_intent_to_cut_is_stored_before_the_cut_and_handed_over_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let plane = Scripted::new();
    plane.topic("t", 1);
    {
        let mut script = plane.0.lock();
        script.intent = Some(42);
        script.prepare = Some(PrepareOutcome::Retry {
            reason: "the broker dies here".into(),
        });
    }
    let world = World::with_mirror(dir.path(), plane.clone()).await;
    world.add(&["t"]).await;
    world
        .eventually("it prepared", |w| !w.plane.0.lock().prepared.is_empty())
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    world.stop().await;
    plane.0.lock().prepared.clear();
    let world = World::start(dir.path(), plane).await;
    world
        .eventually("it prepares again", |w| {
            !w.plane.0.lock().prepared.is_empty()
        })
        .await;
    assert_eq!(
        world.plane.0.lock().prepared[0].pending_truncation,
        Some(42)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_topics_fail_over_together() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    for i in 0..150 {
        world.plane.topic(&format!("t{i}"), 1);
    }
    let added = world.add(&["t.*"]).await;
    assert!(added.len() == 150 && added.iter().all(|(_, code, _)| *code == 0));
    world
        .eventually("all are fetched", |w| {
            w.plane.0.lock().fetching.len() == 150
        })
        .await;
    for i in 0..150 {
        world.mirror(&format!("t{i}"), 0, &source_batch(0, 1, 1));
    }
    let started = std::time::Instant::now();
    assert_eq!(world.remove(&["t.*"]).await, 0);
    world
        .eventually("all are marked stopped", |w| {
            w.image().memberships().values().all(|m| m.stopped)
        })
        .await;
    println!("150 topics failed over in {:?}", started.elapsed());
    world.stop().await;
}
