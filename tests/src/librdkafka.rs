//! Owns reading and writing with librdkafka, the client of most languages.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use crate::records::canonical;

const CALL_LIMIT: Duration = Duration::from_secs(20);

fn config(bootstrap: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("broker.address.family", "v4");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config
}

/// Reads one partition from its start to the end that the broker names now, in canonical form.
///
/// # Errors
/// What librdkafka reports, or no end within `limit`.
pub fn consume(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    committed: bool,
    limit: Duration,
) -> Result<Vec<String>> {
    let isolation = if committed {
        "read_committed"
    } else {
        "read_uncommitted"
    };
    let settings = [
        ("group.id", "tarn-test-assign"),
        ("enable.auto.commit", "false"),
        ("isolation.level", isolation),
        ("enable.partition.eof", "true"),
        ("fetch.message.max.bytes", "33554432"),
        ("fetch.max.bytes", "67108864"),
        ("receive.message.max.bytes", "134217728"),
        ("check.crcs", "true"),
    ];
    let consumer: BaseConsumer = config(bootstrap, &settings).create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Beginning)?;
    consumer.assign(&list)?;
    let deadline = Instant::now() + limit;
    let mut out = Vec::new();
    while Instant::now() < deadline {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => out.push(text(&message)),
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => return Ok(out),
            Some(Err(e)) => {
                return Err(e).with_context(|| format!("{topic}-{partition} on {bootstrap}"));
            }
            None => {}
        }
    }
    bail!(
        "{topic}-{partition} on {bootstrap}: no end within {limit:?}, {} records read",
        out.len()
    )
}

/// Joins group `group`, reads until `count` records came, commits, leaves. Gives the records in
/// canonical form.
///
/// # Errors
/// What librdkafka reports, or too few records within `limit`.
pub fn subscribe(
    bootstrap: &str,
    group: &str,
    topic: &str,
    count: usize,
    limit: Duration,
) -> Result<Vec<String>> {
    let settings = [
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
        ("session.timeout.ms", "10000"),
    ];
    let consumer: BaseConsumer = config(bootstrap, &settings).create()?;
    consumer.subscribe(&[topic])?;
    let deadline = Instant::now() + limit;
    let mut out = Vec::new();
    while out.len() < count {
        if Instant::now() > deadline {
            bail!(
                "{} of {count} records of {topic} came within {limit:?}",
                out.len()
            );
        }
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => out.push(text(&message)),
            Some(Err(e)) => return Err(e).with_context(|| format!("group {group} on {bootstrap}")),
            None => {}
        }
    }
    consumer.commit_consumer_state(rdkafka::consumer::CommitMode::Sync)?;
    Ok(out)
}

fn text(message: &BorrowedMessage<'_>) -> String {
    let headers: Vec<(String, Option<Vec<u8>>)> = message
        .headers()
        .into_iter()
        .flat_map(|h| {
            h.iter()
                .map(|x| (x.key.to_owned(), x.value.map(<[u8]>::to_vec)))
        })
        .collect();
    canonical(
        message.partition(),
        message.offset(),
        message.timestamp().to_millis().unwrap_or(-1),
        message.key(),
        message.payload(),
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref())),
    )
}

/// Collects what became of each record.
#[derive(Debug, Default)]
struct Deliveries(std::sync::Mutex<Vec<Result<i64, String>>>);

impl ClientContext for Deliveries {}
impl ConsumerContext for Deliveries {}
impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &rdkafka::message::DeliveryResult<'_>, (): ()) {
        let one = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        };
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(one);
    }
}

/// Produces `values` one after the other to a partition; gives the offset or the error text of
/// each.
///
/// # Errors
/// The producer cannot be made or does not settle within its limits.
pub fn produce(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    values: &[&[u8]],
    settings: &[(&str, &str)],
) -> Result<Vec<Result<i64, String>>> {
    let producer: BaseProducer<Deliveries> =
        config(bootstrap, settings).create_with_context(Deliveries::default())?;
    for value in values {
        let record = BaseRecord::<(), [u8]>::to(topic)
            .partition(partition)
            .payload(*value);
        producer.send(record).map_err(|(e, _)| e)?;
    }
    producer.flush(CALL_LIMIT)?;
    let deliveries = std::mem::take(
        &mut *producer
            .context()
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
    );
    Ok(deliveries)
}
