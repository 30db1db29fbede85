//! What the tools of the public prototype ask a server beside the mirror APIs, and how they are
//! told apart on the wire.

mod support;

use support::*;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::*;
use tarn_wire::{ApiKey, Str, decode_exact, decode_response_header};

const MIRROR: i8 = 64;

async fn create_mirror(client: &mut Client, configs: &[(&str, &str)]) {
    let config = |(name, value): &(&str, &str)| create_mirror_request::MirrorConfig {
        name: Str::from(*name),
        value: Some(Str::from(*value)),
        ..Default::default()
    };
    let request = CreateMirrorRequest {
        mirror_name: Str::from("own"),
        config: configs.iter().map(config).collect(),
        allow_unreachable: true,
        ..Default::default()
    };
    let answer = client.call(0, &request).await;
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
}

fn describe(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: kind,
            resource_name: Str::from(name),
            configuration_keys: keys.map(|keys| keys.iter().map(|k| Str::from(*k)).collect()),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Keys with their values.
async fn configs(
    client: &mut Client,
    request: &DescribeConfigsRequest,
) -> Vec<(String, Option<String>)> {
    let answer = client.call(4, request).await;
    let result = answer.results.into_iter().next().unwrap();
    assert_eq!(result.error_code, 0, "{:?}", result.error_message);
    let rows = result.configs.into_iter();
    rows.map(|c| (c.name.to_string(), c.value.map(String::from)))
        .collect()
}

/// Both prototype tools die of a null value; they get the keys that are set and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_is_described_by_its_set_keys_without_nulls() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    let set = [
        ("bootstrap.servers", "127.0.0.1:1"),
        ("mirror.topics.include", "a,b"),
        ("sasl.jaas.config", "secret"),
    ];
    create_mirror(&mut client, &set).await;
    let want = vec![
        (
            "bootstrap.servers".to_owned(),
            Some("127.0.0.1:1".to_owned()),
        ),
        ("mirror.topics.include".to_owned(), Some("a,b".to_owned())),
    ];
    for keys in [None, Some(&[][..])] {
        let mut rows = configs(&mut client, &describe(MIRROR, "own", keys)).await;
        rows.sort();
        assert_eq!(rows, want);
    }
    let own = DescribeConfigsRequest {
        include_mirror_defaults: true,
        ..describe(MIRROR, "own", None)
    };
    let rows = configs(&mut client, &own).await;
    assert!(rows.len() > 20, "our own tool gets the defaults: {rows:?}");
    assert!(
        rows.contains(&("sasl.jaas.config".to_owned(), None)),
        "{rows:?}"
    );
    node.server.shutdown().await;
}

/// An empty list of keys means all of them, for every kind of resource, as in Kafka.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_keys_means_all_keys() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("own", 1, &[("retention.ms", "5")]).await;
    create_mirror(&mut client, &[("bootstrap.servers", "127.0.0.1:1")]).await;
    for (kind, name) in [(2, "own"), (4, "1"), (4, ""), (MIRROR, "own")] {
        let all = configs(&mut client, &describe(kind, name, None)).await;
        let empty = configs(&mut client, &describe(kind, name, Some(&[]))).await;
        assert_eq!(all, empty, "type {kind} `{name}`");
        assert!(kind != 2 || all.len() >= 33, "{}", all.len());
        let one = configs(&mut client, &describe(kind, name, Some(&["no.such"]))).await;
        assert!(one.is_empty(), "{one:?}");
    }
    // The bytes of the case: type 2, `own`, an empty list, no synonyms, no documentation.
    let answer = raw(
        &mut client,
        ApiKey::DESCRIBE_CONFIGS,
        4,
        "0202046f776e0100000000",
    )
    .await;
    let answer = decode_exact::<DescribeConfigsResponse>(answer, 4).unwrap();
    assert!(answer.results[0].configs.len() >= 33);
    node.server.shutdown().await;
}

/// Sends a body as it is; gives the answer's body.
async fn raw(client: &mut Client, key: ApiKey, version: i16, body: &str) -> bytes::Bytes {
    let mut frame = Vec::new();
    frame.extend(key.0.to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend(7_i32.to_be_bytes());
    // A client id as the Java tools choose it, and no tags.
    frame.extend(13_i16.to_be_bytes());
    frame.extend(b"adminclient-1");
    frame.push(0);
    frame.extend(
        (0..body.len() / 2).map(|i| u8::from_str_radix(&body[2 * i..2 * i + 2], 16).unwrap()),
    );
    client.send_frame(&frame).await.unwrap();
    let answer = client.read_frame().await.expect("an answer");
    decode_response_header(answer, 1).unwrap().1
}

/// Each command of a tool is a process of its own; `--describe` sends only an ambiguous body. What
/// only brokers send is taken from this host, and fenced all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_create_makes_the_next_process_a_late_one() {
    let node = start().await;
    let address = node.server.address();
    let describe = || async move {
        let mut process = Client::connect(address).await;
        raw(&mut process, ApiKey::DESCRIBE_MIRRORS, 0, "010000").await
    };
    assert!(decode_exact::<DescribeMirrorsResponse>(describe().await, 0).is_ok());
    let mut process = Client::connect(address).await;
    // ListClusterMirrors without names.
    raw(&mut process, ApiKey::LIST_MIRRORS, 0, "0000").await;
    let mut own = Client::connect(address).await;
    create_mirror(&mut own, &[("bootstrap.servers", "127.0.0.1:1")]).await;
    let late: DescribeClusterMirrorsResponse = decode_exact(describe().await, 0).unwrap();
    assert_eq!(late.mirrors[0].mirror_name.as_str(), "own");
    let mut process = Client::connect(address).await;
    let early = raw(&mut process, ApiKey::LIST_MIRRORS, 0, "00").await;
    assert!(decode_exact::<ListMirrorsResponse>(early, 0).is_ok());
    node.server.shutdown().await;
}
