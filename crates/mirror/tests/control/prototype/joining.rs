//! What a start takes in, and that a refused one leaves nothing behind.

use tarn_mirror::service::reply::Body;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Str, Uuid};

use super::{
    A, EXCLUDE, INCLUDE, body, command, hex, list, ordinary, start, stop, top, with_topic,
};
use crate::scripted::Scripted;
use crate::world::{MIRROR, World};

/// The golden start of an active topic that it includes and excludes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_never_fails_anything_over() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let before = (list(&world, INCLUDE), list(&world, EXCLUDE));
    // foo with a zero id; include foo, exclude foo.
    let golden = format!(
        "026d02{}04666f6f0000000000ffffffffffffffff0200050204666f6f01050204666f6f",
        "00".repeat(16)
    );
    let requests = [
        hex(&golden),
        start(&[], &["foo"], &["foo"]),
        start(&[], &[], &["foo"]),
        start(&[], &["other.*"], &["f.*"]),
    ];
    for request in requests {
        let answer = command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request).await;
        let (code, text) = top(&answer);
        assert_eq!(code, 42, "{text}");
        assert!(text.contains("foo") || text.contains("f.*"), "{text}");
        assert_eq!((list(&world, INCLUDE), list(&world, EXCLUDE)), before);
    }
    // Longer than a refresh, which enforces exclusions.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(world.state("foo").await, "MIRRORING");
    assert!(world.produce("foo").is_err());
    world.stop().await;
}

/// A refused topic leaves nothing behind, not even its name on the include list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_start_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    world.plane.topic("wrong", 1);
    world.plane.topic("fine", 1);
    let offset = world.image().offset();
    let wrong = ("wrong", Uuid([9; 16]));
    for request in [
        start(&[wrong], &["wrong"], &[]),
        start(&[wrong], &[], &[]),
        start(&[wrong], &["wr.*"], &["tmp-.*"]),
    ] {
        let answer = command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request).await;
        assert_eq!(top(&answer).0, 103, "{answer:?}");
        assert_eq!((list(&world, INCLUDE), list(&world, EXCLUDE)), (None, None));
    }
    assert_eq!(world.image().offset(), offset, "no record was written");
    // One topic joins, the other one is refused: only the name of the first is stored.
    let request = start(&[wrong, ("fine", Uuid::ZERO)], &["wrong", "fine"], &[]);
    let answer = command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request).await;
    let Body::StartMirrorTopicsResponse(response) = &answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        response.error_code, 0,
        "one topic was started: {response:?}"
    );
    let codes: Vec<i16> = response.topics.iter().map(|t| t.error_code).collect();
    assert_eq!(codes, [103, 0]);
    assert_eq!(list(&world, INCLUDE).as_deref(), Some("fine"));
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert!(
        world.image().membership("wrong").is_none(),
        "it does not join later"
    );
    world.stop().await;
}

/// As above for a request of several controller decisions; the patterns come with the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_start_stores_what_joined_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let names: Vec<String> = (0..502).map(|n| format!("t{n:03}")).collect();
    // Wanted topics, which need no logs; the first and the last are refused.
    world.plane.topic("t000", 1);
    world.plane.topic("t501", 1);
    let topics: Vec<(&str, Uuid)> = names
        .iter()
        .map(|name| match name.as_str() {
            "t000" | "t501" => (name.as_str(), Uuid([9; 16])),
            _ => (name.as_str(), Uuid::ZERO),
        })
        .collect();
    let request = start(&topics, &[], &[]);
    let answer = command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request).await;
    assert_eq!(top(&answer).0, 0);
    let include = list(&world, INCLUDE).unwrap();
    let stored: Vec<&str> = include.split(',').collect();
    assert_eq!(stored.len(), 500);
    assert!(!stored.contains(&"t000") && !stored.contains(&"t501"));
    world.stop().await;
}

/// The refusal names the pattern and the key; a literal name is taken out of the list by starting
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_start_says_what_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("foo", 1);
    world.plane.topic("bar", 1);
    let send = |request| command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request);
    assert_eq!(
        top(&send(start(&[("foo", Uuid::ZERO)], &["foo"], &[])).await).0,
        0
    );
    world.until("foo", "MIRRORING").await;
    command(
        &world,
        A,
        ApiKey::REMOVE_TOPICS_FROM_MIRROR,
        stop(&["foo"], &[".*"]),
    )
    .await;
    world.until("foo", "STOPPED").await;
    let exclude = list(&world, EXCLUDE).unwrap();
    assert_eq!(exclude, "__.*,.*");
    let (code, text) = top(&send(start(&[("bar", Uuid::ZERO)], &["bar"], &[])).await);
    assert_eq!(code, 42);
    assert!(text.contains("'.*'") && text.contains(EXCLUDE), "{text}");
    // The same for an early add, which a refresh would have failed over again.
    let results = world.add(&["bar"]).await;
    assert_eq!(results[0].1, 42, "{results:?}");
    assert!(world.image().membership("bar").is_none());
    world.stop().await;
}

/// `--stop bar`, `--start bar`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_a_literal_name_takes_it_out_of_the_exclude_list() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("bar", 1);
    let send = |request| command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request);
    for names_a_pattern in [false, true] {
        let include = if names_a_pattern { "ba." } else { "bar" };
        let request = start(&[("bar", Uuid::ZERO)], &[include], &[]);
        assert_eq!(top(&send(request).await), (0, String::new()));
        world.until("bar", "MIRRORING").await;
        assert!(!list(&world, EXCLUDE).is_some_and(|l| l.contains("bar")));
        command(
            &world,
            A,
            ApiKey::REMOVE_TOPICS_FROM_MIRROR,
            stop(&["bar"], &["bar"]),
        )
        .await;
        command(
            &world,
            A,
            ApiKey::REMOVE_TOPICS_FROM_MIRROR,
            stop(&["bar"], &["bar"]),
        )
        .await;
        world.until("bar", "STOPPED").await;
        world
            .eventually("stopped", |w| {
                w.image().membership("bar").is_some_and(|m| m.stopped)
            })
            .await;
    }
    assert!(list(&world, EXCLUDE).unwrap().contains("bar"));
    assert_eq!(world.add(&["bar"]).await, [("bar".to_owned(), 0, None)]);
    world.until("bar", "MIRRORING").await;
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(
        world.state("bar").await,
        "MIRRORING",
        "no refresh fails it over again"
    );
    world.stop().await;
}

/// A topic that exists here and not at the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_only_this_cluster_has_does_not_join() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    ordinary(&world, "local").await;
    let topic = |name: &str| m::add_topics_to_mirror_request::MirrorTopic {
        topic_name: Str::from(name),
        ..Default::default()
    };
    let request = body(&m::AddTopicsToMirrorRequest {
        mirror_name: Str::from(MIRROR),
        topics: vec![topic("local"), topic("wanted")],
        ..Default::default()
    });
    let answer = command(&world, A, ApiKey::ADD_TOPICS_TO_MIRROR, request).await;
    let Body::AddTopicsToMirrorResponse(response) = &answer else {
        panic!("{answer:?}")
    };
    let results: Vec<(&str, i16)> = response
        .topics
        .iter()
        .map(|t| (t.name.as_str(), t.error_code))
        .collect();
    assert_eq!(results, [("local", 3), ("wanted", 0)]);
    let text = response.topics[0].error_message.as_deref().unwrap();
    assert_eq!(text, "Topic 'local' does not exist at the source");
    assert!(world.image().membership("local").is_none());
    world
        .eventually("the log is open", |w| {
            w.replicas.partition("local", 0).is_ok()
        })
        .await;
    assert!(world.produce("local").is_ok(), "still writable");
    world.stop().await;
}

/// Our own late tool stores its patterns by the request that adds, so that a refused add stores
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_start_stores_its_patterns_in_one_decision() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    world.plane.topic("bar", 1);
    let send = |patterns: &[&str], exclude: &[&str]| {
        let list = |list: &[&str]| list.iter().map(|p| Str::from(*p)).collect();
        let request = m::AddTopicsToMirrorRequest {
            mirror_name: Str::from(MIRROR),
            patterns: list(patterns),
            exclude_patterns: list(exclude),
            store_patterns: true,
            ..Default::default()
        };
        let world = &world;
        async move {
            world
                .send(ApiKey::ADD_TOPICS_TO_MIRROR, &request)
                .await
                .body()
                .clone()
        }
    };
    assert_eq!(top(&send(&["foo"], &["foo"]).await).0, 42);
    assert_eq!(top(&send(&["bar"], &["fo+"]).await).0, 42);
    assert_eq!((list(&world, INCLUDE), list(&world, EXCLUDE)), (None, None));
    assert!(world.image().membership("bar").is_none());
    assert_eq!(top(&send(&["bar"], &["tmp-.*"]).await).0, 0);
    assert_eq!(top(&send(&["later-.*"], &[]).await).0, 0);
    assert_eq!(list(&world, INCLUDE).as_deref(), Some("bar,later-.*"));
    assert_eq!(list(&world, EXCLUDE).as_deref(), Some("__.*,tmp-.*"));
    world.until("bar", "MIRRORING").await;
    world.stop().await;
}

/// A create that is refused for what the source said creates no internal topic either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_create_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(dir.path(), Scripted::new()).await;
    let offset = world.image().offset();
    let other = [
        ("bootstrap.servers", "source:9092"),
        ("mirror.source.cluster.id", "another"),
    ];
    assert_eq!(world.create("m", &other).await.error_code, 40);
    world.plane.0.lock().cluster_id = Some(Str::from(crate::world::CLUSTER));
    assert_eq!(world.create("m", &other[..1]).await.error_code, 42);
    assert_eq!(world.image().offset(), offset);
    assert!(world.image().topic("__mirror_state").is_none());
    world.stop().await;
}
