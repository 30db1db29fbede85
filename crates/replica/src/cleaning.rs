//! When compacted logs are cleaned, and how fast: one at a time, the one with the largest share of
//! new bytes first. Runs on a thread of its own, apart from every request. Not here: how a log is
//! cleaned (`tarn_log`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_log::LogError;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

use crate::guard::MirrorGuard;
use crate::manager::{ReplicaManager, now_ms};
use crate::partition::Partition;

/// A log that could not be cleaned is tried again after this time.
const FAILED_PAUSE: Duration = Duration::from_secs(3600);
/// The longest sleep of a throttled run; the end of the broker is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Settings of the cleaner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerConfig {
    /// `log.cleaner.enable`.
    pub enabled: bool,
    /// `log.cleaner.backoff.ms`: pause between two looks for something to clean.
    pub backoff_ms: u64,
    /// `log.cleaner.dedupe.buffer.size`: memory for the map of keys.
    pub map_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`, reads and writes together.
    pub bytes_per_second: f64,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        CleanerConfig {
            enabled: true,
            backoff_ms: 15_000,
            map_bytes: 128 << 20,
            bytes_per_second: f64::MAX,
        }
    }
}

/// Bytes since a moment, and when the next ones are due.
struct Throttle {
    bytes_per_second: f64,
    begun: Instant,
    bytes: f64,
}

impl Throttle {
    fn new(bytes_per_second: f64) -> Self {
        Throttle {
            bytes_per_second,
            begun: Instant::now(),
            bytes: 0.0,
        }
    }

    /// How long to wait after so many more bytes.
    fn wait_after(&mut self, bytes: u64) -> Duration {
        self.bytes += bytes as f64;
        let due = self.bytes / self.bytes_per_second.max(1.0);
        let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
        due.saturating_sub(self.begun.elapsed())
    }
}

/// Logs that could not be cleaned, since when.
type Failed = HashMap<(tarn_wire::Str, i32), Instant>;

impl ReplicaManager {
    pub(crate) async fn keep_cleaning(self: Arc<Self>) {
        let config = self.config.cleaner;
        if !config.enabled {
            return;
        }
        let mut ticks = tokio::time::interval(Duration::from_millis(config.backoff_ms.max(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = Failed::new();
        while self
            .cancel
            .run_until_cancelled(ticks.tick())
            .await
            .is_some()
        {
            let manager = self.clone();
            let pass = tokio::task::spawn_blocking(move || {
                manager.clean_what_is_due(&mut failed);
                failed
            });
            failed = match pass.await {
                Ok(failed) => failed,
                Err(error) => {
                    error!(%error, "the log cleaner stopped, it begins again");
                    Failed::new()
                }
            };
        }
    }

    /// One pass over all logs. Blocks on disk.
    fn clean_what_is_due(&self, failed: &mut Failed) {
        failed.retain(|_, since| since.elapsed() < FAILED_PAUSE);
        let now = now_ms();
        let mut due = Vec::new();
        for partition in self.hosted.online() {
            let key = (partition.topic().clone(), partition.index());
            if !may_clean(&partition) || failed.contains_key(&key) {
                continue;
            }
            match partition.log().dirty_ppm(now) {
                Ok(Some(ppm)) if ppm > partition.log().config().min_cleanable_dirty_ppm => {
                    due.push((ppm, partition));
                }
                Ok(_) => {}
                Err(error) => note_failure(failed, &partition, &error),
            }
        }
        due.sort_by_key(|(ppm, _)| std::cmp::Reverse(*ppm));
        for (_, partition) in due {
            if self.cancel.is_cancelled() {
                return;
            }
            self.clean(&partition, failed);
        }
    }

    fn clean(&self, partition: &Partition, failed: &mut Failed) {
        let config = self.config.cleaner;
        let mut throttle = Throttle::new(config.bytes_per_second);
        let mut moved = |bytes| {
            let wait = throttle.wait_after(bytes);
            let until = Instant::now().checked_add(wait);
            loop {
                if self.cancel.is_cancelled() || !may_clean(partition) {
                    return false;
                }
                let left = until.map_or(SLEEP_MAX, |until| {
                    until.saturating_duration_since(Instant::now())
                });
                if left.is_zero() {
                    return true;
                }
                std::thread::sleep(left.min(SLEEP_MAX));
            }
        };
        match partition
            .log()
            .clean(config.map_bytes, now_ms(), &mut moved)
        {
            Ok(outcome) if outcome.segments_before > 0 => {
                partition.log().dir_state().note_activity();
                info!(?partition, ?outcome, "log cleaned");
            }
            Ok(_) => {}
            Err(error) => note_failure(failed, partition, &error),
        }
    }
}

/// Whether the partition is one whose log this broker may rewrite: compacted, led here, and no
/// mirror (whose bytes are its source's).
fn may_clean(partition: &Partition) -> bool {
    partition.is_leader()
        && partition.log().config().compact
        && partition.guard() == MirrorGuard::Writable
}

fn note_failure(failed: &mut Failed, partition: &Partition, error: &LogError) {
    if matches!(error, LogError::Closed { .. }) {
        return;
    }
    warn!(
        topic = %partition.topic(),
        partition = partition.index(),
        %error,
        "the log cannot be cleaned, it is tried again in an hour"
    );
    failed.insert(
        (partition.topic().clone(), partition.index()),
        Instant::now(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_run_waits_as_its_rate_says() {
        let mut throttle = Throttle::new(1000.0);
        let wait = throttle.wait_after(500) + throttle.wait_after(500);
        assert!(wait > Duration::from_millis(1200), "{wait:?}");
        let mut free = Throttle::new(f64::MAX);
        assert_eq!(free.wait_after(u64::MAX), Duration::ZERO);
    }
}
