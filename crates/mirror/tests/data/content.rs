//! Content decides between two histories, whatever numbers both carry.

use bytes::Bytes;

use crate::fake::{Fake, NOW, batch};
use crate::world::World;

/// Batches of ten records each, from offset 0 to `end`.
fn history(end: i64, epoch: i32, name: &str) -> Vec<Bytes> {
    (0..end / 10)
        .map(|i| batch(i * 10, epoch, 10, name))
        .collect()
}

/// A source of at most this version of Fetch, whose topic `t` has these batches under a leader of
/// this epoch; and a mirror that has them too.
async fn mirrored(fetch_version_max: i16, epoch: i32, batches: Vec<Bytes>) -> (Fake, World) {
    let source = Fake::start(fetch_version_max).await;
    source.put("t", epoch, batches);
    let world = World::start(&source).await;
    world.mirrored("t").await;
    (source, world)
}

fn joined(batches: &[Bytes]) -> Bytes {
    batches.concat().into()
}

/// The source was restored from a copy of its disks while the topic was paused: same cluster id,
/// topic id, epochs and length.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_another_history_under_the_same_numbers_is_found_at_resume() {
    let (source, world) = mirrored(16, 4, history(100, 4, "first")).await;
    world.pause("t").await;
    let before = world.bytes("t");
    let mut other = history(60, 4, "first");
    other.extend((6..20).map(|i| batch(i * 10, 4, 10, "second")));
    source.put("t", 4, other);
    world.resume("t").await;
    let failed = world.until_state("t", "FAILED").await;
    let text = failed.error_message.as_ref().map(|t| t.to_string());
    let text = text.unwrap_or_default();
    for part in ["t-0", "90", "99", "1700000000009"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert_eq!(failed.retry_attempt, -1, "only an operator can end this");
    assert_eq!(world.bytes("t"), before, "nothing was cut or added");
    world.stop().await;
}

/// The same while mirroring, with nothing but a restart of the source to see, and the same end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_another_history_is_found_at_its_return() {
    let (source, world) = mirrored(16, 4, history(50, 4, "first")).await;
    let before = world.bytes("t");
    source.put("t", 4, history(50, 4, "second"));
    source.hang_up();
    world.until_state("t", "FAILED").await;
    source.with("t", |p| p.batches.push(batch(50, 4, 10, "second")));
    assert_eq!(world.bytes("t"), before);
    world.stop().await;
}

/// A new source epoch is a moment to compare too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_epoch_of_the_source_is_compared_before_anything_is_copied() {
    let (source, world) = mirrored(16, 4, history(50, 4, "first")).await;
    let before = world.bytes("t");
    let mut other = history(50, 4, "second");
    other.push(batch(50, 5, 10, "second"));
    source.put("t", 5, other);
    world.until_state("t", "FAILED").await;
    assert_eq!(world.bytes("t"), before);
    world.stop().await;
}

/// An unclean election is no other history: the log is cut to the common prefix, as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_tail_is_cut_where_the_epochs_part_and_the_content_agrees() {
    for fetch_version_max in [16, 11] {
        let (source, world) = mirrored(fetch_version_max, 4, history(100, 4, "first")).await;
        let mut other = history(60, 4, "first");
        other.extend((6..12).map(|i| batch(i * 10, 5, 10, "second")));
        source.put("t", 5, other.clone());
        world.until_caught_up("t").await;
        world
            .until("the same bytes", |w| w.bytes("t") == joined(&other))
            .await;
        world.until_state("t", "MIRRORING").await;
        world.stop().await;
    }
}

/// Below Fetch 12 a leader change that lost a tail and has not grown past our end yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_source_that_lost_a_tail_and_grew_to_the_same_end_is_noticed() {
    let (source, world) = mirrored(10, 1, history(60, 1, "first")).await;
    let mut other = history(40, 1, "first");
    other.extend((4..6).map(|i| batch(i * 10, 2, 10, "second")));
    source.put("t", 2, other.clone());
    world
        .until("the same bytes", |w| w.bytes("t") == joined(&other))
        .await;
    world.stop().await;
}

/// Without topic ids a topic made anew is known by its content alone. Longer, as long, and shorter;
/// same and lower epochs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_without_topic_ids_fails_and_keeps_the_old_data() {
    for (epoch, end) in [(3, 90), (3, 60), (3, 20), (0, 90), (0, 60), (0, 20), (3, 0)] {
        let (source, world) = mirrored(11, 3, history(60, 3, "old")).await;
        let before = world.bytes("t");
        // Between the two topics nobody has one of this name.
        source.lie(|_, _, data| data.error_code = 3);
        world
            .until_shown("t", "the topic is gone", |p| p.error_message.is_some())
            .await;
        source.put("t", epoch, history(end, epoch, "new"));
        source.state.lock().lie = None;
        world.until_state("t", "FAILED").await;
        assert_eq!(world.bytes("t"), before, "epoch {epoch}, end {end}");
        world.stop().await;
    }
}

/// A source that knows no such leader epoch any more is asked for its leader again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_leader_epoch_is_forgotten_and_asked_for_anew() {
    let (source, world) = mirrored(16, 9, history(30, 2, "first")).await;
    // The epochs went back, as after a restore; the records are the same.
    source.with("t", |p| {
        p.epoch = 3;
        p.batches.push(batch(30, 3, 10, "first"));
    });
    world.until_caught_up("t").await;
    world.stop().await;
}

/// What compaction left of a batch of ten records: the one at `delta`.
fn left_of(base_offset: i64, delta: i32, value: &str) -> Bytes {
    let mut rewritten = tarn_records::BatchBuilder::new()
        .base_offset(base_offset)
        .leader_epoch(4)
        .last_offset_delta(9);
    rewritten.add_at(
        delta,
        NOW + i64::from(delta),
        None,
        Some(value.as_bytes()),
        &[],
    );
    rewritten.build().unwrap().into()
}

/// Compaction at the source drops and rewrites batches below; what is left at the same offsets is
/// the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_source_is_the_same_history() {
    let (source, world) = mirrored(16, 4, history(100, 4, "first")).await;
    world.pause("t").await;
    let before = world.bytes("t");
    // The last batch lost most of its records, the two in front of it all, and one stands empty.
    let mut compacted = history(70, 4, "first");
    compacted.push(left_of(90, 3, "first-93"));
    compacted.push(batch(100, 4, 10, "first"));
    source.put("t", 4, compacted);
    world.resume("t").await;
    world.until_caught_up("t").await;
    assert!(world.bytes("t").starts_with(&before));
    // Nothing but other records at the same offsets tells the two apart.
    world.pause("t").await;
    let mut other = history(70, 4, "first");
    other.push(left_of(100, 4, "other-104"));
    source.put("t", 4, other);
    world.resume("t").await;
    world.until_state("t", "FAILED").await;
    world.stop().await;
}

/// Compaction that took our last batch whole: the first batch that both have decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_last_batch_was_compacted_away_the_first_common_one_decides() {
    for (name, ends) in [("first", "MIRRORING"), ("second", "FAILED")] {
        let (source, world) = mirrored(16, 4, history(50, 4, "first")).await;
        world.pause("t").await;
        let left = vec![batch(20, 4, 10, name), batch(60, 4, 10, name)];
        source.put("t", 4, left);
        source.with("t", |p| p.start = 0);
        world.resume("t").await;
        world.until_state("t", ends).await;
        if ends == "MIRRORING" {
            world.until_caught_up("t").await;
        }
        world.stop().await;
    }
}

/// Retention took everything that we have, and nothing more: there is nothing to compare, and the
/// copy goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_kept_nothing_of_ours_is_followed() {
    let (source, world) = mirrored(16, 4, history(50, 4, "first")).await;
    world.pause("t").await;
    source.put("t", 4, vec![batch(50, 4, 10, "first")]);
    world.resume("t").await;
    world.until_caught_up("t").await;
    world.until_state("t", "MIRRORING").await;
    world.stop().await;
}

/// The comparison costs one Fetch for many partitions, and none while nothing happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_are_compared_with_few_requests() {
    let source = Fake::start(16).await;
    {
        let partition = crate::fake::Partition {
            batches: history(20, 0, "first"),
            epoch: 0,
            start: 0,
        };
        let mut state = source.state.lock();
        let id = tarn_wire::Uuid::random();
        state
            .topics
            .insert("wide".to_owned(), (id, vec![partition; 300]));
    }
    let world = World::start_with(&source, &[("mirror.fetch.wait.max.ms", "2000")]).await;
    world.add("wide").await;
    let all_end_at = |w: &World, end| {
        (0..300).all(|p| {
            let found = w.broker.replicas.partition("wide", p);
            found.is_ok_and(|f| f.log().log_end_offset() == end)
        })
    };
    world
        .until("all partitions are here", |w| all_end_at(w, 20))
        .await;
    let fetches = source.requests(tarn_wire::ApiKey::FETCH);
    for partition in &mut source.state.lock().topics.get_mut("wide").unwrap().1 {
        partition.epoch = 1;
        partition.batches.push(batch(20, 1, 10, "first"));
    }
    world
        .until("all partitions went on", |w| all_end_at(w, 30))
        .await;
    let spent = source.requests(tarn_wire::ApiKey::FETCH) - fetches;
    assert!(spent < 40, "{spent} Fetch requests for 300 partitions");
    world.stop().await;
}

/// The topic is deleted, made anew and filled while a Fetch waits, so that no answer ever tells of
/// an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_within_one_long_poll_fails_too() {
    for end in [60, 90] {
        let (source, world) = mirrored(11, 3, history(60, 3, "old")).await;
        let before = world.bytes("t");
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        source.put("t", 3, history(end, 3, "new"));
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(world.bytes("t"), before, "end {end}");
        source.with("t", |p| p.batches.push(batch(end, 3, 10, "new")));
        world.until_state("t", "FAILED").await;
        assert_eq!(world.bytes("t"), before, "end {end}");
        world.stop().await;
    }
}

/// Without topic ids slow records are proven to follow ours, one by one, and a compacted tail does
/// not hold them up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_records_of_a_source_without_topic_ids_are_copied() {
    let (source, world) = mirrored(11, 3, history(20, 3, "first")).await;
    for i in 2..5 {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        source.with("t", |p| p.batches.push(batch(i * 10, 3, 10, "first")));
        world.until_caught_up("t").await;
    }
    assert_eq!(world.bytes("t"), joined(&history(50, 3, "first")));
    source.with("t", |p| {
        p.batches.truncate(2);
        p.batches.push(batch(60, 3, 10, "first"));
    });
    world.until_caught_up("t").await;
    world.until_state("t", "MIRRORING").await;
    world.stop().await;
}
