//! What an answer of the source means for one partition (docs/mirroring.md §4.2, §4.3). Pure
//! tables.

use tarn_wire::ErrorCode;

use crate::claims::{EPOCH_STEP, SOURCE_EPOCH_MAX};
use crate::seam::{FailureKind, FetchFailure};

/// What to do about an error of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OnError {
    /// The leader is another one: go there if the answer says where, else ask for metadata.
    FindLeader,
    /// Ask for metadata and have the control plane look at the topic (gone, re-created).
    LookAtTopic,
    /// The same again after a pause.
    Wait,
    /// Compare log bounds with the source.
    CompareBounds,
    /// Give the partition up.
    Fail(FetchFailure),
}

/// The table of docs/mirroring.md §4.2.
pub(super) fn on_error(code: ErrorCode) -> OnError {
    match code {
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::FENCED_LEADER_EPOCH
        // The leader we know of is ahead of the broker asked, or it is of a history that is over.
        | ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::REPLICA_NOT_AVAILABLE => OnError::FindLeader,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::INCONSISTENT_TOPIC_ID => OnError::LookAtTopic,
        // The source's new leader does not know its high watermark yet.
        ErrorCode::OFFSET_NOT_AVAILABLE => OnError::Wait,
        ErrorCode::OFFSET_OUT_OF_RANGE | ErrorCode::OFFSET_MOVED_TO_TIERED_STORAGE => {
            OnError::CompareBounds
        }
        ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED => {
            OnError::Fail(FetchFailure {
                kind: FailureKind::Limited,
                text: format!(
                    "the source does not let this mirror read the topic ({}): grant READ and DESCRIBE",
                    code.name()
                ),
            })
        }
        ErrorCode::CORRUPT_MESSAGE => OnError::Fail(FetchFailure {
            kind: FailureKind::Limited,
            text: "the source found its own log of this partition corrupt (CORRUPT_MESSAGE)"
                .to_string(),
        }),
        ErrorCode::UNSUPPORTED_COMPRESSION_TYPE | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => {
            OnError::Fail(FetchFailure {
                kind: FailureKind::Permanent,
                text: format!(
                    "the source cannot give this partition in a form that can be kept ({})",
                    code.name()
                ),
            })
        }
        _ => OnError::Wait,
    }
}

/// What to do when our log end is not inside the source's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutOfRange {
    /// The source dropped what we did not have yet: start again at its log start, after losing this
    /// many offsets.
    StartAt {
        /// Log start of the source.
        offset: i64,
        /// Offsets that cannot be had any more.
        skipped: i64,
    },
    /// The logs differ: compare epochs before anything is cut.
    Diverged(String),
    /// It is in range by now, or the answers contradict each other.
    Again(String),
}

/// The decision of docs/mirroring.md §4.3. `last_epoch` is the epoch of our last record, −1 = none.
pub(super) fn out_of_range(
    local_end: i64,
    last_epoch: i32,
    source_start: i64,
    source_end: i64,
) -> OutOfRange {
    if source_start > source_end {
        return OutOfRange::Again(format!(
            "the source says that its log begins at {source_start} and ends at {source_end}"
        ));
    }
    if local_end < source_start {
        return OutOfRange::StartAt {
            offset: source_start,
            skipped: source_start - local_end,
        };
    }
    if local_end > source_end {
        return OutOfRange::Diverged(format!(
            "the source's log ends at {source_end}, ours at {local_end}: records were lost there, or the topic is another one"
        ));
    }
    if last_epoch >= 0 {
        return OutOfRange::Diverged(format!(
            "the source does not know leader epoch {last_epoch} of our last record at offset {}",
            local_end - 1
        ));
    }
    OutOfRange::Again(format!(
        "the source says that its log ends at {source_end} and that our end {local_end} is out of its range"
    ))
}

/// How far the local leader epoch shall stay above the source's, so that a leader change there
/// costs no pause (docs/mirroring.md §4.4).
const EPOCH_DISTANCE: i32 = 3;
/// Pure rule of M-8: the epoch to ask for when the source is at `source_epoch`.
pub(super) fn epoch_wanted(source_epoch: i32, local_epoch: i32) -> EpochRule {
    if source_epoch > SOURCE_EPOCH_MAX {
        return EpochRule::Overflow;
    }
    if source_epoch > local_epoch - EPOCH_DISTANCE {
        EpochRule::Raise(source_epoch + EPOCH_STEP)
    } else {
        EpochRule::FarEnough
    }
}

/// What M-8 asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochRule {
    /// Far enough apart.
    FarEnough,
    /// Ask for at least this local epoch.
    Raise(i32),
    /// No epoch is left above the source's.
    Overflow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_dropped_more_than_we_have_is_followed_with_the_gap_told() {
        assert_eq!(
            out_of_range(50, 0, 100, 200),
            OutOfRange::StartAt {
                offset: 100,
                skipped: 50
            }
        );
    }

    #[test]
    fn a_source_that_ends_below_us_is_never_followed_blindly() {
        assert!(matches!(
            out_of_range(50, 0, 0, 40),
            OutOfRange::Diverged(_)
        ));
        assert!(matches!(
            out_of_range(50, -1, 0, 0),
            OutOfRange::Diverged(_)
        ));
        assert!(matches!(
            out_of_range(50, 7, 0, 90),
            OutOfRange::Diverged(_)
        ));
        for (start, end) in [(0, 90), (91, 90)] {
            let found = out_of_range(50, -1, start, end);
            assert!(matches!(found, OutOfRange::Again(_)), "{found:?}");
        }
    }

    #[test]
    fn the_local_epoch_is_raised_before_the_source_reaches_it() {
        assert_eq!(epoch_wanted(0, 0), EpochRule::Raise(10));
        assert_eq!(epoch_wanted(7, 10), EpochRule::FarEnough);
        assert_eq!(epoch_wanted(8, 10), EpochRule::Raise(18));
        assert_eq!(epoch_wanted(i32::MAX, 0), EpochRule::Overflow);
    }

    #[test]
    fn connectivity_of_the_source_is_no_failure() {
        for code in [
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ErrorCode::FENCED_LEADER_EPOCH,
            ErrorCode::UNKNOWN_LEADER_EPOCH,
        ] {
            assert!(!matches!(on_error(code), OnError::Fail(_)));
        }
        assert_eq!(on_error(ErrorCode::UNKNOWN_TOPIC_ID), OnError::LookAtTopic);
        assert!(matches!(
            on_error(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
            OnError::Fail(_)
        ));
    }
}
