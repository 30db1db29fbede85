//! How far readers may see: the high watermark rule, as a pure function.
//!
//! The high watermark is the smallest log end of the in-sync replicas, and never beyond the *epoch
//! gate*: a batch that was mirrored with a leader epoch above the one this partition has published
//! stays invisible until the image shows a higher epoch (docs/mirroring.md §4.4). A consumer that
//! commits such a batch's epoch would otherwise wait for metadata that nobody gives it.

/// The offset of the first batch whose leader epoch is above `published_epoch`, if there is one.
/// `epochs` is the log's own chain, ascending.
pub(crate) fn epoch_gate(epochs: &[(i32, i64)], published_epoch: i32) -> Option<i64> {
    let first_above = epochs.partition_point(|&(epoch, _)| epoch <= published_epoch);
    epochs
        .get(first_above)
        .map(|&(_, start_offset)| start_offset)
}

/// The high watermark that follows from the log ends. `follower_ends` are the log ends of the other
/// in-sync replicas.
pub(crate) fn high_watermark(
    leader_end: i64,
    follower_ends: impl IntoIterator<Item = i64>,
    gate: Option<i64>,
) -> i64 {
    let replicated = follower_ends.into_iter().fold(leader_end, i64::min);
    gate.map_or(replicated, |gate| gate.min(replicated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_the_start_of_the_first_unpublished_epoch() {
        let chain = [(0, 0), (3, 10), (7, 25)];
        assert_eq!(epoch_gate(&chain, 7), None);
        assert_eq!(epoch_gate(&chain, 6), Some(25));
        assert_eq!(epoch_gate(&chain, 0), Some(10));
        assert_eq!(epoch_gate(&chain, -1), Some(0));
        assert_eq!(epoch_gate(&[], -1), None);
    }

    #[test]
    fn the_high_watermark_is_the_least_of_replicas_and_gate() {
        assert_eq!(high_watermark(30, [], None), 30);
        assert_eq!(high_watermark(30, [28, 29], None), 28);
        assert_eq!(high_watermark(30, [28], Some(25)), 25);
        assert_eq!(high_watermark(30, [28], Some(29)), 28);
    }
}
