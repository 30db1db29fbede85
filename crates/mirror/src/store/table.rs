//! One `__mirror_state` partition as a pure table: compare-and-set by state epoch, fencing by
//! leader epoch, tombstones. Decides and replays; does not append, knows no bytes
//! ([`super::record`]) and no runtime ([`super::shard`]).

use std::collections::BTreeMap;

use tarn_wire::{Str, Uuid};

use crate::dialect::MirrorError;
use crate::state::MirrorState;
use crate::transition::{NOT_RETRYABLE, PartitionRecord, storable};

/// Key of one mirror partition in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey {
    /// Name of the mirror.
    pub mirror: Str,
    /// Local topic id.
    pub topic_id: Uuid,
    /// Partition number.
    pub partition: i32,
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The facts.
    pub record: PartitionRecord,
    /// Metadata offset of the wish the last writer acted under; −1 = unknown. Orders writers before
    /// leader epochs do: a topic that was deleted and made anew begins again at leader epoch 0, but
    /// under a later wish.
    pub change_offset: i64,
    /// Leader epoch of the last writer; −1 = unknown (a foreign or old record).
    pub leader_epoch: i32,
    /// Counts accepted writes; 0 = never written by us.
    pub state_epoch: i32,
}

impl Default for Entry {
    /// What an absent key stands for.
    fn default() -> Self {
        Entry {
            record: PartitionRecord::default(),
            change_offset: -1,
            leader_epoch: -1,
            state_epoch: 0,
        }
    }
}

/// One write. Every fence is part of it: a caller that cannot say one of them cannot write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which partition.
    pub key: StateKey,
    /// Metadata offset of the wish the writer acts under, ≥ 0.
    pub change_offset: i64,
    /// Leader epoch of the writer, ≥ 0.
    pub leader_epoch: i32,
    /// State epoch the writer has seen, ≥ 0 (0 = nothing is stored): compare-and-set.
    pub expected_state_epoch: i32,
    /// What to store, whole.
    pub record: PartitionRecord,
}

/// The table.
#[derive(Debug, Default)]
pub struct StateTable {
    entries: BTreeMap<StateKey, Entry>,
}

impl StateTable {
    /// What is stored; `None` = nothing (which, after loading, really means nothing).
    pub fn get(&self, key: &StateKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// All entries of one mirror.
    pub fn of_mirror<'a>(
        &'a self,
        mirror: &'a str,
    ) -> impl Iterator<Item = (&'a StateKey, &'a Entry)> {
        self.entries
            .iter()
            .filter(move |(k, _)| k.mirror == *mirror)
    }

    /// All keys, for the clean-up of mirrors and topics that exist no more.
    pub fn keys(&self) -> impl Iterator<Item = &StateKey> {
        self.entries.keys()
    }

    /// Decides one write against the table plus the writes of the same batch decided before it
    /// (`pending`).
    pub fn decide(
        &self,
        write: &Write,
        pending: &BTreeMap<StateKey, Entry>,
    ) -> Result<Entry, MirrorError> {
        let absent = Entry::default();
        let current = pending
            .get(&write.key)
            .or_else(|| self.entries.get(&write.key))
            .unwrap_or(&absent);
        check_writer(write, current)?;
        if write.expected_state_epoch != current.state_epoch {
            return Err(MirrorError::FencedStateEpoch {
                given: write.expected_state_epoch,
                known: current.state_epoch,
            });
        }
        if !storable(current.record.state, write.record.state) {
            return Err(MirrorError::InvalidStates(format!(
                "state {} cannot follow {} for partition {} of topic {}",
                write.record.state, current.record.state, write.key.partition, write.key.topic_id
            )));
        }
        Ok(Entry {
            record: write.record.clone(),
            change_offset: write.change_offset,
            leader_epoch: write.leader_epoch,
            state_epoch: current.state_epoch.saturating_add(1),
        })
    }

    /// Takes over what was appended (or read from the log); `None` = tombstone.
    pub fn replay(&mut self, key: StateKey, entry: Option<Entry>) {
        match entry {
            Some(entry) => {
                self.entries.insert(key, entry);
            }
            None => {
                self.entries.remove(&key);
            }
        }
    }

    /// The stored state of a partition cannot be read: it is FAILED, with what an older record says
    /// of it, until an operator resumes it.
    pub fn replay_unreadable(&mut self, key: StateKey, reason: &str) {
        let record = &mut self.entries.entry(key).or_default().record;
        record.state = MirrorState::Failed;
        record.previous = MirrorState::Preparing;
        record.retry_attempt = NOT_RETRYABLE;
        record.error = Some(format!("the stored state cannot be read ({reason})"));
    }

    /// Takes over a last mirror epoch from a record of the late form, which keeps it apart from the
    /// state.
    pub fn replay_last_mirror_epoch(&mut self, key: StateKey, epoch: Option<i32>) {
        match epoch {
            Some(_) => {
                let entry = self.entries.entry(key).or_default();
                entry.record.last_mirror_epoch = epoch;
            }
            None => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.record.last_mirror_epoch = None;
                }
            }
        }
    }
}

/// Fences writers that do not say who they are, and writers of the past: first by the wish they act
/// under, then by their leader epoch.
fn check_writer(write: &Write, current: &Entry) -> Result<(), MirrorError> {
    let fences = [
        ("change offset", write.change_offset),
        ("leader epoch", i64::from(write.leader_epoch)),
        ("state epoch", i64::from(write.expected_state_epoch)),
    ];
    if let Some((fence, _)) = fences.into_iter().find(|(_, given)| *given < 0) {
        return Err(MirrorError::Unfenced { fence });
    }
    if write.change_offset < current.change_offset {
        return Err(MirrorError::FencedWish {
            given: write.change_offset,
            known: current.change_offset,
        });
    }
    if write.change_offset == current.change_offset && write.leader_epoch < current.leader_epoch {
        return Err(MirrorError::FencedLeaderEpoch {
            given: write.leader_epoch,
            known: current.leader_epoch,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MirrorState;

    fn key(partition: i32) -> StateKey {
        StateKey {
            mirror: Str::from("m"),
            topic_id: Uuid([7; 16]),
            partition,
        }
    }

    fn write(state: MirrorState, leader_epoch: i32, expected: i32) -> Write {
        Write {
            key: key(0),
            change_offset: 7,
            leader_epoch,
            expected_state_epoch: expected,
            record: PartitionRecord {
                state,
                ..Default::default()
            },
        }
    }

    fn table_with(state: MirrorState, leader_epoch: i32) -> StateTable {
        let mut table = StateTable::default();
        let entry = Entry {
            record: write(state, leader_epoch, 0).record,
            change_offset: 7,
            leader_epoch,
            state_epoch: 1,
        };
        table.replay(key(0), Some(entry));
        table
    }

    #[test]
    fn a_write_that_expects_another_state_epoch_is_fenced() {
        let table = table_with(MirrorState::Mirroring, 5);
        let none = BTreeMap::new();
        assert_eq!(
            table.decide(&write(MirrorState::Stopping, 5, 0), &none),
            Err(MirrorError::FencedStateEpoch { given: 0, known: 1 })
        );
        assert_eq!(
            table
                .decide(&write(MirrorState::Stopping, 5, 1), &none)
                .unwrap()
                .state_epoch,
            2
        );
    }

    #[test]
    fn an_older_leader_is_fenced() {
        let table = table_with(MirrorState::Mirroring, 5);
        assert_eq!(
            table.decide(&write(MirrorState::Stopping, 4, 1), &BTreeMap::new()),
            Err(MirrorError::FencedLeaderEpoch { given: 4, known: 5 })
        );
    }

    #[test]
    fn a_topic_made_anew_writes_with_a_low_epoch_under_its_later_wish() {
        let table = table_with(MirrorState::Stopped, 15);
        let none = BTreeMap::new();
        let anew = Write {
            change_offset: 8,
            ..write(MirrorState::Preparing, 0, 1)
        };
        assert_eq!(table.decide(&anew, &none).unwrap().leader_epoch, 0);
        let past = Write {
            change_offset: 6,
            ..write(MirrorState::Preparing, 99, 1)
        };
        assert_eq!(
            table.decide(&past, &none),
            Err(MirrorError::FencedWish { given: 6, known: 7 })
        );
    }

    #[test]
    fn two_writes_of_one_batch_see_each_other() {
        let table = table_with(MirrorState::Mirroring, 5);
        let first = table
            .decide(&write(MirrorState::Stopping, 5, 1), &BTreeMap::new())
            .unwrap();
        let pending = BTreeMap::from([(key(0), first)]);
        assert!(
            table
                .decide(&write(MirrorState::Stopped, 5, 1), &pending)
                .is_err()
        );
        assert!(
            table
                .decide(&write(MirrorState::Stopped, 5, 2), &pending)
                .is_ok()
        );
    }

    /// None of the three fences can be left out, not even where nothing is stored yet.
    #[test]
    fn a_write_without_a_fence_is_refused() {
        let stored = table_with(MirrorState::Mirroring, 5);
        let nothing = StateTable::default();
        let whole = |table: &StateTable| match table.get(&key(0)) {
            Some(_) => write(MirrorState::Stopping, 5, 1),
            None => write(MirrorState::Preparing, 5, 0),
        };
        let none = BTreeMap::new();
        for table in [&stored, &nothing] {
            assert!(table.decide(&whole(table), &none).is_ok());
            let without = [
                Write {
                    change_offset: -1,
                    ..whole(table)
                },
                Write {
                    leader_epoch: -1,
                    ..whole(table)
                },
                Write {
                    expected_state_epoch: -1,
                    ..whole(table)
                },
            ];
            for write in without {
                let refused = table.decide(&write, &none);
                assert!(
                    matches!(refused, Err(MirrorError::Unfenced { .. })),
                    "{write:?}: {refused:?}"
                );
            }
        }
    }

    /// The table of transitions holds for whole records too.
    #[test]
    fn a_fenced_write_obeys_the_table_of_transitions() {
        let stopped = table_with(MirrorState::Stopped, 5);
        let none = BTreeMap::new();
        for state in [MirrorState::Mirroring, MirrorState::Failed] {
            let refused = stopped.decide(&write(state, 5, 1), &none);
            assert!(
                matches!(refused, Err(MirrorError::InvalidStates(_))),
                "{state}: {refused:?}"
            );
        }
        assert!(
            stopped
                .decide(&write(MirrorState::Preparing, 5, 1), &none)
                .is_ok()
        );
    }

    #[test]
    fn a_tombstone_leaves_nothing() {
        let mut table = table_with(MirrorState::Stopped, 5);
        table.replay(key(0), None);
        assert_eq!(table.get(&key(0)), None);
        assert_eq!(table.of_mirror("m").count(), 0);
    }
}
