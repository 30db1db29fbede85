//! Commands against the metadata: who may join, what is refused, what an error leaves behind.

use tarn_mirror::seam::ForeignMirror;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Str, Uuid};

use crate::scripted::{SOURCE, Scripted};
use crate::world::{CLUSTER, MIRROR, World, source_batch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_checks_the_source_first_and_stores_its_cluster_id() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(dir.path(), Scripted::new()).await;
    let refused = |r: &m::CreateMirrorResponse| {
        r.error_message
            .as_ref()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    let bootstrap = ("bootstrap.servers", "s:9092");

    let bad = world.create("x.removed", &[bootstrap]).await;
    assert_eq!(bad.error_code, 135);
    let unknown = world.create("m", &[bootstrap, ("no.such", "1")]).await;
    assert_eq!(
        (unknown.error_code, refused(&unknown).as_str()),
        (40, "Unknown mirror configuration: no.such")
    );
    let ssl = world
        .create("m", &[bootstrap, ("security.protocol", "SASL_SSL")])
        .await;
    assert!(
        ssl.error_code == 40 && refused(&ssl).contains("PLAINTEXT"),
        "{ssl:?}"
    );
    assert_eq!(world.create("m", &[]).await.error_code, 42);

    world.plane.go_down("connection refused by s:9092");
    let down = world.create("m", &[bootstrap]).await;
    assert_eq!(
        refused(&down),
        "Cannot reach the source of mirror 'm': connection refused by s:9092"
    );
    assert!(
        world.image().mirrors().next().is_none(),
        "nothing was stored"
    );
    assert_eq!(world.image().feature("mirror.version"), 0);

    world.plane.0.lock().down = None;
    assert_eq!(world.create("m", &[bootstrap]).await.error_code, 0);
    let image = world.image();
    assert_eq!(
        image
            .mirror("m")
            .unwrap()
            .get("mirror.source.cluster.id")
            .unwrap()
            .as_str(),
        SOURCE
    );
    assert_eq!(image.feature("mirror.version"), 1);
    assert_eq!(image.topic("__mirror_state").unwrap().partition_count(), 3);
    let again = world.create("m", &[bootstrap]).await;
    assert_eq!(
        (again.error_code, refused(&again).as_str()),
        (42, "Mirror 'm' already exists")
    );

    world.plane.0.lock().cluster_id = Some(Str::from(CLUSTER));
    assert!(refused(&world.create("self", &[bootstrap]).await).contains("this very cluster"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_topics_get_id_partitions_and_configs_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let id = world.plane.topic("t", 3);
    let configs = [
        ("retention.ms", "777"),
        ("min.insync.replicas", "2"),
        ("unheard.of", "1"),
    ];
    let configs = configs
        .iter()
        .map(|(k, v)| (Str::from(*k), Str::from(*v)))
        .collect();
    world.plane.0.lock().configs.insert(Str::from("t"), configs);
    world.plane.topic("other", 1);
    assert_eq!(world.add(&["t|nothing"]).await, [("t".to_owned(), 0, None)]);
    let image = world.image();
    let topic = image.topic("t").unwrap();
    assert_eq!((topic.id, topic.partition_count()), (id, 3));
    let configs = image.topic_configs("t").unwrap();
    assert_eq!(configs.get("retention.ms").unwrap().as_str(), "777");
    assert_eq!(
        configs.len(),
        1,
        "excluded and unknown keys stay away: {configs:?}"
    );
    world.until("t", "MIRRORING").await;
    assert!(world.image().topic("other").is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_topic_leaves_no_trace_and_spares_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let local = m::create_topics_request::CreatableTopic {
        name: "clash".into(),
        num_partitions: 1,
        replication_factor: 1,
        mirror_info: None,
        ..Default::default()
    };
    let under = m::create_topics_request::CreatableTopic {
        name: "a_b".into(),
        ..local.clone()
    };
    let request = m::CreateTopicsRequest {
        topics: vec![local, under],
        ..Default::default()
    };
    let created = world.controller.create_topics(request).await;
    assert!(
        created.topics.iter().all(|t| t.error_code == 0),
        "{created:?}"
    );
    for topic in ["clash", "a.b", "fine", "loop"] {
        world.plane.topic(topic, 1);
    }
    world.plane.0.lock().loops = vec![ForeignMirror {
        name: Str::from("back"),
        source_cluster_id: Str::from(CLUSTER),
        active_topics: vec![Str::from("loop")],
    }];
    let results = world.add(&["clash", "a\\.b", "fine", "loop"]).await;
    let of = |name: &str| results.iter().find(|(n, _, _)| n == name).unwrap().clone();
    assert_eq!(of("fine").1, 0);
    let (_, code, text) = of("clash");
    assert!(code == 103 && text.unwrap().contains("different topics"));
    let (_, code, text) = of("a.b");
    assert!(
        code == 17 && text.unwrap().contains("a_b"),
        "an invalid topic that names the other"
    );
    let (_, code, text) = of("loop");
    assert!(code == 42 && text.unwrap().contains("loop"));
    for topic in ["clash", "a.b", "loop"] {
        assert!(world.image().membership(topic).is_none(), "{topic}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn add_needs_the_source_and_the_other_commands_never_ask_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    world.plane.go_down("dead port");
    let request = m::AddTopicsToMirrorRequest {
        mirror_name: Str::from(MIRROR),
        patterns: vec![Str::from(".*")],
        ..Default::default()
    };
    let reply = world.send(ApiKey::ADD_TOPICS_TO_MIRROR, &request).await;
    let text = format!("{:?}", reply.body());
    assert!(
        text.contains("Cannot reach the source of mirror 'm': dead port"),
        "{text}"
    );
    assert_eq!(world.pause("t").await, 0);
    world.until("t", "PAUSED").await;
    assert_eq!(world.resume("t").await, 0);
    world.until("t", "MIRRORING").await;
    let shown = world.partition_of("t", 0).await.unwrap();
    assert_eq!(
        shown.error_message.as_deref(),
        Some("source unreachable: dead port")
    );
    assert_eq!(
        (shown.source_offset, shown.destination_offset, shown.lag),
        (-1, 0, -1),
        "the source has never answered, the local log is known"
    );
    assert_eq!(world.delete().await.0, 142, "not empty");
    assert_eq!(world.remove(&["t"]).await, 0);
    world
        .eventually("stopped", |w| {
            w.image().membership("t").is_some_and(|m| m.stopped)
        })
        .await;
    assert_eq!(world.delete().await, (0, None));
    world
        .eventually("the source is let go", |w| {
            w.plane.0.lock().forgotten.contains(&Str::from(MIRROR))
        })
        .await;
    assert!(world.image().membership("t").is_none() && world.produce("t").is_ok());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_survives_a_restart_and_every_refresh() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let plane = world.plane.clone();
    plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    world.pause("t").await;
    world.until("t", "PAUSED").await;
    world.stop().await;
    let world = World::start(dir.path(), plane.clone()).await;
    world.until("t", "PAUSED").await;
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(world.state("t").await, "PAUSED");
    assert!(!plane.is_fetching("t", 0));
    assert!(world.produce("t").is_err(), "paused is read-only");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wanted_topic_is_created_when_the_source_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let topic = m::add_topics_to_mirror_request::MirrorTopic {
        topic_name: Str::from("later"),
        topic_id: Uuid::ZERO,
        ..Default::default()
    };
    let request = m::AddTopicsToMirrorRequest {
        mirror_name: Str::from(MIRROR),
        topics: vec![topic],
        ..Default::default()
    };
    world.send(ApiKey::ADD_TOPICS_TO_MIRROR, &request).await;
    world.until("later", "UNKNOWN").await;
    assert!(world.service.wants_topic(&world.image(), "later"));
    let id = world.plane.topic("later", 2);
    world.until("later", "MIRRORING").await;
    assert_eq!(world.image().topic("later").unwrap().id, id);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_can_be_added_again_after_its_failover() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    world.plane.topic("t", 1);
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    world.mirror("t", 0, &source_batch(0, 4, 3));
    world.remove(&["t"]).await;
    world
        .eventually("stopped", |w| {
            w.image().membership("t").is_some_and(|m| m.stopped)
        })
        .await;
    world.produce("t").unwrap();
    world.plane.0.lock().prepared.clear();
    world.add(&["t"]).await;
    world.until("t", "MIRRORING").await;
    let request = world.plane.0.lock().prepared[0].clone();
    assert_eq!(
        request.origin.last_mirror_offset,
        Some(3),
        "preparation knows where our own writes begin"
    );
    assert_eq!(request.origin.last_mirror_epoch, Some(4));
    assert!(request.origin.written_by_this_mirror);
    assert!(world.produce("t").is_err());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_deleted_here_and_made_anew_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::with_mirror(dir.path(), Scripted::new()).await;
    let id = world.plane.topic("t", 1);
    for round in 0..3 {
        world.add(&["t"]).await;
        world.until("t", "MIRRORING").await;
        // The higher the old incarnation's leader epoch, the surer it would fence the new one.
        world.mirror("t", 0, &source_batch(0, 20 + round, 2));
        world.remove(&["t"]).await;
        world
            .eventually("stopped", |w| {
                w.image().membership("t").is_some_and(|m| m.stopped)
            })
            .await;
        assert_eq!(world.delete().await, (0, None));
        let request = m::DeleteTopicsRequest {
            topics: vec![m::delete_topics_request::DeleteTopicState {
                topic_id: id,
                name: None,
                ..Default::default()
            }],
            ..Default::default()
        };
        world.controller.delete_topics(request).await;
        assert!(world.image().topic("t").is_none());
        let again = world
            .create(MIRROR, &[("bootstrap.servers", "source:9092")])
            .await;
        assert_eq!(again.error_code, 0);
    }
    world.stop().await;
}
