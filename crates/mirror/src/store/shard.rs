//! One partition of `__mirror_state` on the coordinator runtime: replays records into the table and
//! turns writes and tombstones into records.

use std::collections::BTreeMap;

use tarn_coordinator::{CoordinatorRecord, LoadedRecord, ReplayError, Shard};
use tarn_wire::{Uuid, WireError};
use tracing::warn;

use super::record::{Stored, decode, encode_epoch_key, encode_key, encode_value};
use super::table::{Entry, StateKey, StateTable, Write};
use crate::dialect::MirrorError;

/// State of one partition of the internal topic.
#[derive(Debug, Default)]
pub struct MirrorShard {
    table: StateTable,
}

impl Shard for MirrorShard {
    fn replay(&mut self, record: LoadedRecord) -> Result<(), ReplayError> {
        match decode(&record.key, record.value.as_ref()) {
            Ok(Stored::State(key, entry)) => self.table.replay(key, entry.map(|e| *e)),
            Ok(Stored::LastMirrorEpoch(key, epoch)) => {
                self.table.replay_last_mirror_epoch(key, epoch)
            }
            Ok(Stored::Unknown(kind)) => warn!(
                kind,
                offset = record.offset,
                "skipped a mirror state record of an unknown type"
            ),
            Err(error) => {
                let text = format!("mirror state record at offset {}: {error}", record.offset);
                // Skipped without a trace it would look like "nothing there", and that may cost a
                // log.
                if let Ok(Stored::State(key, _)) = decode(&record.key, None) {
                    self.table.replay_unreadable(key, &text);
                }
                return Err(ReplayError(text));
            }
        }
        Ok(())
    }
}

fn broken(error: WireError) -> MirrorError {
    MirrorError::InvalidRequest(format!("the state cannot be stored: {error}"))
}

impl MirrorShard {
    /// The table, for reads.
    pub fn table(&self) -> &StateTable {
        &self.table
    }

    /// Decides a batch of writes: a refused one spoils only itself. Gives the records and one
    /// result per write.
    pub fn write(
        &self,
        writes: &[Write],
    ) -> (Vec<CoordinatorRecord>, Vec<Result<Entry, MirrorError>>) {
        let mut pending = BTreeMap::new();
        let mut records = Vec::new();
        let results = writes
            .iter()
            .map(|write| {
                let entry = self.table.decide(write, &pending)?;
                let key = encode_key(&write.key).map_err(broken)?;
                let value = encode_value(&entry).map_err(broken)?;
                records.push(CoordinatorRecord {
                    key,
                    value: Some(value),
                });
                pending.insert(write.key.clone(), entry.clone());
                Ok(entry)
            })
            .collect();
        (records, results)
    }

    /// Tombstones for every key that `live` does not know any more. The keys leave the table when
    /// the tombstones are replayed, that is after they were appended: a failed append finds them
    /// again.
    pub fn tombstones(&self, live: impl Fn(&str, Uuid, i32) -> bool) -> Vec<CoordinatorRecord> {
        let dead: Vec<&StateKey> = self
            .table
            .keys()
            .filter(|k| !live(&k.mirror, k.topic_id, k.partition))
            .collect();
        let both = |key: &StateKey| [encode_key(key), encode_epoch_key(key)];
        dead.into_iter()
            .flat_map(both)
            .filter_map(Result::ok)
            .map(|key| CoordinatorRecord { key, value: None })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tarn_wire::Str;

    use super::*;
    use crate::state::MirrorState;

    fn record(offset: i64, key: Bytes, value: &'static [u8]) -> LoadedRecord {
        LoadedRecord {
            offset,
            timestamp_ms: 0,
            key,
            value: Some(Bytes::from_static(value)),
        }
    }

    /// A state that cannot be read is named and stands as FAILED, which nothing acts upon; the
    /// records around it are taken.
    #[test]
    fn an_unreadable_state_is_failed_and_not_nothing() {
        let key = |partition| StateKey {
            mirror: Str::from("m"),
            topic_id: Uuid::ZERO,
            partition,
        };
        let mut shard = MirrorShard::default();
        let bytes = encode_key(&key(0)).unwrap();
        assert!(shard.replay(record(7, bytes, b"\0\x01")).is_err());
        assert!(
            shard
                .replay(record(8, Bytes::from_static(b"\0"), b""))
                .is_err()
        );
        let good = encode_value(&Entry::default()).unwrap();
        let mut next = record(9, encode_key(&key(1)).unwrap(), b"");
        next.value = Some(good);
        shard.replay(next).unwrap();
        let entry = shard.table().get(&key(0)).expect("noted");
        assert_eq!(entry.record.state, MirrorState::Failed);
        let text = entry.record.error.clone().unwrap_or_default();
        assert!(text.contains("offset 7"), "{text}");
        assert!(shard.table().get(&key(1)).is_some());
    }
}
