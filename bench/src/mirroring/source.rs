//! The real Kafka that all rounds of a mirror scenario copy from.

use anyhow::Result;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::RawClient;

use super::fill::{self, Payload};
use super::wire::{self, Topic};
use crate::scenario::Ctx;

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

    /// Creates topics that keep all they get, here and at the destination that copies their configuration.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn create(&self, topics: &[Topic]) -> Result<()> {
        wire::create_topics(self.kafka.port(), topics, &[("retention.ms", "-1")])
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

    /// Log ends of all partitions of `topics`.
    ///
    /// # Errors
    /// The broker does not answer.
    pub fn ends(&self, topics: &[Topic]) -> Result<Vec<i64>> {
        wire::log_ends(&mut RawClient::connect(self.kafka.port())?, topics)
    }
}
