//! Owns one real Kafka node: configuration, format, start, kill, restart on the same folder and
//! port.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::driver::Cluster;
use crate::jars::{self, KAFKA_CURRENT, Logging};
use crate::ports::free_port;
use crate::process::{Process, Scratch};
use crate::{raw, wait};

const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Heap of a measured node: the value in Kafka's own start script.
const MEASURED_HEAP_MB: u32 = 1024;
/// A killed broker's ZooKeeper session must expire before the next one can register.
const ZOOKEEPER_SESSION_MS: u32 = 2_000;

/// A running Kafka node.
#[derive(Debug)]
pub struct Kafka {
    version: String,
    port: u16,
    process: Process,
    logging: Logging,
    scratch: Scratch,
    jvm: Jvm,
    /// Where it runs and listens, when that is not this network namespace.
    elsewhere: Option<(String, Ipv4Addr)>,
}

/// How the JVM of a node is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jvm {
    /// Started fast, small: for tests.
    Fast,
    /// As Kafka's own start script does it: for measurements.
    Measured,
}

impl Kafka {
    /// Starts the current version with default settings.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(KAFKA_CURRENT, &[])
    }

    /// Starts `version` with `settings` on top of the defaults of the tests.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with(version: &str, settings: &[(&str, &str)]) -> Self {
        Self::try_start_at(version, settings, Jvm::Fast, false)
            .unwrap_or_else(|e| panic!("kafka {version}: {e:#}"))
    }

    /// Starts the current version as a user would run it, for measurements: documented defaults,
    /// the JVM options of its own start script and 1 GB heap, without the settings that make tests
    /// fast; `settings` on top.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_measured(settings: &[(&str, &str)]) -> Self {
        Self::try_start_at(KAFKA_CURRENT, settings, Jvm::Measured, false)
            .unwrap_or_else(|e| panic!("kafka {KAFKA_CURRENT}: {e:#}"))
    }

    /// As [`Kafka::start_measured`], in the network namespace `namespace`, where it listens on
    /// `address`.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_measured_in(
        namespace: &str,
        address: Ipv4Addr,
        settings: &[(&str, &str)],
    ) -> Self {
        let elsewhere = Some((namespace.to_owned(), address));
        Self::try_start_in(elsewhere, KAFKA_CURRENT, settings, Jvm::Measured, false)
            .unwrap_or_else(|e| panic!("kafka {KAFKA_CURRENT} in namespace {namespace}: {e:#}"))
    }

    /// The node of the current version that the cases of this process share. Each uses topics of
    /// its own; nobody kills it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        // Statics are never dropped: the node removes its folder itself when this process is gone.
        SHARED.get_or_init(|| {
            Self::try_start_at(KAFKA_CURRENT, &[], Jvm::Fast, true)
                .unwrap_or_else(|e| panic!("shared kafka: {e:#}"))
        })
    }

    fn try_start_at(
        version: &str,
        settings: &[(&str, &str)],
        jvm: Jvm,
        delete_at_end: bool,
    ) -> Result<Self> {
        Self::try_start_in(None, version, settings, jvm, delete_at_end)
    }

    fn try_start_in(
        elsewhere: Option<(String, Ipv4Addr)>,
        version: &str,
        settings: &[(&str, &str)],
        jvm: Jvm,
        delete_at_end: bool,
    ) -> Result<Self> {
        let scratch = Scratch::new(&format!("kafka-{version}"));
        let dir = scratch.path();
        let logging = Logging::write(dir, "WARN");
        let port = free_port();
        let config = if let Some((_, address)) = &elsewhere {
            // The controller stays on the namespace's own loopback.
            let here = format!("PLAINTEXT://127.0.0.1:{port}");
            kraft_config(dir, port, jvm).replace(&here, &format!("PLAINTEXT://{address}:{port}"))
        } else if has_kraft(version) {
            kraft_config(dir, port, jvm)
        } else {
            zookeeper_config(dir, port)?
        };
        fs::write(
            dir.join("server.properties"),
            with_settings(config, settings),
        )?;
        let process = launch(
            version,
            dir,
            &logging,
            jvm,
            elsewhere.as_ref().map(|(namespace, _)| namespace.as_str()),
            Some(&random_id()),
            delete_at_end,
        )?;
        let mut kafka = Self {
            version: version.into(),
            port,
            process,
            logging,
            scratch,
            jvm,
            elsewhere,
        };
        kafka.await_ready();
        Ok(kafka)
    }

    /// Starts one more broker of the cluster whose controller or ZooKeeper this node runs.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn join(&self, node_id: i32) -> Self {
        let line = |file: &str, key: &str| {
            let text =
                fs::read_to_string(self.scratch.path().join(file)).expect("the first node's files");
            let value = text.lines().find_map(|l| l.strip_prefix(key));
            value
                .unwrap_or_else(|| panic!("{file} has no {key}"))
                .to_owned()
        };
        let scratch = Scratch::new("kafka-joined");
        let (dir, port) = (scratch.path(), free_port());
        let logging = Logging::write(dir, "WARN");
        let common = common_config(dir, port, self.jvm);
        let (config, cluster_id) = if has_kraft(&self.version) {
            let config = format!(
                "{common}process.roles=broker\nnode.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
                 listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\ncontroller.quorum.voters={}\n",
                line("server.properties", "controller.quorum.voters="),
            );
            (config, line("data/meta.properties", "cluster.id="))
        } else {
            let config = format!(
                "{common}broker.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect={}\n\
                 zookeeper.session.timeout.ms={ZOOKEEPER_SESSION_MS}\n",
                line("server.properties", "zookeeper.connect="),
            );
            // The cluster id comes from ZooKeeper.
            (config, String::new())
        };
        fs::write(dir.join("server.properties"), config).expect("server.properties");
        let process = launch(
            &self.version,
            dir,
            &logging,
            self.jvm,
            None,
            Some(&cluster_id),
            false,
        )
        .expect("kafka starts");
        let mut kafka = Self {
            version: self.version.clone(),
            port,
            process,
            logging,
            scratch,
            jvm: self.jvm,
            elsewhere: None,
        };
        kafka.await_ready();
        kafka
    }

    fn await_ready(&mut self) {
        let address = SocketAddr::from((self.host(), self.port));
        let process = &mut self.process;
        wait::until(START_LIMIT, "kafka answers ApiVersions", || {
            process.check_running().unwrap_or_else(|e| panic!("{e:#}"));
            raw::api_versions_of(address)
                .map(|_| ())
                .map_err(|e| format!("{e:#}"))
        });
    }

    fn namespace(&self) -> Option<&str> {
        self.elsewhere
            .as_ref()
            .map(|(namespace, _)| namespace.as_str())
    }

    fn host(&self) -> Ipv4Addr {
        self.elsewhere
            .as_ref()
            .map_or(Ipv4Addr::LOCALHOST, |(_, address)| *address)
    }

    /// Its address.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("{}:{}", self.host(), self.port)
    }

    /// Its client port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The Java clients' view of it.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        Cluster {
            bootstrap: self.bootstrap(),
        }
    }

    /// The folder of one partition.
    #[must_use]
    pub fn partition_dir(&self, topic: &str, partition: i32) -> PathBuf {
        self.scratch
            .path()
            .join("data")
            .join(format!("{topic}-{partition}"))
    }

    /// The folder with all partitions.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// The broker process, for freezing it.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it the hard way.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn stop(&mut self) {
        self.process.terminate();
        self.process.wait(STOP_LIMIT).expect("kafka ends");
    }

    /// Starts it again on the same folder and port, after [`Kafka::kill`] or [`Kafka::stop`].
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.launch_again();
        self.await_ready();
    }

    /// As [`Kafka::restart`], without waiting for anything: for measuring how long that takes.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn launch_again(&mut self) {
        self.process = launch(
            &self.version,
            self.scratch.path(),
            &self.logging,
            self.jvm,
            self.namespace(),
            None,
            false,
        )
        .expect("kafka starts again");
    }
}

fn has_kraft(version: &str) -> bool {
    !version.starts_with("2.")
}

fn launch(
    version: &str,
    dir: &Path,
    logging: &Logging,
    jvm: Jvm,
    namespace: Option<&str>,
    first_as: Option<&str>,
    delete_at_end: bool,
) -> Result<Process> {
    let mut command = match jvm {
        Jvm::Fast => jars::java(version, 512, logging),
        Jvm::Measured => {
            let mut command = jars::java_full(version, MEASURED_HEAP_MB, logging);
            command.arg(format!("-Xms{MEASURED_HEAP_MB}m"));
            command
        }
    };
    command.arg("KafkaNode");
    let config = dir.join("server.properties");
    if has_kraft(version) {
        command.arg("kraft").arg(config);
        if let Some(cluster_id) = first_as {
            command.arg(cluster_id);
        }
    } else {
        let zookeeper = dir.join("zookeeper.properties");
        if zookeeper.exists() {
            command.arg("zookeeper").arg(zookeeper);
        } else {
            command.arg("broker");
        }
        command.arg(config);
        command.arg(
            if first_as.is_some() {
                0
            } else {
                ZOOKEEPER_SESSION_MS + 1_000
            }
            .to_string(),
        );
    }
    if delete_at_end {
        command.env("TARN_DELETE_AT_END", dir);
    }
    if let Some(namespace) = namespace {
        command = inside(namespace, &command);
    }
    command.current_dir(dir);
    Process::spawn(&format!("kafka-{version}"), command, &dir.join("kafka.log"))
}

/// The same command in a network namespace; `ip` becomes the command, so the process id stays the
/// same.
fn inside(namespace: &str, command: &Command) -> Command {
    let mut ip = Command::new("ip");
    ip.args(["netns", "exec", namespace])
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            ip.env(key, value);
        }
    }
    ip
}

fn common_config(dir: &Path, port: u16, jvm: Jvm) -> String {
    let single_node = format!(
        "log.dirs={}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{port}\noffsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
         auto.create.topics.enable=false\n",
        dir.join("data").display()
    );
    if jvm == Jvm::Measured {
        return single_node;
    }
    format!(
        "{single_node}offsets.topic.num.partitions=3\ntransaction.state.log.num.partitions=3\nmessage.max.bytes=33554432\n\
         log.cleaner.backoff.ms=200\nlog.cleaner.dedupe.buffer.size=8388608\nlog.retention.check.interval.ms=500\n\
         log.initial.task.delay.ms=500\nsocket.request.max.bytes=209715200\n"
    )
}

fn kraft_config(dir: &Path, port: u16, jvm: Jvm) -> String {
    let controller = free_port();
    let mut config = common_config(dir, port, jvm);
    write!(
        config,
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\nshare.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n"
    )
    .ok();
    config
}

fn zookeeper_config(dir: &Path, port: u16) -> Result<String> {
    let zookeeper = free_port();
    fs::write(
        dir.join("zookeeper.properties"),
        format!(
            "dataDir={}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\ntickTime=500\nmaxClientCnxns=0\n",
            dir.join("zookeeper").display()
        ),
    )
    .context("zookeeper.properties")?;
    let mut config = common_config(dir, port, Jvm::Fast);
    write!(config, "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect=127.0.0.1:{zookeeper}\nzookeeper.session.timeout.ms={ZOOKEEPER_SESSION_MS}\n").ok();
    Ok(config)
}

/// Later lines win over earlier ones with the same key, as in Java's properties.
fn with_settings(mut config: String, settings: &[(&str, &str)]) -> String {
    for (key, value) in settings {
        writeln!(config, "{key}={value}").ok();
    }
    config
}

/// A fresh cluster id in Kafka's 22-character form. `A` in front keeps it from looking like an
/// option.
fn random_id() -> String {
    let mut bytes = *uuid::Uuid::new_v4().as_bytes();
    bytes[0] = 0;
    raw::id_text(bytes)
}
