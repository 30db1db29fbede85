//! The sync point a failover leaves behind: last mirror epoch and last mirror offset, as a pure
//! decision (docs/mirroring.md §2.3, step 2).
//!
//! It is decided once per stop, before any local epoch or marker can appear in the log; re-running
//! the stop sequence finds it stored.

use crate::state::MirrorState;
use crate::transition::PartitionRecord;

/// Up to where both clusters' logs can agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopPoint {
    /// Leader epoch of the last mirrored batch; `None` = nothing was mirrored.
    pub last_mirror_epoch: Option<i32>,
    /// Log end before our own markers; `None` = nothing was mirrored.
    pub last_mirror_offset: Option<i64>,
}

/// Decides the stop point when STOPPING is entered from `before`. `latest_epoch` and `log_end` are
/// the local log's, with no append in flight.
///
/// From a state in which the log is the source's prefix the log itself tells. While preparing, the
/// log may still hold local records from an earlier failover, so only what is on record counts, and
/// nothing if the log was (or may have been) cut below it.
pub fn decide(before: &PartitionRecord, latest_epoch: Option<i32>, log_end: i64) -> StopPoint {
    if !before.needs_preparation() && before.state != MirrorState::UleRecovery {
        return StopPoint {
            last_mirror_epoch: latest_epoch,
            last_mirror_offset: Some(log_end),
        };
    }
    if before.state == MirrorState::UleRecovery {
        // Everything in the log came from the source; what diverged is found by the next
        // preparation's epoch comparison.
        let end = before.truncate_to.map_or(log_end, |cut| cut.min(log_end));
        return StopPoint {
            last_mirror_epoch: latest_epoch,
            last_mirror_offset: Some(end),
        };
    }
    let cut_below = match (before.truncate_to, before.last_mirror_offset) {
        (Some(cut), Some(known)) => cut < known,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if cut_below
        || before
            .last_mirror_offset
            .is_some_and(|known| known > log_end)
    {
        return StopPoint::default();
    }
    StopPoint {
        last_mirror_epoch: before.last_mirror_epoch,
        last_mirror_offset: before.last_mirror_offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: MirrorState) -> PartitionRecord {
        PartitionRecord {
            state,
            ..Default::default()
        }
    }

    #[test]
    fn a_mirroring_partition_stops_at_its_log_end() {
        for state in [MirrorState::Mirroring, MirrorState::EpochFencing] {
            assert_eq!(
                decide(&record(state), Some(4), 100),
                StopPoint {
                    last_mirror_epoch: Some(4),
                    last_mirror_offset: Some(100)
                }
            );
        }
        let failed = PartitionRecord {
            previous: MirrorState::Mirroring,
            ..record(MirrorState::Failed)
        };
        assert_eq!(decide(&failed, Some(4), 100).last_mirror_epoch, Some(4));
        let paused = PartitionRecord {
            previous: MirrorState::Mirroring,
            ..record(MirrorState::Paused)
        };
        assert_eq!(decide(&paused, Some(4), 100).last_mirror_offset, Some(100));
    }

    #[test]
    fn a_preparing_partition_keeps_the_point_on_record_never_a_local_epoch() {
        let known = PartitionRecord {
            last_mirror_epoch: Some(2),
            last_mirror_offset: Some(50),
            ..record(MirrorState::Preparing)
        };
        assert_eq!(
            decide(&known, Some(12), 100),
            StopPoint {
                last_mirror_epoch: Some(2),
                last_mirror_offset: Some(50)
            }
        );
        assert_eq!(
            decide(&record(MirrorState::Preparing), Some(12), 100),
            StopPoint::default()
        );
    }

    #[test]
    fn a_cut_below_the_point_on_record_leaves_none() {
        let cut = PartitionRecord {
            last_mirror_epoch: Some(2),
            last_mirror_offset: Some(50),
            truncate_to: Some(10),
            ..record(MirrorState::Preparing)
        };
        assert_eq!(decide(&cut, Some(1), 100), StopPoint::default());
        let above = PartitionRecord {
            truncate_to: Some(50),
            ..cut
        };
        assert_eq!(decide(&above, Some(1), 100).last_mirror_epoch, Some(2));
    }
}
