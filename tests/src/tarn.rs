//! Owns the product as a black box: the `tarn` server as a process, and the mirror tools as a
//! person calls them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::driver::Cluster;
use crate::ports::free_port;
use crate::process::{self, Output, Process, Scratch};
use crate::{raw, wait};

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// The `tarn` program: `TARN_BIN`, else the one that cargo built for the profile of this test or
/// program.
///
/// # Panics
/// When there is none; the text says how to build it.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("TARN_BIN") {
        return path.into();
    }
    let exe = std::env::current_exe().expect("path of the test");
    // A test is target/PROFILE/deps/TEST, a program target/PROFILE/PROGRAM.
    let folder = exe.parent().expect("a folder with the test");
    let profile = match folder.file_name() {
        Some(name) if name == "deps" => folder.parent().expect("target/PROFILE"),
        _ => folder,
    };
    let path = profile.join("tarn");
    assert!(
        path.exists(),
        "{} is missing: cargo build -p tarn-cli",
        path.display()
    );
    path
}

/// A running (or stopped) Tarn node on loopback.
#[derive(Debug)]
pub struct Tarn {
    port: u16,
    controller_port: u16,
    process: Process,
    scratch: Scratch,
}

impl Tarn {
    /// Starts a node with the settings of the tests.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a node with `settings` on top.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(Scratch::new("tarn"), settings)
    }

    /// Starts a node that may have so many files and sockets open, with `settings` on top.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with_nofile(limit: u64, settings: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("tarn");
        fs::write(scratch.path().join(NOFILE), limit.to_string()).expect("limit of open files");
        Self::start_in(scratch, settings)
    }

    fn start_in(scratch: Scratch, settings: &[(&str, &str)]) -> Self {
        let (port, controller_port) = (free_port(), free_port());
        let config = config(scratch.path(), port, controller_port, settings);
        fs::write(scratch.path().join("server.properties"), config).expect("server.properties");
        let process = launch(scratch.path());
        let mut tarn = Self {
            port,
            controller_port,
            process,
            scratch,
        };
        tarn.await_ready();
        tarn
    }

    fn await_ready(&mut self) {
        let (port, process) = (self.port, &mut self.process);
        wait::until(START_LIMIT, "tarn answers ApiVersions", || {
            process.check_running().unwrap_or_else(|e| panic!("{e:#}"));
            raw::api_versions(port)
                .map(|_| ())
                .map_err(|e| format!("{e:#}"))
        });
    }

    /// Its address.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its client port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Every port it listens on.
    #[must_use]
    pub fn ports(&self) -> [u16; 2] {
        [self.port, self.controller_port]
    }

    /// The Java clients' view of it.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        Cluster {
            bootstrap: self.bootstrap(),
        }
    }

    /// Its scratch folder: `server.properties`, `tarn.log`, `data`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// The folder of one partition.
    #[must_use]
    pub fn partition_dir(&self, topic: &str, partition: i32) -> PathBuf {
        self.dir().join("data").join(format!("{topic}-{partition}"))
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it the hard way.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it in order (SIGTERM) and gives the time that took.
    ///
    /// # Panics
    /// When it does not end in time or not with exit code 0.
    pub fn stop(&mut self) -> Duration {
        let started = Instant::now();
        self.process.terminate();
        let status = self
            .process
            .wait(STOP_LIMIT)
            .unwrap_or_else(|e| panic!("{e:#}"));
        assert!(
            status.success(),
            "clean shutdown ends with {status}:\n{}",
            self.process.tail(20)
        );
        started.elapsed()
    }

    /// Starts it again on the same folder and port.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.process = launch(self.dir());
        self.await_ready();
    }

    /// As [`Tarn::restart`], without waiting for anything: for measuring how long that takes.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn launch_again(&mut self) {
        self.process = launch(self.dir());
    }

    /// Fails unless the process still runs and never panicked.
    ///
    /// # Panics
    /// When it does not run, or its log shows a panic.
    pub fn check_healthy(&mut self) {
        self.process
            .check_running()
            .unwrap_or_else(|e| panic!("{e:#}"));
        let log = self.process.output();
        assert!(
            !log.contains("panicked at"),
            "tarn panicked:\n{}",
            self.process.tail(60)
        );
    }

    /// Runs `kafka-mirrors.sh` against this node; `arguments` without the bootstrap server.
    ///
    /// # Panics
    /// When it cannot be run or hangs.
    #[must_use]
    pub fn mirrors(&self, arguments: &[&str]) -> Output {
        self.tool("mirrors", arguments)
    }

    /// Runs `kafka-cluster-mirrors.sh` against this node.
    ///
    /// # Panics
    /// When it cannot be run or hangs.
    #[must_use]
    pub fn cluster_mirrors(&self, arguments: &[&str]) -> Output {
        self.tool("cluster-mirrors", arguments)
    }

    /// As [`Tarn::mirrors`], from a thread that does not own the node.
    ///
    /// # Panics
    /// When it cannot be run or hangs.
    pub fn mirrors_at(bootstrap: &str, dir: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command
            .args(["mirrors", "--bootstrap-server", bootstrap])
            .args(arguments)
            .current_dir(dir);
        process::run(command, COMMAND_LIMIT).unwrap_or_else(|e| panic!("{e:#}"))
    }

    fn tool(&self, personality: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command
            .args([personality, "--bootstrap-server", &self.bootstrap()])
            .args(arguments);
        process::run(command, COMMAND_LIMIT).unwrap_or_else(|e| panic!("{e:#}"))
    }

    /// As [`Tarn::mirrors`], for commands that must succeed; gives standard output.
    ///
    /// # Panics
    /// When the exit code is not 0.
    pub fn mirrors_ok(&self, arguments: &[&str]) -> String {
        let output = self.mirrors(arguments);
        assert_eq!(output.code, 0, "kafka-mirrors.sh {arguments:?}: {output:?}");
        output.stdout
    }

    /// Creates mirror `mirror` of the cluster at `source`, with further properties.
    ///
    /// # Panics
    /// When that fails.
    pub fn create_mirror(&self, mirror: &str, source: &str, properties: &[(&str, &str)]) {
        let file = self.mirror_config(mirror, source, properties);
        let said = self.mirrors_ok(&["--create", "--mirror", mirror, "--mirror-config", &file]);
        assert_eq!(said, format!("Created mirror {mirror}\n"));
    }

    /// Writes a mirror's properties file and gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn mirror_config(&self, mirror: &str, source: &str, properties: &[(&str, &str)]) -> String {
        let mut text = format!("bootstrap.servers={source}\n");
        for (key, value) in properties {
            text.push_str(&format!("{key}={value}\n"));
        }
        let path = self.dir().join(format!("{mirror}.properties"));
        fs::write(&path, text).expect("mirror properties");
        path.display().to_string()
    }

    /// Adds the topics matching `pattern` and waits until they are MIRRORING.
    ///
    /// # Panics
    /// When that fails.
    pub fn add_topics(&self, mirror: &str, pattern: &str) {
        self.mirrors_ok(&[
            "--add",
            "--mirror",
            mirror,
            "--topic",
            pattern,
            "--wait",
            "--timeout-ms",
            "60000",
        ]);
    }

    /// The partitions of a mirror as `--describe --json` gives them.
    ///
    /// # Panics
    /// When the answer is no JSON array.
    #[must_use]
    pub fn describe(&self, mirror: &str) -> Vec<Value> {
        let text = self.mirrors_ok(&["--describe", "--mirror", mirror, "--json"]);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("describe --json gave {text:?}: {e}"))
    }

    /// Waits until every partition of the mirror that `only` selects is in `state`.
    ///
    /// # Panics
    /// When they are not within `limit`.
    pub fn await_state(
        &self,
        mirror: &str,
        state: &str,
        limit: Duration,
        only: impl Fn(&Value) -> bool,
    ) {
        wait::until(limit, &format!("mirror {mirror} gets {state}"), || {
            let rows: Vec<Value> = self.describe(mirror).into_iter().filter(&only).collect();
            if !rows.is_empty() && rows.iter().all(|r| r["state"] == state) {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        });
    }

    /// Waits until the log end here equals the log end at `source`.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub fn await_caught_up(&self, source: &Cluster, topic: &str, partitions: i32, limit: Duration) {
        for partition in 0..partitions {
            let want = source.end_offset(topic, partition);
            wait::until(
                limit,
                &format!("{topic}-{partition} reaches offset {want}"),
                || {
                    let have = self.cluster().try_call(
                        "offset",
                        serde_json::json!({"topic": topic, "partition": partition, "at": "latest"}),
                    );
                    match have {
                        Ok(answer) if answer["offset"] == want => Ok(()),
                        other => Err(format!(
                            "{other:?}, describe: {:?}",
                            self.mirrors(&["--describe"])
                        )),
                    }
                },
            );
        }
    }
}

/// File in a node's folder that holds its limit of open files, when it has one of its own.
const NOFILE: &str = "nofile";

/// The limit of open files that the nodes of this run get (`TARN_TEST_NOFILE`); `None` leaves that
/// of the tests.
fn nofile_of_run() -> Option<u64> {
    let text = std::env::var("TARN_TEST_NOFILE").ok()?;
    let limit = text.parse();
    Some(limit.unwrap_or_else(|e| panic!("TARN_TEST_NOFILE={text}: {e}")))
}

fn launch(dir: &Path) -> Process {
    let own = fs::read_to_string(dir.join(NOFILE)).ok();
    let nofile = own
        .and_then(|text| text.parse().ok())
        .or_else(nofile_of_run);
    let mut command = match nofile {
        Some(limit) => {
            // Soft and hard: a node raises the soft one.
            let mut limited = Command::new("prlimit");
            limited
                .arg(format!("--nofile={limit}:{limit}"))
                .arg(program());
            limited
        }
        None => Command::new(program()),
    };
    command
        .args(["server", "--config"])
        .arg(dir.join("server.properties"))
        .current_dir(dir);
    Process::spawn("tarn", command, &dir.join("tarn.log")).unwrap_or_else(|e| panic!("{e:#}"))
}

fn config(dir: &Path, port: u16, controller_port: u16, settings: &[(&str, &str)]) -> String {
    let mut text = format!(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller_port}\nlog.dirs={}\nauto.create.topics.enable=false\n\
         mirror.metadata.refresh.interval.ms=1000\nmirror.source.topic.deletion.after.ms=2000\ngroup.initial.rebalance.delay.ms=0\n",
        dir.join("data").display()
    );
    for (key, value) in settings {
        text.push_str(&format!("{key}={value}\n"));
    }
    text
}
