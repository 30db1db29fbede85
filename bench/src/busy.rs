//! Whether others use the machine: processor time of processes that are not the harness's own tree.
//!
//! Kernel threads do not count: what they do here (writing back pages, network interrupts) is done for the systems under test.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::process::{Stat, parse_stat};

/// What others may use, in percent of one core. A machine is never quite its own: the supervisor of the sandbox that this project is measured in
/// takes 2 to 4 % by itself. What others used stands on the page, round by round.
pub const PERCENT_MAX: f64 = 5.0;
/// How many processes are named.
const NAMED_MAX: usize = 4;
/// The process whose children are the kernel's threads.
const KERNEL_THREADS: u32 = 2;

/// What others used over a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// Percent of one core, all of them together.
    pub percent_of_a_core: f64,
    /// The largest users with their own share.
    pub names: Vec<String>,
}

impl Others {
    /// Whether figures taken meanwhile would be worth little.
    #[must_use]
    pub fn disturb(&self) -> bool {
        self.percent_of_a_core > PERCENT_MAX
    }

    /// A clause such as "5.1 % of a core (rustc 4.0 %, sshd 1.1 %)".
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{:.1} % of a core ({})",
            self.percent_of_a_core,
            self.names.join(", ")
        )
    }
}

/// The processes of a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    processes: HashMap<u32, Stat>,
}

impl Snapshot {
    /// Looks at `/proc` now.
    #[must_use]
    pub fn take() -> Self {
        let processes = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
                let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                Some((pid, parse_stat(&text)?))
            })
            .collect();
        Self {
            at: Instant::now(),
            processes,
        }
    }

    /// What processes outside the tree of `own` used since.
    #[must_use]
    pub fn others_since(&self, own: u32) -> Others {
        let now = Self::take();
        let wall_s = now.at.duration_since(self.at).as_secs_f64().max(0.001);
        others(&self.processes, &now.processes, own, wall_s)
    }
}

fn others(before: &HashMap<u32, Stat>, now: &HashMap<u32, Stat>, own: u32, wall_s: f64) -> Others {
    // A process that ended hands its time to the parent that waited for it, so that sums over everybody lose and double nothing.
    let foreign =
        |all: &HashMap<u32, Stat>, pid: u32| !is_below(all, pid, own) && !is_kernel(all, pid);
    let mut used: HashMap<u32, i64> = HashMap::new();
    for (pid, stat) in now.iter().filter(|(pid, _)| foreign(now, **pid)) {
        *used.entry(*pid).or_default() += signed(stat.ticks_with_children);
    }
    for (pid, stat) in before.iter().filter(|(pid, _)| foreign(before, **pid)) {
        let heir = if now.contains_key(pid) {
            *pid
        } else {
            stat.parent
        };
        if now.contains_key(&heir) && foreign(now, heir) {
            *used.entry(heir).or_default() -= signed(stat.ticks_with_children);
        }
    }
    // Linux counts a hundred ticks a second, so a tick is a percent-second.
    let total: i64 = used.values().sum();
    let mut users: Vec<(u32, i64)> = used.into_iter().filter(|(_, ticks)| *ticks > 0).collect();
    users.sort_by_key(|(pid, ticks)| (-ticks, *pid));
    let share = |ticks: i64| ticks.max(0) as f64 / wall_s;
    let names = users.iter().take(NAMED_MAX).map(|(pid, ticks)| {
        let name = now.get(pid).map_or("?", |stat| stat.name.as_str());
        format!("{name} {pid}: {:.1} %", share(*ticks))
    });
    Others {
        percent_of_a_core: share(total),
        names: names.collect(),
    }
}

fn signed(ticks: u64) -> i64 {
    i64::try_from(ticks).unwrap_or(i64::MAX)
}

fn is_below(all: &HashMap<u32, Stat>, pid: u32, ancestor: u32) -> bool {
    let mut at = pid;
    // A chain of parents is never longer than there are processes, unless the listing changed while it was read.
    for _ in 0..all.len() {
        if at == ancestor {
            return true;
        }
        match all.get(&at) {
            Some(stat) if stat.parent != 0 => at = stat.parent,
            _ => return false,
        }
    }
    false
}

fn is_kernel(all: &HashMap<u32, Stat>, pid: u32) -> bool {
    pid == KERNEL_THREADS
        || all
            .get(&pid)
            .is_some_and(|stat| stat.parent == KERNEL_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(of: &[(u32, &str, u32, u64)]) -> HashMap<u32, Stat> {
        of.iter()
            .map(|(pid, name, parent, ticks)| {
                let stat = Stat {
                    name: (*name).to_owned(),
                    parent: *parent,
                    ticks: *ticks,
                    ticks_with_children: *ticks,
                };
                (*pid, stat)
            })
            .collect()
    }

    #[test]
    fn the_own_tree_and_the_kernel_do_not_count() {
        let tree = |a, b, c| {
            listing(&[
                (1, "init", 0, 0),
                (2, "kthreadd", 0, 0),
                (3, "kworker", 2, a),
                (10, "tarn-bench", 1, b),
                (11, "java", 10, b),
                (20, "rustc", 1, c),
            ])
        };
        let quiet = others(&tree(0, 0, 5), &tree(900, 900, 6), 10, 1.0);
        assert!(!quiet.disturb(), "{quiet:?}");
        let busy = others(&tree(0, 0, 5), &tree(0, 0, 55), 10, 1.0);
        assert!(busy.disturb());
        assert_eq!(busy.describe(), "50.0 % of a core (rustc 20: 50.0 %)");
    }

    #[test]
    fn a_process_that_ended_counts_only_what_it_used_meanwhile() {
        let before = listing(&[(1, "init", 0, 0), (5, "sh", 1, 10), (6, "job", 5, 5_000)]);
        let after = listing(&[(1, "init", 0, 0), (5, "sh", 1, 5_011)]);
        let seen = others(&before, &after, 99, 1.0);
        assert_eq!(seen.percent_of_a_core, 1.0);
    }

    #[test]
    fn the_machine_can_be_looked_at() {
        assert!(Snapshot::take().processes.contains_key(&std::process::id()));
    }
}
