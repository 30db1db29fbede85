//! What every user of the fetch engine relies on: fetch sessions, pipelining, and which partitions
//! are on which connection.

use std::time::Duration;

use bytes::Bytes;
use tarn_records::BatchBuilder;
use tarn_wire::{ApiKey, ErrorCode, Uuid};

use crate::fake::{Fake, NOW, Partition, batch};
use crate::world::World;

const WIDE: i32 = 50;

/// A source that grants fetch sessions, with a topic of many partitions, and a mirror that has
/// them.
async fn wide(fetch_version_max: i16) -> (Fake, World) {
    let source = Fake::start(fetch_version_max).await;
    let partition = Partition {
        batches: vec![batch(0, 4, 10, "first")],
        epoch: 4,
        start: 0,
    };
    {
        let mut state = source.state.lock();
        state.grants_sessions = true;
        let partitions = vec![partition; usize::try_from(WIDE).expect("a count")];
        state
            .topics
            .insert("wide".to_owned(), (Uuid::random(), partitions));
    }
    let world = World::start(&source).await;
    world.add("wide").await;
    world
        .until("all partitions are here", |w| all_end_at(w, 10))
        .await;
    (source, world)
}

fn all_end_at(world: &World, end: i64) -> bool {
    (0..WIDE).all(|p| end_of(world, p) == Some(end))
}

fn end_of(world: &World, partition: i32) -> Option<i64> {
    let found = world.broker.replicas.partition("wide", partition).ok()?;
    Some(found.log().log_end_offset())
}

fn append_at(source: &Fake, partition: usize, base_offset: i64) {
    let mut state = source.state.lock();
    let topic = state.topics.get_mut("wide").expect("the topic is there");
    topic.1[partition]
        .batches
        .push(batch(base_offset, 4, 10, "first"));
}

/// Waits until some Fetches in a row named nothing: all that was is told.
async fn until_quiet(source: &Fake, world: &World) {
    world
        .until("the session is told all", |_| {
            let state = source.state.lock();
            !state.sessions.is_empty() && state.named.ends_with(&[0; 6])
        })
        .await;
}

/// A Fetch within a session names what changed: the work grows with the partitions that move, not
/// with all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_fetch_session_only_the_partitions_that_moved_are_named() {
    for version in [16, 11] {
        let (source, world) = wide(version).await;
        until_quiet(&source, &world).await;
        source.state.lock().named.clear();
        append_at(&source, 3, 10);
        world
            .until("the record is here", |w| end_of(w, 3) == Some(20))
            .await;
        until_quiet(&source, &world).await;
        let named: usize = source.state.lock().named.iter().sum();
        // Once at its new end, and perhaps once more when how much is asked for changes.
        assert!((1..=3).contains(&named), "{named} of {WIDE} were named");
        world.stop().await;
    }
}

/// The source evicted the session: the next Fetch names all partitions in a new one, and the copy
/// goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_fetch_session_begins_anew_and_the_copy_goes_on() {
    let (source, world) = wide(16).await;
    until_quiet(&source, &world).await;
    {
        let mut state = source.state.lock();
        state.sessions.clear();
        state.named.clear();
    }
    let all = usize::try_from(WIDE).expect("a count");
    for partition in 0..all {
        append_at(&source, partition, 10);
    }
    world
        .until("all partitions went on", |w| all_end_at(w, 20))
        .await;
    world
        .until("all partitions are named anew", |w| {
            let named: usize = w.source.state.lock().named.iter().sum();
            named >= all
        })
        .await;
    let shown = world.described("wide").await.expect("is shown");
    assert_eq!((&*shown.state, shown.error_message), ("MIRRORING", None));
    world.stop().await;
}

/// The source keeps nothing of a partition that it answered with an error: it is named again
/// although nothing of it changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_error_a_partition_is_named_again() {
    let (source, world) = wide(16).await;
    until_quiet(&source, &world).await;
    source.lie(|_, asked, data| {
        if asked.partition == 3 {
            data.error_code = ErrorCode::OFFSET_NOT_AVAILABLE.0;
            data.records = None;
        }
    });
    world
        .until("the error is met", |_| {
            source.state.lock().named.ends_with(&[0])
        })
        .await;
    let fetches = source.requests(ApiKey::FETCH);
    world
        .until("the partition is left out or asked again", |w| {
            w.source.requests(ApiKey::FETCH) > fetches + 4
        })
        .await;
    {
        let mut state = source.state.lock();
        state.lie = None;
        // A real source drops what it answered with an error until it is named again.
        state.sessions.clear();
    }
    append_at(&source, 3, 10);
    world
        .until("the partition went on", |w| end_of(w, 3) == Some(20))
        .await;
    world.stop().await;
}

/// Batches of some 250 KB each, with records of so many bytes.
fn large_batches(batches: &mut Vec<Bytes>, next: &mut i64, record_bytes: usize, count: usize) {
    let value = vec![b'v'; record_bytes];
    for _ in 0..count {
        let mut builder = BatchBuilder::new().base_offset(*next).leader_epoch(4);
        let records = 250_000 / record_bytes;
        for index in 0..records {
            builder.add(NOW + index as i64, None, Some(&value), &[]);
        }
        batches.push(builder.build().expect("builds").into());
        *next += records as i64;
    }
}

/// Over a WAN link the next Fetch goes out while the response still arrives, from an estimated
/// offset; the copy is exact all the same, whether the records become smaller (batches come twice)
/// or larger (a response begins after a gap).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_wan_link_fetches_are_pipelined_and_the_copy_is_exact() {
    let source = Fake::start(16).await;
    let (mut batches, mut next) = (Vec::new(), 0);
    for record_bytes in [20_000, 500, 20_000] {
        large_batches(&mut batches, &mut next, record_bytes, 70);
    }
    let all: Vec<u8> = batches.concat();
    source.put("t", 4, batches);
    source.state.lock().round_trip = Some(Duration::from_millis(30));
    let world = World::start(&source).await;
    world.mirrored("t").await;
    assert!(world.bytes("t") == all, "the copy differs");
    let estimated = source.state.lock().estimated.len();
    assert!(estimated > 0, "no Fetch from an estimated offset was seen");
    world.stop().await;
}

/// A partition that joins is fetched at once, although its fetcher waits in a long poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_joins_does_not_wait_for_the_end_of_a_long_poll() {
    let source = Fake::start(16).await;
    source.put("t", 4, vec![batch(0, 4, 10, "first")]);
    source.put("later", 4, vec![batch(0, 4, 10, "first")]);
    let configs = [("mirror.fetch.wait.max.ms", "20000")];
    let world = World::start_with(&source, &configs).await;
    world.mirrored("t").await;
    let begun = std::time::Instant::now();
    world.mirrored("later").await;
    assert!(begun.elapsed() < Duration::from_secs(15), "waited");
    world.stop().await;
}
