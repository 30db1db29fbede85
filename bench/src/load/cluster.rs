//! What the generator asks of a cluster before and after a run, by the Kafka protocol: versions,
//! topics and their leaders, new topics, offsets.
//!
//! One connection a call, blocking; none of it happens while something is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::metadata_request::MetadataRequestTopic;
use tarn_wire::messages::{
    ApiVersionsRequest, CreateTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest,
};
use tarn_wire::{
    ApiKey, Message, Request, Str, Uuid, VersionRange, decode_exact, decode_response_header,
    request_frame, response_header_version,
};

/// What the generator calls itself.
pub(crate) const CLIENT_ID: &str = "tarn-bench";
/// Longest time for one call.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Longest time until a new topic has leaders.
const LEADERS_LIMIT: Duration = Duration::from_secs(60);
const LEADERS_PAUSE: Duration = Duration::from_millis(20);
/// Largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Produce names topics up to here.
const PRODUCE: VersionRange = VersionRange::new(9, 12);
/// Fetch is read in its flexible versions; 13 and later name topics by id.
const FETCH: VersionRange = VersionRange::new(12, 17);

/// A cluster to work against.
#[derive(Clone, Debug)]
pub struct Cluster {
    bootstrap: SocketAddr,
    versions: Vec<(ApiKey, VersionRange)>,
}

/// A topic and where its partitions are led.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero where the broker gave none.
    pub id: Uuid,
    /// Address of the leader by partition.
    pub leaders: Vec<SocketAddr>,
}

/// Which end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log start.
    Earliest,
    /// The high watermark.
    Latest,
}

impl Cluster {
    /// Asks the broker at `bootstrap` (`host:port`) what it speaks.
    ///
    /// # Errors
    /// Nobody answers there.
    pub fn connect(bootstrap: &str) -> Result<Self> {
        let bootstrap = resolve(bootstrap)?;
        let answer = call(bootstrap, 0, &ApiVersionsRequest::default())?;
        ensure!(
            answer.error_code == 0,
            "ApiVersions of {bootstrap} answers error {}",
            answer.error_code
        );
        let versions = answer
            .api_keys
            .iter()
            .map(|a| {
                (
                    ApiKey(a.api_key),
                    VersionRange::new(a.min_version, a.max_version),
                )
            })
            .collect();
        Ok(Self {
            bootstrap,
            versions,
        })
    }

    /// The highest version of `R` that both sides know, within `ours`.
    fn version<R: Request>(&self, ours: VersionRange) -> Result<i16> {
        let theirs = self.versions.iter().find(|(key, _)| *key == R::KEY);
        theirs
            .and_then(|(_, theirs)| theirs.highest_common(ours))
            .ok_or_else(|| {
                anyhow!(
                    "{} does not serve {} in versions {} to {}",
                    self.bootstrap,
                    R::NAME,
                    ours.min,
                    ours.max
                )
            })
    }

    fn call<R: Request>(&self, ours: VersionRange, request: &R) -> Result<R::Response> {
        call(self.bootstrap, self.version::<R>(ours)?, request)
    }

    /// Version of Produce to use.
    pub(crate) fn produce_version(&self) -> Result<i16> {
        self.version::<ProduceRequest>(PRODUCE)
    }

    /// Version of Fetch to use.
    pub(crate) fn fetch_version(&self) -> Result<i16> {
        self.version::<FetchRequest>(FETCH)
    }

    /// Creates a topic with one replica and waits until every partition has a leader.
    ///
    /// # Errors
    /// The cluster refuses, or no leader comes.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<Topic> {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: Str::from((*name).to_owned()),
            value: Some(Str::from((*value).to_owned())),
            ..Default::default()
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name.to_owned()),
                num_partitions: partitions,
                replication_factor: 1,
                configs: configs.collect(),
                ..Default::default()
            }],
            timeout_ms: CALL_LIMIT.as_millis() as i32,
            ..Default::default()
        };
        let answer = self.call(CreateTopicsRequest::VERSIONS, &request)?;
        for topic in &answer.topics {
            ensure!(
                topic.error_code == 0,
                "topic {name} cannot be created: error {} {}",
                topic.error_code,
                topic.error_message.as_ref().map_or("", Str::as_str)
            );
        }
        let deadline = Instant::now() + LEADERS_LIMIT;
        loop {
            match self.served(name, partitions) {
                Ok(topic) => return Ok(topic),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(LEADERS_PAUSE),
            }
        }
    }

    /// The topic, once each of its leaders serves it: a broker may know a leader before that one
    /// has opened the partition.
    fn served(&self, name: &str, partitions: i32) -> Result<Topic> {
        let topic = self.topic(name)?;
        let known = topic.leaders.len();
        ensure!(
            known == partitions.max(0) as usize,
            "{name} has {known} partitions so far"
        );
        self.offsets(&topic, End::Latest)?;
        Ok(topic)
    }

    /// Looks a topic up.
    ///
    /// # Errors
    /// It does not exist, or a partition has no leader.
    pub fn topic(&self, name: &str) -> Result<Topic> {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(Str::from(name.to_owned())),
                ..Default::default()
            }]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let answer = self.call(MetadataRequest::VERSIONS, &request)?;
        let Some(topic) = answer.topics.first() else {
            bail!("{} knows nothing of topic {name}", self.bootstrap)
        };
        ensure!(
            topic.error_code == 0,
            "topic {name} at {}: error {}",
            self.bootstrap,
            topic.error_code
        );
        let mut leaders = vec![None; topic.partitions.len()];
        for partition in &topic.partitions {
            let broker = answer
                .brokers
                .iter()
                .find(|b| b.node_id == partition.leader_id)
                .ok_or_else(|| anyhow!("{name}-{} has no leader", partition.partition_index))?;
            let address = resolve(&format!("{}:{}", broker.host.as_str(), broker.port))?;
            *leaders
                .get_mut(partition.partition_index.max(0) as usize)
                .ok_or_else(|| anyhow!("partitions of {name} are not numbered from 0"))? =
                Some(address);
        }
        let leaders: Option<Vec<SocketAddr>> = leaders.into_iter().collect();
        Ok(Topic {
            name: name.to_owned(),
            id: topic.topic_id,
            leaders: leaders.ok_or_else(|| anyhow!("partitions of {name} are missing"))?,
        })
    }

    /// Offsets of one end of every partition.
    ///
    /// # Errors
    /// A partition answers an error.
    pub fn offsets(&self, topic: &Topic, end: End) -> Result<Vec<i64>> {
        let mut offsets = vec![-1; topic.leaders.len()];
        let mut brokers: Vec<SocketAddr> = topic.leaders.clone();
        brokers.sort();
        brokers.dedup();
        let version = self.version::<ListOffsetsRequest>(VersionRange::new(1, 10))?;
        for broker in brokers {
            let mine = (0_i32..).zip(&topic.leaders).filter(|(_, l)| **l == broker);
            let partitions = mine.map(|(index, _)| ListOffsetsPartition {
                partition_index: index,
                timestamp: match end {
                    End::Earliest => -2,
                    End::Latest => -1,
                },
                ..Default::default()
            });
            let request = ListOffsetsRequest {
                replica_id: -1,
                topics: vec![ListOffsetsTopic {
                    name: Str::from(topic.name.clone()),
                    partitions: partitions.collect(),
                    ..Default::default()
                }],
                ..Default::default()
            };
            let answer = call(broker, version, &request)?;
            for partition in answer.topics.iter().flat_map(|t| &t.partitions) {
                let index = partition.partition_index;
                ensure!(
                    partition.error_code == 0,
                    "offset of {}-{index}: error {}",
                    topic.name,
                    partition.error_code
                );
                if let Some(place) = offsets.get_mut(index.max(0) as usize) {
                    *place = partition.offset;
                }
            }
        }
        Ok(offsets)
    }
}

fn resolve(address: &str) -> Result<SocketAddr> {
    address
        .to_socket_addrs()
        .with_context(|| format!("{address} is no host:port"))?
        .next()
        .ok_or_else(|| anyhow!("{address} has no address"))
}

/// One request on a connection of its own.
fn call<R: Request>(broker: SocketAddr, version: i16, request: &R) -> Result<R::Response> {
    let what = || format!("{} to {broker}", R::NAME);
    let mut stream = TcpStream::connect(broker).with_context(what)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CALL_LIMIT))?;
    let frame = request_frame(1, Some(CLIENT_ID), version, request).with_context(what)?;
    let bytes = frame
        .to_bytes()
        .ok_or_else(|| anyhow!("a request in a file"))?;
    stream.write_all(&bytes).with_context(what)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).with_context(what)?;
    let length = usize::try_from(i32::from_be_bytes(length))
        .ok()
        .filter(|l| *l <= ANSWER_BYTES_MAX)
        .ok_or_else(|| anyhow!("answer with a bad length"))
        .with_context(what)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).with_context(what)?;
    let (_, body) =
        decode_response_header(Bytes::from(answer), response_header_version::<R>(version))
            .with_context(what)?;
    decode_exact(body, version).with_context(what)
}
