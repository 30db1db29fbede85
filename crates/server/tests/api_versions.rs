//! Negotiation of versions: fall-backs, header forms, and what is announced.

mod support;

use support::{Client, start, start_with};
use tarn_wire::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ListMirrorsRequest, MetadataRequest,
};
use tarn_wire::{ApiKey, Message, Reader, Str};

fn request() -> ApiVersionsRequest {
    named("test")
}

fn named(software: &str) -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: Str::from(software),
        client_software_version: Str::from("1.0"),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_api_versions_version_is_answered_in_the_form_of_version_0() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    for version in [5i16, 99, i16::MAX, -1] {
        let mut frame = 18i16.to_be_bytes().to_vec();
        frame.extend(version.to_be_bytes());
        frame.extend(7i32.to_be_bytes());
        frame.extend([0xff; 9]);
        client.send_frame(&frame).await.unwrap();
        let answer = client
            .read_frame()
            .await
            .expect("the connection stays open");
        assert_eq!(&answer[..4], &7i32.to_be_bytes());
        let mut reader = Reader::new(answer.slice(4..));
        let response = ApiVersionsResponse::decode(&mut reader, 0).unwrap();
        assert_eq!((response.error_code, reader.remaining()), (35, 0));
        let range = response
            .api_keys
            .iter()
            .find(|api| api.api_key == 18)
            .unwrap();
        assert_eq!((range.min_version, range.max_version), (0, 4));
    }
    assert_eq!(client.call(4, &request()).await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_api_versions_has_a_header_without_tags() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    for version in 0..=4 {
        let response = client.call(version, &request()).await;
        assert_eq!(response.error_code, 0);
        assert!(
            response
                .api_keys
                .iter()
                .any(|api| api.api_key == ApiKey::PRODUCE.0
                    && api.min_version == 0
                    && api.max_version == 13)
        );
        assert!(
            response
                .api_keys
                .iter()
                .any(|api| api.api_key == ApiKey::FETCH.0 && api.max_version == 18)
        );
        let with_zero = response
            .supported_features
            .iter()
            .any(|feature| feature.min_version == 0);
        assert_eq!(
            with_zero,
            version >= 4,
            "features with the lowest level 0 belong to version 4"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_software_name_is_an_invalid_request() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    let mut bad = request();
    bad.client_software_name = Str::from("-x-");
    assert_eq!(client.call(3, &bad).await.error_code, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_keys_are_announced_only_while_mirroring_is_on() {
    for (enabled, create_topics_max) in [("true", 8), ("false", 7)] {
        let node = start_with(&[("mirror.enable", enabled)]).await;
        let mut client = Client::connect(node.server.address()).await;
        let java = named("apache-kafka-java");
        let response = client.call(4, &java).await;
        let mirror_keys = response
            .api_keys
            .iter()
            .filter(|api| api.api_key >= 94)
            .count();
        assert_eq!(mirror_keys > 0, enabled == "true");
        let create = response
            .api_keys
            .iter()
            .find(|api| api.api_key == 19)
            .unwrap();
        assert_eq!(create.max_version, create_topics_max);
        assert!(
            !response
                .api_keys
                .iter()
                .any(|api| (24..=28).contains(&api.api_key)),
            "transactions are not there yet"
        );
    }
}

/// Kafka-python 3 fails on keys that it does not know. Java clients see them, because a prototype
/// is one.
#[tokio::test(flavor = "multi_thread")]
async fn mirror_keys_are_announced_to_those_who_may_need_them() {
    let node = start().await;
    let sees = |response: ApiVersionsResponse| {
        let max = |key: i16| {
            let mut rows = response.api_keys.iter().filter(|api| api.api_key == key);
            rows.next().map(|api| api.max_version)
        };
        let mirror_keys = response.api_keys.iter().any(|api| api.api_key >= 94);
        assert_eq!(max(19), Some(if mirror_keys { 8 } else { 7 }));
        mirror_keys
    };
    for (name, expected) in [
        ("apache-kafka-java", true),
        ("tarn", true),
        ("kafka-python", false),
        ("librdkafka", false),
    ] {
        let mut client = Client::connect(node.server.address()).await;
        let response = client.call(3, &named(name)).await;
        assert_eq!(sees(response), expected, "{name}");
    }
    let mut client = Client::connect(node.server.address()).await;
    assert!(!sees(client.call(0, &request()).await));
    client.call(0, &ListMirrorsRequest::default()).await;
    assert!(
        sees(client.call(0, &request()).await),
        "it spoke a mirror key"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_closes_only_its_own_connection() {
    let node = start().await;
    let mut other = Client::connect(node.server.address()).await;
    let mut client = Client::connect(node.server.address()).await;
    client
        .send_frame(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff])
        .await
        .unwrap();
    assert!(client.read_frame().await.is_none());
    assert_eq!(
        other
            .call(
                9,
                &MetadataRequest {
                    topics: None,
                    ..Default::default()
                }
            )
            .await
            .brokers
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_listener_serves_its_own_apis() {
    let node = start().await;
    let address = node
        .server
        .listeners()
        .iter()
        .find(|l| l.name == "CONTROLLER")
        .unwrap()
        .address;
    let mut client = Client::connect(address).await;
    let response = client.call(4, &request()).await;
    assert!(
        response
            .api_keys
            .iter()
            .any(|api| api.api_key == ApiKey::DESCRIBE_QUORUM.0)
    );
    assert!(
        !response
            .api_keys
            .iter()
            .any(|api| api.api_key == ApiKey::PRODUCE.0)
    );
}
