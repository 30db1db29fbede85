//! What is to be read and what came of it; one thread and one connection a reader, each with a
//! fetch session over partitions of its own.
//!
//! The layout of the answers is known to `fetched`; here are offsets, sessions and when it is over.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tarn_wire::messages::FetchRequest;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::{Str, request_frame};

use super::clock::thread_processor_s;
use super::cluster::{CLIENT_ID, Cluster, Topic};
use super::fetched::{self, Answer, Place};
use super::histogram::Histogram;
use super::intake::Intake;
use super::side_by_side;

/// The answer says that the session is gone or its epoch is not the expected one: start a new one.
const SESSION_ERRORS: [i16; 2] = [70, 71];

/// A load of fetch requests.
#[derive(Clone, Debug)]
pub struct Consume {
    /// Where from.
    pub topic: Topic,
    /// Connections; the partitions of each leader are dealt out to them.
    pub connections: usize,
    /// First offset to read of each partition.
    pub from: Vec<i64>,
    /// Offset of each partition at which it is read; `None`: until `stop`.
    pub until: Option<Vec<i64>>,
    /// Longest wait of the broker for data, milliseconds.
    pub wait_ms_max: i32,
    /// Bytes for which the broker waits.
    pub bytes_min: i32,
    /// Most bytes in an answer.
    pub bytes_max: i32,
    /// Most bytes of one partition in an answer.
    pub partition_bytes_max: i32,
    /// Where the stamp stands in each batch; `None`: batches have none.
    pub stamp_at: Option<usize>,
    /// The run fails when it is not over by then.
    pub limit: Duration,
    /// What others may see and say while it runs.
    pub gauge: Arc<Gauge>,
}

/// What others may see of a running load of fetch requests, and how they end it.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Ends it after the next answer.
    pub stop: AtomicBool,
    /// Records read so far.
    pub records: AtomicU64,
    /// Connections that have asked once.
    pub asking: AtomicU64,
    /// Stamps from before this time (monotonic clock, nanoseconds) are not counted.
    pub count_from_ns: AtomicU64,
}

/// What a load measured.
#[derive(Clone, Debug, Default)]
pub struct Consumed {
    /// Records read (by the count in the header of their batch).
    pub records: u64,
    /// Bytes of batches read, headers included.
    pub bytes: u64,
    /// Answers.
    pub fetches: u64,
    /// From the first request to the end, seconds.
    pub wall_s: f64,
    /// From the stamp to the arrival here, one for each stamped batch.
    pub latency: Histogram,
    /// Processor time of the generator's threads, seconds.
    pub processor_s: f64,
}

impl Consumed {
    /// Megabytes (10^6) a second.
    #[must_use]
    pub fn megabytes_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.wall_s.max(1e-9)
    }
}

impl Consume {
    /// Reads `topic` from `from` to `until` as a consumer with the default limits of the Java
    /// client does: 1 MiB of a partition, 50 MiB in an answer, one request in flight on each of two
    /// connections.
    #[must_use]
    pub fn whole(topic: Topic, from: Vec<i64>, until: Vec<i64>) -> Self {
        Self {
            topic,
            connections: 2,
            from,
            until: Some(until),
            wait_ms_max: 500,
            bytes_min: 1,
            bytes_max: 50 << 20,
            partition_bytes_max: 1 << 20,
            stamp_at: None,
            limit: Duration::from_secs(600),
            gauge: Arc::default(),
        }
    }

    /// Follows `topic` from `from` on until it is told to stop, on one connection.
    #[must_use]
    pub fn following(topic: Topic, from: Vec<i64>) -> Self {
        Self {
            connections: 1,
            until: None,
            ..Self::whole(topic, from, Vec::new())
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// A partition answers an error, an answer cannot be read, or the limit passes.
    pub fn run(&self, cluster: &Cluster) -> Result<Consumed> {
        let version = cluster.fetch_version()?;
        let started = Instant::now();
        let parts = side_by_side::run(
            self.deal(),
            |(broker, places)| self.read(broker, version, places),
            || self.gauge.stop.store(true, Ordering::Relaxed),
        )?;
        let mut total = Consumed::default();
        for part in parts {
            total.records += part.records;
            total.bytes += part.bytes;
            total.fetches += part.fetches;
            total.processor_s += part.processor_s;
            total.latency.merge(&part.latency);
        }
        total.wall_s = started.elapsed().as_secs_f64();
        Ok(total)
    }

    /// Deals the partitions of each leader out to its connections.
    fn deal(&self) -> Vec<(SocketAddr, Vec<Place>)> {
        let mut brokers = self.topic.leaders.clone();
        brokers.sort();
        brokers.dedup();
        let each = (self.connections / brokers.len().max(1)).max(1);
        let mut readers = Vec::new();
        for broker in brokers {
            let mut hands = vec![Vec::new(); each];
            let led = (0..)
                .zip(&self.topic.leaders)
                .filter(|(_, l)| **l == broker);
            for (nth, (index, _)) in led.enumerate() {
                let until = self.until.as_ref().map(|u| u[index]);
                hands[nth % each].push(Place::new(index, self.from[index], until));
            }
            readers.extend(
                hands
                    .into_iter()
                    .filter(|h| !h.is_empty())
                    .map(|h| (broker, h)),
            );
        }
        readers
    }

    /// One reader: a request, its answer, and again.
    fn read(&self, broker: SocketAddr, version: i16, mut places: Vec<Place>) -> Result<Consumed> {
        let processor_before = thread_processor_s();
        let deadline = Instant::now() + self.limit;
        let mut writer =
            TcpStream::connect(broker).with_context(|| format!("connect to {broker}"))?;
        writer.set_nodelay(true)?;
        let mut intake = Intake::new(writer.try_clone()?)?;
        let mut consumed = Consumed::default();
        let (mut session, mut epoch, mut id) = (0, 0, 0);
        let mut index_of = vec![usize::MAX; self.topic.leaders.len()];
        for (at, place) in places.iter().enumerate() {
            index_of[place.index] = at;
        }
        while !self.gauge.stop.load(Ordering::Relaxed) && places.iter().any(Place::is_wanted) {
            ensure!(
                Instant::now() < deadline,
                "reading {} did not end in time",
                self.topic.name
            );
            let request = self.request(version, session, epoch, &mut places);
            let frame = request_frame(id, Some(CLIENT_ID), version, &request)?;
            let frame = frame
                .to_bytes()
                .ok_or_else(|| anyhow!("a request in a file"))?;
            writer.write_all(&frame).context("sending a fetch")?;
            if epoch == 0 {
                self.gauge.asking.fetch_add(1, Ordering::Relaxed);
            }
            let mut answer = Answer {
                version,
                id,
                places: &mut places,
                index_of: &index_of,
                stamp_at: self.stamp_at,
                count_from_ns: self.gauge.count_from_ns.load(Ordering::Relaxed),
                consumed: &mut consumed,
            };
            let before = answer.consumed.records;
            let head = fetched::read(&mut intake, &mut answer)
                .with_context(|| format!("fetch from {}", self.topic.name))?;
            let new = consumed.records - before;
            self.gauge.records.fetch_add(new, Ordering::Relaxed);
            consumed.fetches += 1;
            id = id.wrapping_add(1).max(0);
            if SESSION_ERRORS.contains(&head.error_code) {
                (session, epoch) = (0, 0);
                continue;
            }
            ensure!(
                head.error_code == 0,
                "fetch answers error {}",
                head.error_code
            );
            session = head.session_id;
            // Without a session every request names all partitions.
            epoch = if session == 0 {
                0
            } else {
                epoch % i32::MAX + 1
            };
        }
        consumed.processor_s = thread_processor_s() - processor_before;
        Ok(consumed)
    }

    /// The next request: all partitions in a new session, else those that moved.
    fn request(
        &self,
        version: i16,
        session: i32,
        epoch: i32,
        places: &mut [Place],
    ) -> FetchRequest {
        let partitions: Vec<FetchPartition> = places
            .iter_mut()
            .filter_map(|place| {
                let named = epoch == 0 || place.moved;
                place.moved = false;
                named.then(|| FetchPartition {
                    partition: place.index as i32,
                    fetch_offset: place.next,
                    partition_max_bytes: self.partition_bytes_max,
                    ..Default::default()
                })
            })
            .collect();
        let topics = if partitions.is_empty() {
            Vec::new()
        } else {
            let mut topic = FetchTopic {
                partitions,
                ..Default::default()
            };
            if version >= fetched::BY_ID_FROM {
                topic.topic_id = self.topic.id;
            } else {
                topic.topic = Str::from(self.topic.name.clone());
            }
            vec![topic]
        };
        FetchRequest {
            max_wait_ms: self.wait_ms_max,
            min_bytes: self.bytes_min,
            max_bytes: self.bytes_max,
            session_id: session,
            session_epoch: epoch,
            topics,
            ..Default::default()
        }
    }
}
