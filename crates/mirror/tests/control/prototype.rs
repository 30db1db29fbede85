//! The public prototype's tools against this broker: the bodies that they send, and the answers in the form that they can read.

use bytes::Bytes;
use tarn_mirror::dialect::{Dialect, DialectMemory, WireDialect};
use tarn_mirror::service::reply::Body;
use tarn_mirror::state::MirrorState;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Message, Str, Uuid, encode_body};

use crate::scripted::Scripted;
use crate::world::{MIRROR, World, source_batch, tool};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn hex(text: &str) -> Bytes {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn body<M: Message>(message: &M) -> Bytes {
    encode_body(message, 0).unwrap().to_bytes().unwrap()
}

/// One command of a tool: a process of its own, so a connection of its own.
async fn command(world: &World, address: [u8; 4], key: ApiKey, body: Bytes) -> Body {
    let mut connection = DialectMemory::new(WireDialect::Auto);
    let caller = tool(address, "adminclient-1");
    let reply = world.raw_from(&caller, key, body, &mut connection).await;
    reply.body().clone()
}

/// StartMirrorTopics of mirror `m`: topics (with ids), include, exclude.
fn start(topics: &[(&str, Uuid)], include: &[&str], exclude: &[&str]) -> Bytes {
    let list = |list: &[&str]| list.iter().map(|p| Str::from(*p)).collect();
    let topic = |(name, id): &(&str, Uuid)| m::start_mirror_topics_request::MirrorTopic {
        topic_id: *id,
        topic_name: Str::from(*name),
        ..Default::default()
    };
    body(&m::StartMirrorTopicsRequest {
        mirror_name: Str::from(MIRROR),
        topics: topics.iter().map(topic).collect(),
        include_patterns: list(include),
        exclude_patterns: list(exclude),
        ..Default::default()
    })
}

/// StopMirrorTopics of mirror `m`.
fn stop(topics: &[&str], patterns: &[&str]) -> Bytes {
    let topic = |name: &&str| m::stop_mirror_topics_request::MirrorTopic {
        topic_name: Str::from(*name),
        ..Default::default()
    };
    body(&m::StopMirrorTopicsRequest {
        mirror_name: Str::from(MIRROR),
        topics: topics.iter().map(topic).collect(),
        patterns: patterns.iter().map(|p| Str::from(*p)).collect(),
        ..Default::default()
    })
}

/// Top-level code and text of an answer with topics.
fn top(answer: &Body) -> (i16, String) {
    let text = |t: &Option<Str>| t.as_ref().map(|t| t.to_string()).unwrap_or_default();
    match answer {
        Body::StartMirrorTopicsResponse(r) => (r.error_code, text(&r.error_message)),
        Body::StopMirrorTopicsResponse(r) => (r.error_code, text(&r.error_message)),
        Body::RemoveTopicsFromMirrorResponse(r) => (r.error_code, text(&r.error_message)),
        Body::ResumeMirrorTopicsResponse(r) => (r.error_code, text(&r.error_message)),
        Body::AddTopicsToMirrorResponse(r) => (r.error_code, text(&r.error_message)),
        other => panic!("{other:?}"),
    }
}

/// A list of mirror `m`; `None` = not written.
fn list(world: &World, key: &str) -> Option<String> {
    let image = world.image();
    image.mirror(MIRROR)?.get(key).map(|v| v.to_string())
}

const INCLUDE: &str = "mirror.topics.include";
const EXCLUDE: &str = "mirror.topics.exclude";

async fn with_topic(dir: &std::path::Path, topic: &str) -> World {
    let world = World::with_mirror(dir, Scripted::new()).await;
    world.plane.topic(topic, 1);
    world.add(&[topic]).await;
    world.until(topic, "MIRRORING").await;
    world
}

async fn ordinary(world: &World, name: &str) -> Uuid {
    let topic = m::create_topics_request::CreatableTopic {
        name: Str::from(name),
        num_partitions: 1,
        replication_factor: 1,
        mirror_info: None,
        ..Default::default()
    };
    let request = m::CreateTopicsRequest {
        topics: vec![topic],
        ..Default::default()
    };
    let created = world.controller.create_topics(request).await;
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    created.topics[0].topic_id
}

const DESCRIBE_ALL: &str = "010000";

/// P02: each command is a new connection that sends only an ambiguous body; both tools are answered in their own form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_tools_work_against_one_broker_without_a_setting() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let describe = |address| command(&world, address, ApiKey::DESCRIBE_MIRRORS, hex(DESCRIBE_ALL));
    assert!(
        matches!(describe(A).await, Body::DescribeMirrorsResponse(_)),
        "April 2026 at first"
    );

    command(&world, A, ApiKey::LIST_MIRRORS, hex("0000")).await;
    assert!(matches!(
        describe(A).await,
        Body::DescribeClusterMirrorsResponse(_)
    ));
    let early_list = command(&world, B, ApiKey::LIST_MIRRORS, hex("00")).await;
    assert!(matches!(early_list, Body::ListMirrorsResponse(_)));
    for _ in 0..3 {
        assert!(matches!(
            describe(A).await,
            Body::DescribeClusterMirrorsResponse(_)
        ));
        assert!(matches!(
            describe(B).await,
            Body::DescribeMirrorsResponse(_)
        ));
    }
    let nobody_knows = describe([10, 0, 0, 9]).await;
    assert!(
        matches!(nobody_knows, Body::DescribeMirrorsResponse(_)),
        "else what was proven last by anybody"
    );
    command(&world, A, ApiKey::LIST_MIRRORS, hex("0000")).await;
    let nobody_knows = describe([10, 0, 0, 9]).await;
    assert!(matches!(
        nobody_knows,
        Body::DescribeClusterMirrorsResponse(_)
    ));
    world.stop().await;
}

/// P02, P08: a create with the source's cluster id is one of the July tool; that is remembered beyond a restart, and its codes are July's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_create_is_answered_with_late_codes_and_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let plane = Scripted::new();
    let world = World::start(dir.path(), plane.clone()).await;
    let create = |name: &str| {
        let config = |(k, v): (&str, &str)| m::create_mirror_request::MirrorConfig {
            name: Str::from(k),
            value: Some(Str::from(v)),
            ..Default::default()
        };
        body(&m::CreateMirrorRequest {
            mirror_name: Str::from(name),
            config: vec![
                config(("bootstrap.servers", "source:9092")),
                config(("mirror.source.cluster.id", crate::scripted::SOURCE)),
            ],
            ..Default::default()
        })
    };
    let code = |answer: Body| match answer {
        Body::CreateMirrorResponse(r) => r.error_code,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        code(command(&world, A, ApiKey::CREATE_MIRROR, create("m")).await),
        0
    );
    assert_eq!(
        code(command(&world, A, ApiKey::CREATE_MIRROR, create("m")).await),
        136
    );
    let bad_name = command(&world, A, ApiKey::CREATE_MIRROR, create("x.removed")).await;
    assert_eq!(code(bad_name), 42, "the July tool does not know 135");
    let describe = command(&world, A, ApiKey::DESCRIBE_MIRRORS, hex(DESCRIBE_ALL)).await;
    assert!(matches!(describe, Body::DescribeClusterMirrorsResponse(_)));
    world.stop().await;

    let world = World::start(dir.path(), plane).await;
    let describe = command(&world, A, ApiKey::DESCRIBE_MIRRORS, hex(DESCRIBE_ALL)).await;
    assert!(
        matches!(&describe, Body::DescribeClusterMirrorsResponse(r) if r.mirrors.len() == 1),
        "after a restart: {describe:?}"
    );
    // Our own tool proves its form on each connection, also where the operator's file names the cluster id.
    let mut own = DialectMemory::new(WireDialect::Auto);
    world.raw(ApiKey::LIST_MIRRORS, hex("00"), &mut own).await;
    let again = world
        .raw(ApiKey::CREATE_MIRROR, create("m"), &mut own)
        .await;
    assert_eq!(code(again.body().clone()), 42);
    world.stop().await;
}

/// P03: the golden start of an active topic that it includes and excludes at once.
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

/// P03, M16: a refused topic leaves nothing behind, not even its name on the include list.
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

/// P03: as above for a request of several controller decisions; the patterns come with the last one.
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

/// P05: an early caller takes an error for "not yet"; a prototype leaves the entry out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_caller_is_not_told_of_mirrors_that_are_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let unknown = hex("02056e6f70650000");
    let answer = command(&world, A, ApiKey::DESCRIBE_MIRRORS, unknown.clone()).await;
    let Body::DescribeMirrorsResponse(response) = &answer else {
        panic!("{answer:?}")
    };
    assert!(response.error_code == 0 && response.mirrors.is_empty());
    // P11: neither of one that has no topics, so that its tool prints "No mirror partitions found".
    let answer = command(&world, A, ApiKey::DESCRIBE_MIRRORS, hex(DESCRIBE_ALL)).await;
    assert!(
        matches!(&answer, Body::DescribeMirrorsResponse(r) if r.mirrors.is_empty()),
        "{answer:?}"
    );
    // A late caller is told.
    command(&world, A, ApiKey::LIST_MIRRORS, hex("0000")).await;
    let answer = command(&world, A, ApiKey::DESCRIBE_MIRRORS, unknown).await;
    assert!(
        matches!(&answer, Body::DescribeClusterMirrorsResponse(r) if r.mirrors[0].error_code == 137)
    );
    world.stop().await;
}

/// P06: a pattern over all topics of the cluster names ordinary ones; what succeeded is a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_topic_beside_does_not_spoil_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    ordinary(&world, "plain").await;
    world.pause("foo").await;
    world.until("foo", "PAUSED").await;
    let names = ["plain", "foo"];
    let early_resume = {
        let topic = |name: &&str| m::resume_mirror_topics_request::MirrorTopic {
            topic_name: Str::from(*name),
            ..Default::default()
        };
        body(&m::ResumeMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            topics: names.iter().map(topic).collect(),
            ..Default::default()
        })
    };
    let resume = || {
        command(
            &world,
            A,
            ApiKey::RESUME_MIRROR_TOPICS,
            early_resume.clone(),
        )
    };
    assert_eq!(top(&resume().await).0, 0);
    world.until("foo", "MIRRORING").await;
    let second = resume().await;
    assert_eq!(
        top(&second).0,
        140,
        "not paused, and nothing about the mirror: {second:?}"
    );
    let early_remove = {
        let topic = |name: &&str| m::remove_topics_from_mirror_request::MirrorTopic {
            topic_name: Str::from(*name),
            ..Default::default()
        };
        body(&m::RemoveTopicsFromMirrorRequest {
            mirror_name: Str::from(MIRROR),
            topics: names.iter().map(topic).collect(),
            ..Default::default()
        })
    };
    let removed = command(&world, A, ApiKey::REMOVE_TOPICS_FROM_MIRROR, early_remove).await;
    let Body::RemoveTopicsFromMirrorResponse(response) = &removed else {
        panic!("{removed:?}")
    };
    assert_eq!(response.error_code, 0);
    let codes: Vec<i16> = response.topics.iter().map(|t| t.error_code).collect();
    assert_eq!(codes, [136, 0]);
    world.until("foo", "STOPPED").await;
    let late = command(
        &world,
        A,
        ApiKey::REMOVE_TOPICS_FROM_MIRROR,
        stop(&["plain"], &["plain"]),
    )
    .await;
    assert_eq!(top(&late).0, 139, "no topic of the mirror: {late:?}");
    assert_eq!(list(&world, EXCLUDE), None, "refused, so nothing is stored");
    world.stop().await;
}

/// P07: the refusal names the pattern and the key; a literal name is taken out of the list by starting it.
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

/// P07: `--stop bar`, `--start bar`.
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

/// P09: a topic that exists here and not at the source.
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

/// P11: authorised operations, and a bump of topics that are not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_told_and_unknown_topics_are_not_bumped_silently() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let plain = ordinary(&world, "plain").await;
    command(&world, A, ApiKey::LIST_MIRRORS, hex("0000")).await;
    for (request, want) in [("010000", i32::MIN), ("010100", 3552)] {
        let answer = command(&world, A, ApiKey::DESCRIBE_MIRRORS, hex(request)).await;
        let Body::DescribeClusterMirrorsResponse(response) = &answer else {
            panic!("{answer:?}")
        };
        assert_eq!(response.mirrors[0].authorized_operations, want);
    }
    let foo = world.image().topic("foo").unwrap().id;
    let bump = |ids: &[Uuid]| m::BumpLeaderEpochsRequest {
        topics: ids
            .iter()
            .map(|id| m::bump_leader_epochs_request::BumpTopic {
                topic_id: *id,
                partitions: vec![m::bump_leader_epochs_request::BumpPartition {
                    partition_index: 0,
                    min_leader_epoch: 70,
                    ..Default::default()
                }],
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let codes = |reply: tarn_mirror::service::MirrorReply| match reply.body() {
        Body::BumpLeaderEpochsResponse(r) => {
            let topics = r
                .topics
                .iter()
                .map(|t| t.partitions[0].error_code)
                .collect();
            (r.error_code, topics)
        }
        other => panic!("{other:?}"),
    };
    let unknown = Uuid([9; 16]);
    let none = world
        .send(ApiKey::BUMP_LEADER_EPOCHS, &bump(&[unknown, plain]))
        .await;
    assert_eq!(codes(none), (100, vec![100, 136]));
    let some = world
        .send(ApiKey::BUMP_LEADER_EPOCHS, &bump(&[foo, unknown]))
        .await;
    assert_eq!(codes(some), (0, vec![100]));
    let epoch = |id: &Uuid| world.image().partition_by_id(id, 0).unwrap().leader_epoch;
    assert_eq!((epoch(&foo), epoch(&plain)), (71, 0));
    world.stop().await;
}

/// M07: from a client that is no broker: error 31 in each form, and nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_and_epochs_are_for_brokers_only() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    world.mirror("foo", 0, &source_batch(0, 6, 50));
    let id = world.image().topic("foo").unwrap().id;
    let offset = world.image().offset();
    let requests = [
        (
            ApiKey::READ_MIRROR_STATES,
            hex("026d0204666f6f0200000000000000"),
        ),
        (ApiKey::WRITE_MIRROR_STATES, body(&write_state(id, |_| {}))),
        (ApiKey::BUMP_LEADER_EPOCHS, {
            let mut bump = vec![2];
            bump.extend(id.0);
            bump.extend(hex("020000000000000007000000"));
            bump.into()
        }),
    ];
    for proof in ["00", "0000"] {
        command(&world, A, ApiKey::LIST_MIRRORS, hex(proof)).await;
        for (key, body) in &requests {
            let answer = command(&world, A, *key, body.clone()).await;
            let (code, late) = match &answer {
                Body::ReadMirrorStatesResponse(r) => (r.error_code, false),
                Body::LateReadMirrorStatesResponse(r) => (r.error_code, true),
                Body::WriteMirrorStatesResponse(r) => (r.error_code, false),
                Body::LateWriteMirrorStatesResponse(r) => (r.error_code, true),
                Body::BumpLeaderEpochsResponse(r) => (r.error_code, false),
                Body::LateBumpLeaderEpochsResponse(r) => (r.error_code, true),
                other => panic!("{other:?}"),
            };
            assert_eq!((code, late), (31, proof == "0000"), "{}", key.name());
        }
    }
    assert_eq!(world.image().offset(), offset);
    assert_eq!(world.state("foo").await, "MIRRORING");
    world.stop().await;
}

/// The write that cut a log: PREPARING with a cut to 0, in our own form.
fn write_state(
    topic_id: Uuid,
    change: impl FnOnce(&mut m::write_mirror_states_request::WriteMirrorPartition),
) -> m::WriteMirrorStatesRequest {
    let mut partition = m::write_mirror_states_request::WriteMirrorPartition {
        partition_index: 0,
        state: MirrorState::Preparing.byte(),
        truncate_to: 0,
        ..Default::default()
    };
    change(&mut partition);
    let topic = m::write_mirror_states_request::WriteMirrorTopic {
        name: Str::from("foo"),
        partitions: vec![partition],
        topic_id,
        ..Default::default()
    };
    m::WriteMirrorStatesRequest {
        mirror_name: Str::from(MIRROR),
        topics: vec![topic],
        ..Default::default()
    }
}

async fn written(world: &World, request: &m::WriteMirrorStatesRequest) -> i16 {
    match world
        .send(ApiKey::WRITE_MIRROR_STATES, request)
        .await
        .body()
    {
        Body::WriteMirrorStatesResponse(r) => r.topics[0].partitions[0].error_code,
        other => panic!("{other:?}"),
    }
}

/// M07: even from a broker: without its fences, with numbers from nowhere, or against the table of transitions, a write changes nothing, and
/// after a restart with the source dead the 50 records are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_fences_cuts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let plane = world.plane.clone();
    world.mirror("foo", 0, &source_batch(0, 6, 50));
    let image = world.image();
    let id = image.topic("foo").unwrap().id;
    let change_offset = image.membership("foo").unwrap().change_offset;
    let leader_epoch = image.partition_by_id(&id, 0).unwrap().leader_epoch;
    let read = m::ReadMirrorStatesRequest {
        mirror_name: Str::from(MIRROR),
        topics: vec![m::read_mirror_states_request::ReadMirrorTopic {
            name: Str::from("foo"),
            topic_id: id,
            partitions: vec![Default::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    // Describe shows MIRRORING before it is stored.
    let stored = loop {
        let stored = match world.send(ApiKey::READ_MIRROR_STATES, &read).await.body() {
            Body::ReadMirrorStatesResponse(r) => r.topics[0].partitions[0].clone(),
            other => panic!("{other:?}"),
        };
        if stored.state == MirrorState::Mirroring.byte() {
            break stored;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(
        (stored.change_offset, stored.leader_epoch),
        (change_offset, leader_epoch)
    );
    let fenced = |p: &mut m::write_mirror_states_request::WriteMirrorPartition| {
        p.change_offset = change_offset;
        p.leader_epoch = leader_epoch;
        p.state_epoch = stored.state_epoch;
    };
    let refused = |code: i16, request| {
        let world = &world;
        async move { assert_eq!(written(world, &request).await, code, "{request:?}") }
    };
    refused(74, write_state(id, |_| {})).await;
    refused(74, write_state(Uuid::ZERO, |_| {})).await;
    refused(
        74,
        write_state(id, |p| {
            fenced(p);
            p.change_offset = -1;
        }),
    )
    .await;
    refused(
        74,
        write_state(id, |p| {
            fenced(p);
            p.leader_epoch = -1;
        }),
    )
    .await;
    refused(
        74,
        write_state(id, |p| {
            fenced(p);
            p.state_epoch = -1;
        }),
    )
    .await;
    refused(
        124,
        write_state(id, |p| {
            fenced(p);
            p.state_epoch += 1;
        }),
    )
    .await;
    refused(
        75,
        write_state(id, |p| {
            fenced(p);
            p.leader_epoch = i32::MAX;
        }),
    )
    .await;
    refused(
        75,
        write_state(id, |p| {
            fenced(p);
            p.change_offset = i64::MAX;
        }),
    )
    .await;
    // MIRRORING is never followed by PREPARING.
    refused(42, write_state(id, fenced)).await;
    plane.go_down("dead");
    world.stop().await;
    let world = World::start(dir.path(), plane).await;
    world.until("foo", "MIRRORING").await;
    assert_eq!(world.partition("foo", 0).log().log_end_offset(), 50);
    world.stop().await;
}

/// A tool that has looked at the states up to a metadata offset acts on nothing that was wished after it (StateValidationOffset).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_validation_offset_is_obeyed() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let wished = world.image().membership("foo").unwrap().change_offset;
    let request = |offset: i64| {
        let topic = m::stop_mirror_topics_request::MirrorTopic {
            topic_name: Str::from("foo"),
            ..Default::default()
        };
        body(&m::StopMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            topics: vec![topic],
            state_validation_offset: offset,
            ..Default::default()
        })
    };
    let send = |offset| {
        command(
            &world,
            A,
            ApiKey::REMOVE_TOPICS_FROM_MIRROR,
            request(offset),
        )
    };
    assert_eq!(top(&send(wished - 1).await).0, 145);
    assert_eq!(world.state("foo").await, "MIRRORING");
    assert_eq!(top(&send(wished).await).0, 0);
    world.until("foo", "STOPPED").await;
    world.stop().await;
}

/// P02: `mirror.wire.dialect` overrides what was proven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_setting_overrides_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    command(&world, A, ApiKey::LIST_MIRRORS, hex("00")).await;
    let mut late = DialectMemory::new(WireDialect::Only(Dialect::Late));
    let caller = tool(A, "adminclient-1");
    let answer = world
        .raw_from(
            &caller,
            ApiKey::DESCRIBE_MIRRORS,
            hex(DESCRIBE_ALL),
            &mut late,
        )
        .await;
    assert!(matches!(
        answer.body(),
        Body::DescribeClusterMirrorsResponse(_)
    ));
    world.stop().await;
}

/// M16: a member in the wrong state says so; it is not "no topic matches".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_in_the_wrong_state_gets_words_that_fit() {
    let dir = tempfile::tempdir().unwrap();
    let world = with_topic(dir.path(), "foo").await;
    let resume = |patterns: &[&str], all: bool| {
        let request = m::ResumeMirrorTopicsRequest {
            mirror_name: Str::from(MIRROR),
            patterns: patterns.iter().map(|p| Str::from(*p)).collect(),
            all_topics: all,
            ..Default::default()
        };
        let world = &world;
        async move {
            match world
                .send(ApiKey::RESUME_MIRROR_TOPICS, &request)
                .await
                .body()
            {
                Body::ResumeMirrorTopicsResponse(r) => r
                    .topics
                    .iter()
                    .map(|t| (t.name.to_string(), t.error_code))
                    .collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        }
    };
    let foo = |code| vec![("foo".to_owned(), code)];
    assert_eq!(resume(&["foo"], false).await, foo(140));
    assert_eq!(resume(&["f.*"], false).await, foo(140));
    assert_eq!(resume(&[], true).await, foo(140));
    assert_eq!(resume(&["x.*"], false).await, []);
    world.remove(&["foo"]).await;
    world.until("foo", "STOPPED").await;
    assert_eq!(world.pause("foo").await, 141);
    world.plane.topic("bar", 1);
    world.add(&["bar"]).await;
    world.until("bar", "MIRRORING").await;
    assert_eq!(
        world.pause(".*").await,
        0,
        "a wide pattern leaves out what does not fit"
    );
    assert_eq!(world.pause("foo").await, 141, "a name does not");
    world.stop().await;
}

/// P03: our own late tool stores its patterns by the request that adds, so that a refused add stores nothing.
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

/// M07, the kind: `__mirror_state` cannot be grown under its states, which are found by its partition count; and AlterConfigs (33), which
/// replaces a whole configuration, leaves the hidden notes of a mirror alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_requests_do_not_get_around_the_fences() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let id = world.plane.topic("foo", 1);
    let configs = vec![(Str::from("retention.ms"), Str::from("777"))];
    world
        .plane
        .0
        .lock()
        .configs
        .insert(Str::from("foo"), configs);
    world.add(&["foo"]).await;
    world.until("foo", "MIRRORING").await;
    assert_eq!(world.image().topic("foo").unwrap().id, id);
    let grow = m::CreatePartitionsRequest {
        topics: vec![m::create_partitions_request::CreatePartitionsTopic {
            name: Str::from("__mirror_state"),
            count: 9,
            assignments: None,
            ..Default::default()
        }],
        ..Default::default()
    };
    let grown = world.controller.create_partitions(grow).await;
    assert_eq!(grown.results[0].error_code, 44, "{grown:?}");
    assert_eq!(
        world
            .image()
            .topic("__mirror_state")
            .unwrap()
            .partition_count(),
        3
    );

    let hidden = |world: &World| -> Vec<(String, String)> {
        let image = world.image();
        let keys = image.mirror(MIRROR).unwrap().iter();
        keys.filter(|(key, _)| key.starts_with('.'))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    };
    let before = hidden(&world);
    assert!(!before.is_empty(), "the synced keys of foo are on record");
    let config = |(name, value): (&str, &str)| m::alter_configs_request::AlterableConfig {
        name: Str::from(name),
        value: Some(Str::from(value)),
        ..Default::default()
    };
    let replace = m::AlterConfigsRequest {
        resources: vec![m::alter_configs_request::AlterConfigsResource {
            resource_type: 64,
            resource_name: Str::from(MIRROR),
            configs: vec![
                config(("bootstrap.servers", "source:9092")),
                config(("mirror.source.cluster.id", crate::scripted::SOURCE)),
                config(("mirror.fetch.min.bytes", "2")),
            ],
            ..Default::default()
        }],
        ..Default::default()
    };
    let replaced = world.controller.alter_configs(replace).await;
    assert_eq!(replaced.responses[0].error_code, 0, "{replaced:?}");
    assert_eq!(list(&world, "mirror.fetch.min.bytes").as_deref(), Some("2"));
    assert_eq!(hidden(&world), before);
    world.stop().await;
}

/// P03, the kind: a create that is refused for what the source said creates no internal topic either.
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
