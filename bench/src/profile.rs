//! Where processor time goes: samples a process with `perf` and sums them up by kind and by
//! function.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Samples a second of processor time.
const HERTZ: u32 = 999;
/// Functions that are named one by one.
const FUNCTIONS_MAX: usize = 25;
/// Fewer samples than this say nothing.
const SAMPLES_MIN: usize = 50;

/// A process that is being sampled.
#[derive(Debug)]
pub struct Recording {
    perf: Child,
    data: tempfile::TempDir,
}

impl Recording {
    /// Starts sampling `pid`. There are no hardware counters on virtual machines, so the processor
    /// clock ticks.
    ///
    /// # Errors
    /// There is no `perf`.
    pub fn start(pid: u32) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let perf = Command::new("perf")
            .args([
                "record",
                "-q",
                "-e",
                "cpu-clock",
                "-F",
                &HERTZ.to_string(),
                "-p",
                &pid.to_string(),
                "-o",
            ])
            .arg(data.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("perf does not run; install it (package linux-perf or perf)")?;
        Ok(Self { perf, data })
    }

    /// Ends sampling and writes the summary, whose first line is its title.
    ///
    /// # Errors
    /// `perf` failed, or there are too few samples.
    pub fn finish(mut self, title: &str, to: &Path) -> Result<()> {
        interrupt(&self.perf);
        self.perf.wait()?;
        let output = Command::new("perf")
            .args(["script", "-F", "comm,ip,sym,dso", "-i"])
            .arg(self.data.path().join("data"))
            .stderr(Stdio::null())
            .output()?;
        let samples = parse(&String::from_utf8_lossy(&output.stdout));
        if samples.len() < SAMPLES_MIN {
            bail!("perf took {} samples only", samples.len());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(to, summary(title, &samples)).with_context(|| to.display().to_string())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        interrupt(&self.perf);
        self.perf.wait().ok();
    }
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok();
    }
}

/// Function and object file of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hit {
    function: String,
    object: String,
}

/// Reads lines such as `tokio-rt-worker  ffffffff81 tcp_sendmsg ([kernel.kallsyms])`.
fn parse(text: &str) -> Vec<Hit> {
    let lines = text.lines().filter_map(|line| {
        let (head, object) = line.trim_end().strip_suffix(')')?.rsplit_once(" (")?;
        let mut words = head.split_whitespace();
        words
            .by_ref()
            .find(|word| word.len() >= 6 && word.chars().all(|c| c.is_ascii_hexdigit()))?;
        let function: Vec<&str> = words.collect();
        Some(Hit {
            function: function.join(" "),
            object: object.to_owned(),
        })
    });
    lines.collect()
}

/// Kinds of kernel functions by words in their names; the first that fits counts.
const KERNEL_KINDS: &[(&str, &[&str])] = &[
    (
        "kernel: copying to and from user space",
        &[
            "copy_user",
            "copy_from_user",
            "copy_to_user",
            "copy_page_from",
            "copy_page_to",
            "rep_movs",
            "copyin",
            "copyout",
            "copy_from_iter",
            "copy_to_iter",
        ],
    ),
    (
        "kernel: fresh pages",
        &[
            "clear_page",
            "clear_huge",
            "get_page_from_freelist",
            "rmqueue",
            "alloc_pages",
            "page_fault",
            "balloon",
            "page_reporting",
        ],
    ),
    (
        "kernel: network",
        &[
            "tcp",
            "skb",
            "sock",
            "inet",
            "ip_",
            "net_",
            "napi",
            "loopback",
            "dev_",
            "softirq",
            "validate_xmit",
            "epoll",
            "ep_",
            "nf_",
            "bbr",
            "sendfile",
            "splice",
        ],
    ),
    (
        "kernel: page cache and file system",
        &[
            "folio",
            "filemap",
            "ext4",
            "xfs",
            "btrfs",
            "jbd2",
            "xas_",
            "lru",
            "iomap",
            "iov_iter",
            "generic_perform",
            "writeback",
            "blk_",
            "bio_",
            "submit_bio",
            "vfs_",
            "generic_write",
            "balance_dirty",
            "truncate",
            "fdget",
            "file_",
            "fsync",
            "dax",
            "virtio",
            "page_",
        ],
    ),
    (
        "kernel: scheduling and waiting",
        &[
            "sched",
            "futex",
            "wake",
            "switch",
            "idle",
            "spin",
            "timer",
            "tick",
            "raw_",
            "pick_next",
            "enqueue_",
            "dequeue_",
            "update_",
            "rcu",
        ],
    ),
    (
        "kernel: entering and leaving",
        &[
            "syscall",
            "entry_",
            "do_syscall",
            "exit_to_user",
            "srso",
            "retbleed",
            "pti",
        ],
    ),
];

fn kind(hit: &Hit) -> String {
    if hit.object.contains("kernel") || hit.object.contains(".ko") || hit.object.contains("vdso") {
        let found = KERNEL_KINDS
            .iter()
            .find(|(_, words)| words.iter().any(|word| hit.function.contains(word)));
        return found.map_or("kernel: other", |(kind, _)| *kind).to_owned();
    }
    if let Some(at) = hit.function.find("tarn_") {
        let name: String = hit.function[at + 5..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric())
            .collect();
        return format!("own: {name}");
    }
    let libraries: &[(&str, &[&str])] = &[
        ("checksums", &["crc"]),
        ("copying in user space", &["memcpy", "memmove", "memset"]),
        (
            "allocator",
            &[
                "malloc",
                "free",
                "realloc",
                "calloc",
                "_int_",
                "mi_",
                "alloc::",
                "unlink_chunk",
            ],
        ),
        ("runtime: tokio, mio", &["tokio", "mio::"]),
    ];
    let found = libraries
        .iter()
        .find(|(_, words)| words.iter().any(|word| hit.function.contains(word)));
    found
        .map_or("other in user space", |(kind, _)| *kind)
        .to_owned()
}

fn summary(title: &str, samples: &[Hit]) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut functions: BTreeMap<&str, usize> = BTreeMap::new();
    for hit in samples {
        *kinds.entry(kind(hit)).or_default() += 1;
        *functions.entry(&hit.function).or_default() += 1;
    }
    let mut text = format!(
        "{title}: {} samples of processor time at {HERTZ} a second\n\nby kind\n",
        samples.len()
    );
    for (name, count) in largest(kinds) {
        write_share(&mut text, count, samples.len(), &name);
    }
    text.push_str("\nby function\n");
    for (name, count) in largest(functions).into_iter().take(FUNCTIONS_MAX) {
        write_share(&mut text, count, samples.len(), name);
    }
    text
}

fn largest<K: Ord>(counts: BTreeMap<K, usize>) -> Vec<(K, usize)> {
    let mut sorted: Vec<(K, usize)> = counts.into_iter().collect();
    sorted.sort_by_key(|entry| std::cmp::Reverse(entry.1));
    sorted
}

fn write_share(text: &mut String, count: usize, of: usize, name: &str) {
    writeln!(text, "{:6.1} %  {name}", count as f64 * 100.0 / of as f64).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_sorted_into_kinds() {
        let text = "tokio-rt-worker  ffffffff8a001234 tcp_sendmsg_locked ([kernel.kallsyms])\n\
                    tokio-rt-worker      55d0c0ffee00 tarn_log::partition::append (/x/tarn)\n\
                    a b      7f00c0ffee00 __memmove_avx (/lib/libc.so.6)\n\
                    nonsense\n";
        let kinds: Vec<String> = parse(text).iter().map(kind).collect();
        assert_eq!(
            kinds,
            ["kernel: network", "own: log", "copying in user space"]
        );
    }

    #[test]
    fn shares_stand_in_the_order_of_their_size() {
        let hit = |function: &str| Hit {
            function: function.to_owned(),
            object: "/x/tarn".to_owned(),
        };
        let text = summary(
            "produce",
            &[
                hit("crc_fast::update"),
                hit("tarn_wire::a"),
                hit("tarn_wire::b"),
            ],
        );
        let kinds: Vec<&str> = text.lines().skip(3).take(2).collect();
        assert_eq!(kinds, ["  66.7 %  own: wire", "  33.3 %  checksums"]);
    }
}
