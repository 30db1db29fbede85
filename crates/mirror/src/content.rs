//! Whether what two logs hold at the same offsets is of one history (docs/mirroring.md §5.2). Pure:
//! bytes in, verdict out.
//!
//! Leader epochs, offsets, topic ids and cluster ids are numbers that a restored or re-made source
//! repeats; the bytes of a batch are not. Compaction at the source may drop batches and rewrite
//! them with fewer records, under the same offsets; it never adds or changes one.
//!
//! Guards F-3 and M-7: content decides between two histories.

use std::fmt;

use bytes::Bytes;
use tarn_records::{BatchHeader, DECOMPRESSED_BYTES_MAX_DEFAULT, Record, RecordsError, records};

/// What a batch says of itself in an error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchFacts {
    /// First and last offset.
    pub(crate) offsets: (i64, i64),
    /// Largest timestamp, epoch ms; −1 = none.
    pub(crate) timestamp: i64,
    /// Leader epoch.
    pub(crate) leader_epoch: i32,
}

impl BatchFacts {
    fn of(header: &BatchHeader) -> BatchFacts {
        BatchFacts {
            offsets: (header.base_offset, header.last_offset()),
            timestamp: header.max_timestamp,
            leader_epoch: header.leader_epoch,
        }
    }
}

impl fmt::Display for BatchFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((first, last), timestamp, epoch) = (self.offsets, self.timestamp, self.leader_epoch);
        write!(
            f,
            "offsets {first} to {last} (timestamp {timestamp}, leader epoch {epoch})"
        )
    }
}

/// Two batches that cannot be of one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The local batch.
    pub(crate) ours: BatchFacts,
    /// What the source has there.
    pub(crate) theirs: BatchFacts,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the source holds another history: its records at {} are not the ones copied at {}; nothing was cut. \
             It was restored from a copy, or the topic was made anew there: compare both, then remove the topic from \
             the mirror, and to copy the source's, delete it here and add it again",
            self.theirs, self.ours
        )
    }
}

/// The verdict over one batch of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The batches are equal, or what compaction left of theirs is in ours.
    Same,
    /// The source has nothing left at our batch's offsets: no verdict.
    NothingLeft,
    /// The histories differ.
    Different(Difference),
}

/// Compares a whole local batch with what a Fetch at its last offset brought (more may follow).
/// `theirs` without a byte = nothing left.
///
/// # Errors
/// A text when one of both cannot be read.
pub(crate) fn compare(ours: &Bytes, theirs: &Bytes) -> Result<Verdict, String> {
    if theirs.is_empty() {
        return Ok(Verdict::NothingLeft);
    }
    let unreadable = |whose: &str, e: RecordsError| format!("{whose} batch cannot be read: {e}");
    let local = BatchHeader::parse(ours).map_err(|e| unreadable("our", e))?;
    if theirs.starts_with(ours.get(..local.size()).unwrap_or(ours)) {
        return Ok(Verdict::Same);
    }
    let remote = BatchHeader::parse(theirs).map_err(|e| unreadable("the source's", e))?;
    if remote.base_offset > local.last_offset() {
        return Ok(Verdict::NothingLeft);
    }
    let different = Verdict::Different(Difference {
        ours: BatchFacts::of(&local),
        theirs: BatchFacts::of(&remote),
    });
    if !may_be_compacted(&local, &remote) {
        return Ok(different);
    }
    let read = |whose, batch: &Bytes| {
        records(batch, DECOMPRESSED_BYTES_MAX_DEFAULT)
            .and_then(Iterator::collect::<Result<Vec<Record>, RecordsError>>)
            .map_err(|e| unreadable(whose, e))
    };
    let (ours, theirs) = (read("our", ours)?, read("the source's", theirs)?);
    let mut rest = ours.iter();
    let all_ours = theirs
        .iter()
        .all(|record| rest.any(|kept| is_same_record(kept, record)));
    Ok(match (all_ours, theirs.is_empty()) {
        (false, _) => different,
        (true, true) => Verdict::NothingLeft,
        (true, false) => Verdict::Same,
    })
}

/// The source has a batch at offsets that our log, which begins below and ends above, leaves out.
pub(crate) fn not_ours(theirs: &BatchHeader, next: &BatchHeader) -> Difference {
    Difference {
        ours: BatchFacts::of(next),
        theirs: BatchFacts::of(theirs),
    }
}

/// Whether everything that compaction keeps of a batch is the same in both.
fn may_be_compacted(ours: &BatchHeader, theirs: &BatchHeader) -> bool {
    let kept = |h: &BatchHeader| {
        (
            (h.base_offset, h.last_offset_delta, h.leader_epoch),
            (h.producer_id, h.producer_epoch, h.base_sequence),
            (h.is_control(), h.is_transactional()),
        )
    };
    kept(ours) == kept(theirs) && theirs.record_count <= ours.record_count
}

fn is_same_record(a: &Record, b: &Record) -> bool {
    (a.offset, a.timestamp, &a.key, &a.value, &a.headers)
        == (b.offset, b.timestamp, &b.key, &b.value, &b.headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_records::{BatchBuilder, Compression};

    use super::*;

    fn batch(base: i64, epoch: i32, values: &[(i32, &str)]) -> Bytes {
        let mut builder = BatchBuilder::new()
            .base_offset(base)
            .leader_epoch(epoch)
            .last_offset_delta(9);
        for &(delta, value) in values {
            builder.add_at(
                delta,
                1_000 + i64::from(delta),
                None,
                Some(value.as_bytes()),
                &[],
            );
        }
        builder.build().unwrap().into()
    }

    #[test]
    fn equal_bytes_are_the_same_whatever_follows() {
        let ours = batch(50, 2, &[(0, "a"), (9, "b")]);
        let more = [&ours[..], b"the begin of the next"].concat().into();
        assert_eq!(compare(&ours, &more), Ok(Verdict::Same));
        assert_eq!(compare(&ours, &Bytes::new()), Ok(Verdict::NothingLeft));
    }

    #[test]
    fn other_records_or_other_numbers_are_another_history() {
        let ours = batch(50, 2, &[(0, "a"), (9, "b")]);
        for theirs in [
            batch(50, 2, &[(0, "a"), (9, "c")]),
            batch(50, 2, &[(0, "a"), (3, "b")]),
            batch(50, 3, &[(0, "a"), (9, "b")]),
            batch(45, 2, &[(5, "a"), (9, "b")]),
            batch(50, 2, &[(0, "a"), (3, "x"), (9, "b")]),
        ] {
            let verdict = compare(&ours, &theirs).unwrap();
            assert!(matches!(verdict, Verdict::Different(_)), "{verdict:?}");
        }
    }

    #[test]
    fn what_compaction_leaves_is_the_same() {
        let ours = batch(50, 2, &[(0, "a"), (4, "b"), (9, "c")]);
        assert_eq!(
            compare(&ours, &batch(50, 2, &[(4, "b")])),
            Ok(Verdict::Same)
        );
        assert_eq!(
            compare(&ours, &batch(50, 2, &[])),
            Ok(Verdict::NothingLeft),
            "emptied, which proves nothing"
        );
        assert_eq!(
            compare(&ours, &batch(60, 2, &[(0, "z")])),
            Ok(Verdict::NothingLeft)
        );
    }

    #[test]
    fn the_codec_may_be_another_one_after_compaction() {
        let mut rewritten = BatchBuilder::new()
            .base_offset(50)
            .leader_epoch(2)
            .last_offset_delta(9)
            .compression(Compression::Lz4);
        rewritten.add_at(4, 1_004, None, Some(b"b"), &[]);
        let ours = batch(50, 2, &[(0, "a"), (4, "b"), (9, "c")]);
        let theirs = rewritten.build().unwrap().into();
        assert_eq!(compare(&ours, &theirs), Ok(Verdict::Same));
    }

    #[test]
    fn the_text_names_offsets_and_timestamps_of_both() {
        let (ours, theirs) = (batch(50, 2, &[(9, "b")]), batch(50, 2, &[(8, "c")]));
        let Ok(Verdict::Different(difference)) = compare(&ours, &theirs) else {
            panic!("they differ");
        };
        let text = difference.to_string();
        assert!(text.contains("50 to 59 (timestamp 1008"), "{text}");
        assert!(text.contains("50 to 59 (timestamp 1009"), "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(garbage in proptest::collection::vec(any::<u8>(), 0..200)) {
            let ours = batch(50, 2, &[(0, "a"), (9, "b")]);
            let mut like = ours.to_vec();
            for (at, byte) in garbage.iter().enumerate() {
                let index = at * 7 % like.len();
                like[index] ^= byte;
            }
            let _ = compare(&ours, &like.into());
            let _ = compare(&ours, &garbage.into());
        }
    }
}
