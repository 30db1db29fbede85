//! Every announced API × version × error path answers. What is swept is what ApiVersions
//! says, which the server makes of its table of routes; requests are made from the schemas, with
//! values that are real, stale, deleted, unknown, empty and null.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, ResponseKind};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::raw::{self, PLAIN, RawClient};
use tarn_tests::schema::{self, Field, Message, Values};
use tarn_tests::tarn::Tarn;

/// Requests of each API, version and listener.
const ROUNDS: u64 = 60;
/// As [`ROUNDS`], for the mirror APIs: some of them ask the source.
const MIRROR_ROUNDS: u64 = 24;
/// First key of the mirror APIs.
const MIRROR_FROM: i16 = 94;
/// Failures that are told in full.
const TOLD_MAX: usize = 30;
/// Longest wait for one answer; some mirror APIs ask a source for 15 s.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const API_VERSIONS: i16 = 18;
/// A topic of the source that the node mirrors.
const MIRRORED: &str = "mirrored";

/// What exists on the node, for requests that name it.
#[derive(Debug, Clone, Default)]
struct World {
    topic_id: [u8; 16],
    gone_id: [u8; 16],
    epoch: i64,
    member: String,
    generation: i64,
    cluster: String,
}

/// Values by the name of the field.
struct Picker<'a> {
    world: &'a World,
    round: u64,
    state: u64,
}

impl Picker<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

impl Values for Picker<'_> {
    fn is_null(&mut self, field: &Field) -> bool {
        match self.round {
            0 => field.default.as_deref() == Some("null"),
            1 => true,
            _ => self.below(5) == 0,
        }
    }

    fn count(&mut self, _: &Field) -> usize {
        match self.round {
            0 | 1 => 0,
            2 => 1,
            _ => self.one(&[0, 1, 1, 1, 1, 2]),
        }
    }

    fn int(&mut self, field: &Field) -> i64 {
        let epoch = self.world.epoch;
        let generation = self.world.generation;
        let default = field.default.as_deref().unwrap_or("0");
        // Produce with acks=0 wants no answer.
        if self.round == 0 && field.name != "Acks" {
            return default.parse().unwrap_or(i64::from(default == "true"));
        }
        let values: &[i64] = match field.name.as_str() {
            "Partition" | "PartitionIndex" | "Index" | "PartitionId" | "Partitions"
            | "PartitionIndexes" => &[0, 0, 0, 1, 7, -1],
            "CurrentLeaderEpoch"
            | "LeaderEpoch"
            | "LastFetchedEpoch"
            | "MirrorLeaderEpoch"
            | "CommittedLeaderEpoch"
            | "MinLeaderEpoch" => &[-1, 0, epoch, epoch, 1000],
            "FetchOffset" | "Offset" | "CommittedOffset" => &[0, 0, 1, 2, -1, 1000],
            "Timestamp" => &[-1, -2, -3, -4, -5, -6, 0, 5_000_000_000_000, -99],
            "MaxWaitMs" => &[0, 20],
            // The budget of a change; a negative one is a request of its own kind.
            "TimeoutMs" | "timeoutMs" => &[1000, 1000, 0, -1],
            "MinBytes" => &[0, 1, 1000],
            "MaxBytes" | "PartitionMaxBytes" => &[1 << 20, 1 << 20, 1, 0, -1],
            "SessionId" => &[0, 0, 77],
            "SessionEpoch" => &[-1, -1, 0, 5],
            "Acks" => &[1, -1, -1, 7],
            "SessionTimeoutMs" => &[6000, 1],
            "RebalanceTimeoutMs" => &[100, 0],
            "GenerationId" | "GenerationIdOrMemberEpoch" => &[-1, generation, generation, 99],
            "ResourceType" => &[2, 2, 4, 4, 8, 16, 32, 64, 0, 1, 99],
            "ConfigOperation" => &[0, 1, 2, 3, 9],
            "Count" => &[1, 2, 3, 0],
            "NumPartitions" | "ReplicationFactor" => &[-1, 1, 3, 0],
            "BrokerId" | "BrokerIds" => &[9, 1, -1],
            "KeyType" | "EndpointType" | "ElectionType" | "IsolationLevel" | "UpgradeType" => {
                &[0, 1, 2, 9, -1]
            }
            // Never one that takes the node's own features away.
            "MaxVersionLevel" => &[99, -1, 1],
            "ResponsePartitionLimit" => &[2000, 1, 0, -1],
            _ => &[0, 1, 1, -1, 2],
        };
        self.one(values)
    }

    fn text(&mut self, field: &Field) -> String {
        if self.round == 0 {
            return field.default.clone().unwrap_or_default();
        }
        let owner_says = |word: &str| field.owner.contains(word);
        // The read-only topic is never deleted: it must be there for all requests.
        let mirrored = if owner_says("Delete") || field.name == "TopicNames" {
            "swept"
        } else {
            MIRRORED
        };
        let topics = ["swept", "swept", mirrored, "gone", "never", "", "bad name!"];
        let world = self.world;
        let values: &[&str] = match field.name.as_str() {
            "Name" if owner_says("Config") => &["retention.ms", "cleanup.policy", "bogus", ""],
            "Name" if owner_says("Protocol") => &["range", "x"],
            "ConfigurationKeys" | "ConfigNames" => &["retention.ms", "bogus"],
            "Value" => &["1000", "x", ""],
            "Name" | "Topic" | "TopicName" | "Topics" | "TopicNames" | "StoppedTopics"
            | "RemovedTopics" => &topics,
            "GroupId" | "Group" | "Groups" | "GroupsNames" | "Key" | "CoordinatorKeys" => {
                &["g", "g", "never", ""]
            }
            "MemberId" => &[&world.member, &world.member, "", "bogus"],
            "MirrorName" | "MirrorNames" => &["m", "m", "never", "", "bad name!"],
            "ResourceName" => &["swept", "swept", "1", "", "9", "m", "g", "never"],
            "ProtocolType" => &["consumer", "consumer", "x", ""],
            "ProtocolName" => &["range", "x"],
            "StatesFilter" => &["Stable", "Empty", "x"],
            "TypesFilter" => &["classic", "consumer", "x"],
            "Patterns" | "IncludePatterns" | "ExcludePatterns" => &["swe.*", "nothing", "("],
            "Feature" => &["bogus", "kraft.version"],
            "ClusterId" => &[&world.cluster, "bogus"],
            "ClientSoftwareName" | "ClientSoftwareVersion" => &["sweep", "sweep", "bad name!"],
            _ => &["x", ""],
        };
        self.one(values).to_owned()
    }

    fn bytes(&mut self, field: &Field) -> Bytes {
        if field.name != "Records" {
            return self.one(&[Bytes::new(), Bytes::from_static(b"\0\0\0\0\0\0")]);
        }
        let batch = raw::batch(PLAIN, &["a value"]);
        let cut = batch.slice(..batch.len() - 3);
        self.one(&[batch.clone(), batch, cut, Bytes::new()])
    }

    fn id(&mut self, _: &Field) -> [u8; 16] {
        let (id, gone) = (self.world.topic_id, self.world.gone_id);
        self.one(&[id, id, id, gone, [7; 16], [0; 16]])
    }

    fn has_tagged(&mut self, _: &Field) -> bool {
        self.round > 0 && self.below(2) == 0
    }
}

/// Values by name for one certain request; everything else has its default, and lists one element.
struct Fixed<'a>(&'a [(&'a str, &'a str)], Bytes, [u8; 16]);

impl Fixed<'_> {
    fn of(&self, field: &Field) -> Option<&str> {
        let here = self.0.iter().find(|(name, _)| *name == field.name);
        here.map(|(_, value)| *value)
    }
}

impl Values for Fixed<'_> {
    fn is_null(&mut self, field: &Field) -> bool {
        self.of(field) == Some("null")
            || (self.of(field).is_none() && field.default.as_deref() == Some("null"))
    }

    fn count(&mut self, field: &Field) -> usize {
        usize::from(self.of(field) != Some("none"))
    }

    fn int(&mut self, field: &Field) -> i64 {
        let text = self.of(field).or(field.default.as_deref()).unwrap_or("0");
        text.parse().unwrap_or(i64::from(text == "true"))
    }

    fn text(&mut self, field: &Field) -> String {
        let text = self.of(field).or(field.default.as_deref());
        text.unwrap_or_default().to_owned()
    }

    fn bytes(&mut self, _: &Field) -> Bytes {
        self.1.clone()
    }

    fn id(&mut self, _: &Field) -> [u8; 16] {
        self.2
    }

    fn has_tagged(&mut self, field: &Field) -> bool {
        self.of(field).is_some()
    }
}

/// One listener of the node.
struct Listener<'a> {
    name: &'static str,
    port: u16,
    messages: &'a BTreeMap<String, Message>,
    client: Option<RawClient>,
}

impl Listener<'_> {
    /// Sends a body and gives the body of the answer. A connection that fails is not used again.
    fn exchange(&mut self, request: &Message, version: i16, body: &[u8]) -> Result<Bytes> {
        let key = request.key.context("a request has a key")?;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => RawClient::connect(self.port)?,
        };
        client.set_read_limit(ANSWER_MAX)?;
        let header = if request.is_flexible(version) { 2 } else { 1 };
        let tagged = request.is_flexible(version) && key != API_VERSIONS;
        let answer = client.call_body(key, version, body, header, i16::from(tagged))?;
        self.client = Some(client);
        Ok(answer)
    }

    /// As [`Listener::exchange`], and the answer must be one of that version: for our own reader of
    /// the schemas, and for the `kafka-protocol` crate where it knows the version. Gives its error
    /// codes.
    fn ask(&mut self, request: &Message, version: i16, body: &[u8]) -> Result<Vec<i16>> {
        let answer = self.exchange(request, version, body)?;
        let codes = self.read(request, version, &answer)?;
        let known = request.key.and_then(|key| ApiKey::try_from(key).ok());
        if let Some(key) = known.filter(|key| {
            let range = key.valid_versions();
            range.min <= version && version <= range.max
        }) {
            let mut rest = answer.clone();
            ResponseKind::decode(key, &mut rest, version)
                .with_context(|| format!("kafka-protocol on {answer:02x?}"))?;
            ensure!(
                rest.is_empty(),
                "kafka-protocol leaves {} bytes",
                rest.len()
            );
        }
        Ok(codes)
    }

    /// Error codes of an answer. A body of a mirror API may be one of several dialects, and is
    /// answered in the first that fits.
    fn read(&self, request: &Message, version: i16, answer: &Bytes) -> Result<Vec<i16>> {
        let own = request.name.replace("Request", "Response");
        let codes = self.messages[&own].read(version, answer.clone());
        let dialects = self.messages.values().filter(|other| {
            other.key == request.key
                && other.key >= Some(MIRROR_FROM)
                && other.name.ends_with("Response")
        });
        codes
            .or_else(|error| {
                let mut read = dialects.map(|other| other.read(version, answer.clone()));
                read.find_map(Result::ok).ok_or(error)
            })
            .with_context(|| format!("answer {answer:02x?}"))
    }

    fn fixed(&mut self, name: &str, version: i16, values: Fixed<'_>) -> (Vec<i16>, Bytes) {
        let request = &self.messages[name];
        let mut values = values;
        let body = request.body(version, &mut values);
        let answer = self
            .exchange(request, version, &body)
            .unwrap_or_else(|e| panic!("{name} v{version} of the fixture: {e:#}"));
        let response = name.replace("Request", "Response");
        let codes = self.messages[&response].read(version, answer.clone());
        (codes.unwrap(), answer)
    }
}

/// Makes what the requests name, again where a request took it away.
fn restore(broker: &mut Listener<'_>, world: &mut World, source: &str) {
    let none = || (Bytes::new(), [0; 16]);
    let fixed = |broker: &mut Listener<'_>, name: &str, version: i16, values: &[(&str, &str)]| {
        let (bytes, id) = none();
        broker.fixed(name, version, Fixed(values, bytes, id))
    };
    for stray in ["never", "gone", "x"] {
        fixed(
            broker,
            "DeleteTopicsRequest",
            5,
            &[("TopicNames", stray), ("TimeoutMs", "9000")],
        );
    }
    create(broker, "swept");
    if world.gone_id == [0; 16] {
        create(broker, "gone");
        (world.gone_id, _, _) = look_up(broker.port, "gone");
        fixed(
            broker,
            "DeleteTopicsRequest",
            5,
            &[("TopicNames", "gone"), ("TimeoutMs", "9000")],
        );
    }
    (world.topic_id, world.epoch, world.cluster) = look_up(broker.port, "swept");
    let produce = [("Name", "swept"), ("Acks", "-1"), ("TimeoutMs", "9000")];
    let batch = raw::batch(PLAIN, &["one", "two"]);
    broker.fixed("ProduceRequest", 9, Fixed(&produce, batch, [0; 16]));
    restore_group(broker, world);
    let mirror = [
        ("MirrorName", "m"),
        ("Name", "bootstrap.servers"),
        ("Value", source),
        ("AllowUnreachable", "true"),
    ];
    fixed(broker, "CreateMirrorRequest", 0, &mirror);
}

/// Creates a topic of two partitions, unless it is there.
fn create(broker: &mut Listener<'_>, name: &str) {
    let values = [
        ("Name", name),
        ("NumPartitions", "2"),
        ("ReplicationFactor", "1"),
        ("Assignments", "none"),
        ("Configs", "none"),
        ("timeoutMs", "9000"),
    ];
    let values = Fixed(&values, Bytes::new(), [0; 16]);
    broker.fixed("CreateTopicsRequest", 5, values);
}

/// Id and leader epoch of a topic, and the id of the cluster.
fn look_up(port: u16, topic: &str) -> ([u8; 16], i64, String) {
    use kafka_protocol::messages::{MetadataRequest, TopicName, metadata_request};
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let wanted = metadata_request::MetadataRequestTopic::default().with_name(Some(name));
    let request = MetadataRequest::default().with_topics(Some(vec![wanted]));
    let mut client = RawClient::connect(port).unwrap();
    let answer = client.call(12, &request).unwrap();
    let topic = &answer.topics[0];
    let epoch = topic.partitions.first().map_or(-1, |p| p.leader_epoch);
    let cluster = answer.cluster_id.map(|id| id.to_string());
    (
        *topic.topic_id.as_bytes(),
        i64::from(epoch),
        cluster.unwrap_or_default(),
    )
}

/// A group `g` with one member whose session is long, and with one committed offset.
fn restore_group(broker: &mut Listener<'_>, world: &mut World) {
    use kafka_protocol::messages::{
        FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest,
        SyncGroupRequest, join_group_request::JoinGroupRequestProtocol,
        offset_commit_request as commit, sync_group_request::SyncGroupRequestAssignment,
    };
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let mut client = RawClient::connect(broker.port).unwrap();
    let group = || kafka_protocol::messages::GroupId(text("g"));
    let beat = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(world.generation as i32)
        .with_member_id(text(&world.member));
    if !world.member.is_empty() && client.call(3, &beat).unwrap().error_code == 0 {
        return;
    }
    // The first one to ask makes the topic of the groups.
    let find = FindCoordinatorRequest::default().with_key(text("g"));
    client.call(3, &find).unwrap();
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(300_000)
        .with_rebalance_timeout_ms(500)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    // Members that other requests left behind go when they miss the rebalance.
    let joined =
        tarn_tests::wait::until(Duration::from_secs(60), "the group takes a member", || {
            let joined = client.call(3, &join).map_err(|e| format!("{e:#}"))?;
            let assignment =
                SyncGroupRequestAssignment::default().with_member_id(joined.member_id.clone());
            let sync = SyncGroupRequest::default()
                .with_group_id(group())
                .with_generation_id(joined.generation_id)
                .with_member_id(joined.member_id.clone())
                .with_assignments(vec![assignment]);
            match (
                joined.error_code,
                client.call(2, &sync).map(|s| s.error_code),
            ) {
                (0, Ok(0)) => Ok(joined),
                other => Err(format!("{other:?}")),
            }
        });
    world.member = joined.member_id.to_string();
    world.generation = i64::from(joined.generation_id);
    let partition = commit::OffsetCommitRequestPartition::default().with_committed_offset(1);
    let topic = commit::OffsetCommitRequestTopic::default()
        .with_name(kafka_protocol::messages::TopicName(text("swept")))
        .with_partitions(vec![partition]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(joined.generation_id)
        .with_member_id(joined.member_id)
        .with_topics(vec![topic]);
    client.call(6, &commit).unwrap();
}

/// What a sweep saw.
#[derive(Default)]
struct Account {
    asked: usize,
    pairs: BTreeSet<(&'static str, i16, i16)>,
    failures: Vec<String>,
    /// Error codes by API, to see that error paths were taken.
    codes: BTreeMap<i16, BTreeSet<i16>>,
}

fn sweep_version(
    listener: &mut Listener<'_>,
    world: &World,
    request: &Message,
    version: i16,
    account: &mut Account,
) {
    let key = request.key.unwrap_or(-1);
    let rounds = if key >= MIRROR_FROM {
        MIRROR_ROUNDS
    } else {
        ROUNDS
    };
    for round in 0..rounds {
        let seed = (key as u64) << 32 | (version as u64) << 16 | round;
        let mut values = Picker {
            world,
            round,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        let body = request.body(version, &mut values);
        account.asked += 1;
        match listener.ask(request, version, &body) {
            Ok(codes) if codes.contains(&-1) => account.failures.push(format!(
                "{} {} v{version} round {round}: UNKNOWN_SERVER_ERROR, body {body:02x?}",
                listener.name, request.name
            )),
            Ok(codes) => account.codes.entry(key).or_default().extend(codes),
            Err(error) => account.failures.push(format!(
                "{} {} v{version} round {round}: {error:#}, body {body:02x?}",
                listener.name, request.name
            )),
        }
    }
    account.pairs.insert((listener.name, key, version));
}

#[test]
fn every_announced_version_answers_on_every_error_path() {
    let messages = schema::load().unwrap();
    let source = Tarn::start();
    let mut tarn = Tarn::start();
    let [broker_port, controller_port] = tarn.ports();
    let listener = |name, port| Listener {
        name,
        port,
        messages: &messages,
        client: None,
    };
    let mut world = World::default();
    let mut broker = listener("broker", broker_port);
    create(&mut listener("source", source.port()), MIRRORED);
    restore(&mut broker, &mut world, &source.bootstrap());
    tarn.add_topics("m", MIRRORED);
    // After a restart the epochs that a client knows are stale.
    tarn.stop();
    tarn.restart();
    let mut account = Account::default();
    let mut announced = BTreeSet::new();
    let mut control = listener("broker", broker_port);
    for mut listener in [
        listener("broker", broker_port),
        listener("controller", controller_port),
    ] {
        for (key, (min, max)) in raw::api_versions_as(listener.port, "apache-kafka-java").unwrap() {
            announced.extend((min..=max).map(|version| (listener.name, key, version)));
            // A key of the mirrors has a body for each dialect.
            for request in messages
                .values()
                .filter(|message| message.key == Some(key) && message.name.ends_with("Request"))
            {
                for version in min..=max {
                    if !request.versions.contains(version) {
                        continue;
                    }
                    restore(&mut control, &mut world, &source.bootstrap());
                    sweep_version(&mut listener, &world, request, version, &mut account);
                }
            }
        }
    }
    tarn.check_healthy();
    let log = tarn.process().output();
    assert_eq!(account.pairs, announced, "not swept, or swept in vain");
    let mirrors = announced.iter().filter(|(_, key, _)| *key >= MIRROR_FROM);
    assert!(
        mirrors.count() > 10 && announced.len() > 250,
        "{announced:?}"
    );
    // One failure of each version says enough.
    let mut told = BTreeMap::new();
    for failure in &account.failures {
        let version = failure.split(" round ").next().unwrap_or_default();
        told.entry(version).or_insert(failure);
    }
    let told: Vec<_> = told.values().take(TOLD_MAX).map(|t| t.as_str()).collect();
    assert!(
        account.failures.is_empty(),
        "{} of {} requests:\n{}",
        account.failures.len(),
        account.asked,
        told.join("\n")
    );
    assert!(!log.contains("could not be encoded"), "the log tells of it");
    for (key, code) in [
        (1, 3),
        (1, 74),
        (1, 75),
        (1, 100),
        (2, 3),
        (2, 74),
        (3, 3),
        (0, 35),
        (0, 44),
    ] {
        assert!(
            account.codes[&key].contains(&code),
            "{key} never told {code}"
        );
    }
    println!("{} requests, {} versions", account.asked, announced.len());
}
