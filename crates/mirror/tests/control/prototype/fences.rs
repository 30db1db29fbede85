//! States and epochs: who may write them, and with which fences.

use tarn_mirror::service::reply::Body;
use tarn_mirror::state::MirrorState;
use tarn_wire::messages as m;
use tarn_wire::messages::write_mirror_states_request::WriteMirrorPartition;
use tarn_wire::{ApiKey, Str, Uuid};

use super::{A, body, command, hex, list, with_topic};
use crate::scripted::Scripted;
use crate::world::{MIRROR, World, source_batch};

/// From a client that is no broker: error 31 in each form, and nothing changes.
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

/// What is made wrong of a write.
type Change = fn(&mut WriteMirrorPartition);

/// The write that cut a log: PREPARING with a cut to 0, in our own form.
fn write_state(
    topic_id: Uuid,
    change: impl FnOnce(&mut WriteMirrorPartition),
) -> m::WriteMirrorStatesRequest {
    let mut partition = WriteMirrorPartition {
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

/// Even from a broker: without its fences, with numbers from nowhere, or against the table of
/// transitions, a write changes nothing, and after a restart with the source dead the 50 records
/// are there.
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
    let fenced = |p: &mut WriteMirrorPartition| {
        p.change_offset = change_offset;
        p.leader_epoch = leader_epoch;
        p.state_epoch = stored.state_epoch;
    };
    let mut refused = vec![
        (74, write_state(id, |_| {})),
        (74, write_state(Uuid::ZERO, |_| {})),
    ];
    let unfenced: [(i16, Change); 6] = [
        (74, |p| p.change_offset = -1),
        (74, |p| p.leader_epoch = -1),
        (74, |p| p.state_epoch = -1),
        (124, |p| p.state_epoch += 1),
        (75, |p| p.leader_epoch = i32::MAX),
        (75, |p| p.change_offset = i64::MAX),
    ];
    for (code, change) in unfenced {
        let request = write_state(id, |p| {
            fenced(p);
            change(p);
        });
        refused.push((code, request));
    }
    // MIRRORING is never followed by PREPARING.
    refused.push((42, write_state(id, fenced)));
    for (code, request) in refused {
        assert_eq!(written(&world, &request).await, code, "{request:?}");
    }
    plane.go_down("dead");
    world.stop().await;
    let world = World::start(dir.path(), plane).await;
    world.until("foo", "MIRRORING").await;
    assert_eq!(world.partition("foo", 0).log().log_end_offset(), 50);
    world.stop().await;
}

/// `__mirror_state` cannot be grown under its states, which are found by its partition count; and
/// AlterConfigs (33), which replaces a whole configuration, leaves the hidden notes of a mirror
/// alone.
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
