//! Hostile and careless clients: what one of them asks for costs it alone, and has a limit with a
//! name.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeConfigsRequest, FetchRequest,
    IncrementalAlterConfigsRequest, ListOffsetsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::{HeaderVersion, Request, StrBytes};
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

const MIB: u64 = 1 << 20;
/// Generous for a machine with two busy cores; the faults took many times as long.
const PROMPT: Duration = Duration::from_secs(3);

fn connect(tarn: &Tarn) -> RawClient {
    RawClient::connect(tarn.port()).unwrap()
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn create_topic(tarn: &Tarn, topic: &str, partitions: i32) {
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = connect(tarn).call(5, &request).unwrap();
    assert_eq!(answer.topics[0].error_code, 0);
}

/// Produces one record on a connection of its own; how long that took.
fn produce(tarn: &Tarn, topic: &str) -> Duration {
    let started = Instant::now();
    let batch = raw::batch(PLAIN, &["alive"]);
    let topic = Topic::Name(topic.into());
    let produced = raw::produce(&mut connect(tarn), &topic, 0, batch, 1, 9).unwrap();
    assert_eq!(produced.unwrap().code, 0);
    started.elapsed()
}

/// Sends a request and does not wait for its answer.
fn send<R: Request>(client: &mut RawClient, version: i16, request: &R) -> anyhow::Result<()> {
    let mut body = BytesMut::new();
    request.encode(&mut body, version)?;
    client.send_body(R::KEY, version, &body, R::header_version(version))
}

fn answer<R: Request>(client: &mut RawClient, version: i16) -> anyhow::Result<bytes::Bytes> {
    client.read_answer(<R::Response as HeaderVersion>::header_version(version))
}

fn fetch(topics: Vec<FetchTopic>, wait_ms: i32, session_epoch: i32) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(i32::MAX)
        .with_max_bytes(1 << 20)
        .with_session_epoch(session_epoch)
        .with_topics(topics)
}

fn partitions(topic: &str, indexes: impl Iterator<Item = i32>) -> Vec<FetchTopic> {
    let one = |index| {
        FetchPartition::default()
            .with_partition(index)
            .with_partition_max_bytes(1 << 20)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
    };
    let topic = FetchTopic::default()
        .with_topic(name(topic))
        .with_partitions(indexes.map(one).collect());
    vec![topic]
}

/// One topic of 1,000 partitions named 20,000 times is answered once; a describe is bounded by
/// `response.max.bytes` and says so.
#[test]
fn the_cost_of_an_answer_is_bounded() {
    let mut tarn = Tarn::start_with(&[("response.max.bytes", "1048576")]);
    create_topic(&tarn, "wide", 1_000);
    let before = tarn.process().resident_bytes();
    let asked = MetadataRequestTopic::default().with_name(Some(name("wide")));
    let request = MetadataRequest::default().with_topics(Some(vec![asked; 20_000]));
    let mut client = connect(&tarn);
    send(&mut client, 5, &request).unwrap();
    let metadata = answer::<MetadataRequest>(&mut client, 5).unwrap();
    assert!(metadata.len() < 200_000, "{} bytes", metadata.len());

    let broker = DescribeConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(StrBytes::from_static_str("1"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![broker; 5_000]);
    let described = client.call(4, &request).unwrap().results;
    let (full, left_out) =
        described.split_at(described.iter().filter(|r| r.error_code == 0).count());
    assert!(!full.is_empty() && full.iter().all(|r| r.configs.len() > 300));
    assert!(left_out.len() > 4_000 && left_out.iter().all(|r| r.error_code == 44));
    let text = left_out[0].error_message.as_ref().unwrap();
    assert!(text.contains("response.max.bytes"), "{text:?}");
    let grown = tarn.process().resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
    tarn.check_healthy();
}

/// Connections that announce large requests and send nothing do not use up what others need.
#[test]
fn announced_requests_do_not_keep_others_waiting() {
    let mut tarn = Tarn::start_with(&[("queued.max.request.bytes", "67108864")]);
    create_topic(&tarn, "t", 1);
    let announce = [&(100_i32 << 20).to_be_bytes()[..], &[0; 8]].concat();
    let announcing: Vec<RawClient> = (0..62)
        .map(|_| {
            let mut client = connect(&tarn);
            client.send_bytes(&announce).unwrap();
            client
        })
        .collect();
    let large = raw::batch(PLAIN, &["x".repeat(900_000).as_str()]);
    let started = Instant::now();
    let topic = Topic::Name("t".into());
    let produced = raw::produce(&mut connect(&tarn), &topic, 0, large, 1, 9).unwrap();
    assert_eq!(produced.unwrap().code, 0);
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    drop(announcing);
    tarn.check_healthy();
}

/// A client that hangs up leaves nothing behind, whatever it waits for; who stays waits no longer
/// than the named key.
#[test]
fn a_wait_ends_with_its_client_and_has_a_cap() {
    let tarn = Tarn::start_with(&[("fetch.wait.max.ms", "1500")]);
    create_topic(&tarn, "t", 1);
    let started = Instant::now();
    let waiting = fetch(partitions("t", 0..1), i32::MAX, -1);
    let answer = connect(&tarn).call(11, &waiting).unwrap();
    assert_eq!(answer.error_code, 0);
    let waited = started.elapsed();
    assert!(
        waited > Duration::from_millis(1_400) && waited < Duration::from_secs(15),
        "{waited:?}"
    );
    drop(tarn);

    let mut tarn = Tarn::start();
    create_topic(&tarn, "t", 1);
    let before = tarn.process().sockets();
    for pipelined in [false, true] {
        let mut clients: Vec<RawClient> = (0..20).map(|_| connect(&tarn)).collect();
        for client in &mut clients {
            send(client, 11, &waiting).unwrap();
            if pipelined {
                // What stands behind it in the socket does not hide the end.
                send(client, 0, &ApiVersionsRequest::default()).unwrap();
            }
        }
        let process = tarn.process();
        wait::until(PROMPT * 5, "the fetches wait", || {
            // The connection that made the topic may have been counted.
            (process.sockets() >= before + 19)
                .then_some(())
                .ok_or("not all are connected".to_owned())
        });
        drop(clients);
        wait::until(PROMPT * 5, "every socket is given back", || {
            let now = process.sockets();
            (now <= before)
                .then_some(())
                .ok_or(format!("{now} of {before}"))
        });
    }
    tarn.check_healthy();
}

/// One request with very many elements takes its own time, not that of others; beyond
/// `request.max.elements` it is refused.
#[test]
fn one_long_request_does_not_stop_the_others() {
    let mut tarn = Tarn::start();
    create_topic(&tarn, "t", 1);
    let before = tarn.process().resident_bytes();
    let mut waiting = connect(&tarn);
    let again = partitions("t", std::iter::repeat_n(0, 99_000));
    send(&mut waiting, 11, &fetch(again, 30_000, -1)).unwrap();
    let one = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(-1)
        .with_timestamp(-1);
    let many = |count| {
        let topic = ListOffsetsTopic::default()
            .with_name(name("t"))
            .with_partitions(vec![one.clone(); count]);
        ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_topics(vec![topic])
    };
    let mut listing: Vec<RawClient> = (0..4).map(|_| connect(&tarn)).collect();
    for client in &mut listing {
        send(client, 4, &many(99_000)).unwrap();
    }
    for _ in 0..20 {
        let took = produce(&tarn, "t");
        assert!(took < PROMPT, "{took:?}");
    }
    for client in &mut listing {
        answer::<ListOffsetsRequest>(client, 4).unwrap();
    }
    let grown = tarn.process().resident_bytes().saturating_sub(before);
    assert!(grown < 100 * MIB, "{} MiB more", grown / MIB);
    let mut refused = connect(&tarn);
    send(&mut refused, 4, &many(100_001)).unwrap();
    assert!(refused.is_closed(PROMPT * 3).unwrap());
    let log = tarn.process().output();
    assert!(log.contains("request.max.elements"), "{log}");
    tarn.check_healthy();
}

/// A session has a longest list; a client with a longer one is served without a session.
#[test]
fn fetch_sessions_are_bounded() {
    let mut tarn = Tarn::start_with(&[("fetch.session.max.partitions", "500")]);
    create_topic(&tarn, "t", 1);
    let mut client = connect(&tarn);
    let unknown = |count| fetch(partitions("unknown", 0..count), 0, 0);
    let small = client.call(11, &unknown(500)).unwrap();
    assert!(small.session_id != 0);
    let large = client.call(11, &unknown(501)).unwrap();
    let told: usize = large.responses.iter().map(|t| t.partitions.len()).sum();
    assert_eq!((large.error_code, large.session_id, told), (0, 0, 501));
    let grow = fetch(partitions("more", 0..1), 0, 1).with_session_id(small.session_id);
    assert_eq!(client.call(11, &grow).unwrap().error_code, 70);
    tarn.check_healthy();
}

/// Answers that nobody reads are bounded for each connection.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let mut tarn = Tarn::start();
    create_topic(&tarn, "wide", 3_000);
    let before = tarn.process().resident_bytes();
    let all = MetadataRequest::default().with_topics(None);
    let mut lazy: Vec<RawClient> = (0..10).map(|_| connect(&tarn)).collect();
    for client in &mut lazy {
        for _ in 0..200 {
            send(client, 5, &all).unwrap();
        }
    }
    // As long as memory grows, the limit is not reached; it must not be passed.
    let mut last = 0;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(250));
        let grown = tarn.process().resident_bytes().saturating_sub(before);
        assert!(grown < 64 * MIB, "{} MiB more", grown / MIB);
        if grown.abs_diff(last) < MIB / 4 {
            break;
        }
        last = grown;
    }
    assert!(produce(&tarn, "wide") < PROMPT);
    tarn.check_healthy();
}

/// Refused requests cost a few lines of log a minute, however many there are.
#[test]
fn refused_requests_do_not_fill_the_log() {
    let mut tarn = Tarn::start();
    let before = tarn.process().output().len();
    let bad = [&12_i32.to_be_bytes()[..], &[0x7f; 12]].concat();
    for _ in 0..2_000 {
        connect(&tarn).send_bytes(&bad).ok();
    }
    let grown = tarn.process().output().len() - before;
    assert!(grown < 10_000, "{grown} bytes of log");
    tarn.check_healthy();
}

/// A broker key that is changed at run time is in force at once and after a restart; one that would
/// not be is refused.
#[test]
fn a_broker_key_takes_effect_at_once_or_is_refused() {
    let mut tarn = Tarn::start();
    create_topic(&tarn, "t", 1);
    let alter = |tarn: &Tarn, key: &'static str, value: &'static str| {
        let config = AlterableConfig::default()
            .with_name(StrBytes::from_static_str(key))
            .with_value(Some(StrBytes::from_static_str(value)));
        let all_brokers = AlterConfigsResource::default()
            .with_resource_type(4)
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![all_brokers]);
        connect(tarn).call(1, &request).unwrap().responses[0].error_code
    };
    assert_eq!(alter(&tarn, "fetch.wait.max.ms", "400"), 0);
    let waits = |tarn: &Tarn| {
        let started = Instant::now();
        let waiting = fetch(partitions("t", 0..1), 20_000, -1);
        assert_eq!(connect(tarn).call(11, &waiting).unwrap().error_code, 0);
        started.elapsed()
    };
    assert!(waits(&tarn) < Duration::from_secs(10));
    tarn.stop();
    tarn.restart();
    assert!(waits(&tarn) < Duration::from_secs(10));
    assert_eq!(alter(&tarn, "max.connections.per.ip", "3"), 0);
    let mut open: Vec<RawClient> = (0..3).map(|_| connect(&tarn)).collect();
    let refused = |client: &mut RawClient| client.call(0, &ApiVersionsRequest::default()).is_err();
    wait::until(PROMPT, "connections are capped", || {
        open.push(connect(&tarn));
        let last = open.last_mut().expect("just put");
        refused(last)
            .then_some(())
            .ok_or("one more was served".to_owned())
    });
    open.clear();
    for key in [
        "mirror.num.replica.fetchers",
        "num.io.threads",
        "ssl.keystore.location",
    ] {
        wait::until(PROMPT, "a place is free again", || {
            let served = !refused(&mut connect(&tarn));
            served.then_some(()).ok_or("refused".to_owned())
        });
        let code = alter(&tarn, key, "4");
        assert!(code == 40 || code == 42, "{key}: {code}");
    }
    tarn.check_healthy();
}
