//! What moves nothing backs off, counts and shows; what a source claims bounds what it sends; every
//! wait ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tarn_records::BatchBuilder;
use tarn_replica::AppendSource;
use tarn_wire::{ApiKey, ErrorCode, Records};

use crate::fake::{Fake, NOW, batch};
use crate::world::World;

/// Long enough to tell a pause from none.
const WATCHED: Duration = Duration::from_secs(2);

async fn mirrored(source: &Fake) -> World {
    source.put("t", 4, vec![batch(0, 4, 10, "first")]);
    let world = World::start(source).await;
    world.mirrored("t").await;
    world
}

/// A leader epoch above the one that the Fetch was fenced with is outside the checksum and not
/// believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_an_epoch_above_the_leaders_is_not_stored() {
    for epoch in [5, 1 << 30, i32::MAX] {
        let source = Fake::start(16).await;
        let world = mirrored(&source).await;
        source.with("t", |p| {
            p.batches.push(batch(10, 4, 10, "first"));
            p.batches.push(batch(20, epoch, 10, "first"));
        });
        let failed = world.until_state("t", "FAILED").await;
        let text = failed.error_message.unwrap_or_default().to_string();
        assert!(text.contains(&format!("leader epoch {epoch}")), "{text}");
        assert_eq!(world.end("t"), 20, "the good batch in front of it stays");
        source.with("t", |p| p.batches[2] = batch(20, 4, 10, "first"));
        world.until_caught_up("t").await;
        world.until_state("t", "MIRRORING").await;
        world.stop().await;
    }
}

/// Offsets at or above the high watermark of the same answer, and offsets that leave no room for a
/// failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_beyond_the_claimed_end_is_not_stored() {
    for (base, high_watermark) in [(10, 10), (500, 20), (i64::MAX - 14, i64::MAX)] {
        let source = Fake::start(16).await;
        let world = mirrored(&source).await;
        source.lie(move |_, asked, data| {
            if asked.fetch_offset == 10 {
                data.high_watermark = high_watermark;
                data.records = Some(Records::Bytes(batch(base, 4, 10, "first")));
            }
        });
        let failed = world.until_state("t", "FAILED").await;
        let text = failed.error_message.unwrap_or_default().to_string();
        assert!(text.contains("that it claims"), "{text}");
        assert_eq!(world.end("t"), 10, "nothing is stored");
        world.stop().await;
    }
}

/// A Kafka takes the high watermark of an answer before it reads the records: what came between is
/// no lie, and costs one more Fetch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_high_watermark_that_is_a_moment_older_than_the_records_harms_nothing() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    source.lie(|_, asked, data| {
        // Two batches come, the high watermark covers the first; the next answer covers both.
        if asked.fetch_offset == 10 {
            data.high_watermark = 20;
        }
    });
    source.with("t", |p| {
        p.batches
            .extend((1..3).map(|i| batch(i * 10, 4, 10, "first")));
    });
    world.until_caught_up("t").await;
    let shown = world.described("t").await.expect("is shown");
    assert_eq!((&*shown.state, shown.error_message), ("MIRRORING", None));
    world.stop().await;
}

/// A log start above the log's own end would drop everything here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_start_beyond_the_log_end_is_not_followed() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    source.lie(|_, _, data| data.log_start_offset = data.high_watermark + 1);
    world.until_told("t", &["begins at 11"]).await;
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    world.until_caught_up("t").await;
    assert_eq!(world.partition("t").log().log_start_offset(), 0);
    world.stop().await;
}

/// A tail of an earlier release whose epoch or offsets cannot be followed does not hold up a
/// failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_cuts_a_tail_that_nothing_could_follow() {
    let tails = [
        batch(10, i32::MAX, 10, "lie"),
        batch(i64::MAX - 14, 4, 10, "lie"),
    ];
    for tail in tails {
        let source = Fake::start(16).await;
        let world = mirrored(&source).await;
        world.pause("t").await;
        let partition = world.partition("t");
        let mut append = partition.mirror_append(10, NOW).expect("may mirror");
        append
            .push(&tail)
            .expect("stored as an earlier release did");
        append.finish().expect("finishes");
        world.remove("t").await;
        world.until_state("t", "STOPPED").await;
        assert_eq!(world.end("t"), 11, "ten records and our producer reset");
        let mut own = BatchBuilder::new();
        own.add(NOW, None, Some(b"own"), &[]);
        let mut own = own.build().unwrap();
        let appended = partition.append(&mut own, AppendSource::Client, NOW);
        assert_eq!(appended.expect("takes records").first_offset, 11);
        world.stop().await;
    }
}

/// Requests of one kind while `WATCHED`.
async fn requests(source: &Fake, key: ApiKey) -> usize {
    let before = source.requests(key);
    tokio::time::sleep(WATCHED).await;
    source.requests(key) - before
}

/// Our end is inside the range that the source tells, and yet it is refused: 60 cycles through
/// ULE_RECOVERY a second before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_that_is_refused_although_it_is_in_range_is_asked_for_ever_more_seldom() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    source.lie(|_, asked, data| {
        if asked.fetch_offset == 10 {
            data.error_code = ErrorCode::OFFSET_OUT_OF_RANGE.0;
            data.records = Some(Records::EMPTY);
        }
    });
    world.until_told("t", &["contradict"]).await;
    let asked = requests(&source, ApiKey::OFFSET_FOR_LEADER_EPOCH).await;
    assert!(asked < 10, "{asked} preparations in {WATCHED:?}");
    source.state.lock().lie = None;
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    world.until_caught_up("t").await;
    world.stop().await;
}

/// A first batch that is longer than what comes: 1,300 Fetch a second before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_never_comes_whole_is_asked_for_ever_more_seldom() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    let whole = batch(10, 4, 10, "first");
    source.with("t", |p| p.batches.push(whole.clone()));
    let cut: Bytes = whole.slice(..100);
    source.lie(move |_, asked, data| {
        if asked.fetch_offset == 10 {
            data.records = Some(Records::Bytes(cut.clone()));
        }
    });
    world.until_told("t", &["100 bytes", "in a row"]).await;
    let asked = requests(&source, ApiKey::FETCH).await;
    assert!(asked < 60, "{asked} Fetch in {WATCHED:?}");
    source.state.lock().lie = None;
    world.until_caught_up("t").await;
    world.stop().await;
}

/// A source that answers at once and brings nothing was asked 6,000 times a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_answers_at_once_with_nothing_is_not_asked_all_the_time() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    source.state.lock().hasty = true;
    world.until_told("t", &["brings nothing"]).await;
    let asked = requests(&source, ApiKey::FETCH).await;
    assert!(asked < 60, "{asked} Fetch in {WATCHED:?}");
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    world.until_caught_up("t").await;
    source.state.lock().hasty = false;
    world
        .until_shown("t", "no text", |p| p.error_message.is_none())
        .await;
    world.stop().await;
}

/// A throttled answer is no news, and what it hides is asked for at the refresh.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_mirror_tells_its_lag_and_why() {
    let source = Fake::start(16).await;
    let world = mirrored(&source).await;
    source.state.lock().throttle_ms = 500;
    tokio::time::sleep(Duration::from_millis(300)).await;
    source.with("t", |p| {
        p.batches
            .extend((1..30).map(|i| batch(i * 10, 4, 10, "first")));
    });
    let shown = world
        .until_shown("t", "lag, age and the throttle", |p| {
            let text = p.error_message.as_deref().unwrap_or_default();
            p.lag == 290 && p.source_offset == 300 && text.contains("500 ms")
        })
        .await;
    assert_eq!(shown.state, "MIRRORING");
    world
        .until_shown("t", "an age and a lag in time that grow", |p| {
            p.lag_ms >= 2_000 && p.last_fetch_age_ms >= 2_000
        })
        .await;
    source.state.lock().throttle_ms = 0;
    world.until_caught_up("t").await;
    world
        .until_shown("t", "no throttle", |p| {
            p.error_message.is_none() && p.lag == 0 && p.lag_ms == 0
        })
        .await;
    world.stop().await;
}

/// A throttled answer has no partitions at all: a comparison that meets one says so, and does not
/// take the topic for gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_comparison_is_told_as_such_and_ends_with_the_throttle() {
    for version in [16, 5] {
        let source = Fake::start(version).await;
        let world = mirrored(&source).await;
        for resumed in [true, false] {
            if resumed {
                world.pause("t").await;
            }
            source.state.lock().throttle_ms = 70;
            if resumed {
                world.resume("t").await;
            } else {
                source.with("t", |p| p.epoch += 1);
                source.hang_up();
            }
            let shown = world
                .until_told("t", &["throttles this mirror", "70 ms"])
                .await;
            assert_ne!(shown.state, "FAILED");
            source.state.lock().throttle_ms = 0;
            world
                .until_shown("t", "no throttle", |p| {
                    p.error_message.is_none() && p.state == "MIRRORING"
                })
                .await;
        }
        world.stop().await;
    }
}

/// F-2: what an answer leaves out says nothing about the topic. It is told as such, nobody looks
/// for a topic that is gone, and the copy goes on as soon as the answers are whole again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_an_answer_leaves_out_is_no_missing_topic() {
    // A preparation asks; and so does a comparison where Fetch does not tell that a tail was lost.
    for (version, prepares) in [(16, true), (5, true), (5, false)] {
        let source = Fake::start(version).await;
        let world = mirrored(&source).await;
        if prepares {
            world.remove("t").await;
            world.until_state("t", "STOPPED").await;
        }
        source.state.lock().leaves_out = true;
        if prepares {
            world.add("t").await;
        } else {
            source.with("t", |p| p.epoch += 1);
            source.hang_up();
        }
        let shown = world
            .until_shown("t", "what is left out", |p| {
                let text = p.error_message.as_deref().unwrap_or_default();
                assert!(!text.contains("UNKNOWN_TOPIC"), "{text}");
                text.contains("the source's answer leaves the partition out")
            })
            .await;
        assert_ne!(shown.state, "FAILED");
        source.state.lock().leaves_out = false;
        source.with("t", |p| p.batches.push(batch(10, p.epoch, 10, "first")));
        world.until_caught_up("t").await;
        world
            .until_shown("t", "no text", |p| {
                p.error_message.is_none() && p.state == "MIRRORING"
            })
            .await;
        world.stop().await;
    }
}

/// A partition that waits because its leader was not known goes on with the first good metadata.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_metadata_ends_a_long_wait() {
    let source = Fake::start(16).await;
    source.put("t", 4, vec![batch(0, 4, 10, "first")]);
    let world = World::start_with(&source, &[("mirror.fetch.backoff.ms", "60000")]).await;
    world.mirrored("t").await;
    source.state.lock().topic_error = ErrorCode::TOPIC_AUTHORIZATION_FAILED.0;
    source.hang_up();
    world
        .until_shown("t", "the error", |p| p.error_message.is_some())
        .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    source.state.lock().topic_error = 0;
    let begun = Instant::now();
    world.until_caught_up("t").await;
    assert!(begun.elapsed() < Duration::from_secs(20), "waited");
    world.stop().await;
}

/// A partition that FAILED because the source was away is not left waiting for up to 300 s when
/// that returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_return_of_the_source_ends_the_wait_of_what_failed_without_it() {
    let source = Fake::start(16).await;
    source.put("t", 4, vec![batch(0, 4, 10, "first")]);
    let configs = [("mirror.disconnect.fail.after.ms", "300")];
    let world = World::start_retrying(&source, &configs, 300_000).await;
    world.mirrored("t").await;
    source.state.lock().away = true;
    source.hang_up();
    world.until_state("t", "FAILED").await;
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    source.state.lock().away = false;
    let begun = Instant::now();
    world.until_caught_up("t").await;
    assert!(begun.elapsed() < Duration::from_secs(20), "waited");
    world.stop().await;
}

/// A panic in a task that fetches fails its partitions with a word, and they are taken up again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_a_session_is_shown_and_survived() {
    let source = Fake::start(16).await;
    source.put("t", 4, vec![batch(0, 4, 10, "first")]);
    let world = World::start_retrying(&source, &[], 10_000).await;
    world.mirrored("t").await;
    world.panics.store(true, Ordering::Release);
    let panics = world.panics.clone();
    source.lie(move |_, _, data| {
        if panics.load(Ordering::Acquire) {
            data.error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED.0;
        }
    });
    world
        .until_shown("t", "the panic", |p| {
            let text = p.error_message.as_deref().unwrap_or_default();
            p.state == "FAILED" && text.contains("panicked")
        })
        .await;
    source.with("t", |p| p.batches.push(batch(10, 4, 10, "first")));
    world.until_caught_up("t").await;
    world.until_state("t", "MIRRORING").await;
    world.stop().await;
}
