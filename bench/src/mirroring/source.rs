//! The real Kafka that all rounds of a mirror scenario copy from.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::RawClient;

use super::fill::{self, Payload};
use super::wire::{self, Topic, partitions_of};
use crate::machine;
use crate::scenario::Ctx;

const ARRIVE_LIMIT: Duration = Duration::from_secs(60);
/// After this time no further partitions are made for a row that wants thousands.
const CREATE_LIMIT: Duration = Duration::from_secs(90);
const TOPICS_AT_ONCE: usize = 10;
const LOOK: Duration = Duration::from_millis(50);

/// A source with its topics.
#[derive(Debug)]
pub struct Source {
    kafka: Kafka,
}

impl Source {
    /// Starts it empty, with Kafka's defaults; nothing expires while the rounds last.
    #[must_use]
    pub fn start(ctx: &Ctx) -> Self {
        ctx.progress("starting the source Kafka");
        Self {
            kafka: ctx.kafka(&[("log.retention.ms", "-1")]),
        }
    }

    /// The node.
    #[must_use]
    pub fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    /// Its address.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.kafka.bootstrap()
    }

    /// Creates topics that keep all they get, here and at the destination that copies their
    /// configuration.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn create(&self, topics: &[Topic]) -> Result<()> {
        wire::create_topics(self.kafka.port(), topics, &[("retention.ms", "-1")])
    }

    /// Creates `topics` with thousands of partitions, as many as the source holds within its
    /// descriptors and a limit of time, beside `open` partitions that it has. Gives those; remarks
    /// it when they are not all.
    ///
    /// # Errors
    /// Not even the first of them can be had.
    pub fn create_many(&self, ctx: &Ctx, topics: Vec<Topic>, open: i32) -> Result<Vec<Topic>> {
        ctx.progress("creating the partitions at the source");
        let started = Instant::now();
        let most = machine::java_partitions_max();
        let mut held: Vec<Topic> = Vec::new();
        for step in topics.chunks(TOPICS_AT_ONCE) {
            let partitions = open + partitions_of(&held) + partitions_of(step);
            let done = if u64::try_from(partitions)? > most {
                Err(anyhow!("its descriptors are enough for {most} partitions"))
            } else if started.elapsed() > CREATE_LIMIT {
                Err(anyhow!("the time of {CREATE_LIMIT:?} was over"))
            } else {
                self.create(step)
            };
            if let Err(error) = done {
                ensure!(
                    !held.is_empty(),
                    "the source holds no partitions: {error:#}"
                );
                ctx.remark(format!(
                    "the source held {} of the {} partitions that were wanted: {error:#}",
                    partitions_of(&held),
                    partitions_of(&topics)
                ));
                break;
            }
            held.extend_from_slice(step);
        }
        Ok(held)
    }

    /// Creates a topic and fills it; gives the gigabytes (10⁹ bytes of raw values) that it holds.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn filled(&self, ctx: &Ctx, topic: &Topic, bytes: u64, payload: Payload) -> Result<f64> {
        ctx.progress(format!(
            "filling {} with {} MB in {} partitions",
            topic.name,
            bytes / 1_000_000,
            topic.partitions
        ));
        self.create(std::slice::from_ref(topic))?;
        let bytes = fill::fill(self.kafka.port(), topic, bytes, payload)?;
        Ok(bytes as f64 / 1e9)
    }

    /// Waits until `topics` hold `records` records: what was sent without asking for an answer has
    /// arrived.
    ///
    /// # Errors
    /// It has not after a while.
    pub fn await_records(&self, topics: &[Topic], records: u64) -> Result<()> {
        let deadline = Instant::now() + ARRIVE_LIMIT;
        loop {
            let held: i64 = self.ends(topics)?.iter().sum();
            if u64::try_from(held)? >= records {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the source took {held} of {records} records"
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Log ends of all partitions of `topics`.
    ///
    /// # Errors
    /// The broker does not answer.
    pub fn ends(&self, topics: &[Topic]) -> Result<Vec<i64>> {
        wire::log_ends(&mut RawClient::connect(self.kafka.port())?, topics)
    }
}
