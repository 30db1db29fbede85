//! Which form a tool sends, and that it is answered in its own.

use tarn_mirror::dialect::{Dialect, DialectMemory, WireDialect};
use tarn_mirror::service::reply::Body;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Str, Uuid};

use super::{A, B, DESCRIBE_ALL, body, command, hex, ordinary, with_topic};
use crate::scripted::Scripted;
use crate::world::{World, tool};

/// Each command is a new connection that sends only an ambiguous body; both tools are answered in
/// their own form.
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

/// A create with the source's cluster id is one of the July tool; that is remembered beyond a
/// restart, and its codes are July's.
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
    // Our own tool proves its form on each connection, also where the operator's file names the
    // cluster id.
    let mut own = DialectMemory::new(WireDialect::Auto);
    world.raw(ApiKey::LIST_MIRRORS, hex("00"), &mut own).await;
    let again = world
        .raw(ApiKey::CREATE_MIRROR, create("m"), &mut own)
        .await;
    assert_eq!(code(again.body().clone()), 42);
    world.stop().await;
}

/// An early caller takes an error for "not yet"; a prototype leaves the entry out.
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
    // Neither of one that has no topics, so that its tool prints "No mirror partitions found".
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

/// Authorised operations, and a bump of topics that are not there.
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

/// `mirror.wire.dialect` overrides what was proven.
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
