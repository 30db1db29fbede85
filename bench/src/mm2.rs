//! MirrorMaker 2 and the Kafka that it writes to, as one side of the mirror rows. MirrorMaker 2
//! runs as its source connector in a Connect worker (the heartbeat and checkpoint connectors, which
//! copy no records, are left out in its favour): so topics can be added to one that is warm, by the
//! worker's REST interface, as a user would.
//!
//! The settings are here; which of them a row takes is said by its scenario, and `settings` tries
//! them against the documented defaults.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use tarn_tests::jars::{self, Logging};
use tarn_tests::kafka::Kafka;
use tarn_tests::ports::free_port;
use tarn_tests::process::{Process, Scratch};

use crate::scenario::{Ctx, RivalSettings};

/// Its jars in the cache.
pub const VERSION: &str = "mirrormaker-4.3.1";
const HEAP_MB: u32 = 1024;
const START_LIMIT: Duration = Duration::from_secs(90);
const CALL_LIMIT: Duration = Duration::from_secs(60);
const CONNECTOR: &str = "mirror";

/// Settings of MirrorMaker 2 on top of what it needs to run at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tuning {
    /// Its documented defaults.
    Default,
    /// For the most bytes: large fetches, large batches, two tasks, no offset syncs.
    Throughput,
    /// For the least lag: as [`Tuning::Throughput`], but nothing waits for company.
    Latency,
}

impl Tuning {
    /// Lines of the worker's configuration (its producers).
    fn worker(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Default => &[],
            Self::Throughput => &[
                ("producer.batch.size", "262144"),
                ("producer.linger.ms", "5"),
                ("producer.max.request.size", "4194304"),
                ("producer.buffer.memory", "134217728"),
                ("producer.max.in.flight.requests.per.connection", "5"),
            ],
            Self::Latency => &[
                ("producer.batch.size", "262144"),
                ("producer.linger.ms", "0"),
                ("producer.max.in.flight.requests.per.connection", "5"),
            ],
        }
    }

    /// Entries of the connector's configuration (its consumers and tasks).
    fn connector(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // The default of three replicas cannot be had from one broker.
            Self::Default => &[("offset-syncs.topic.replication.factor", "1")],
            Self::Throughput => &[
                ("tasks.max", "2"),
                ("emit.offset-syncs.enabled", "false"),
                ("source.consumer.max.poll.records", "5000"),
                ("source.consumer.max.partition.fetch.bytes", "4194304"),
                ("source.consumer.fetch.max.bytes", "52428800"),
                ("source.consumer.receive.buffer.bytes", "-1"),
            ],
            Self::Latency => &[
                ("tasks.max", "2"),
                ("emit.offset-syncs.enabled", "false"),
                ("source.consumer.fetch.min.bytes", "1"),
                ("source.consumer.max.poll.records", "5000"),
            ],
        }
    }
}

/// The settings of a row about the cost and the speed of copying, as the scenario or the trial of
/// settings asks for.
#[must_use]
pub fn for_throughput(ctx: &Ctx) -> Tuning {
    chosen(ctx, Tuning::Throughput)
}

/// The settings of a row about lag, chosen like those of [`for_throughput`].
#[must_use]
pub fn for_lag(ctx: &Ctx) -> Tuning {
    chosen(ctx, Tuning::Latency)
}

fn chosen(ctx: &Ctx, tuned: Tuning) -> Tuning {
    match ctx.rival_settings() {
        RivalSettings::Default => Tuning::Default,
        RivalSettings::Tuned => tuned,
    }
}

/// A running pair.
#[derive(Debug)]
pub struct Mm2 {
    kafka: Kafka,
    worker: Process,
    rest: u16,
    source: String,
    tuning: Tuning,
    topics: Vec<String>,
    _scratch: Scratch,
}

impl Mm2 {
    /// Starts the destination Kafka and the worker; no connector yet.
    ///
    /// # Errors
    /// The worker does not come up.
    pub fn start(ctx: &Ctx, source: &str, tuning: Tuning) -> Result<Self> {
        let kafka = ctx.kafka(&[]);
        let scratch = ctx.scratch("mm2");
        let rest = free_port();
        let mut config = format!(
            "bootstrap.servers={}\nlisteners=http://127.0.0.1:{rest}\noffset.storage.file.filename={}\nplugin.discovery=service_load\n\
             key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n\
             value.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n",
            kafka.bootstrap(),
            scratch.path().join("offsets").display()
        );
        for (key, value) in tuning.worker() {
            config.push_str(&format!("{key}={value}\n"));
        }
        let file = scratch.path().join("worker.properties");
        fs::write(&file, config)?;
        let mut command =
            jars::java_full(VERSION, HEAP_MB, &Logging::write(scratch.path(), "WARN"));
        command
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .arg(&file);
        let worker = Process::spawn("MirrorMaker 2", command, &scratch.path().join("log"))?;
        let mut mm2 = Self {
            kafka,
            worker,
            rest,
            source: source.to_owned(),
            tuning,
            topics: Vec::new(),
            _scratch: scratch,
        };
        mm2.await_rest()?;
        Ok(mm2)
    }

    /// The Kafka it writes to.
    #[must_use]
    pub fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    /// Worker and broker.
    #[must_use]
    pub fn pids(&self) -> [u32; 2] {
        [self.worker.id(), self.kafka.process().id()]
    }

    /// Fails with the end of the worker's log when it is gone.
    ///
    /// # Errors
    /// It has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.worker.check_running()
    }

    /// The end of the worker's log.
    #[must_use]
    pub fn log(&self) -> String {
        self.worker.tail(40)
    }

    /// Adds topics (a name or a regular expression) to what the connector copies; starts the
    /// connector at the first call.
    ///
    /// # Errors
    /// The worker refuses.
    pub fn add(&mut self, pattern: &str) -> Result<()> {
        self.topics.push(pattern.to_owned());
        let mut config = Map::new();
        let entries = [
            (
                "connector.class",
                "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            ),
            ("source.cluster.alias", "source"),
            ("target.cluster.alias", "target"),
            ("source.cluster.bootstrap.servers", &self.source),
            ("target.cluster.bootstrap.servers", &self.kafka.bootstrap()),
            (
                "replication.policy.class",
                "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            ),
            ("topics", &self.topics.join(",")),
            ("tasks.max", "1"),
            ("replication.factor", "1"),
            ("sync.topic.acls.enabled", "false"),
        ];
        for (key, value) in entries.iter().chain(self.tuning.connector()) {
            config.insert((*key).to_owned(), json!(value));
        }
        let path = format!("/connectors/{CONNECTOR}/config");
        let (status, body) = self.call("PUT", &path, &Value::Object(config).to_string())?;
        ensure!(
            (200..300).contains(&status),
            "MirrorMaker 2 refuses {pattern}: {status} {body}"
        );
        Ok(())
    }

    fn await_rest(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            self.worker.check_running()?;
            match self.call("GET", "/", "") {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) => ensure!(
                    Instant::now() < deadline,
                    "the Connect worker answers {status} {body}"
                ),
                Err(e) => ensure!(
                    Instant::now() < deadline,
                    "the Connect worker does not answer: {e:#}\n{}",
                    self.log()
                ),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// One HTTP call to the worker: status and everything after the header.
    fn call(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.rest));
        let mut stream = TcpStream::connect_timeout(&address, CALL_LIMIT)?;
        stream.set_read_timeout(Some(CALL_LIMIT))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer
            .split_whitespace()
            .nth(1)
            .and_then(|s| s.parse().ok())
            .with_context(|| format!("no HTTP status in {answer:?}"))?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status, body.to_owned()))
    }
}
