//! Guards creating, growing and deleting topics, epochs and elections.

mod support;

use support::*;
use tarn_controller::plan::LEADER_EPOCH_MAX;
use tarn_metadata::{DesiredState, Membership, NO_LEADER};
use tarn_wire::messages::create_topics_request::CreatableReplicaAssignment;
use tarn_wire::messages::delete_topics_request::DeleteTopicState;
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, Str, Uuid};

fn codes<'a>(results: impl IntoIterator<Item = &'a i16>) -> Vec<ErrorCode> {
    results.into_iter().map(|code| ErrorCode(*code)).collect()
}

#[tokio::test]
async fn a_new_topic_is_in_the_image_when_the_answer_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let id = create_one(&controller, "orders", 3).await;
    let image = controller.image();
    let topic = image.topic("orders").unwrap();
    assert_eq!((topic.id, topic.partition_count()), (id, 3));
    let partition = image.partition_by_id(&id, 2).unwrap();
    assert_eq!(
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch
        ),
        (1, 0, 0)
    );
    assert_eq!((&partition.replicas, &partition.isr), (&vec![1], &vec![1]));
    assert_eq!(partition.directories, [Uuid::from_halves(1, 1)]);
}

#[tokio::test]
async fn one_bad_topic_spoils_only_itself_and_every_item_gets_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let known = create_one(&controller, "a.b", 1).await;
    let topics = vec![
        topic("good", 2),
        topic("a_b", 1),
        topic("a.b", 1),
        topic(&"x".repeat(250), 1),
        topic("..", 1),
        topic("none", 0),
        tarn_wire::messages::create_topics_request::CreatableTopic {
            replication_factor: 2,
            ..topic("two", 1)
        },
        topic_with_id("other-name", known),
        topic_with("bad-value", &[("retention.ms", "soon")]),
        topic_with("bad-key", &[("retention.weeks", "1")]),
        topic_with("mirrored", &[("mirror.name", "m")]),
        topic("twice", 1),
        topic("twice", 1),
        topic("new.name", 1),
        topic("new_name", 1),
    ];
    let results = create(&controller, topics).await;
    let expected = [
        ErrorCode::NONE,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
        ErrorCode::TOPIC_ALREADY_EXISTS,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
        ErrorCode::INVALID_PARTITIONS,
        ErrorCode::INVALID_REPLICATION_FACTOR,
        ErrorCode::TOPIC_ALREADY_EXISTS,
        ErrorCode::INVALID_CONFIG,
        ErrorCode::INVALID_CONFIG,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::NONE,
        ErrorCode::INVALID_TOPIC_EXCEPTION,
    ];
    assert_eq!(codes(results.iter().map(|r| &r.error_code)), expected);
    assert!(
        results[1].error_message.as_ref().unwrap().contains("a.b"),
        "the other topic is named"
    );
    assert!(
        results[10]
            .error_message
            .as_ref()
            .unwrap()
            .contains("mirror management APIs")
    );
    assert_eq!(controller.image().topics().len(), 3);
}

#[tokio::test]
async fn an_answer_tells_counts_and_configurations_with_their_source() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.rules.num_partitions = 4;
    settings.rules.broker_values =
        std::sync::Arc::new([("log.retention.hours".to_owned(), "2".to_owned())].into());
    let controller = tarn_controller::Controller::start(settings).await.unwrap();
    controller
        .register_and_unfence(registration(1))
        .await
        .unwrap();
    let mut wanted = topic_with("orders", &[("cleanup.policy", "compact")]);
    (wanted.num_partitions, wanted.replication_factor) = (-1, -1);
    let results = create(&controller, vec![wanted]).await;
    assert_eq!(
        (results[0].num_partitions, results[0].replication_factor),
        (4, 1)
    );
    let configs = results[0].configs.as_ref().unwrap();
    let find = |name: &str| {
        configs
            .iter()
            .find(|c| c.name == *name)
            .map(|c| (c.value.clone().unwrap(), c.config_source))
            .unwrap()
    };
    assert_eq!(find("cleanup.policy"), ("compact".into(), 1));
    assert_eq!(find("retention.ms"), ("7200000".into(), 4));
    assert_eq!(find("segment.bytes"), ("1073741824".into(), 5));
}

#[tokio::test]
async fn validate_only_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let request = CreateTopicsRequest {
        topics: vec![topic("t", 1), topic("", 1)],
        validate_only: true,
        ..Default::default()
    };
    let results = controller.create_topics(request).await.topics;
    assert_eq!(
        codes(results.iter().map(|r| &r.error_code)),
        [ErrorCode::NONE, ErrorCode::INVALID_TOPIC_EXCEPTION]
    );
    assert!(controller.image().topics().is_empty());
}

#[tokio::test]
async fn the_source_id_is_used_and_a_zero_id_means_none() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let id = Uuid::random();
    let results = create(
        &controller,
        vec![
            topic_with_id("mirrored", id),
            topic_with_id("plain", Uuid::ZERO),
        ],
    )
    .await;
    assert_eq!(results[0].topic_id, id);
    assert!(!results[1].topic_id.is_zero());
    assert_eq!(
        controller.image().topic_by_id(&id).unwrap().name,
        "mirrored"
    );
}

#[tokio::test]
async fn replicas_assigned_by_hand_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let assigned = |name: &str, replicas: &[&[i32]]| {
        let assignment = |(index, ids): (usize, &&[i32])| CreatableReplicaAssignment {
            partition_index: index as i32,
            broker_ids: ids.to_vec(),
            ..Default::default()
        };
        let assignments = replicas.iter().enumerate().map(assignment).collect();
        let mut topic = topic(name, -1);
        topic.replication_factor = -1;
        topic.assignments = assignments;
        topic
    };
    let mut counted = assigned("counted", &[&[1]]);
    counted.num_partitions = 1;
    let topics = vec![
        assigned("good", &[&[1], &[1]]),
        assigned("unknown", &[&[9]]),
        assigned("repeat", &[&[1, 1]]),
        assigned("empty", &[&[]]),
        counted,
    ];
    let results = create(&controller, topics).await;
    let bad = ErrorCode::INVALID_REPLICA_ASSIGNMENT;
    assert_eq!(
        codes(results.iter().map(|r| &r.error_code)),
        [ErrorCode::NONE, bad, bad, bad, ErrorCode::INVALID_REQUEST]
    );
    assert_eq!(results[0].num_partitions, 2);
}

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id_with_what_belongs_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let by_id = create_one(&controller, "by-id", 1).await;
    create(
        &controller,
        vec![topic_with("by-name", &[("retention.ms", "5")])],
    )
    .await;
    let named = |name: &str| DeleteTopicState {
        name: Some(name.into()),
        ..Default::default()
    };
    let topics = vec![
        named("by-name"),
        DeleteTopicState {
            name: None,
            topic_id: by_id,
            ..Default::default()
        },
        named("missing"),
        DeleteTopicState {
            name: None,
            topic_id: Uuid::random(),
            ..Default::default()
        },
        named("by-name"),
        DeleteTopicState::default(),
    ];
    let results = controller
        .delete_topics(DeleteTopicsRequest {
            topics,
            ..Default::default()
        })
        .await
        .responses;
    let expected = [
        ErrorCode::NONE,
        ErrorCode::NONE,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::INVALID_REQUEST,
    ];
    assert_eq!(codes(results.iter().map(|r| &r.error_code)), expected);
    assert_eq!(results[1].name.as_deref(), Some("by-id"));
    let image = controller.image();
    assert!(image.topics().is_empty() && image.topic_configs("by-name").is_none());
    let old_form = DeleteTopicsRequest {
        topic_names: vec!["x".into()],
        ..Default::default()
    };
    assert_eq!(controller.delete_topics(old_form).await.responses.len(), 1);
}

/// As Kafka: 10,000 new partitions a request. A storm made a topic of 65,532, and every description
/// of all topics was 1.7 MB.
#[tokio::test]
async fn one_request_may_ask_for_so_many_new_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let topics = vec![
        topic("large", 65_532),
        topic("most", 9_999),
        topic("two", 2),
    ];
    let results = create(&controller, [topics, vec![topic("one", 1)]].concat()).await;
    let (refused, made) = (ErrorCode::POLICY_VIOLATION, ErrorCode::NONE);
    assert_eq!(
        codes(results.iter().map(|r| &r.error_code)),
        [refused, made, refused, made]
    );
    let text = results[0].error_message.as_deref().unwrap_or_default();
    assert!(text.contains("request.partitions.max"), "{text}");
    let grow = |name: &str, count: i32| create_partitions_request::CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: None,
        ..Default::default()
    };
    let request = CreatePartitionsRequest {
        topics: vec![grow("one", 10_002), grow("most", 19_998), grow("one", 3)],
        ..Default::default()
    };
    let results = controller.create_partitions(request).await.results;
    let twice = ErrorCode::INVALID_REQUEST;
    assert_eq!(
        codes(results.iter().map(|r| &r.error_code)),
        [refused, made, twice]
    );
}

#[tokio::test]
async fn partitions_grow_never_shrink_and_not_on_a_mirror_topic() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "grows", 1).await;
    let id = create_one(&controller, "mirrored", 1).await;
    join(&controller, "mirrored", id, false).await;
    let wish = |name: &str, count: i32| create_partitions_request::CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: None,
        ..Default::default()
    };
    let topics = vec![wish("grows", 3), wish("mirrored", 2), wish("missing", 2)];
    let results = controller
        .create_partitions(CreatePartitionsRequest {
            topics,
            ..Default::default()
        })
        .await
        .results;
    let expected = [
        ErrorCode::NONE,
        ErrorCode::POLICY_VIOLATION,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ];
    assert_eq!(codes(results.iter().map(|r| &r.error_code)), expected);
    assert_eq!(
        results[1].error_message.as_deref(),
        Some("topic mirrored is a read-only mirror of m (MIRRORING)")
    );
    assert_eq!(
        controller.image().topic("grows").unwrap().partition_count(),
        3
    );
    for count in [3, 2, 0, -1] {
        let request = CreatePartitionsRequest {
            topics: vec![wish("grows", count)],
            ..Default::default()
        };
        assert_eq!(
            controller.create_partitions(request).await.results[0].error_code,
            ErrorCode::INVALID_PARTITIONS.0
        );
    }
    join(&controller, "mirrored", id, true).await;
    let request = CreatePartitionsRequest {
        topics: vec![wish("mirrored", 2)],
        ..Default::default()
    };
    assert_eq!(
        controller.create_partitions(request).await.results[0].error_code,
        0,
        "a failed-over topic is ordinary"
    );
}

async fn join(controller: &tarn_controller::Controller, topic: &str, id: Uuid, stopped: bool) {
    let desired = if stopped {
        DesiredState::Stopped
    } else {
        DesiredState::Mirroring
    };
    let membership = Membership {
        topic: topic.into(),
        topic_id: id,
        mirror: "m".into(),
        desired,
        source_topic_id: id,
        stopped,
        change_offset: -1,
    };
    let record = membership.to_record().into();
    controller
        .submit("join", move |_, _| {
            Ok::<_, tarn_controller::ApiError>((vec![record], ()))
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn bumped_epochs_exceed_the_minimum_and_keep_the_leader() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let id = create_one(&controller, "t", 3).await;
    let wish = |partition_index, min_leader_epoch| bump_leader_epochs_request::BumpPartition {
        partition_index,
        min_leader_epoch,
        ..Default::default()
    };
    let request = |topic_id, partitions| BumpLeaderEpochsRequest {
        topics: vec![bump_leader_epochs_request::BumpTopic {
            topic_id,
            partitions,
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = controller
        .bump_leader_epochs(request(
            id,
            vec![
                wish(0, 0),
                wish(1, 41),
                wish(2, -1),
                wish(1, 20),
                wish(7, 1),
            ],
        ))
        .await;
    assert_eq!((response.error_code, response.topics.len()), (0, 1));
    assert_eq!(response.topics[0].topic_name, "t");
    let none = ErrorCode::NONE;
    assert_eq!(
        codes(response.topics[0].partitions.iter().map(|p| &p.error_code)),
        [
            none,
            none,
            none,
            none,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        ]
    );
    let epochs = |controller: &tarn_controller::Controller| -> Vec<(i32, i32, i32)> {
        let image = controller.image();
        image
            .topic("t")
            .unwrap()
            .partitions
            .iter()
            .map(|p| (p.leader, p.leader_epoch, p.partition_epoch))
            .collect()
    };
    assert_eq!(epochs(&controller), [(1, 1, 1), (1, 42, 1), (1, 0, 0)]);
    let response = controller
        .bump_leader_epochs(request(id, vec![wish(0, LEADER_EPOCH_MAX), wish(1, 41)]))
        .await;
    assert_eq!(
        codes(response.topics[0].partitions.iter().map(|p| &p.error_code)),
        [ErrorCode::INVALID_REQUEST, none]
    );
    assert_eq!(
        epochs(&controller)[1],
        (1, 42, 1),
        "an epoch above the minimum stays"
    );
    controller.shutdown().await.unwrap();
    let again = bare(dir.path()).await;
    assert_eq!(epochs(&again), [(1, 1, 1), (1, 42, 1), (1, 0, 0)]);
}

#[tokio::test]
async fn a_new_incarnation_gets_new_leader_epochs_in_one_pass() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let id = create_one(&controller, "t", 2).await;
    let known = controller.image().broker(1).unwrap().clone();
    let same = BrokerRegistrationRequest {
        incarnation_id: known.incarnation,
        ..registration(1)
    };
    assert_eq!(
        controller.register_broker(same).await.broker_epoch,
        known.epoch,
        "the same incarnation keeps its epoch"
    );
    assert_eq!(
        controller
            .image()
            .partition_by_id(&id, 0)
            .unwrap()
            .leader_epoch,
        0
    );
    let response = controller.register_broker(registration(1)).await;
    let image = controller.image();
    let partition = image.partition_by_id(&id, 0).unwrap();
    assert_eq!(
        (partition.leader, partition.leader_epoch, &partition.isr),
        (NO_LEADER, 1, &vec![1])
    );
    assert!(image.broker(1).unwrap().fenced && response.broker_epoch > known.epoch);
    let beat = |epoch, offset| BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: epoch,
        current_metadata_offset: offset,
        cordoned_log_dirs: None,
        ..Default::default()
    };
    let stale = controller
        .broker_heartbeat(beat(known.epoch, i64::MAX))
        .await;
    assert_eq!(stale.error_code, ErrorCode::STALE_BROKER_EPOCH.0);
    let behind = controller
        .broker_heartbeat(beat(response.broker_epoch, 0))
        .await;
    assert_eq!((behind.is_fenced, behind.is_caught_up), (true, false));
    let caught_up = controller
        .broker_heartbeat(beat(response.broker_epoch, image.offset()))
        .await;
    assert_eq!((caught_up.is_fenced, caught_up.is_caught_up), (false, true));
    let image = controller.image();
    let partition = image.partition_by_id(&id, 1).unwrap();
    assert_eq!(
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch
        ),
        (1, 2, 2)
    );
}

#[tokio::test]
async fn a_broker_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let controller = bare(dir.path()).await;
    let foreign = BrokerRegistrationRequest {
        cluster_id: "another".into(),
        ..registration(1)
    };
    assert_eq!(
        controller.register_broker(foreign).await.error_code,
        ErrorCode::INCONSISTENT_CLUSTER_ID.0
    );
}

#[tokio::test]
async fn producer_id_blocks_never_overlap_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let epoch = controller.image().broker(1).unwrap().epoch;
    assert_eq!(
        controller.next_producer_ids(1, epoch).await.unwrap(),
        (0, 1000)
    );
    assert_eq!(
        controller.next_producer_ids(1, epoch).await.unwrap(),
        (1000, 1000)
    );
    assert_eq!(
        controller
            .next_producer_ids(1, epoch - 1)
            .await
            .unwrap_err()
            .code,
        ErrorCode::STALE_BROKER_EPOCH
    );
    drop(controller);
    let controller = started(dir.path()).await;
    let epoch = controller.image().broker(1).unwrap().epoch;
    assert_eq!(
        controller.next_producer_ids(1, epoch).await.unwrap().0,
        2000
    );
}

#[tokio::test]
async fn electing_leaders_where_none_is_needed_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    let named = |topic: &str| elect_leaders_request::TopicPartitions {
        topic: Str::from(topic),
        partitions: vec![0],
        ..Default::default()
    };
    let request = ElectLeadersRequest {
        topic_partitions: Some(vec![named("t"), named("u")]),
        ..Default::default()
    };
    let response = controller.elect_leaders(request).await;
    let results: Vec<_> = response
        .replica_election_results
        .iter()
        .map(|t| ErrorCode(t.partition_result[0].error_code))
        .collect();
    assert_eq!(
        results,
        [
            ErrorCode::ELECTION_NOT_NEEDED,
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        ]
    );
    let all = ElectLeadersRequest {
        topic_partitions: None,
        ..Default::default()
    };
    // Null means every topic; each is named, without the partitions that need no election.
    let results = controller.elect_leaders(all).await.replica_election_results;
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].topic, Str::from("t"));
    assert!(results[0].partition_result.is_empty());
    // A refused request tells each partition, since version 0 has no place for an error of the
    // whole.
    let unknown_kind = ElectLeadersRequest {
        election_type: 9,
        topic_partitions: Some(vec![named("t")]),
        ..Default::default()
    };
    let refused = controller.elect_leaders(unknown_kind).await;
    let partition = &refused.replica_election_results[0].partition_result[0];
    let code = ErrorCode::INVALID_REQUEST.0;
    assert_eq!((refused.error_code, partition.error_code), (code, code));
}
