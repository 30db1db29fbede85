//! Metadata and the administration of topics and configurations.

mod support;

use support::*;
use tarn_wire::messages::*;
use tarn_wire::{Str, Uuid};

fn ask(name: &str) -> MetadataRequest {
    let topic = metadata_request::MetadataRequestTopic {
        name: Some(Str::from(name)),
        ..Default::default()
    };
    MetadataRequest {
        topics: Some(vec![topic]),
        allow_auto_topic_creation: true,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_creates_what_is_asked_for_and_nothing_illegal() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    let answer = client.call(9, &ask("fresh")).await;
    assert!(matches!(answer.topics[0].error_code, 0 | 5));
    assert_eq!(client.produce("fresh", 0, batch(&[b"x"]), -1).await, (0, 0));
    assert_eq!(
        client.call(9, &ask("bad/name")).await.topics[0].error_code,
        17
    );
    let quiet = MetadataRequest {
        allow_auto_topic_creation: false,
        ..ask("other")
    };
    assert_eq!(client.call(9, &quiet).await.topics[0].error_code, 3);
    for version in 0..=13 {
        let topics = if version == 0 { Some(Vec::new()) } else { None };
        let request = MetadataRequest {
            topics,
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        let all = client.call(version, &request).await;
        assert_eq!(all.topics.len(), 1, "version {version}");
        assert_eq!(all.brokers[0].port, i32::from(node.server.address().port()));
    }
    let by_id = metadata_request::MetadataRequestTopic {
        topic_id: Uuid::random(),
        name: None,
        ..Default::default()
    };
    let answer = client
        .call(
            12,
            &MetadataRequest {
                topics: Some(vec![by_id]),
                ..Default::default()
            },
        )
        .await;
    assert_eq!(answer.topics[0].error_code, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_created_with_defaults_validated_and_deleted() {
    let node = start_with(&[
        ("num.partitions", "3"),
        ("auto.create.topics.enable", "false"),
    ])
    .await;
    let mut client = Client::connect(node.server.address()).await;
    let mut validate = create_request("v", -1, &[]);
    validate.validate_only = true;
    assert_eq!(client.call(7, &validate).await.topics[0].error_code, 0);
    assert_eq!(client.call(9, &ask("v")).await.topics[0].error_code, 3);
    let mut request = create_request("a", -1, &[("retention.ms", "5")]);
    request
        .topics
        .push(create_request("bad/", 1, &[]).topics.remove(0));
    request.topics.push(
        create_request("c", 1, &[("no.such.key", "5")])
            .topics
            .remove(0),
    );
    let answer = client.call(7, &request).await;
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, vec![0, 17, 40], "each item has its own answer");
    assert_eq!(
        (
            answer.topics[0].num_partitions,
            answer.topics[0].replication_factor
        ),
        (3, 1)
    );
    let retention = answer.topics[0]
        .configs
        .as_ref()
        .unwrap()
        .iter()
        .find(|c| c.name.as_str() == "retention.ms")
        .unwrap()
        .clone();
    assert_eq!(
        (retention.value.unwrap().as_str(), retention.config_source),
        ("5", 1)
    );
    assert_eq!(
        client.call(7, &create_request("a", 1, &[])).await.topics[0].error_code,
        36
    );
    let id = answer.topics[0].topic_id;
    let state = delete_topics_request::DeleteTopicState {
        name: None,
        topic_id: id,
        ..Default::default()
    };
    let deleted = client
        .call(
            6,
            &DeleteTopicsRequest {
                topics: vec![state],
                timeout_ms: 1000,
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        (
            deleted.responses[0].error_code,
            deleted.responses[0].topic_id
        ),
        (0, id)
    );
    assert_eq!(client.call(9, &ask("a")).await.topics[0].error_code, 3);
    client.create("a", 1, &[]).await;
    let old = DeleteTopicsRequest {
        topic_names: vec![Str::from("a"), Str::from("zz")],
        timeout_ms: 1000,
        ..Default::default()
    };
    let deleted = client.call(5, &old).await;
    let codes: Vec<_> = deleted
        .responses
        .iter()
        .map(|r| (r.name.clone().unwrap().to_string(), r.error_code))
        .collect();
    assert_eq!(codes, vec![("a".to_owned(), 0), ("zz".to_owned(), 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_shows_every_key_with_source_and_changes_take_effect() {
    let node = start_with(&[("log.retention.hours", "1")]).await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let describe = |kind: i8, name: &str| {
        let resource = describe_configs_request::DescribeConfigsResource {
            resource_type: kind,
            resource_name: Str::from(name),
            configuration_keys: None,
            ..Default::default()
        };
        DescribeConfigsRequest {
            resources: vec![resource],
            include_synonyms: true,
            include_documentation: true,
            ..Default::default()
        }
    };
    let answer = client.call(4, &describe(2, "t")).await.results.remove(0);
    assert_eq!(answer.error_code, 0);
    let find = |configs: &[describe_configs_response::DescribeConfigsResourceResult],
                name: &str| {
        configs
            .iter()
            .find(|c| c.name.as_str() == name)
            .cloned()
            .unwrap()
    };
    assert!(answer.configs.len() >= 30, "{}", answer.configs.len());
    let retention = find(&answer.configs, "retention.ms");
    assert_eq!(
        (retention.value.as_deref(), retention.config_source),
        (Some("3600000"), 4)
    );
    assert!(
        retention.documentation.is_some()
            && retention
                .synonyms
                .iter()
                .any(|s| s.name.as_str() == "log.retention.hours")
    );
    let alter = incremental_alter_configs_request::AlterConfigsResource {
        resource_type: 2,
        resource_name: Str::from("t"),
        configs: vec![incremental_alter_configs_request::AlterableConfig {
            name: Str::from("max.message.bytes"),
            config_operation: 0,
            value: Some(Str::from("500")),
            ..Default::default()
        }],
        ..Default::default()
    };
    let altered = client
        .call(
            1,
            &IncrementalAlterConfigsRequest {
                resources: vec![alter],
                ..Default::default()
            },
        )
        .await;
    assert_eq!(altered.responses[0].error_code, 0);
    let answer = client.call(4, &describe(2, "t")).await.results.remove(0);
    assert_eq!(find(&answer.configs, "max.message.bytes").config_source, 1);
    assert_eq!(
        client.produce("t", 0, batch(&[&[0u8; 1000]]), -1).await.0,
        10
    );
    let broker = client.call(4, &describe(4, "1")).await.results.remove(0);
    assert!(broker.configs.len() > 330, "{}", broker.configs.len());
    let secret = find(&broker.configs, "ssl.keystore.password");
    assert!(secret.is_sensitive && secret.value.is_none());
    assert!(find(&broker.configs, "log.dirs").read_only);
    assert_eq!(
        client.call(4, &describe(4, "7")).await.results[0].error_code,
        42
    );
    assert_eq!(
        client.call(4, &describe(2, "none")).await.results[0].error_code,
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_deleted_up_to_an_offset() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    client
        .create("c", 1, &[("cleanup.policy", "compact")])
        .await;
    for _ in 0..10 {
        client.produce("t", 0, batch(&[b"x"]), -1).await;
    }
    let mut delete = async |topic: &str, offset: i64| {
        let partition = delete_records_request::DeleteRecordsPartition {
            partition_index: 0,
            offset,
            ..Default::default()
        };
        let topic = delete_records_request::DeleteRecordsTopic {
            name: Str::from(topic),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = DeleteRecordsRequest {
            topics: vec![topic],
            timeout_ms: 1000,
            ..Default::default()
        };
        let answer = client.call(2, &request).await.topics[0].partitions[0].clone();
        (answer.error_code, answer.low_watermark)
    };
    assert_eq!(delete("t", 5).await, (0, 5));
    assert_eq!(delete("t", -1).await, (0, 10));
    assert_eq!(delete("t", 11).await.0, 1);
    assert_eq!(delete("c", -1).await.0, 44);
    assert_eq!(delete("nope", -1).await.0, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_describes_itself() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 5, &[]).await;
    let cluster = client
        .call(
            2,
            &DescribeClusterRequest {
                endpoint_type: 1,
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        (
            cluster.error_code,
            cluster.cluster_id.as_str(),
            cluster.brokers.len()
        ),
        (0, node.server.cluster_id(), 1)
    );
    let limit = DescribeTopicPartitionsRequest {
        response_partition_limit: 3,
        cursor: None,
        ..Default::default()
    };
    let page = client.call(0, &limit).await;
    assert_eq!(
        (
            page.topics[0].partitions.len(),
            page.next_cursor.as_ref().unwrap().partition_index
        ),
        (3, 3)
    );
    let cursor = describe_topic_partitions_request::Cursor {
        topic_name: Str::from("t"),
        partition_index: 3,
        ..Default::default()
    };
    let page = client
        .call(
            0,
            &DescribeTopicPartitionsRequest {
                cursor: Some(cursor),
                ..limit
            },
        )
        .await;
    assert_eq!(
        (page.topics[0].partitions.len(), page.next_cursor.is_none()),
        (2, true)
    );
    let dirs = client
        .call(
            4,
            &DescribeLogDirsRequest {
                topics: None,
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        (
            dirs.results.len(),
            dirs.results[0].topics[0].partitions.len()
        ),
        (1, 5)
    );
    assert!(dirs.results[0].total_bytes > 0);
    let topic = describe_quorum_request::TopicData {
        topic_name: Str::from("__cluster_metadata"),
        partitions: vec![Default::default()],
        ..Default::default()
    };
    let quorum = client
        .call(
            2,
            &DescribeQuorumRequest {
                topics: vec![topic],
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        (quorum.error_code, quorum.topics[0].partitions[0].leader_id),
        (0, 1)
    );
}
