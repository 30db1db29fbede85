//! What resume, pause and stop say of members and of other topics.

use tarn_mirror::service::reply::Body;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Str};

use super::{A, EXCLUDE, body, command, list, ordinary, stop, top, with_topic};
use crate::world::MIRROR;

/// A pattern over all topics of the cluster names ordinary ones; what succeeded is a success.
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

/// A tool that has looked at the states up to a metadata offset acts on nothing that was wished
/// after it (StateValidationOffset).
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

/// A member in the wrong state says so; it is not "no topic matches".
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
