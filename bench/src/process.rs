//! What processes used: processor time and resident memory, from `/proc`. Not here: starting and
//! ending them (`tarn_tests::process`).

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Clock ticks a second in `/proc/PID/stat`; a constant of Linux's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;
/// User and system time are each cut off to a tick, at both ends of a stretch.
const TICKS_ERROR_S: f64 = 2.0 / TICKS_PER_SECOND;

/// What a set of processes used since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time, all threads, seconds.
    pub processor_s: f64,
    /// Resident memory now, bytes.
    pub rss_bytes: u64,
    /// The most resident memory that each had at any time, added up, bytes.
    pub rss_peak_bytes: u64,
}

impl Usage {
    /// Adds up `pids`. A process that is gone counts as nothing: take the figures before ending
    /// what is measured.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        pids.iter()
            .map(|pid| of_one(*pid))
            .fold(Self::default(), |a, b| Self {
                processor_s: a.processor_s + b.processor_s,
                rss_bytes: a.rss_bytes + b.rss_bytes,
                rss_peak_bytes: a.rss_peak_bytes + b.rss_peak_bytes,
            })
    }

    /// Processor time since `earlier`, seconds.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> f64 {
        self.processor_s - earlier.processor_s
    }
}

/// Processor time of a set of processes over a stretch of wall time.
#[derive(Debug)]
pub struct Meter {
    before: Vec<Reading>,
    started: Instant,
}

/// What one process had used at a moment.
#[derive(Debug)]
struct Reading {
    pid: u32,
    processor_s: f64,
    threads_ns: BTreeMap<u32, u64>,
}

impl Reading {
    fn take(pid: u32) -> Self {
        Self {
            pid,
            processor_s: processor_s(pid).unwrap_or(0.0),
            threads_ns: threads_ns(pid),
        }
    }

    /// Processor seconds from this reading to `now`. The count of the process is cut off to ticks;
    /// that of each thread is exact, but is gone with the thread. So it is the threads', and where
    /// some ended at least what the ticks vouch for.
    fn until(&self, now: &Self) -> f64 {
        let threads = now.threads_ns.iter().map(|(thread, ns)| {
            let before = self.threads_ns.get(thread).copied().unwrap_or(0);
            ns.saturating_sub(before)
        });
        let exact_s = threads.sum::<u64>() as f64 / 1e9;
        let ended = |thread| !now.threads_ns.contains_key(thread);
        if self.threads_ns.keys().any(ended) || now.threads_ns.is_empty() {
            return exact_s.max(now.processor_s - self.processor_s - TICKS_ERROR_S);
        }
        exact_s
    }
}

impl Meter {
    /// Starts counting.
    #[must_use]
    pub fn start(pids: &[u32]) -> Self {
        Self {
            before: pids.iter().map(|pid| Reading::take(*pid)).collect(),
            started: Instant::now(),
        }
    }

    /// Processor seconds and wall seconds since the start.
    #[must_use]
    pub fn read(&self) -> (f64, f64) {
        let used = self.before.iter();
        let used = used.map(|before| before.until(&Reading::take(before.pid)));
        (used.sum(), self.started.elapsed().as_secs_f64())
    }
}

fn of_one(pid: u32) -> Usage {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Usage {
        processor_s: processor_s(pid).unwrap_or(0.0),
        rss_bytes: kib(&status, "VmRSS:") * 1024,
        rss_peak_bytes: kib(&status, "VmHWM:") * 1024,
    }
}

/// Processor time of one process, threads that ended included. Linux takes the sum from the
/// scheduler's exact count, so that only the last tick is lost.
fn processor_s(pid: u32) -> Option<f64> {
    let stat = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(stat.ticks as f64 / TICKS_PER_SECOND)
}

/// Processor time of each thread that lives, nanoseconds.
fn threads_ns(pid: u32) -> BTreeMap<u32, u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            let ns = text.split(' ').next()?.parse().ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, ns))
        })
        .collect()
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// User and system time of its own in ticks.
    pub(crate) ticks: u64,
    /// That of children that ended and were waited for, with all that they inherited in the same
    /// way, in ticks.
    pub(crate) children_ticks: u64,
    /// When it started, in ticks since the machine did; a number that is used again has another
    /// one.
    pub(crate) started: u64,
}

/// Reads `/proc/PID/stat`. The name may hold blanks and brackets, so the last bracket counts.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        name,
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        children_ticks: number(13)? + number(14)?,
        started: number(19)?,
    })
}

fn kib(status: &str, key: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_is_read() {
        let text = "12 (a) b) S 7 1 1 0 -1 0 0 0 0 0 30 12 3 4 20 0 1 0 5 0 0";
        let stat = Stat {
            name: "a) b".to_owned(),
            parent: 7,
            ticks: 42,
            children_ticks: 7,
            started: 5,
        };
        assert_eq!(parse_stat(text), Some(stat));
    }

    fn reading(processor_s: f64, threads_ns: &[(u32, u64)]) -> Reading {
        Reading {
            pid: 1,
            processor_s,
            threads_ns: threads_ns.iter().copied().collect(),
        }
    }

    #[test]
    fn a_little_processor_time_is_counted_by_the_nanosecond() {
        let before = reading(7.01, &[(1, 100), (2, 50)]);
        let now = reading(7.02, &[(1, 1_000_100), (2, 50), (3, 500_000)]);
        assert!((before.until(&now) - 0.0015).abs() < 1e-12);
    }

    #[test]
    fn what_a_thread_used_before_it_ended_is_not_lost() {
        let before = reading(7.0, &[(1, 100), (2, 50)]);
        let now = reading(8.0, &[(1, 200)]);
        assert!((before.until(&now) - 0.98).abs() < 1e-9);
    }

    #[test]
    fn this_process_holds_memory_and_a_gone_one_nothing() {
        let own = Usage::of(&[std::process::id()]);
        assert!(own.rss_bytes > 0 && own.rss_peak_bytes >= own.rss_bytes);
        assert_eq!(Usage::of(&[u32::MAX]), Usage::default());
    }
}
