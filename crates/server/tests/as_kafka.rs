//! Answers in which stock clients and tools noticed a difference from Kafka 4.3.1.

mod support;

use std::time::Duration;

use support::*;
use tarn_wire::messages::delete_acls_request::DeleteAclsFilter;
use tarn_wire::messages::describe_client_quotas_request::ComponentData;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_user_scram_credentials_request::UserName;
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, Request, Str, Uuid};

const SECURITY_DISABLED: i16 = 54;
const NO_TRANSACTIONS: i16 = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.0;

async fn broker() -> (Node, Client) {
    let node = start().await;
    let client = Client::connect(node.server.address()).await;
    (node, client)
}

/// The answers of all announced versions.
async fn all<R: Request>(client: &mut Client, request: &R) -> Vec<R::Response> {
    let versions = R::KEY.api().unwrap().versions;
    let mut answers = Vec::new();
    for version in versions.min..=versions.max {
        answers.push(client.call(version, request).await);
    }
    answers
}

/// Commits an offset for a group without members.
async fn commit(client: &mut Client, group: &str, topic: &str) {
    let find = FindCoordinatorRequest {
        key: Str::from(group),
        ..Default::default()
    };
    client.call(3, &find).await;
    let partition = offset_commit_request::OffsetCommitRequestPartition {
        committed_offset: 1,
        ..Default::default()
    };
    let topic = offset_commit_request::OffsetCommitRequestTopic {
        name: Str::from(topic),
        partitions: vec![partition],
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: Str::from(group),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    for _ in 0..100 {
        let answer = client.call(7, &request).await;
        if answer.topics[0].partitions[0].error_code == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the commit was never taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorized_operations_are_told_to_who_asks() {
    let (_node, mut client) = broker().await;
    client.create("t", 1, &[]).await;
    commit(&mut client, "g", "t").await;
    let request = DescribeGroupsRequest {
        groups: vec![Str::from("g"), Str::from("never")],
        include_authorized_operations: true,
        ..Default::default()
    };
    for version in 3..=6 {
        let groups = client.call(version, &request).await.groups;
        assert_eq!(groups[0].authorized_operations, 3400, "version {version}");
        let missing = groups[1].authorized_operations;
        assert_eq!(missing, if version < 6 { 3400 } else { i32::MIN });
    }
    for name in ["t", "never", "bad name!"] {
        let topic = describe_topic_partitions_request::TopicRequest {
            name: Str::from(name),
            ..Default::default()
        };
        let request = DescribeTopicPartitionsRequest {
            topics: vec![topic],
            response_partition_limit: 10,
            ..Default::default()
        };
        let described = &client.call(0, &request).await.topics[0];
        assert_eq!(described.topic_authorized_operations, 3576, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_last_offset_was_deleted_can_still_be_deleted() {
    let (_node, mut client) = broker().await;
    client.create("t", 1, &[]).await;
    commit(&mut client, "g", "t").await;
    let topic = offset_delete_request::OffsetDeleteRequestTopic {
        name: Str::from("t"),
        partitions: vec![Default::default()],
        ..Default::default()
    };
    let request = OffsetDeleteRequest {
        group_id: Str::from("g"),
        topics: vec![topic],
        ..Default::default()
    };
    let deleted = client.call(0, &request).await;
    assert_eq!(
        (
            deleted.error_code,
            deleted.topics[0].partitions[0].error_code
        ),
        (0, 0)
    );
    let request = DeleteGroupsRequest {
        groups_names: vec![Str::from("g")],
        ..Default::default()
    };
    for expected in [0, ErrorCode::GROUP_ID_NOT_FOUND.0] {
        let answer = client.call(2, &request).await;
        assert_eq!(answer.results[0].error_code, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_log_begins_with_the_epoch_of_its_leader() {
    let (_node, mut client) = broker().await;
    client.create("t", 1, &[]).await;
    let earliest = ListOffsetsPartition {
        timestamp: -2,
        ..Default::default()
    };
    let topic = ListOffsetsTopic {
        name: Str::from("t"),
        partitions: vec![earliest],
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let answer = client.call(4, &request).await;
    let listed = &answer.topics[0].partitions[0];
    assert_eq!((listed.offset, listed.leader_epoch), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn acls_are_refused_as_by_a_kafka_without_an_authorizer() {
    let (_node, mut client) = broker().await;
    let describe = DescribeAclsRequest::default();
    for answer in all(&mut client, &describe).await {
        assert_eq!(answer.error_code, SECURITY_DISABLED);
    }
    let create = CreateAclsRequest {
        creations: vec![Default::default()],
        ..Default::default()
    };
    for answer in all(&mut client, &create).await {
        assert_eq!(answer.results[0].error_code, SECURITY_DISABLED);
    }
    let delete = DeleteAclsRequest {
        filters: vec![DeleteAclsFilter::default()],
        ..Default::default()
    };
    for answer in all(&mut client, &delete).await {
        assert_eq!(answer.filter_results[0].error_code, SECURITY_DISABLED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_here_is_listed_as_empty() {
    let (_node, mut client) = broker().await;
    let transactions = ListTransactionsRequest {
        state_filters: vec![Str::from("Ongoing"), Str::from("Odd")],
        ..Default::default()
    };
    for answer in all(&mut client, &transactions).await {
        assert_eq!((answer.error_code, answer.transaction_states.len()), (0, 0));
        assert_eq!(answer.unknown_state_filters, [Str::from("Odd")]);
    }
    let pattern = ListTransactionsRequest {
        transactional_id_pattern: Some(Str::from("(")),
        ..Default::default()
    };
    assert_eq!(client.call(2, &pattern).await.error_code, 128);
    for answer in all(&mut client, &DescribeClientQuotasRequest::default()).await {
        assert_eq!((answer.error_code, answer.entries), (0, Some(Vec::new())));
    }
    let twice = ["user", "user"].map(|entity| ComponentData {
        entity_type: Str::from(entity),
        ..Default::default()
    });
    let quotas = DescribeClientQuotasRequest {
        components: twice.to_vec(),
        ..Default::default()
    };
    let answer = client.call(1, &quotas).await;
    assert_eq!(answer.error_code, ErrorCode::INVALID_REQUEST.0);
    let users = ["a", "b", "b"].map(|name| UserName {
        name: Str::from(name),
        ..Default::default()
    });
    let scram = DescribeUserScramCredentialsRequest {
        users: Some(users.to_vec()),
        ..Default::default()
    };
    let results = client.call(0, &scram).await.results;
    let codes: Vec<i16> = results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [91, 92]);
    let scram = DescribeUserScramCredentialsRequest::default();
    assert!(client.call(0, &scram).await.results.is_empty());
    let answer = client
        .call(0, &ListPartitionReassignmentsRequest::default())
        .await;
    assert_eq!((answer.error_code, answer.topics.len()), (0, 0));
}

/// An empty list of keys means all keys, as no list does.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_configuration_keys_asks_for_all() {
    let (_node, mut client) = broker().await;
    client.create("t", 1, &[]).await;
    for (kind, name) in [(2, "t"), (4, "1")] {
        let mut resource = DescribeConfigsResource {
            resource_type: kind,
            resource_name: Str::from(name),
            configuration_keys: None,
            ..Default::default()
        };
        let mut counts = Vec::new();
        for keys in [None, Some(Vec::new())] {
            resource.configuration_keys = keys;
            let request = DescribeConfigsRequest {
                resources: vec![resource.clone()],
                ..Default::default()
            };
            counts.push(client.call(4, &request).await.results[0].configs.len());
        }
        assert!(counts[0] > 20 && counts[0] == counts[1], "{counts:?}");
    }
}

/// Until these protocols are there, every client is told at once that they are not.
#[tokio::test(flavor = "multi_thread")]
async fn protocols_that_are_not_there_are_refused_for_good() {
    let (_node, mut client) = broker().await;
    let heartbeat = ConsumerGroupHeartbeatRequest {
        group_id: Str::from("g"),
        ..Default::default()
    };
    for answer in all(&mut client, &heartbeat).await {
        assert_eq!(answer.error_code, ErrorCode::UNSUPPORTED_VERSION.0);
    }
    let by_key = FindCoordinatorRequest {
        key: Str::from("tx"),
        key_type: 1,
        ..Default::default()
    };
    let by_list = FindCoordinatorRequest {
        coordinator_keys: vec![Str::from("tx")],
        key_type: 1,
        ..Default::default()
    };
    for version in 1..=6 {
        let request = if version < 4 { &by_key } else { &by_list };
        let answer = client.call(version, request).await;
        let code = answer
            .coordinators
            .first()
            .map_or(answer.error_code, |coordinator| coordinator.error_code);
        assert_eq!(code, NO_TRANSACTIONS, "version {version}");
    }
    let init = InitProducerIdRequest {
        transactional_id: Some(Str::from("tx")),
        ..Default::default()
    };
    for answer in all(&mut client, &init).await {
        assert_eq!(answer.error_code, NO_TRANSACTIONS);
    }
}

/// What ListConfigResources lists can be described, with Kafka's keys and defaults.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_resource_that_is_listed_is_described() {
    let (_node, mut client) = broker().await;
    for (kind, name, keys, code) in [
        (32, "g", 17, 0),
        (32, "", 0, 42),
        (16, "m", 3, 0),
        (16, "", 0, 42),
        (8, "1", 13, 0),
        (8, "9", 0, 42),
        (8, "", 0, 42),
    ] {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: kind,
                resource_name: Str::from(name),
                configuration_keys: None,
                ..Default::default()
            }],
            include_synonyms: true,
            ..Default::default()
        };
        for answer in all(&mut client, &request).await {
            let result = &answer.results[0];
            assert_eq!((result.error_code, result.configs.len()), (code, keys));
            let source = if kind == 8 { 6 } else { 5 };
            assert!(result.configs.iter().all(|c| c.config_source == source));
        }
    }
    let listed = client
        .call(1, &ListConfigResourcesRequest::default())
        .await
        .config_resources;
    assert!(listed.iter().any(|resource| resource.resource_type == 8));
}

/// A topic that does not exist is told as such, whoever commits, and whatever id it is asked by.
#[tokio::test(flavor = "multi_thread")]
async fn offsets_of_topics_that_do_not_exist_are_told_as_such() {
    let (_node, mut client) = broker().await;
    client.create("t", 1, &[]).await;
    commit(&mut client, "g", "t").await;
    let topic = offset_commit_request::OffsetCommitRequestTopic {
        name: Str::from("never"),
        partitions: vec![Default::default()],
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: Str::from("g"),
        generation_id_or_member_epoch: 7,
        member_id: Str::from("bogus"),
        topics: vec![topic],
        ..Default::default()
    };
    let answer = client.call(8, &request).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 3);
    for topic_id in [Uuid::ZERO, Uuid([7; 16])] {
        let topic = offset_fetch_request::OffsetFetchRequestTopics {
            topic_id,
            partition_indexes: vec![0],
            ..Default::default()
        };
        let group = offset_fetch_request::OffsetFetchRequestGroup {
            group_id: Str::from("g"),
            topics: Some(vec![topic]),
            member_epoch: -1,
            ..Default::default()
        };
        let request = OffsetFetchRequest {
            groups: vec![group],
            ..Default::default()
        };
        let group = &client.call(10, &request).await.groups[0];
        assert_eq!(group.error_code, 0);
        assert_eq!(group.topics[0].partitions[0].error_code, 100);
    }
}
