//! A controller in a temporary directory, with one broker.
#![allow(unreachable_pub, reason = "shared by several test crates")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;

use tarn_controller::{Controller, Settings};
use tarn_wire::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, MirrorInfo,
};
use tarn_wire::messages::create_topics_response::CreatableTopicResult;
use tarn_wire::messages::{
    BrokerRegistrationRequest, CreateTopicsRequest, broker_registration_request,
};
use tarn_wire::{Str, Uuid};

/// The cluster id of all tests.
pub const CLUSTER: &str = "test-cluster-of-tarn00";

/// Settings over a directory.
pub fn settings(dir: &Path) -> Settings {
    Settings::single(1, CLUSTER, dir)
}

/// A controller without a broker.
pub async fn bare(dir: &Path) -> Controller {
    Controller::start(settings(dir)).await.unwrap()
}

/// A controller whose broker 1 is registered, in a new incarnation, and unfenced.
pub async fn started(dir: &Path) -> Controller {
    let controller = bare(dir).await;
    controller
        .register_and_unfence(registration(1))
        .await
        .unwrap();
    controller
}

/// A registration of a fresh incarnation.
pub fn registration(broker_id: i32) -> BrokerRegistrationRequest {
    let listener = broker_registration_request::Listener {
        name: "PLAINTEXT".into(),
        host: "localhost".into(),
        port: 9092,
        ..Default::default()
    };
    BrokerRegistrationRequest {
        broker_id,
        cluster_id: CLUSTER.into(),
        incarnation_id: Uuid::random(),
        listeners: vec![listener],
        rack: None,
        log_dirs: vec![Uuid::from_halves(1, broker_id as u64)],
        ..Default::default()
    }
}

/// A topic to ask for.
pub fn topic(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: Str::from(name),
        num_partitions: partitions,
        replication_factor: 1,
        mirror_info: None,
        ..Default::default()
    }
}

/// The same with an id from a source.
pub fn topic_with_id(name: &str, id: Uuid) -> CreatableTopic {
    CreatableTopic {
        mirror_info: Some(MirrorInfo {
            topic_id: id,
            ..Default::default()
        }),
        ..topic(name, 1)
    }
}

/// The same with configurations.
pub fn topic_with(name: &str, configs: &[(&str, &str)]) -> CreatableTopic {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
        name: Str::from(*name),
        value: Some(Str::from(*value)),
        ..Default::default()
    };
    CreatableTopic {
        configs: configs.iter().map(config).collect(),
        ..topic(name, 1)
    }
}

/// Asks for topics; gives the answers.
pub async fn create(
    controller: &Controller,
    topics: Vec<CreatableTopic>,
) -> Vec<CreatableTopicResult> {
    controller
        .create_topics(CreateTopicsRequest {
            topics,
            ..Default::default()
        })
        .await
        .topics
}

/// Asks for one topic that must be made.
pub async fn create_one(controller: &Controller, name: &str, partitions: i32) -> Uuid {
    let results = create(controller, vec![topic(name, partitions)]).await;
    assert_eq!(results[0].error_code, 0, "{:?}", results[0].error_message);
    results[0].topic_id
}
