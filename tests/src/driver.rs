//! Owns the one JVM that serves client commands (`tests/java/Driver.java`) and the typed calls over
//! it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::jars::{self, KAFKA_CURRENT, Logging};

const ANSWER_LIMIT: Duration = Duration::from_secs(180);

type Waiting = Arc<Mutex<HashMap<u64, Sender<Value>>>>;

/// What the driver refused: the class name of Kafka's exception and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverError {
    /// Simple name of the exception class, e.g. `TopicExistsException`.
    pub class: String,
    /// Its text.
    pub message: String,
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

/// The shared driver process.
#[derive(Debug)]
pub struct Driver {
    input: Mutex<(ChildStdin, u64)>,
    waiting: Waiting,
    _child: Child,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver of this test process, started at the first call. It ends with the process.
///
/// # Panics
/// When the JVM cannot be started.
pub fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::start)
}

impl Driver {
    fn start() -> Self {
        // Lives as long as the process; the files are tiny.
        let dir = tempfile::Builder::new()
            .prefix("tarn-test-driver-")
            .tempdir()
            .expect("temporary folder")
            .keep();
        let logging = Logging::write(&dir, "ERROR");
        let mut command = jars::java(KAFKA_CURRENT, 512, &logging);
        let log = std::fs::File::create(dir.join("driver.log")).expect("driver log");
        command
            .arg("Driver")
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().expect("java runs");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let waiting: Waiting = Arc::default();
        let answers = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                let id = answer["id"].as_u64().unwrap_or_default();
                if let Some(to) = lock(&answers).remove(&id) {
                    to.send(answer).ok();
                }
            }
        });
        Self {
            input: Mutex::new((input, 0)),
            waiting,
            _child: child,
        }
    }

    /// Sends one command and waits for its answer. Several threads may call at once.
    ///
    /// # Errors
    /// What Kafka's client threw.
    ///
    /// # Panics
    /// When the driver is gone or does not answer.
    pub fn call(&self, mut command: Value) -> Result<Value, DriverError> {
        let (to, answer) = channel();
        {
            let mut input = lock(&self.input);
            input.1 += 1;
            command["id"] = json!(input.1);
            lock(&self.waiting).insert(input.1, to);
            writeln!(input.0, "{command}").expect("the driver JVM runs");
        }
        let answer = answer
            .recv_timeout(ANSWER_LIMIT)
            .unwrap_or_else(|_| panic!("the driver did not answer {command}"));
        if answer["ok"] == json!(true) {
            return Ok(answer);
        }
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        Err(DriverError {
            class: text("error"),
            message: text("message"),
        })
    }
}

/// A cluster as the Java clients see it: its bootstrap address and the calls of the driver against
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// `host:port`.
    pub bootstrap: String,
}

impl Cluster {
    /// Calls `op` with `fields` (an object) on this cluster.
    ///
    /// # Errors
    /// What Kafka's client threw.
    pub fn try_call(&self, op: &str, fields: Value) -> Result<Value, DriverError> {
        let mut command = fields;
        command["op"] = json!(op);
        command["b"] = json!(self.bootstrap);
        driver().call(command)
    }

    /// As [`Cluster::try_call`], for calls that must succeed.
    ///
    /// # Panics
    /// When the call fails.
    pub fn call(&self, op: &str, fields: Value) -> Value {
        let shown = fields.to_string();
        self.try_call(op, fields)
            .unwrap_or_else(|e| panic!("{op} {shown} on {}: {e}", self.bootstrap))
    }

    /// Creates a topic and gives its id (22 characters; the zero id where the broker has none).
    pub fn create_topic(&self, topic: &str, partitions: i32, configs: Value) -> String {
        let answer = self.call(
            "create_topic",
            json!({"topic": topic, "partitions": partitions, "configs": configs}),
        );
        answer["topicId"].as_str().unwrap_or_default().to_owned()
    }

    /// The topic's id.
    #[must_use]
    pub fn topic_id(&self, topic: &str) -> String {
        self.call("describe_topic", json!({"topic": topic}))["topicId"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Produces records given as JSON (`key`, `value`, `headers`, `size`, `timestamp`, `partition`)
    /// with producer settings `props`.
    pub fn produce(&self, topic: &str, records: Value, props: Value) -> Value {
        self.call(
            "produce",
            json!({"topic": topic, "records": records, "props": props}),
        )
    }

    /// Produces `count` generated records of `size` bytes, round robin over `partitions`.
    pub fn produce_many(
        &self,
        topic: &str,
        partitions: i32,
        count: u32,
        size: u32,
        props: Value,
    ) -> Value {
        self.call("produce", json!({"topic": topic, "partitions": partitions, "count": count, "size": size, "props": props}))
    }

    /// Log end as a read_uncommitted client sees it.
    #[must_use]
    pub fn end_offset(&self, topic: &str, partition: i32) -> i64 {
        self.call(
            "offset",
            json!({"topic": topic, "partition": partition, "at": "latest"}),
        )["offset"]
            .as_i64()
            .unwrap_or(-1)
    }

    /// Log start.
    #[must_use]
    pub fn start_offset(&self, topic: &str, partition: i32) -> i64 {
        self.call(
            "offset",
            json!({"topic": topic, "partition": partition, "at": "earliest"}),
        )["offset"]
            .as_i64()
            .unwrap_or(-1)
    }

    /// Reads a whole partition with Kafka's own consumer, in the canonical form of
    /// [`crate::records`].
    #[must_use]
    pub fn consume(&self, topic: &str, partition: i32, committed: bool) -> Vec<String> {
        let answer = self.call(
            "consume",
            json!({"topic": topic, "partition": partition, "committed": committed}),
        );
        assert_eq!(
            answer["position"], answer["end"],
            "the consumer did not reach the end of {topic}-{partition} on {}",
            self.bootstrap
        );
        answer["records"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|r| r.as_str().map(str::to_owned))
            .collect()
    }
}
