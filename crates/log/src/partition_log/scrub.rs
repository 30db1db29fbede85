//! Scrubbing: reads what was written long ago and compares checksums, so that rot is found before a
//! reader finds it. Index entries are compared with their batches on the way, a transaction index
//! with its checksum. When, how fast and who is told is for the caller.

use std::sync::Arc;

use super::PartitionLog;
use super::read::{floor, limit};
use crate::error::LogError;
use crate::scan::{Scanner, Stop};
use crate::segment::Segment;

/// What one step of a scrub did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubStep {
    /// Where the next step begins; `None` at the end of the log.
    pub next_offset: Option<i64>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Damage that was found. The step ended there; the next one begins behind the damaged segment.
    pub damage: Option<Damage>,
}

/// A place in a log that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the batch, or the last offset known before it.
    pub offset: i64,
    /// The file.
    pub file: std::path::PathBuf,
    /// Byte position in it.
    pub position: u64,
    /// What is wrong.
    pub reason: String,
}

impl PartitionLog {
    /// Checks about `bytes_max` bytes of batches from the one that holds `from` on (at least one
    /// batch): checksums, headers, the index entries that name them. Only what is on disk for sure
    /// is looked at. Blocks on disk; readers and writers are not held up. Error: the log could not
    /// be read, which says nothing about its content.
    pub fn scrub(&self, from: i64, bytes_max: u64) -> Result<ScrubStep, LogError> {
        self.with_snapshot(|segments, end| {
            let done = ScrubStep {
                next_offset: None,
                bytes: 0,
                damage: None,
            };
            let at = floor(segments, from);
            let Some(s) = segments.get(at) else {
                return Ok(done);
            };
            let next_segment = segments.get(at + 1).map(|n| n.base_offset);
            let limit = limit(segments, end, at);
            let damaged = |position, reason: String, offset, bytes| ScrubStep {
                next_offset: next_segment,
                bytes,
                damage: Some(Damage {
                    offset,
                    file: s.log.path().to_path_buf(),
                    position,
                    reason,
                }),
            };
            let start = match start_of(s, from, limit)? {
                Ok(start) => start,
                Err((position, reason, offset)) => {
                    return Ok(damaged(position, reason, offset, 0));
                }
            };
            let mut scan = Scanner::new(&s.log, start, limit);
            let finished = next_segment.is_some();
            let (mut near, mut batches) = (from.max(s.base_offset), Vec::new());
            while scan.position() - start < bytes_max || batches.is_empty() {
                let found = match scan.next(|_| true) {
                    Ok(Some(found)) => found,
                    Ok(None) => {
                        compare_indexes(s, start, &batches, finished)?;
                        return Ok(ScrubStep {
                            next_offset: next_segment,
                            bytes: limit - start,
                            ..done
                        });
                    }
                    Err(Stop::Failed(e)) => return Err(e),
                    Err(Stop::Bad { position, reason }) => {
                        // Retention or a cut may have taken the segment away meanwhile.
                        if !self.segments.load().iter().any(|x| Arc::ptr_eq(x, s))
                            || s.size() < position
                        {
                            return Ok(ScrubStep {
                                next_offset: next_segment,
                                ..done
                            });
                        }
                        return Ok(damaged(position, reason, near, position - start));
                    }
                };
                near = found.header.next_offset();
                batches.push((found.header.last_offset(), found.position));
            }
            let finished = finished && scan.position() >= limit;
            compare_indexes(s, start, &batches, finished)?;
            Ok(ScrubStep {
                next_offset: Some(near),
                bytes: scan.position() - start,
                ..done
            })
        })
    }
}

/// Compares what indexes say of these batches; at the end of a segment that is `finished` also its
/// transaction index. What the active one has on disk counts for nothing yet.
fn compare_indexes(
    s: &Segment,
    start: u64,
    batches: &[(i64, u64)],
    finished: bool,
) -> Result<(), LogError> {
    s.compare_index(start, batches)?;
    if finished {
        s.txns.compare(s.size())?;
    }
    Ok(())
}

/// Where the batch of `from` begins in its segment; or byte position, reason and offset of what is
/// wrong on the way there.
fn start_of(
    s: &Segment,
    from: i64,
    limit: u64,
) -> Result<Result<u64, (u64, String, i64)>, LogError> {
    match s.locate(from, limit) {
        Ok(found) => Ok(Ok(found.map_or(limit, |b| b.position))),
        Err(LogError::Damaged {
            position,
            offset,
            reason,
            ..
        }) => Ok(Err((position, reason, offset))),
        Err(e) => Err(e),
    }
}
