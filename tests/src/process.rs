//! Owns child processes: output into a file, kill, terminate, wait, and a certain end when the
//! owner goes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A running child process whose output goes to a log file. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Held open: some children end when it closes.
    _stdin: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with standard output and error appended to `log`. Standard input stays
    /// open as long as this value lives.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let mut out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("log {}", log.display()))?;
        writeln!(out, "--- {name}: {command:?}")?;
        command
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        let stdin = child.stdin.take();
        Ok(Self {
            name: name.into(),
            child,
            _stdin: stdin,
            log: log.into(),
        })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory.
    ///
    /// # Panics
    /// When it does not run any more.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("status of the process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a resident size") * 1024
    }

    /// How many sockets it holds open.
    ///
    /// # Panics
    /// When it does not run any more.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("its descriptors");
        let target =
            |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
        open.filter_map(target)
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it printed so far (lossy UTF-8).
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Fails with the end of the log when the process is gone.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended with {status}; the end of its log:\n{}",
                self.name,
                self.tail(40)
            );
        }
        Ok(())
    }

    /// The last `lines` lines of the log.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let text = self.output();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Ends it the hard way (signal 9) and waits.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Sends the signal that asks for an orderly end (15) and does not wait.
    pub fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }

    /// Stops it in its tracks (signal STOP), as a black hole on the network would look; `cont`
    /// wakes it.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen {
            rustix::process::Signal::STOP
        } else {
            rustix::process::Signal::CONT
        };
        if let Some(pid) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, signal).ok();
        }
    }

    /// Waits for the end, at most `limit`.
    ///
    /// # Errors
    /// Still running after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!(
                    "{} is still running after {limit:?}; the end of its log:\n{}",
                    self.name,
                    self.tail(20)
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- end of the log of {} ---\n{}", self.name, self.tail(60));
        }
    }
}

/// What a finished command said.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code; −1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `command` to its end, at most `limit`, and gives all it printed.
///
/// # Errors
/// It cannot be started, or does not end in time (then it is killed).
pub fn run(mut command: Command, limit: Duration) -> Result<Output> {
    let out = tempfile::NamedTempFile::new()?;
    let err = tempfile::NamedTempFile::new()?;
    command
        .stdin(Stdio::null())
        .stdout(out.reopen()?)
        .stderr(err.reopen()?);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().ok();
            child.wait().ok();
            bail!(
                "{command:?} did not end within {limit:?}; it said: {}",
                String::from_utf8_lossy(&fs::read(err.path())?)
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ok(Output {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&fs::read(out.path())?).into_owned(),
        stderr: String::from_utf8_lossy(&fs::read(err.path())?).into_owned(),
    })
}

/// A temporary folder that is kept when the test fails, so that logs and segments can be looked at.
#[derive(Debug)]
pub struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    /// A new empty folder below the system's temporary folder.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Some(
            tempfile::Builder::new()
                .prefix(&format!("tarn-test-{name}-"))
                .tempdir()
                .expect("temporary folder"),
        ))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0
            .as_ref()
            .map_or_else(|| Path::new("/"), tempfile::TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(dir) = self.0.take()
        {
            eprintln!("--- kept for a look: {}", dir.keep().display());
        }
    }
}
