//! Whether others use the machine: processor time of processes that are not the harness's own tree.
//!
//! Kernel threads do not count: what they do here (writing back pages, network interrupts) is done
//! for the systems under test.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::process::{Stat, parse_stat};

/// What others may use, in percent of one core. A machine is never quite its own: the supervisor of
/// the sandbox that this project is measured in takes 2 to 4 % by itself. What others used stands
/// on the page, round by round.
pub const PERCENT_MAX: f64 = 5.0;
/// How many processes are named.
const NAMED_MAX: usize = 4;
/// The process that inherits orphans.
const FIRST_PROCESS: u32 = 1;
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
    let foreign =
        |all: &HashMap<u32, Stat>, pid: u32| !is_below(all, pid, own) && !is_kernel(all, pid);
    let mut used: HashMap<u32, u64> = HashMap::new();
    let mut inherited: HashMap<u32, u64> = HashMap::new();
    for (pid, stat) in now.iter().filter(|(pid, _)| foreign(now, **pid)) {
        let (ticks, children_ticks) =
            earlier(before, *pid, stat).map_or((0, 0), |was| (was.ticks, was.children_ticks));
        used.insert(*pid, stat.ticks.saturating_sub(ticks));
        inherited.insert(*pid, stat.children_ticks.saturating_sub(children_ticks));
    }
    let ended = before.iter().filter(|(pid, was)| {
        let lives = now
            .get(*pid)
            .is_some_and(|stat| stat.started == was.started);
        !lives && foreign(before, **pid)
    });
    for (pid, was) in ended {
        take_back(before, &mut inherited, *pid, was);
    }
    for (pid, ticks) in inherited {
        *used.entry(pid).or_default() += ticks;
    }
    // Linux counts a hundred ticks a second, so a tick is a percent-second.
    let total: u64 = used.values().sum();
    let mut users: Vec<(u32, u64)> = used.into_iter().filter(|(_, ticks)| *ticks > 0).collect();
    users.sort_by_key(|(pid, ticks)| (std::cmp::Reverse(*ticks), *pid));
    let share = |ticks: u64| ticks as f64 / wall_s;
    let names = users.iter().take(NAMED_MAX).map(|(pid, ticks)| {
        let name = now.get(pid).map_or("?", |stat| stat.name.as_str());
        format!("{name} {pid}: {:.1} %", share(*ticks))
    });
    Others {
        percent_of_a_core: share(total),
        names: names.collect(),
    }
}

/// The same process in the earlier listing.
fn earlier<'a>(before: &'a HashMap<u32, Stat>, pid: u32, stat: &Stat) -> Option<&'a Stat> {
    before.get(&pid).filter(|was| was.started == stat.started)
}

/// Whoever waited for a process that ended got all its time at once. What it had used before the
/// stretch began is not the stretch's: it is taken back from its parent, or from the ancestor that
/// inherited instead of a parent that had ended too. What a parent does not wait for is never
/// inherited, so that no more is taken back than there is.
fn take_back(before: &HashMap<u32, Stat>, inherited: &mut HashMap<u32, u64>, pid: u32, was: &Stat) {
    let mut left = was.ticks + was.children_ticks;
    let mut at = was.parent;
    for _ in 0..=before.len() {
        if let Some(ticks) = inherited.get_mut(&at) {
            let taken = left.min(*ticks);
            *ticks -= taken;
            left -= taken;
        }
        if left == 0 || at == pid {
            return;
        }
        at = match before.get(&at) {
            Some(stat) if stat.parent != 0 => stat.parent,
            // Orphans go to the first process, whether or not the chain of parents can still be
            // followed.
            _ if at != FIRST_PROCESS => FIRST_PROCESS,
            _ => return,
        };
    }
}

fn is_below(all: &HashMap<u32, Stat>, pid: u32, ancestor: u32) -> bool {
    let mut at = pid;
    // A chain of parents is never longer than there are processes, unless the listing changed while
    // it was read.
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

    /// Processes by number, name, parent, own ticks and ticks of ended children.
    fn families(of: &[(u32, &str, u32, u64, u64)]) -> HashMap<u32, Stat> {
        of.iter()
            .map(|(pid, name, parent, ticks, children_ticks)| {
                let stat = Stat {
                    name: (*name).to_owned(),
                    parent: *parent,
                    ticks: *ticks,
                    children_ticks: *children_ticks,
                    started: 7,
                };
                (*pid, stat)
            })
            .collect()
    }

    fn listing(of: &[(u32, &str, u32, u64)]) -> HashMap<u32, Stat> {
        let alone: Vec<_> = of
            .iter()
            .map(|(p, n, pp, t)| (*p, *n, *pp, *t, 0))
            .collect();
        families(&alone)
    }

    fn percent(before: &[(u32, &str, u32, u64, u64)], now: &[(u32, &str, u32, u64, u64)]) -> f64 {
        others(&families(before), &families(now), 99, 1.0).percent_of_a_core
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
        let before = [
            (1, "init", 0, 0, 0),
            (5, "sh", 1, 10, 0),
            (6, "job", 5, 5_000, 0),
        ];
        let after = [(1, "init", 0, 0, 0), (5, "sh", 1, 11, 5_003)];
        assert_eq!(percent(&before, &after), 4.0);
    }

    #[test]
    fn a_whole_family_that_ended_is_no_burst() {
        // The job had waited for its compiler before it ended itself: the shell inherits both at
        // once.
        let before = [
            (1, "init", 0, 0, 0),
            (5, "sh", 1, 10, 0),
            (6, "job", 5, 100, 40),
            (7, "compiler", 6, 5_000, 0),
        ];
        let after = [(1, "init", 0, 0, 0), (5, "sh", 1, 10, 5_142)];
        assert_eq!(percent(&before, &after), 2.0);
    }

    #[test]
    fn an_orphan_whose_time_went_to_the_first_process_is_no_burst() {
        let before = [
            (1, "init", 0, 0, 0),
            (5, "sh", 1, 10, 0),
            (6, "job", 5, 5_000, 0),
        ];
        let after = [(1, "init", 0, 0, 5_010)];
        // The shell ended as well, unseen by whom; only its ten ticks and the job's are known to be
        // old.
        assert_eq!(percent(&before, &after), 0.0);
    }

    #[test]
    fn children_that_came_and_went_meanwhile_are_seen() {
        let before = [(1, "init", 0, 0, 0), (5, "sh", 1, 10, 700)];
        let after = [(1, "init", 0, 0, 0), (5, "sh", 1, 10, 760)];
        assert_eq!(percent(&before, &after), 60.0);
    }

    #[test]
    fn a_child_that_nobody_waited_for_hides_nothing_that_others_used() {
        let before = [
            (1, "init", 0, 0, 0),
            (5, "sh", 1, 10, 0),
            (6, "job", 5, 5_000, 0),
            (8, "rustc", 1, 0, 0),
        ];
        let after = [
            (1, "init", 0, 0, 0),
            (5, "sh", 1, 10, 0),
            (8, "rustc", 1, 50, 20),
        ];
        assert_eq!(percent(&before, &after), 70.0);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let before = listing(&[(5, "sh", 1, 900)]);
        let mut after = listing(&[(5, "vi", 1, 30)]);
        after.entry(5).and_modify(|stat| stat.started = 8);
        let seen = others(&before, &after, 99, 1.0);
        assert_eq!(seen.percent_of_a_core, 30.0);
    }

    #[test]
    fn the_machine_can_be_looked_at() {
        assert!(Snapshot::take().processes.contains_key(&std::process::id()));
    }
}
