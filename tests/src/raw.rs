//! Owns a raw client: one blocking TCP connection, frames as bytes or as messages of the
//! `kafka-protocol` crate, which knows nothing of Tarn. No retries, no metadata: the case says what
//! goes out and judges what comes back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, ProduceRequest, RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

use crate::records::canonical;

const IO_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 256 << 20;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Sixteen bytes in Kafka's text form: base64url without padding.
#[must_use]
pub fn id_text(bytes: [u8; 16]) -> String {
    let value = u128::from_be_bytes(bytes);
    // 128 bits are 21 full digits of six bits and one of two bits, padded with zeros on the right.
    (0..22)
        .map(|i| {
            if i < 21 {
                (value >> (122 - 6 * i)) & 63
            } else {
                (value << 4) & 63
            }
        })
        .map(|digit| ALPHABET[digit as usize] as char)
        .collect()
}

/// The bytes of a 22-character id.
///
/// # Panics
/// When the text is no id.
#[must_use]
pub fn id_bytes(text: &str) -> [u8; 16] {
    assert_eq!(text.len(), 22, "not an id: {text}");
    let digit = |c: u8| {
        ALPHABET
            .iter()
            .position(|a| *a == c)
            .unwrap_or_else(|| panic!("not an id: {text}")) as u128
    };
    let value = text
        .bytes()
        .take(21)
        .fold(0_u128, |value, c| (value << 6) | digit(c));
    ((value << 2) | (digit(text.as_bytes()[21]) >> 4)).to_be_bytes()
}

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    correlation_id: i32,
}

impl RawClient {
    /// Connects to a loopback port.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(port: u16) -> Result<Self> {
        Self::connect_to(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Connects to any address.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect_to(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, IO_LIMIT)?;
        stream.set_read_timeout(Some(IO_LIMIT))?;
        stream.set_write_timeout(Some(IO_LIMIT))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            correlation_id: 0,
        })
    }

    /// Changes how long a read waits.
    ///
    /// # Errors
    /// From the socket.
    pub fn set_read_limit(&self, limit: Duration) -> Result<()> {
        Ok(self.stream.set_read_timeout(Some(limit))?)
    }

    /// Sends bytes as they are, without a length in front.
    ///
    /// # Errors
    /// The other side has closed.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Reads one frame, without its length.
    ///
    /// # Errors
    /// Closed, timed out, or an absurd length.
    pub fn read_frame(&mut self) -> Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).context("no answer")?;
        let length =
            usize::try_from(i32::from_be_bytes(length)).context("negative frame length")?;
        ensure!(length <= ANSWER_BYTES_MAX, "frame of {length} bytes");
        let mut frame = vec![0; length];
        self.stream
            .read_exact(&mut frame)
            .context("half an answer")?;
        Ok(frame.into())
    }

    /// True when the other side has closed the connection (waits up to `limit` for it).
    ///
    /// # Errors
    /// From the socket.
    pub fn is_closed(&mut self, limit: Duration) -> Result<bool> {
        self.set_read_limit(limit)?;
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(n) => Ok(n == 0),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                Ok(false)
            }
            Err(_) => Ok(true),
        }
    }

    /// Sends a request body under a header of `header_version` and gives the answer's body after
    /// its header.
    ///
    /// # Errors
    /// Closed, or an answer to something else.
    pub fn call_body(
        &mut self,
        key: i16,
        version: i16,
        body: &[u8],
        request_header: i16,
        response_header: i16,
    ) -> Result<Bytes> {
        self.send_body(key, version, body, request_header)?;
        self.read_answer(response_header)
    }

    /// The first half of [`RawClient::call_body`].
    ///
    /// # Errors
    /// Closed.
    pub fn send_body(
        &mut self,
        key: i16,
        version: i16,
        body: &[u8],
        request_header: i16,
    ) -> Result<()> {
        self.correlation_id += 1;
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("tarn-test")));
        header.encode(&mut frame, request_header)?;
        frame.put_slice(body);
        let length = i32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.send_bytes(&frame)
    }

    /// The second half of [`RawClient::call_body`].
    ///
    /// # Errors
    /// Closed, or an answer to something else.
    pub fn read_answer(&mut self, response_header: i16) -> Result<Bytes> {
        let mut frame = self.read_frame()?;
        ensure!(frame.len() >= 4, "answer without a header");
        let correlation_id = frame.get_i32();
        ensure!(
            correlation_id == self.correlation_id,
            "answer to {correlation_id} instead of {}",
            self.correlation_id
        );
        if response_header >= 1 {
            ensure!(
                !frame.is_empty() && frame.get_u8() == 0,
                "tags in the answer's header"
            );
        }
        Ok(frame)
    }

    /// Calls with typed messages and demands that the answer ends on its last byte.
    ///
    /// # Errors
    /// Closed, or an answer that does not decode.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let mut body = BytesMut::new();
        request.encode(&mut body, version)?;
        let mut answer = self.call_body(
            R::KEY,
            version,
            &body,
            R::header_version(version),
            <R::Response as HeaderVersion>::header_version(version),
        )?;
        let decoded = R::Response::decode(&mut answer, version)
            .with_context(|| format!("answer of key {} version {version}", R::KEY))?;
        ensure!(
            answer.is_empty(),
            "{} bytes after the answer of key {} version {version}",
            answer.len(),
            R::KEY
        );
        Ok(decoded)
    }
}

/// The API keys and version ranges that a broker announces.
///
/// # Errors
/// Nobody answers.
pub fn api_versions(port: u16) -> Result<BTreeMap<i16, (i16, i16)>> {
    api_versions_of(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// As [`api_versions`], as client software of this name sees them.
///
/// # Errors
/// It does not answer, or not well.
pub fn api_versions_as(port: u16, software: &'static str) -> Result<BTreeMap<i16, (i16, i16)>> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str(software))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let answer = RawClient::connect(port)?.call(3, &request)?;
    let rows = answer.api_keys.iter();
    Ok(rows
        .map(|api| (api.api_key, (api.min_version, api.max_version)))
        .collect())
}

/// As [`api_versions`], for a node elsewhere.
///
/// # Errors
/// It does not answer, or not well.
pub fn api_versions_of(address: SocketAddr) -> Result<BTreeMap<i16, (i16, i16)>> {
    let mut client = RawClient::connect_to(address)?;
    client.set_read_limit(Duration::from_secs(5))?;
    let answer: ApiVersionsResponse = client.call(0, &ApiVersionsRequest::default())?;
    ensure!(
        answer.error_code == 0,
        "ApiVersions answered {}",
        answer.error_code
    );
    Ok(answer
        .api_keys
        .iter()
        .map(|a| (a.api_key, (a.min_version, a.max_version)))
        .collect())
}

/// How a fetch names its topic.
#[derive(Debug, Clone)]
pub enum Topic {
    /// By name, Fetch version 12.
    Name(String),
    /// By id, Fetch version 17.
    Id([u8; 16]),
}

/// One fetch of one partition, waiting up to `wait_ms` for the first byte.
///
/// # Errors
/// Closed, or a top-level error.
pub fn fetch_once(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
    offset: i64,
    max_bytes: i32,
    committed: bool,
    wait_ms: i32,
) -> Result<PartitionData> {
    let one = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(max_bytes)
        .with_current_leader_epoch(-1)
        .with_last_fetched_epoch(-1);
    let mut wanted = FetchTopic::default().with_partitions(vec![one]);
    let version = match topic {
        Topic::Name(name) => {
            wanted.topic = TopicName(StrBytes::from_string(name.clone()));
            12
        }
        Topic::Id(id) => {
            wanted.topic_id = uuid::Uuid::from_bytes(*id);
            17
        }
    };
    let request = FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_isolation_level(i8::from(committed))
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![wanted]);
    let answer = client.call(version, &request)?;
    ensure!(
        answer.error_code == 0,
        "Fetch answered {}",
        answer.error_code
    );
    let Some(data) = answer
        .responses
        .into_iter()
        .flat_map(|t| t.partitions)
        .next()
    else {
        bail!("Fetch answered without the partition")
    };
    Ok(data)
}

/// Reads a whole partition to its high watermark (last stable offset when `committed`) in canonical
/// form, batches of aborted transactions left out when `committed`, control records always.
///
/// # Errors
/// A partition error, or records that do not decode.
pub fn consume(port: u16, topic: &Topic, partition: i32, committed: bool) -> Result<Vec<String>> {
    let mut client = RawClient::connect(port)?;
    let mut offset = 0;
    let mut out = Vec::new();
    loop {
        let data = fetch_once(
            &mut client,
            topic,
            partition,
            offset,
            4 << 20,
            committed,
            100,
        )?;
        ensure!(
            data.error_code == 0,
            "partition {partition} at {offset}: error {}",
            data.error_code
        );
        let end = if committed {
            data.last_stable_offset
        } else {
            data.high_watermark
        };
        let next = decode(&data, partition, offset, committed, &mut out)?;
        if next >= end {
            return Ok(out);
        }
        ensure!(
            next > offset || data.log_start_offset > offset,
            "no progress at {offset}, the end is {end}"
        );
        offset = next.max(data.log_start_offset);
    }
}

fn decode(
    data: &PartitionData,
    partition: i32,
    from: i64,
    committed: bool,
    out: &mut Vec<String>,
) -> Result<i64> {
    let mut records = data.records.clone().unwrap_or_default();
    let mut aborted = data.aborted_transactions.clone().unwrap_or_default();
    aborted.sort_by_key(|a| a.first_offset);
    let mut dropping = std::collections::BTreeSet::new();
    let mut next = from;
    while records.len() > 61 {
        let length = 12 + usize::try_from(i32::from_be_bytes(records[8..12].try_into()?))?;
        if length > records.len() {
            break; // a batch cut off by the byte limit
        }
        let mut batch = records.split_to(length);
        let base = i64::from_be_bytes(batch[..8].try_into()?);
        let last = base + i64::from(i32::from_be_bytes(batch[23..27].try_into()?));
        next = last + 1;
        for record in RecordBatchDecoder::decode(&mut batch)?.records {
            while aborted
                .first()
                .is_some_and(|a| a.first_offset <= record.offset)
            {
                dropping.insert(aborted.remove(0).producer_id.0);
            }
            if record.control {
                // A marker ends the transaction of its producer; the key's second half tells abort
                // (0) and commit (1).
                dropping.remove(&record.producer_id);
                continue;
            }
            if record.offset < from
                || (committed && record.transactional && dropping.contains(&record.producer_id))
            {
                continue;
            }
            let headers = record
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_deref()));
            out.push(canonical(
                partition,
                record.offset,
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                headers,
            ));
        }
    }
    Ok(next)
}

/// Who writes a batch.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    /// Producer id; −1 = a plain producer.
    pub producer_id: i64,
    /// Producer epoch; −1 = a plain producer.
    pub epoch: i16,
    /// Sequence of the first record; −1 = a plain producer.
    pub sequence: i32,
    /// Part of a transaction.
    pub transactional: bool,
}

/// A producer without an id.
pub const PLAIN: Writer = Writer {
    producer_id: -1,
    epoch: -1,
    sequence: -1,
    transactional: false,
};

/// One uncompressed batch with `values`, stamped now: the test's Kafkas look for records past their
/// retention twice a second.
///
/// # Panics
/// When it cannot be encoded.
#[must_use]
pub fn batch(writer: Writer, values: &[&str]) -> Bytes {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    let records: Vec<Record> = (0_i32..)
        .zip(values)
        .map(|(i, value)| Record {
            transactional: writer.transactional,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: writer.producer_id,
            producer_epoch: writer.epoch,
            timestamp_type: TimestampType::Creation,
            offset: i64::from(i),
            sequence: writer.sequence + i,
            timestamp: now_ms,
            key: None,
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            headers: Default::default(),
        })
        .collect();
    let mut out = BytesMut::new();
    RecordBatchEncoder::encode(
        &mut out,
        records.iter(),
        &RecordEncodeOptions {
            version: 2,
            compression: Compression::None,
        },
    )
    .expect("batch");
    out.freeze()
}

/// What became of a produced batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produced {
    /// Error code of the partition.
    pub code: i16,
    /// Its text, where the version has one.
    pub text: Option<String>,
    /// Offset of the first record.
    pub offset: i64,
}

/// Produces one batch to one partition. With acks 0 there is no answer.
///
/// # Errors
/// Closed, or an unreadable answer.
pub fn produce(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
    batch: Bytes,
    acks: i16,
    version: i16,
) -> Result<Option<Produced>> {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch));
    let mut wanted = TopicProduceData::default().with_partition_data(vec![data]);
    match topic {
        Topic::Name(name) => wanted.name = TopicName(StrBytes::from_string(name.clone())),
        Topic::Id(id) => wanted.topic_id = uuid::Uuid::from_bytes(*id),
    }
    let request = ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(10_000)
        .with_topic_data(vec![wanted]);
    if acks == 0 {
        let mut body = BytesMut::new();
        request.encode(&mut body, version)?;
        client.send_body(0, version, &body, ProduceRequest::header_version(version))?;
        return Ok(None);
    }
    let answer = client.call(version, &request)?;
    let Some(partition) = answer
        .responses
        .into_iter()
        .flat_map(|t| t.partition_responses)
        .next()
    else {
        bail!("Produce answered without the partition")
    };
    let text = partition.error_message.map(|t| t.to_string());
    Ok(Some(Produced {
        code: partition.error_code,
        text,
        offset: partition.base_offset,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_text_is_kafkas_base64() {
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
        assert_eq!(id_text(bytes), "AAECAwQFBgcICQoLDA0ODw");
        assert_eq!(id_bytes("AAECAwQFBgcICQoLDA0ODw"), bytes);
    }
}
