//! Dialects at the connection: golden bodies in, the right form out.

use bytes::Bytes;
use tarn_mirror::dialect::{Dialect, DialectMemory, WireDialect};
use tarn_mirror::service::reply::Body;
use tarn_wire::ApiKey;

use crate::scripted::Scripted;
use crate::world::{World, source_batch};

fn hex(text: &str) -> Bytes {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_create_mirror_is_an_invalid_request() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(dir.path(), Scripted::new()).await;
    let mut memory = DialectMemory::new(WireDialect::Auto);
    // UnregisterController of Kafka 4.4: an int32 and no tags.
    let reply = world
        .raw(ApiKey::CREATE_MIRROR, hex("0000000500"), &mut memory)
        .await;
    let Body::CreateMirrorResponse(response) = reply.body() else {
        panic!("{reply:?}")
    };
    assert_eq!(response.error_code, 42);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_proof_decides_ambiguous_answers_and_error_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(dir.path(), Scripted::new()).await;
    let unknown_mirror = hex("020a6d792d6d6972726f720000");

    let mut early = DialectMemory::new(WireDialect::Auto);
    assert!(
        matches!(world.raw(ApiKey::LIST_MIRRORS, hex("00"), &mut early).await.body(), Body::ListMirrorsResponse(r) if r.product.starts_with("tarn "))
    );
    let reply = world
        .raw(ApiKey::DESCRIBE_MIRRORS, unknown_mirror.clone(), &mut early)
        .await;
    assert!(
        matches!(reply.body(), Body::DescribeMirrorsResponse(r) if r.error_code == 0 && r.mirrors.is_empty()),
        "an early caller would ask for an erroneous mirror for ever: {reply:?}"
    );

    let mut late = DialectMemory::new(WireDialect::Auto);
    assert!(matches!(
        world
            .raw(ApiKey::LIST_MIRRORS, hex("0100"), &mut late)
            .await
            .body(),
        Body::ListClusterMirrorsResponse(_)
    ));
    let reply = world
        .raw(ApiKey::DESCRIBE_MIRRORS, unknown_mirror, &mut late)
        .await;
    assert!(
        matches!(reply.body(), Body::DescribeClusterMirrorsResponse(r) if r.mirrors[0].error_code == 137)
    );
    assert!(late.knows_read_only_error() && late.proven() == Some(Dialect::Late));

    let mut next = DialectMemory::new(WireDialect::Auto);
    let all = world
        .raw(ApiKey::DESCRIBE_MIRRORS, hex("000000"), &mut next)
        .await;
    assert!(
        matches!(all.body(), Body::DescribeClusterMirrorsResponse(_)),
        "a null list means all"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_tool_starts_stops_and_looks_up_by_cluster_id() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("foo", 1);
    let mut memory = DialectMemory::new(WireDialect::Auto);
    // StartMirrorTopics: mirror "m", topic foo with a zero id, no partitions, include pattern foo.
    let start = format!(
        "026d02{}04666f6f0000000000ffffffffffffffff0100050204666f6f",
        "00".repeat(16)
    );
    let reply = world
        .raw(ApiKey::ADD_TOPICS_TO_MIRROR, hex(&start), &mut memory)
        .await;
    assert!(
        matches!(reply.body(), Body::StartMirrorTopicsResponse(r) if r.error_code == 0 && r.topics.len() == 1),
        "{reply:?}"
    );
    let stored = world
        .image()
        .mirror("m")
        .unwrap()
        .get("mirror.topics.include")
        .unwrap()
        .to_string();
    assert_eq!(stored, "foo");
    assert!(
        world
            .image()
            .mirror("m")
            .unwrap()
            .get("mirror.topics.exclude")
            .is_none(),
        "the default exclusion stays"
    );
    world.until("foo", "MIRRORING").await;
    world.mirror("foo", 0, &source_batch(0, 6, 2));
    // StopMirrorTopics with the pattern.
    let stop = hex("026d0204666f6f00ffffffffffffffff0100050204666f6f");
    let reply = world
        .raw(ApiKey::REMOVE_TOPICS_FROM_MIRROR, stop, &mut memory)
        .await;
    assert!(
        matches!(reply.body(), Body::StopMirrorTopicsResponse(r) if r.error_code == 0),
        "{reply:?}"
    );
    world.until("foo", "STOPPED").await;
    let id = world.image().topic("foo").unwrap().id;
    // DescribeClusterMirrors with the source's own cluster id and a look-up of foo-0.
    let source = crate::scripted::SOURCE.as_bytes();
    let mut body = vec![1, 0, 2, 0, source.len() as u8 + 1, source.len() as u8 + 1];
    body.extend_from_slice(source);
    body.extend([1, 23, 2]);
    body.extend(id.0);
    body.extend([2, 0, 0, 0, 0, 0]);
    let reply = world
        .raw(ApiKey::DESCRIBE_MIRRORS, Bytes::from(body), &mut memory)
        .await;
    let Body::DescribeClusterMirrorsResponse(response) = reply.body() else {
        panic!("{reply:?}")
    };
    assert_eq!(
        response.lookup_results[0].partitions[0].last_mirror_epoch,
        6
    );
    assert_eq!(
        response.mirrors[0].topics[0].partitions[0]
            .state_value
            .as_str(),
        "STOPPED"
    );
    world.stop().await;
}
