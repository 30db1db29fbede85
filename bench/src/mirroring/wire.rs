//! The few requests that the mirror scenarios send themselves: create topics, log ends of many
//! partitions at once, records to many partitions. One blocking connection each; no retries beyond
//! what a fresh topic needs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, ListOffsetsRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use tarn_tests::raw::RawClient;

const CREATE_TOPICS_VERSION: i16 = 5;
const LIST_OFFSETS_VERSION: i16 = 7;
/// The last version before topic ids.
const PRODUCE_VERSION: i16 = 9;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LEADER_NOT_AVAILABLE: i16 = 5;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const TOPIC_ALREADY_EXISTS: i16 = 36;
const LATEST: i64 = -1;
/// Creating thousands of partitions takes a Java broker a while.
const CREATE_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// A topic and its number of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many partitions it has.
    pub partitions: i32,
}

impl Topic {
    /// A topic of `partitions` partitions.
    #[must_use]
    pub fn new(name: impl Into<String>, partitions: i32) -> Self {
        Self {
            name: name.into(),
            partitions,
        }
    }
}

/// How many partitions `topics` have together.
#[must_use]
pub fn partitions_of(topics: &[Topic]) -> i32 {
    topics.iter().map(|topic| topic.partitions).sum()
}

fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Creates `topics` with one replica each; one that is there already is left as it is.
///
/// # Errors
/// The broker refuses, or does not answer in time.
pub fn create_topics(port: u16, topics: &[Topic], configs: &[(&str, &str)]) -> Result<()> {
    let wanted = topics
        .iter()
        .map(|topic| {
            let configs = configs.iter().map(|(name, value)| {
                CreatableTopicConfig::default()
                    .with_name(StrBytes::from_string((*name).to_owned()))
                    .with_value(Some(StrBytes::from_string((*value).to_owned())))
            });
            CreatableTopic::default()
                .with_name(topic_name(&topic.name))
                .with_num_partitions(topic.partitions)
                .with_replication_factor(1)
                .with_configs(configs.collect())
        })
        .collect();
    let limit_ms = i32::try_from(CREATE_LIMIT.as_millis())?;
    let request = CreateTopicsRequest::default()
        .with_topics(wanted)
        .with_timeout_ms(limit_ms);
    let mut client = RawClient::connect(port)?;
    client.set_read_limit(CREATE_LIMIT)?;
    let answer = client.call(CREATE_TOPICS_VERSION, &request)?;
    for topic in answer.topics {
        ensure!(
            [0, TOPIC_ALREADY_EXISTS].contains(&topic.error_code),
            "topic {} cannot be created: error {} {:?}",
            topic.name.0,
            topic.error_code,
            topic.error_message
        );
    }
    // Created is not led yet.
    let deadline = Instant::now() + CREATE_LIMIT;
    while led_log_ends(&mut client, topics)?.contains(&None) {
        ensure!(
            Instant::now() < deadline,
            "new topics have no leader after {CREATE_LIMIT:?}"
        );
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Log ends of all partitions of `topics`, topic by topic in their order; a partition that is not
/// there yet counts as 0.
///
/// # Errors
/// The broker does not answer, or refuses for another reason.
pub fn log_ends(client: &mut RawClient, topics: &[Topic]) -> Result<Vec<i64>> {
    let ends = led_log_ends(client, topics)?;
    Ok(ends.into_iter().map(Option::unwrap_or_default).collect())
}

/// As [`log_ends`]; `None` for a partition that is not there or has no leader.
fn led_log_ends(client: &mut RawClient, topics: &[Topic]) -> Result<Vec<Option<i64>>> {
    let wanted = topics
        .iter()
        .map(|topic| {
            let partitions = (0..topic.partitions).map(|p| {
                ListOffsetsPartition::default()
                    .with_partition_index(p)
                    .with_current_leader_epoch(-1)
                    .with_timestamp(LATEST)
            });
            ListOffsetsTopic::default()
                .with_name(topic_name(&topic.name))
                .with_partitions(partitions.collect())
        })
        .collect();
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(wanted);
    let answer = client.call(LIST_OFFSETS_VERSION, &request)?;
    let mut ends = Vec::new();
    for topic in topics {
        let mut of_topic = vec![None; usize::try_from(topic.partitions)?];
        let found = answer.topics.iter().filter(|t| *t.name.0 == *topic.name);
        for partition in found.flat_map(|t| &t.partitions) {
            let absent = [
                UNKNOWN_TOPIC_OR_PARTITION,
                LEADER_NOT_AVAILABLE,
                NOT_LEADER_OR_FOLLOWER,
            ]
            .contains(&partition.error_code);
            ensure!(
                absent || partition.error_code == 0,
                "log end of {}-{}: error {}",
                topic.name,
                partition.partition_index,
                partition.error_code
            );
            let at = usize::try_from(partition.partition_index)?;
            if let Some(end) = of_topic.get_mut(at) {
                *end = (!absent).then_some(partition.offset.max(0));
            }
        }
        ends.extend(of_topic);
    }
    Ok(ends)
}

/// One batch of `values`, created now.
///
/// # Errors
/// It cannot be encoded.
pub fn batch(values: &[Bytes], compression: Compression) -> Result<Bytes> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let timestamp = i64::try_from(now)?;
    let records: Vec<Record> = (0_i32..)
        .zip(values)
        .map(|(i, value)| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: i64::from(i),
            sequence: i - 1,
            timestamp,
            key: None,
            value: Some(value.clone()),
            headers: Default::default(),
        })
        .collect();
    let mut out = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression,
    };
    RecordBatchEncoder::encode(&mut out, records.iter(), &options)?;
    Ok(out.freeze())
}

fn produce_request(topic: &str, batches: Vec<(i32, Bytes)>, acks: i16) -> ProduceRequest {
    let data = batches.into_iter().map(|(partition, batch)| {
        PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch))
    });
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(data.collect());
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

/// Produces one batch to each of several partitions and waits for the leader's word (acks=1).
///
/// # Errors
/// The broker is gone or refuses a batch.
pub fn produce(client: &mut RawClient, topic: &str, batches: Vec<(i32, Bytes)>) -> Result<()> {
    acknowledged(client, topic, &produce_request(topic, batches, 1))
}

/// Produces one batch and waits until it is as safe as the broker makes it (acks=all).
///
/// # Errors
/// The broker is gone or refuses the batch.
pub fn produce_safely(
    client: &mut RawClient,
    topic: &str,
    partition: i32,
    batch: Bytes,
) -> Result<()> {
    acknowledged(
        client,
        topic,
        &produce_request(topic, vec![(partition, batch)], -1),
    )
}

fn acknowledged(client: &mut RawClient, topic: &str, request: &ProduceRequest) -> Result<()> {
    let answer = client.call(PRODUCE_VERSION, request)?;
    for partition in answer.responses.iter().flat_map(|t| &t.partition_responses) {
        ensure!(
            partition.error_code == 0,
            "produce to {topic}-{}: error {}",
            partition.index,
            partition.error_code
        );
    }
    Ok(())
}

/// Sends without an answer (acks=0): the broker closes the connection when it refuses, and the next
/// send fails.
///
/// # Errors
/// The connection is closed.
pub fn send(client: &mut RawClient, topic: &str, batches: Vec<(i32, Bytes)>) -> Result<()> {
    let mut body = BytesMut::new();
    produce_request(topic, batches, 0).encode(&mut body, PRODUCE_VERSION)?;
    let header = ProduceRequest::header_version(PRODUCE_VERSION);
    client
        .send_body(0, PRODUCE_VERSION, &body, header)
        .context("the broker closed the connection of a producer")
}
