//! What is to be produced and what came of it. The sockets are driven by `sender`; here is the
//! plan: which requests exist, which connection sends what and when.
//!
//! Latency counts from the time at which a request was due, not from when it could be sent: a slow
//! broker cannot hide its pauses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::batch::{Batch, Random, Shape};
use super::clock::{NS_PER_S, now_ns};
use super::cluster::{Cluster, Topic};
use super::histogram::Histogram;
use super::request::Template;
use super::sender::{self, Plan};
use super::side_by_side;

/// Different batches that are made; few enough to stay in a processor's cache.
const BATCHES: usize = 4;
/// Different sets of partitions that keyed producers choose from.
const KEYED_SETS: usize = 64;
/// Most requests in flight on one connection.
pub const IN_FLIGHT_MAX: usize = 1_000;
/// Time between the start of the threads and the first request of a paced run.
const LEAD_NS: u64 = 20_000_000;

/// How a producer chooses partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// One after the other.
    RoundRobin,
    /// As hashes of keys fall: at random, again and again the same sets.
    Keyed,
}

/// A load of produce requests.
#[derive(Clone, Debug)]
pub struct Produce {
    /// Where to.
    pub topic: Topic,
    /// What each batch looks like.
    pub shape: Shape,
    /// 0, 1, or −1 for all.
    pub acks: i16,
    /// Connections, each a producer of its own.
    pub connections: usize,
    /// Requests in flight on a connection, 1 to [`IN_FLIGHT_MAX`]; beyond it a due request waits,
    /// and its latency grows.
    pub in_flight: usize,
    /// Batches in a request, each for another partition.
    pub batches_per_request: usize,
    /// How partitions are chosen.
    pub choice: Choice,
    /// Requests a second over all connections, at even distances; `None`: as fast as answers come.
    pub rate: Option<f64>,
    /// Requests over all connections after which it ends.
    pub requests: u64,
    /// Latencies of requests that were due in this time after the start are not counted.
    pub settle: Duration,
    /// Whether the first record of each batch carries the time at which it was due.
    pub stamped: bool,
    /// Threads of the generator; one is enough for what a two-core machine serves.
    pub threads: usize,
    /// The run fails when it is not over by then.
    pub limit: Duration,
    /// Set by anyone to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// What a load measured.
#[derive(Clone, Debug, Default)]
pub struct Produced {
    /// Requests answered (acks 0: taken by the broker).
    pub requests: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their keys and values before compression.
    pub bytes: u64,
    /// From the first request to the last answer, seconds.
    pub wall_s: f64,
    /// From the time a request was due to its answer (acks 0: until it was handed to the kernel).
    pub latency: Histogram,
    /// Processor time of the generator's threads, seconds.
    pub processor_s: f64,
}

impl Produced {
    /// Megabytes (10^6) a second.
    #[must_use]
    pub fn megabytes_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.wall_s.max(1e-9)
    }

    /// Processor seconds of the generator for a gigabyte (10^9).
    #[must_use]
    pub fn own_processor_s_per_gb(&self) -> f64 {
        self.processor_s / (self.bytes as f64 / 1e9).max(1e-9)
    }
}

impl Produce {
    /// A load as fast as answers come: 8 connections with 4 requests of one batch in flight each,
    /// acks 1, `bytes` in all.
    #[must_use]
    pub fn flood(topic: Topic, shape: Shape, bytes: u64) -> Self {
        Self {
            topic,
            requests: (bytes / shape.payload_bytes()).max(1),
            shape,
            acks: 1,
            connections: 8,
            in_flight: 4,
            batches_per_request: 1,
            choice: Choice::RoundRobin,
            rate: None,
            settle: Duration::ZERO,
            stamped: false,
            threads: 1,
            limit: Duration::from_secs(600),
            stop: Arc::default(),
        }
    }

    /// A load at a fixed rate of requests for a fixed time; acks all, one batch a request,
    /// unbounded patience (1,000 requests in flight).
    #[must_use]
    pub fn paced(topic: Topic, shape: Shape, requests_per_s: f64, time: Duration) -> Self {
        Self {
            acks: -1,
            connections: 1,
            in_flight: IN_FLIGHT_MAX,
            rate: Some(requests_per_s),
            requests: ((requests_per_s * time.as_secs_f64()) as u64).max(1),
            limit: time * 4 + Duration::from_secs(60),
            ..Self::flood(topic, shape, 0)
        }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// A broker refuses a batch or closes a connection, the limit passes, or the load cannot be
    /// built.
    pub fn run(&self, cluster: &Cluster) -> Result<Produced> {
        ensure!(self.connections > 0, "a load needs a connection");
        ensure!(
            (1..=IN_FLIGHT_MAX).contains(&self.in_flight),
            "requests in flight must be 1 to {IN_FLIGHT_MAX}"
        );
        let version = cluster.produce_version()?;
        let threads = self.threads.clamp(1, self.connections);
        let start_ns = now_ns() + LEAD_NS;
        let plans: Vec<Plan> = (0..threads)
            .map(|thread| self.plan(version, thread, threads, start_ns))
            .collect::<Result<_>>()?;
        // Whoever fails first ends the others too.
        let failed = AtomicBool::new(false);
        let parts = side_by_side::run(
            plans,
            |plan| sender::run(plan, &failed),
            || failed.store(true, Ordering::Relaxed),
        )?;
        let mut total = Produced::default();
        for part in parts {
            total.requests += part.requests;
            total.wall_s = total.wall_s.max(part.wall_s);
            total.processor_s += part.processor_s;
            total.latency.merge(&part.latency);
        }
        let batches = total.requests * self.batches_per_request as u64;
        total.records = batches * self.shape.batch_records as u64;
        total.bytes = batches * self.shape.payload_bytes();
        Ok(total)
    }

    /// The part of one thread: every `threads`-th connection and every `threads`-th request.
    fn plan(&self, version: i16, thread: usize, threads: usize, start_ns: u64) -> Result<Plan> {
        let mut brokers = self.topic.leaders.clone();
        brokers.sort();
        brokers.dedup();
        ensure!(!brokers.is_empty(), "{} has no partitions", self.topic.name);
        let batches: Vec<Batch> = (0..BATCHES as u64)
            .map(|seed| self.shape.build(seed, self.stamped))
            .collect::<Result<_>>()?;
        let mut templates = Vec::new();
        let mut ranges = Vec::new();
        for broker in &brokers {
            let from = templates.len();
            for set in self.sets(*broker) {
                let picks: Vec<&Batch> = (0..set.len())
                    .map(|i| &batches[(templates.len() + i) % BATCHES])
                    .collect();
                templates.push(Template::new(
                    &self.topic,
                    version,
                    self.acks,
                    &set,
                    &picks,
                )?);
            }
            ranges.push(from..templates.len());
        }
        let mine: Vec<usize> = (thread..self.connections).step_by(threads).collect();
        let connections = mine
            .iter()
            .map(|c| {
                (
                    brokers[c % brokers.len()],
                    ranges[c % brokers.len()].clone(),
                )
            })
            .collect();
        let share =
            |all: u64| all / threads as u64 + u64::from((all % threads as u64) > thread as u64);
        let interval = self.rate.map(|rate| threads as f64 * NS_PER_S / rate);
        Ok(Plan {
            connections,
            templates,
            version,
            acks: self.acks,
            partitions: self.batches_per_request,
            in_flight: self.in_flight,
            keyed: self.choice == Choice::Keyed,
            seed: thread as u64,
            requests: share(self.requests),
            start_ns: start_ns
                + interval.map_or(0, |i| (i * thread as f64 / threads as f64) as u64),
            interval_ns: interval,
            count_from_ns: start_ns + self.settle.as_nanos() as u64,
            limit_ns: start_ns.saturating_add(self.limit.as_nanos() as u64),
            stop: Arc::clone(&self.stop),
        })
    }

    /// The sets of partitions led by `broker` that requests go to.
    fn sets(&self, broker: SocketAddr) -> Vec<Vec<i32>> {
        let led: Vec<i32> = (0_i32..)
            .zip(&self.topic.leaders)
            .filter_map(|(index, leader)| (*leader == broker).then_some(index))
            .collect();
        let size = self.batches_per_request.clamp(1, led.len().max(1));
        match self.choice {
            Choice::RoundRobin => (0..led.len().div_ceil(size))
                .map(|set| {
                    (0..size)
                        .map(|i| led[(set * size + i) % led.len()])
                        .collect()
                })
                .collect(),
            Choice::Keyed => {
                let mut random = Random::new(led.len() as u64);
                let mut set = || {
                    let mut left = led.clone();
                    (0..size)
                        .map(|_| left.swap_remove(random.below(left.len())))
                        .collect()
                };
                (0..KEYED_SETS.max(led.len())).map(|_| set()).collect()
            }
        }
    }
}
