//! Who may append to a partition: the read-only rule of mirror topics (docs/mirroring.md §3), as a
//! pure decision.
//!
//! Two facts meet here. The *membership* comes from the metadata image: the topic belongs to a
//! mirror, and the controller has not yet recorded that it is stopped. The *guard* is what the
//! mirror room knows of the partition's actual state. Without word from the mirror room a mirror
//! partition is read-only, from the moment it is created. The guard says for which membership
//! change it was decided, so that a late "stopped" never opens a topic that was meanwhile added to
//! a mirror again.

use tarn_metadata::Membership;
use tarn_wire::Str;

/// What the mirror room says about a partition of a mirror topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorGuard {
    /// Only the mirror's own fetcher appends. `state` is the actual state to show in refusals, e.g.
    /// `MIRRORING`.
    ReadOnly {
        /// Name of the mirror.
        mirror: Str,
        /// Actual state, upper case, as shown to people.
        state: Str,
    },
    /// Fetching has ended; only ABORT markers and the producer reset of the stop sequence are
    /// appended.
    StoppingInternalOnly {
        /// Name of the mirror.
        mirror: Str,
        /// Actual state, upper case, as shown to people.
        state: Str,
    },
    /// The partition is stopped (failed over): an ordinary partition.
    Writable,
}

/// Where an append comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendSource {
    /// A Produce request.
    Client,
    /// A coordinator of this cluster: records of an internal topic, or transaction markers.
    Coordinator,
    /// The stop sequence of the mirror room: ABORT markers and the producer reset.
    MirrorStop,
    /// The data plane of a mirror: batches of the source, unchanged.
    MirrorFetch,
}

/// The read-only answer: which mirror holds the partition, in which state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadOnly {
    /// Name of the mirror.
    pub(crate) mirror: Str,
    /// Actual state, upper case; `UNKNOWN` until the mirror room has told it.
    pub(crate) state: Str,
}

/// The guard with the membership change it was decided for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) change_offset: i64,
    pub(crate) guard: MirrorGuard,
}

/// The guard in force, from both facts.
pub(crate) fn effective(membership: Option<&Membership>, told: Option<&Told>) -> MirrorGuard {
    let Some(membership) = membership.filter(|m| !m.stopped) else {
        return MirrorGuard::Writable;
    };
    match told {
        Some(told) if told.change_offset >= membership.change_offset => told.guard.clone(),
        _ => MirrorGuard::ReadOnly {
            mirror: membership.mirror.clone(),
            state: Str::from_static("UNKNOWN"),
        },
    }
}

/// Whether an append from `source` may go ahead.
pub(crate) fn admits(guard: &MirrorGuard, source: AppendSource) -> Result<(), ReadOnly> {
    use AppendSource::{Client, Coordinator, MirrorFetch, MirrorStop};
    match (guard, source) {
        (MirrorGuard::Writable, Client | Coordinator | MirrorStop) => Ok(()),
        (MirrorGuard::StoppingInternalOnly { .. }, MirrorStop) => Ok(()),
        (MirrorGuard::ReadOnly { .. }, MirrorFetch) => Ok(()),
        (MirrorGuard::Writable, MirrorFetch) => Err(ReadOnly {
            mirror: Str::EMPTY,
            state: Str::from_static("STOPPED"),
        }),
        (
            MirrorGuard::ReadOnly { mirror, state }
            | MirrorGuard::StoppingInternalOnly { mirror, state },
            _,
        ) => Err(ReadOnly {
            mirror: mirror.clone(),
            state: state.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_metadata::DesiredState;
    use tarn_wire::Uuid;

    fn member(stopped: bool, change_offset: i64) -> Membership {
        Membership {
            topic: Str::from("t"),
            topic_id: Uuid::ZERO,
            mirror: Str::from("m"),
            desired: DesiredState::Mirroring,
            source_topic_id: Uuid::ZERO,
            stopped,
            change_offset,
        }
    }

    fn read_only(state: &str) -> MirrorGuard {
        MirrorGuard::ReadOnly {
            mirror: Str::from("m"),
            state: Str::from(state),
        }
    }

    fn stopping() -> MirrorGuard {
        MirrorGuard::StoppingInternalOnly {
            mirror: Str::from("m"),
            state: Str::from("STOPPING"),
        }
    }

    #[test]
    fn a_mirror_partition_is_read_only_until_the_mirror_room_has_spoken() {
        assert_eq!(
            effective(Some(&member(false, 7)), None),
            read_only("UNKNOWN")
        );
    }

    #[test]
    fn a_recorded_stop_needs_no_word_from_the_mirror_room() {
        assert_eq!(
            effective(Some(&member(true, 7)), None),
            MirrorGuard::Writable
        );
        let told = Told {
            change_offset: 7,
            guard: read_only("MIRRORING"),
        };
        assert_eq!(
            effective(Some(&member(true, 7)), Some(&told)),
            MirrorGuard::Writable
        );
        assert_eq!(effective(None, Some(&told)), MirrorGuard::Writable);
    }

    #[test]
    fn a_guard_of_an_older_membership_change_is_void() {
        let told = Told {
            change_offset: 7,
            guard: MirrorGuard::Writable,
        };
        assert_eq!(
            effective(Some(&member(false, 7)), Some(&told)),
            MirrorGuard::Writable
        );
        assert_eq!(
            effective(Some(&member(false, 8)), Some(&told)),
            read_only("UNKNOWN")
        );
    }

    #[test]
    fn the_guard_matrix_lets_each_source_in_exactly_where_it_belongs() {
        use AppendSource::{Client, Coordinator, MirrorFetch, MirrorStop};
        let table = [
            (MirrorGuard::Writable, [true, true, true, false]),
            (stopping(), [false, false, true, false]),
            (read_only("MIRRORING"), [false, false, false, true]),
        ];
        for (guard, allowed) in table {
            for (source, allowed) in [Client, Coordinator, MirrorStop, MirrorFetch]
                .into_iter()
                .zip(allowed)
            {
                assert_eq!(
                    admits(&guard, source).is_ok(),
                    allowed,
                    "{guard:?} {source:?}"
                );
            }
        }
    }
}
