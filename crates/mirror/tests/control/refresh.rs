//! What the source does, and what follows here.

use tarn_mirror::seam::PrepareOutcome;
use tarn_wire::messages as m;
use tarn_wire::{Str, Uuid};

use crate::scripted::Scripted;
use crate::world::{MIRROR, World};

async fn mirrored(dir: &std::path::Path) -> (World, Uuid) {
    let world = World::with_mirror(dir, Scripted::new()).await;
    let id = world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    (world, id)
}

/// What describe says of partition 0.
async fn text_of(world: &World, topic: &str) -> String {
    let shown = world.partition_of(topic, 0).await.unwrap();
    shown.error_message.unwrap().to_string()
}

/// A config of a topic here.
fn value(world: &World, topic: &str, key: &str) -> Option<String> {
    let image = world.image();
    image.topic_configs(topic)?.get(key).map(|v| v.to_string())
}

/// Sets a config of the mirror.
async fn alter(world: &World, key: &str, value: &str) -> (i16, Option<String>) {
    alter_of(world, (64, MIRROR), key, value).await
}

/// Sets a config of a resource, which is a type and a name.
async fn alter_of(
    world: &World,
    (resource_type, name): (i8, &str),
    key: &str,
    value: &str,
) -> (i16, Option<String>) {
    let config = m::incremental_alter_configs_request::AlterableConfig {
        name: Str::from(key),
        value: Some(Str::from(value)),
        ..Default::default()
    };
    let resource = m::incremental_alter_configs_request::AlterConfigsResource {
        resource_type,
        resource_name: Str::from(name),
        configs: vec![config],
        ..Default::default()
    };
    let request = m::IncrementalAlterConfigsRequest {
        resources: vec![resource],
        ..Default::default()
    };
    let answer = world.controller.incremental_alter_configs(request).await;
    let first = answer.responses.into_iter().next().unwrap();
    (first.error_code, first.error_message.map(|e| e.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_grows_with_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let (world, id) = mirrored(dir.path()).await;
    world.plane.put("t", Some(id), 3, 0);
    world
        .eventually("three partitions are fetched", |w| {
            w.plane.is_fetching("t", 2)
        })
        .await;
    assert_eq!(world.image().topic("t").unwrap().partition_count(), 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_source_topic_fails_and_keeps_its_data_and_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    world.plane.0.lock().topics.clear();
    world.until("t", "FAILED").await;
    let shown = world.partition_of("t", 0).await.unwrap();
    assert_eq!(
        shown.error_message.as_deref(),
        Some("The source topic is deleted.")
    );
    assert_eq!(shown.retry_attempt, -1);
    // Whether it is prepared before the refresh fails it again depends on who comes first; where it
    // ends does not.
    assert_eq!(world.resume("t").await, 0);
    world.until("t", "FAILED").await;
    world.remove(&["t"]).await;
    world.until("t", "STOPPED").await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(
        world.state("t").await,
        "STOPPED",
        "no refresh touches a stopped topic"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_stop_fails_over_a_deleted_topic() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    assert_eq!(
        alter(&world, "mirror.source.topic.deletion.policy", "stop").await,
        (0, None)
    );
    world.plane.0.lock().topics.clear();
    world.until("t", "STOPPED").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_source_topic_fails_with_both_ids() {
    let dir = tempfile::tempdir().unwrap();
    let (world, old) = mirrored(dir.path()).await;
    let new = world.plane.topic("t", 1);
    world.until("t", "FAILED").await;
    let text = text_of(&world, "t").await;
    assert!(
        text.contains(&old.to_string()) && text.contains(&new.to_string()),
        "{text}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_behind_the_address_fails_the_mirror() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    world.plane.0.lock().cluster_id = Some(Str::from("impostor"));
    world.until("t", "FAILED").await;
    let text = text_of(&world, "t").await;
    assert!(text.contains("impostor"), "{text}");
    let (code, text) = alter(&world, "mirror.source.cluster.id", "impostor").await;
    assert!(code == 40 && text.unwrap().contains("cannot be changed"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configs_follow_the_source_and_vanish_with_it_but_foreign_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    let set = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(k, v)| (Str::from(*k), Str::from(*v)))
            .collect();
        world.plane.0.lock().configs.insert(Str::from("t"), pairs);
    };
    set(&[
        ("retention.ms", "1000"),
        ("retention.bytes", "not a number"),
        ("segment.ms", "5000"),
    ]);
    world
        .eventually("set", |w| {
            value(w, "t", "segment.ms").as_deref() == Some("5000")
        })
        .await;
    assert_eq!(value(&world, "t", "retention.ms").as_deref(), Some("1000"));
    assert_eq!(
        value(&world, "t", "retention.bytes"),
        None,
        "a bad value spoils only itself"
    );
    set(&[("retention.ms", "2000")]);
    world
        .eventually("changed", |w| {
            value(w, "t", "retention.ms").as_deref() == Some("2000")
        })
        .await;
    world
        .eventually("taken back", |w| value(w, "t", "segment.ms").is_none())
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_stay_above_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let (world, id) = mirrored(dir.path()).await;
    world.plane.put("t", Some(id), 1, 27);
    let epoch = |w: &World| w.image().partition("t", 0).unwrap().leader_epoch;
    world
        .eventually("raised with a lead", |w| epoch(w) >= 37)
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_bring_in_new_topics_and_a_changed_address_reconnects() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    assert_eq!(
        alter(&world, "topics.include", "orders-.*").await,
        (0, None)
    );
    world.plane.topic("orders-eu", 1);
    world.plane.topic("__orders", 1);
    world.until("orders-eu", "MIRRORING").await;
    assert!(world.image().membership("__orders").is_none());
    let before = world.plane.0.lock().configured.len();
    assert_eq!(
        alter(&world, "bootstrap.servers", "elsewhere:9092").await,
        (0, None)
    );
    world
        .eventually("reconnected", |w| {
            w.plane.0.lock().configured.len() > before
        })
        .await;
    world
        .eventually("still fetching", |w| w.plane.is_fetching("t", 0))
        .await;
    world.stop().await;
}

/// What the source's brokers decide is carried where it would be something else here, follows the
/// source, stays after failover, and never overwrites what an operator set here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_sources_brokers_decide_is_carried_and_holds_after_failover() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let inherit = |value: &str| {
        let pairs = [("retention.ms", value), ("retention.bytes", "-1")];
        let pairs = pairs.map(|(k, v)| (Str::from(k), Str::from(v)));
        world.plane.0.lock().inherited = pairs.to_vec();
    };
    inherit("-1");
    world.plane.topic("t", 1);
    world.plane.topic("u", 1);
    world.add(&["t", "u"]).await;
    assert_eq!(
        value(&world, "t", "retention.ms").as_deref(),
        Some("-1"),
        "carried with the topic, not at some later refresh"
    );
    assert_eq!(value(&world, "t", "retention.bytes"), None, "the same here");
    set_topic_config(&world, "u", "retention.ms", "5000").await;
    inherit("777000");
    world
        .eventually("follows", |w| {
            value(w, "t", "retention.ms").as_deref() == Some("777000")
        })
        .await;
    assert_eq!(value(&world, "u", "retention.ms").as_deref(), Some("5000"));
    world.until("t", "MIRRORING").await;
    world.remove(&["t"]).await;
    world.until("t", "STOPPED").await;
    inherit("604800000");
    world.plane.topic("v", 1);
    world.add(&["v"]).await;
    world.until("v", "MIRRORING").await;
    assert_eq!(value(&world, "v", "retention.ms"), None, "the same here");
    assert_eq!(
        value(&world, "t", "retention.ms").as_deref(),
        Some("777000")
    );
    assert_eq!(value(&world, "u", "retention.ms").as_deref(), Some("5000"));
    world.stop().await;
}

async fn set_topic_config(world: &World, topic: &str, key: &str, value: &str) {
    assert_eq!(alter_of(world, (2, topic), key, value).await, (0, None));
}

/// A source that does not tell topic configs, keys that cannot be set, and topics that cannot join
/// are told by describe, with since when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_refresh_cannot_do_is_told_by_describe() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    let mut denied = Str::from("TOPIC_AUTHORIZATION_FAILED: no");
    denied = Str::from(format!("{denied} {}", "x".repeat(100_000)));
    world
        .plane
        .0
        .lock()
        .denied
        .insert(Str::from("t"), denied.to_string());
    let told = |kind: &'static str, item: &'static str| {
        let world = &world;
        async move {
            for _ in 0..500 {
                let described = world.describe().await;
                let notices = described.mirrors.into_iter().flat_map(|m| m.notices);
                let found = notices
                    .into_iter()
                    .find(|n| n.kind == *kind && n.item == *item);
                if let Some(notice) = found {
                    return notice;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            panic!("no notice about {kind} of {item}");
        }
    };
    let notice = told("configs", "t").await;
    assert!(notice.text.contains("TOPIC_AUTHORIZATION_FAILED"));
    assert!(notice.text.len() <= 1024 && notice.since_ms > 0);
    let again = told("configs", "t").await;
    assert_eq!(again.since_ms, notice.since_ms, "since the first time");
    // A topic that matches the patterns and exists here as another one.
    world.plane.topic("orders", 1);
    create_topic(&world, "orders").await;
    assert_eq!(alter(&world, "topics.include", "orders").await, (0, None));
    let notice = told("join", "orders").await;
    assert!(notice.text.contains("different topics"), "{}", notice.text);
    world.plane.0.lock().denied.clear();
    world.plane.0.lock().configs.insert(
        Str::from("t"),
        vec![(Str::from("no.such.key"), Str::from("1"))],
    );
    for _ in 0..500 {
        if told("configs", "t").await.text.contains("no.such.key") {
            world.stop().await;
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the key that cannot be set is not told");
}

/// The steps of a refresh fail each by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_leaves_the_other_steps_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (world, _) = mirrored(dir.path()).await;
    world.plane.0.lock().no_lists = Some("a broker of the source is away".into());
    assert_eq!(alter(&world, "topics.include", "orders").await, (0, None));
    let pairs = vec![(Str::from("segment.ms"), Str::from("5000"))];
    world.plane.0.lock().configs.insert(Str::from("t"), pairs);
    world
        .eventually("configs follow although topics cannot be listed", |w| {
            let image = w.image();
            let set = image.topic_configs("t").and_then(|c| c.get("segment.ms"));
            set.is_some_and(|v| *v == "5000")
        })
        .await;
    world.stop().await;
}

/// What the data plane asks for again and again about one topic costs few questions, and no refresh
/// of everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_of_the_data_plane_are_no_storm() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_interval(dir.path(), Scripted::new(), 3_600_000).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    // The refreshes that follow create and add are over.
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let before = world.plane.0.lock().questions;
    for _ in 0..300 {
        world
            .events()
            .refresh_wanted(&Str::from(MIRROR), &Str::from("t"));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let asked = world.plane.0.lock().questions - before;
    assert!((1..=5).contains(&asked), "{asked} questions in 3 s");
    world.stop().await;
}

/// A source that cannot say what it mirrored from here holds up nobody, the reason is on show, and
/// after a while it is a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_cannot_say_is_shown_and_fails_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let limit = alter(&world, "mirror.lme.lookup.timeout.ms", "1500").await;
    assert_eq!(limit, (0, None));
    let reason = String::from("its coordinator may be loading");
    world.plane.0.lock().prepare = Some(PrepareOutcome::Undecided { reason });
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "PREPARING").await;
    for _ in 0..500 {
        let shown = world.partition_of("t", 0).await.unwrap();
        let waits = shown.state == *"PREPARING";
        if let Some(text) = shown.error_message.filter(|_| waits) {
            assert!(text.contains("loading"));
            assert!(shown.error_since_ms > 0);
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    world.until("t", "FAILED").await;
    world.plane.0.lock().prepare = None;
    world.until("t", "MIRRORING").await;
    world.stop().await;
}

async fn create_topic(world: &World, name: &str) {
    let topic = m::create_topics_request::CreatableTopic {
        name: Str::from(name),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = m::CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let answer = world.controller.create_topics(request).await;
    assert_eq!(answer.topics[0].error_code, 0);
}

/// One deleted topic costs two looks, and no refresh of everything; what an operator configured
/// decides when it counts as deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_topic_costs_two_looks_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_interval(dir.path(), Scripted::new(), 3_600_000).await;
    let after = alter(&world, "mirror.source.topic.deletion.after.ms", "2500").await;
    assert_eq!(after, (0, None));
    world.plane.topic("t", 1);
    world.plane.topic("u", 1);
    world.add(&["t", "u"]).await;
    world.until("t", "MIRRORING").await;
    world.until("u", "MIRRORING").await;
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    world.plane.0.lock().topics.remove("t");
    let before = world.plane.0.lock().questions;
    let begun = std::time::Instant::now();
    world
        .events()
        .refresh_wanted(&Str::from(MIRROR), &Str::from("t"));
    world.until("t", "FAILED").await;
    assert!(begun.elapsed() >= std::time::Duration::from_millis(2_500));
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    let asked = world.plane.0.lock().questions - before;
    assert_eq!(asked, 2, "and nothing after it");
    world.until("u", "MIRRORING").await;
    world.stop().await;
}

/// What the mirror's own connections met before the source came back refuses no add.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_asks_the_source_afresh_before_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.plane.0.lock().remembered = Some("connection refused".into());
    let added = world.add(&["t"]).await;
    assert_eq!(added.len(), 1);
    assert_eq!((added[0].0.as_str(), added[0].1), ("t", 0), "{added:?}");
    world.stop().await;
}
