//! A started server in a temporary directory, and a client that speaks raw frames to it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tarn_server::{Config, Server};
use tarn_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::*;
use tarn_wire::{
    Reader, Records, Request, Str, decode_response_header, request_frame, response_header_version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A server with its directory.
pub struct Node {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

/// Starts a server on free ports over `dir`, with more settings.
pub async fn start_in(dir: &Path, more: &[(&str, &str)]) -> Server {
    let logs = dir.join("logs");
    let mut pairs = vec![
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", logs.to_str().unwrap()),
        ("group.initial.rebalance.delay.ms", "0"),
    ];
    pairs.extend_from_slice(more);
    Server::start(Config::from_pairs(&pairs).unwrap())
        .await
        .unwrap()
}

pub async fn start_with(more: &[(&str, &str)]) -> Node {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), more).await;
    Node { server, dir }
}

pub async fn start() -> Node {
    start_with(&[]).await
}

/// A connection that sends what it is told and reads frames.
pub struct Client {
    pub stream: TcpStream,
    next_id: i32,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, next_id: 1 }
    }

    /// Sends raw bytes behind their length.
    pub async fn send_frame(&mut self, body: &[u8]) -> std::io::Result<()> {
        let mut frame = (body.len() as i32).to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        self.stream.write_all(&frame).await
    }

    /// One answer frame without its length; `None` when the server closed.
    pub async fn read_frame(&mut self) -> Option<Bytes> {
        let read = async {
            let mut length = [0u8; 4];
            self.stream.read_exact(&mut length).await.ok()?;
            let mut body = vec![0u8; i32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut body).await.ok()?;
            Some(Bytes::from(body))
        };
        tokio::time::timeout(ANSWER_MAX, read)
            .await
            .expect("an answer in time")
    }

    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let id = self.next_id;
        self.next_id += 1;
        let frame = request_frame(id, Some("test"), version, request)
            .unwrap()
            .to_bytes()
            .unwrap();
        self.stream.write_all(&frame).await.unwrap();
        id
    }

    /// Sends and decodes the answer, which must end with its last byte.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request).await;
        self.answer::<R>(version, id).await.expect("an answer")
    }

    pub async fn answer<R: Request>(&mut self, version: i16, id: i32) -> Option<R::Response> {
        let frame = self.read_frame().await?;
        let (header, body) =
            decode_response_header(frame, response_header_version::<R>(version)).unwrap();
        assert_eq!(header.correlation_id, id);
        let mut reader = Reader::new(body);
        let response = <R::Response as tarn_wire::Message>::decode(&mut reader, version).unwrap();
        assert_eq!(reader.remaining(), 0, "bytes behind the answer");
        Some(response)
    }

    /// Creates a topic and checks that it worked.
    pub async fn create(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let response = self
            .call(7, &create_request(name, partitions, configs))
            .await;
        assert_eq!(
            response.topics[0].error_code, 0,
            "{:?}",
            response.topics[0].error_message
        );
    }

    /// Produces one batch by name; gives error code and base offset.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Vec<u8>,
        acks: i16,
    ) -> (i16, i64) {
        let response = self
            .call(9, &produce_request(topic, partition, batch, acks))
            .await;
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    }

    /// Fetches one partition by name outside of any session.
    pub async fn fetch(
        &mut self,
        topic: &str,
        offset: i64,
        max_bytes: i32,
        max_wait_ms: i32,
    ) -> fetch_response::PartitionData {
        let request = fetch_request(topic, offset, max_bytes, max_wait_ms);
        let response = self.call(12, &request).await;
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions[0].clone()
    }
}

pub fn create_request(
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> CreateTopicsRequest {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig {
            name: Str::from(*name),
            value: Some(Str::from(*value)),
            ..Default::default()
        })
        .collect();
    let topic = CreatableTopic {
        name: Str::from(name),
        num_partitions: partitions,
        replication_factor: -1,
        configs,
        mirror_info: None,
        ..Default::default()
    };
    CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 10_000,
        ..Default::default()
    }
}

pub fn produce_request(topic: &str, partition: i32, batch: Vec<u8>, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData {
        index: partition,
        records: Some(Records::Bytes(Bytes::from(batch))),
        ..Default::default()
    };
    let topic = TopicProduceData {
        name: Str::from(topic),
        partition_data: vec![data],
        ..Default::default()
    };
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 10_000,
        topic_data: vec![topic],
        ..Default::default()
    }
}

pub fn fetch_request(topic: &str, offset: i64, max_bytes: i32, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        fetch_offset: offset,
        partition_max_bytes: max_bytes,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let topic = FetchTopic {
        topic: Str::from(topic),
        partitions: vec![partition],
        ..Default::default()
    };
    FetchRequest {
        replica_id: -1,
        max_wait_ms,
        min_bytes: 1,
        max_bytes,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

/// A batch with these values.
pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = tarn_records::BatchBuilder::new();
    for value in values {
        builder.add(now_ms(), None, Some(value), &[]);
    }
    builder.build().unwrap()
}

pub fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

/// Base offset and last offset of each whole batch.
pub fn batch_offsets(records: &Option<Records>) -> Vec<(i64, i64)> {
    let bytes = records
        .as_ref()
        .and_then(Records::as_bytes)
        .cloned()
        .unwrap_or_default();
    tarn_records::batches(&bytes)
        .map_while(Result::ok)
        .map(|batch| (batch.header.base_offset, batch.header.last_offset()))
        .collect()
}
