//! The public prototype's tools against this broker: the bodies that they send, and the answers in
//! the form that they can read.

mod changing;
mod dialects;
mod fences;
mod joining;

use bytes::Bytes;
use tarn_mirror::dialect::{DialectMemory, WireDialect};
use tarn_mirror::service::reply::Body;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Message, Str, Uuid, encode_body};

use crate::scripted::Scripted;
use crate::world::{MIRROR, World, tool};

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
