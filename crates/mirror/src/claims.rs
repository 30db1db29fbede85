//! How far a source is believed in the numbers that no checksum covers: offsets and leader epochs.
//! Pure.
//!
//! A batch's base offset and leader epoch are written by whoever sends it. They are bounded by what
//! the same source has claimed elsewhere (the leader epoch that a Fetch was fenced with, the high
//! watermark of its answer) and by what leaves room for a failover.

use tarn_log::MirrorBounds;
use tarn_wire::ErrorCode;

use crate::commands::LEADER_EPOCH_MAX;
use crate::source::NoValue;

/// How far the local leader epoch is raised above the source's at once.
pub(crate) const EPOCH_STEP: i32 = 10;

/// Highest leader epoch of a source that leaves room for local ones above it.
pub(crate) const SOURCE_EPOCH_MAX: i32 = LEADER_EPOCH_MAX - EPOCH_STEP;

/// No mirrored log ends beyond this offset, so that a partition that was failed over has room for
/// 2^40 records of its own.
pub(crate) const OFFSET_END_MAX: i64 = i64::MAX - (1 << 40);

/// What batches of an answer with this high watermark may carry. `fenced_with` = the leader epoch
/// that the source compared with its own before it answered; `None` = it compared none.
pub(crate) fn bounds(fenced_with: Option<i32>, high_watermark: i64) -> MirrorBounds {
    MirrorBounds {
        leader_epoch_max: fenced_with.unwrap_or(i32::MAX).min(SOURCE_EPOCH_MAX),
        offset_end: high_watermark.min(OFFSET_END_MAX),
    }
}

/// An end of a source's log, unless no log of ours could end there.
pub(crate) fn believed_bound(offset: i64) -> Result<i64, NoValue> {
    if (0..=OFFSET_END_MAX).contains(&offset) {
        Ok(offset)
    } else {
        Err(NoValue::Refused(ErrorCode::OFFSET_NOT_AVAILABLE))
    }
}

/// The offset from which on a log must be cut before a failover can end: its first epoch (of
/// `epochs`, ascending) that cannot be exceeded, or the first offset that leaves no room. `None` =
/// all of it may stay.
pub(crate) fn unusable_from(epochs: &[(i32, i64)], log_end: i64) -> Option<i64> {
    let too_high = epochs.iter().find(|(epoch, _)| *epoch >= LEADER_EPOCH_MAX);
    let by_epoch = too_high.map(|&(_, start)| start);
    let by_offset = (log_end > OFFSET_END_MAX).then_some(OFFSET_END_MAX);
    by_epoch.into_iter().chain(by_offset).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_bounded_by_its_own_claims_and_by_what_leaves_room() {
        let known = bounds(Some(5), 100);
        assert_eq!((known.leader_epoch_max, known.offset_end), (5, 100));
        let unknown = bounds(None, i64::MAX);
        assert_eq!(unknown.leader_epoch_max, SOURCE_EPOCH_MAX);
        assert_eq!(unknown.offset_end, OFFSET_END_MAX);
        assert_eq!(bounds(Some(i32::MAX), 1).leader_epoch_max, SOURCE_EPOCH_MAX);
        assert_eq!(bounds(Some(1), -1).offset_end, -1, "no claim, no record");
    }

    #[test]
    fn only_what_cannot_be_exceeded_is_cut() {
        assert_eq!(unusable_from(&[(0, 0), (1 << 30, 50)], 100), None);
        assert_eq!(unusable_from(&[(0, 0), (i32::MAX, 50)], 100), Some(50));
        assert_eq!(
            unusable_from(&[(0, 0), (LEADER_EPOCH_MAX, 50)], 100),
            Some(50)
        );
        let far = unusable_from(&[(0, 0)], i64::MAX - 2);
        assert_eq!(far, Some(OFFSET_END_MAX));
    }
}
