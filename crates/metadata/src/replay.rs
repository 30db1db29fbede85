//! Replaying a metadata log batch by batch, transactions (KIP-868) included.
//!
//! Owns the bracket between BeginTransaction and End/AbortTransaction: what stands in an open one
//! is held back until its end.

use crate::{Delta, Image, MetadataError, Record};

/// Records one open transaction may hold before the log counts as broken.
const TRANSACTION_RECORDS_MAX: usize = 10_000_000;

/// An image on its way through a log.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    image: Image,
    delta: Delta,
    open: Option<Vec<Record>>,
}

impl Replay {
    /// Starts from an image (empty, or out of a snapshot).
    pub fn new(image: Image) -> Self {
        Self {
            delta: Delta::default(),
            image,
            open: None,
        }
    }

    /// Replays the records of one batch, the last of which stands at `offset` and was written in
    /// quorum epoch `epoch`.
    pub fn batch(
        &mut self,
        records: Vec<Record>,
        offset: i64,
        epoch: i32,
    ) -> Result<(), MetadataError> {
        let mut due = Vec::with_capacity(records.len());
        for record in records {
            let name = record.name();
            match (record, &mut self.open) {
                (Record::BeginTransaction(_), None) => self.open = Some(Vec::new()),
                (Record::BeginTransaction(_), Some(_)) => {
                    return Err(contradiction(name, "a transaction is open already"));
                }
                (Record::EndTransaction(_), Some(held)) => {
                    due.append(held);
                    self.open = None;
                }
                (Record::AbortTransaction(_), Some(_)) => self.open = None,
                (Record::EndTransaction(_) | Record::AbortTransaction(_), None) => {
                    return Err(contradiction(name, "no transaction is open"));
                }
                (_, Some(held)) if held.len() >= TRANSACTION_RECORDS_MAX => {
                    return Err(contradiction(name, "the open transaction has no end"));
                }
                (record, Some(held)) => held.push(record),
                (record, None) => due.push(record),
            }
        }
        self.image
            .apply_in_place(&due, offset, epoch, &mut self.delta)
    }

    /// True if the log ends inside a transaction: its writer died, and the next leader must abort
    /// it.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// The image so far, without what an open transaction holds back.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The image and what changed on the way.
    pub fn finish(self) -> (Image, Delta) {
        (self.image, self.delta)
    }
}

fn contradiction(record: &'static str, reason: &str) -> MetadataError {
    MetadataError::Contradiction {
        record,
        reason: reason.to_owned(),
    }
}
