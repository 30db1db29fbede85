//! What each announced version answers where versions differ.

mod support;

use std::time::Duration;

use support::*;
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::*;
use tarn_wire::{Str, Uuid};

const FETCH_BY_ID_FROM: i16 = 13;

async fn controller_of(node: &Node) -> Client {
    let address = node
        .server
        .listeners()
        .iter()
        .find(|listener| listener.name == "CONTROLLER")
        .unwrap()
        .address;
    Client::connect(address).await
}

async fn id_of(client: &mut Client, topic: &str) -> Uuid {
    let topic = MetadataRequestTopic {
        name: Some(Str::from(topic)),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some(vec![topic]),
        ..Default::default()
    };
    client.call(12, &request).await.topics[0].topic_id
}

fn fetch_in(version: i16, name: &str, id: Uuid, epoch: i32, wait_ms: i32) -> FetchRequest {
    let by_id = version >= FETCH_BY_ID_FROM;
    let mut request = fetch_request(if by_id { "" } else { name }, 0, 1 << 20, wait_ms);
    let topic = &mut request.topics[0];
    topic.topic_id = if by_id { id } else { Uuid::ZERO };
    topic.partitions[0].current_leader_epoch = epoch;
    request
}

/// With an offset found, versions 1 to 3 closed the connection.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_list_offsets_tells_the_offset() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    client.produce("t", 0, batch(&[b"a", b"b"]), -1).await;
    for version in 1..=11 {
        for (timestamp, offset) in [(-1, 2), (-2, 0)] {
            let partition = ListOffsetsPartition {
                timestamp,
                ..Default::default()
            };
            let topic = ListOffsetsTopic {
                name: Str::from("t"),
                partitions: vec![partition],
                ..Default::default()
            };
            let request = ListOffsetsRequest {
                replica_id: -1,
                topics: vec![topic],
                ..Default::default()
            };
            let answer = client.call(version, &request).await;
            let listed = &answer.topics[0].partitions[0];
            assert_eq!((listed.error_code, listed.offset), (0, offset));
            assert_eq!(listed.leader_epoch >= 0, version >= 4, "{version}");
        }
    }
}

/// An epoch that is not the leader's closed the connection in versions 9 to 11, after each
/// restart of a broker.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_fetch_tells_that_an_epoch_is_not_the_leaders() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]).await;
    let mut client = Client::connect(server.address()).await;
    client.create("t", 1, &[]).await;
    let id = id_of(&mut client, "t").await;
    drop(client);
    server.shutdown().await;
    let server = start_in(dir.path(), &[]).await;
    let mut client = Client::connect(server.address()).await;
    for (epoch, error) in [(0, 74), (1000, 75)] {
        for version in 9..=18 {
            let request = fetch_in(version, "t", id, epoch, 0);
            let answer = client.call(version, &request).await;
            let data = &answer.responses[0].partitions[0];
            assert_eq!(data.error_code, error, "version {version}");
            let leader = if version >= 12 { 1 } else { -1 };
            assert_eq!(data.current_leader.leader_id, leader);
        }
    }
}

/// Versions 4 to 11 closed the connection, 12 to 18 answered 6.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_fetch_that_waits_learns_that_its_topic_is_deleted() {
    let node = start().await;
    let mut admin = Client::connect(node.server.address()).await;
    for version in 4..=18 {
        let name = format!("t{version}");
        admin.create(&name, 1, &[]).await;
        let id = id_of(&mut admin, &name).await;
        let mut client = Client::connect(node.server.address()).await;
        let sent = client
            .send(version, &fetch_in(version, &name, id, -1, 15_000))
            .await;
        // The deletion must find the fetch waiting; one that comes too late would be answered 3 or
        // 100 all the same.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let deletion = DeleteTopicsRequest {
            topic_names: vec![Str::from(name.as_str())],
            timeout_ms: 10_000,
            ..Default::default()
        };
        assert_eq!(admin.call(5, &deletion).await.responses[0].error_code, 0);
        let answer = client.answer::<FetchRequest>(version, sent).await;
        let answer = answer.unwrap_or_else(|| panic!("version {version} closed"));
        let data = &answer.responses[0].partitions[0];
        assert_eq!((answer.error_code, data.error_code), (0, 3), "{version}");
    }
}

/// Versions 0 and 1 closed the connection because the answer names nodes.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_describe_quorum_answers() {
    let node = start().await;
    let partition = describe_quorum_request::PartitionData::default();
    let topic = describe_quorum_request::TopicData {
        topic_name: Str::from("__cluster_metadata"),
        partitions: vec![partition],
        ..Default::default()
    };
    let request = DescribeQuorumRequest {
        topics: vec![topic],
        ..Default::default()
    };
    let broker = Client::connect(node.server.address()).await;
    for mut client in [broker, controller_of(&node).await] {
        for version in 0..=2 {
            let answer = client.call(version, &request).await;
            assert_eq!(answer.error_code, 0);
            let partition = &answer.topics[0].partitions[0];
            assert_eq!((partition.error_code, partition.leader_id), (0, 1));
            assert_eq!(partition.current_voters.len(), 1);
            assert_eq!(answer.nodes.len(), usize::from(version >= 2));
        }
    }
}

/// On a controller listener version 0, which can only ask for brokers, closed the connection.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_describe_cluster_answers_on_a_controller_listener() {
    let node = start().await;
    let mut client = controller_of(&node).await;
    for version in 0..=2 {
        let answer = client
            .call(version, &DescribeClusterRequest::default())
            .await;
        assert_eq!(answer.error_code, 114, "version {version}");
    }
    let request = DescribeClusterRequest {
        endpoint_type: 2,
        ..Default::default()
    };
    assert_eq!(client.call(1, &request).await.error_code, 0);
}

/// Versions 4 to 6 closed the connection for a transactional id or without keys.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_find_coordinator_answers_for_every_key_type() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    for version in 0..=6 {
        for (key_type, keys) in [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (9, 0)] {
            let mut request = FindCoordinatorRequest {
                key_type: if version >= 1 { key_type } else { 0 },
                ..Default::default()
            };
            if version < 4 {
                request.key = Str::from("k");
            } else {
                request.coordinator_keys = vec![Str::from("k"); keys];
            }
            let answer = client.call(version, &request).await;
            if version >= 4 {
                assert_eq!((answer.error_code, answer.coordinators.len()), (0, keys));
            }
        }
    }
}

/// Produce is announced from version 0 for the sake of old librdkafka, and closed the connection
/// below 3.
#[tokio::test(flavor = "multi_thread")]
async fn versions_of_produce_before_record_batches_are_refused_with_an_answer() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    for version in 0..=2 {
        let request = produce_request("t", 0, batch(&[b"x"]), 1);
        let answer = client.call(version, &request).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (35, -1));
    }
    assert_eq!(client.produce("t", 0, batch(&[b"x"]), -1).await, (0, 0));
}
