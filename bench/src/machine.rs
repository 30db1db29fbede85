//! The machine and the versions that figures were taken with, and whether it can run a scenario at
//! all.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tarn_tests::jars::KAFKA_CURRENT;

/// File descriptors that runs with thousands of partitions want.
pub const DESCRIPTORS_WANTED: u64 = 200_000;
/// Descriptors that a Java broker has open besides one for each partition (about 150), and some for
/// connections and for new files.
const DESCRIPTORS_OTHERWISE: u64 = 2_000;
const DESCRIPTORS_PER_PARTITION: u64 = 2;
/// Left free on the disk whatever a scenario needs, bytes.
const DISK_RESERVE_BYTES: u64 = 1 << 30;

/// What a reader needs to judge the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Processors that the system sees.
    pub cores: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// File system of the folder where the systems under test keep their data.
    pub file_system: String,
    /// TCP congestion control by default.
    pub congestion_control: String,
    /// KiB that the device of these data reads ahead; 0 = unknown. Faults in mapped files cost
    /// accordingly.
    pub read_ahead_kib: u64,
    /// File descriptors that a process may open.
    pub descriptors: u64,
    /// First line of `java -version`; empty when there is none.
    pub java: String,
    /// Version of Kafka and of MirrorMaker 2.
    pub kafka: String,
}

impl Machine {
    /// Looks at this machine.
    #[must_use]
    pub fn look() -> Self {
        Self {
            processor: cpu_model(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            file_system: file_system(&read("/proc/self/mountinfo"), &std::env::temp_dir()),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control")
                .trim()
                .to_owned(),
            read_ahead_kib: read_ahead_kib(&std::env::temp_dir()),
            descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            java: java_version().unwrap_or_default(),
            kafka: KAFKA_CURRENT.to_owned(),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |(_, model)| model.trim().to_owned(),
    )
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// The type of the file system mounted closest above `folder`.
fn file_system(mountinfo: &str, folder: &Path) -> String {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let point = head.split(' ').nth(4)?;
        folder
            .starts_with(point)
            .then(|| (point.len(), tail.split(' ').next().unwrap_or_default()))
    });
    let closest = mounts.max_by_key(|(length, _)| *length);
    closest.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

fn read_ahead_kib(folder: &Path) -> u64 {
    let Ok(meta) = fs::metadata(folder) else {
        return 0;
    };
    let (major, minor) = (
        rustix::fs::major(meta.st_dev()),
        rustix::fs::minor(meta.st_dev()),
    );
    let kib = read(&format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    kib.trim().parse().unwrap_or(0)
}

/// The first line of what `java -version` says.
fn java_version() -> Option<String> {
    let output = Command::new("java").arg("-version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    output
        .status
        .success()
        .then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// The commit that is checked out, with a mark when tracked files of the engine differ from it.
#[must_use]
pub fn commit(repository: &Path) -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(repository)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(head) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        "crates",
    ]) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head} with changes"),
    }
}

/// Raises the limit of file descriptors for this process and its children, as far as it is allowed.
/// Gives a sentence when that is not enough.
#[must_use]
pub fn raise_descriptor_limit() -> Option<String> {
    let now = getrlimit(Resource::Nofile);
    if now
        .current
        .is_none_or(|current| current >= DESCRIPTORS_WANTED)
    {
        return None;
    }
    let hard = now.maximum.map(|maximum| maximum.max(DESCRIPTORS_WANTED));
    let wanted = Rlimit {
        current: Some(DESCRIPTORS_WANTED),
        maximum: hard,
    };
    if setrlimit(Resource::Nofile, wanted).is_ok() {
        return None;
    }
    let allowed = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    setrlimit(Resource::Nofile, allowed).ok();
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Some(format!(
        "the limit of open files could not be raised to {DESCRIPTORS_WANTED}, it is {current}: rows with thousands of partitions may not fit \
         (run as root, or raise the hard limit)"
    ))
}

/// How many partitions a Java broker that is started now can hold: it keeps a file open for each,
/// and opens another one each where it flushes many at once; 11,000 partitions have taken more than
/// 20,000.
#[must_use]
pub fn java_partitions_max() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    descriptors.saturating_sub(DESCRIPTORS_OTHERWISE) / DESCRIPTORS_PER_PARTITION
}

/// Checks what every scenario with a real Kafka needs.
///
/// # Errors
/// A sentence that says what is missing and how to get it.
pub fn check_java() -> Result<()> {
    if java_version().is_none() {
        bail!("there is no Java: install a JDK of version 17 or newer, the real Kafka runs on it");
    }
    if Command::new("javac").arg("-version").output().is_err() {
        bail!(
            "there is no Java compiler: install a whole JDK of version 17 or newer, not only a runtime"
        );
    }
    for version in [KAFKA_CURRENT, &format!("mirrormaker-{KAFKA_CURRENT}")] {
        if !tarn_tests::jars::are_there(version) {
            bail!(
                "the jars of Kafka ({version}) are not in the cache and could not be fetched: bin/fetch-kafka.sh {version} needs Maven and \
                 the network"
            );
        }
    }
    Ok(())
}

/// Checks that the release build of the product is there.
///
/// # Errors
/// A sentence that says how to build it.
pub fn check_product() -> Result<()> {
    let program = std::env::var_os("TARN_BIN").context(
        "TARN_BIN does not say which tarn program to measure: run bin/bench.sh, which builds the release program and names it",
    )?;
    if !Path::new(&program).exists() {
        bail!(
            "the release build is missing: {} does not exist; cargo build --release -p tarn-cli makes it",
            Path::new(&program).display()
        );
    }
    Ok(())
}

/// Checks that the disk of the temporary folder holds `needed` bytes more.
///
/// # Errors
/// A sentence with both figures.
pub fn check_disk(needed: u64) -> Result<()> {
    let folder = std::env::temp_dir();
    let stat = rustix::fs::statvfs(&folder)
        .context("the disk of the temporary folder cannot be asked for its space")?;
    disk_has_room(stat.f_bavail * stat.f_frsize, needed, &folder)
}

fn disk_has_room(free: u64, needed: u64, folder: &Path) -> Result<()> {
    let wanted = needed.saturating_add(DISK_RESERVE_BYTES);
    if needed > 0 && free < wanted {
        bail!(
            "the disk is too full: this needs {:.1} GB in {} and {:.1} GB are free; make room or set TMPDIR to a larger disk",
            wanted as f64 / 1e9,
            folder.display(),
            free as f64 / 1e9
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_mount_names_the_file_system() {
        let mountinfo =
            "21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 0:5 / /tmp rw shared:3 - tmpfs tmpfs rw\n";
        assert_eq!(file_system(mountinfo, Path::new("/tmp/x")), "tmpfs");
        assert_eq!(file_system(mountinfo, Path::new("/var")), "ext4");
        assert_eq!(file_system("", Path::new("/var")), "unknown");
    }

    #[test]
    fn a_full_disk_is_told_with_both_figures() {
        let said = disk_has_room(2_000_000_000, 5_000_000_000, Path::new("/data"));
        assert_eq!(
            said.unwrap_err().to_string(),
            "the disk is too full: this needs 6.1 GB in /data and 2.0 GB are free; make room or set TMPDIR to a larger disk"
        );
        assert!(disk_has_room(0, 0, Path::new("/data")).is_ok());
    }

    #[test]
    fn a_machine_is_described() {
        assert_eq!(cpu_model("processor: 0\nmodel name\t: A B\n"), "A B");
        assert_eq!(memory_bytes("MemTotal:  2048 kB\n"), 2 << 20);
        assert!(Machine::look().cores > 0);
    }
}
