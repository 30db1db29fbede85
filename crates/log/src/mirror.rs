//! Verbatim append by pieces (mirror path, followers): bytes go to the file as they arrive, the log end moves only on
//! whole batches whose header and CRC are good. No size, timestamp or sequence limits of the produce path apply here.

use crate::LogError;

/// What one verbatim append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorAppendInfo {
    /// Base offset of the first batch, `None` when no whole batch arrived.
    pub first_offset: Option<i64>,
    /// Log end offset after the append.
    pub end_offset: i64,
    /// Whole batches appended.
    pub batches: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Records in them, by header.
    pub records: u64,
    /// Largest timestamp, −1 when none.
    pub max_timestamp: i64,
    /// Leader epoch of the last batch, −1 when none.
    pub last_leader_epoch: i32,
    /// Bytes of a cut-off last batch that were received and dropped (normal at the end of a Fetch answer).
    pub partial_tail_bytes: u64,
}

/// A verbatim append under way. `Send`; holds no lock between pushes, so it may live across awaits. Dropping it (or an error)
/// cuts the unfinished batch; whole batches pushed before stay.
#[derive(Debug)]
pub struct MirrorAppend {
    _private: (),
}

impl MirrorAppend {
    /// Takes the next bytes, cut anywhere. On error nothing of the bad batch is kept, the batches before it are, and this
    /// append is over.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), LogError> {
        let _ = piece;
        panic!("not built yet")
    }
    /// What was appended so far (whole batches).
    pub fn progress(&self) -> MirrorAppendInfo {
        panic!("not built yet")
    }
    /// Ends the append; a cut-off last batch is dropped and counted.
    pub fn finish(self) -> Result<MirrorAppendInfo, LogError> {
        panic!("not built yet")
    }
}
