//! The states of a mirror partition: the enum, its stable bytes, and how each dialect of the mirror
//! RPCs names and numbers them (docs/mirror-protocol.md §5). What may follow what is in
//! [`crate::transition`].

use std::fmt;

use crate::dialect::Dialect;

/// Actual state of one mirror partition. Persisted by [`MirrorState::byte`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MirrorState {
    /// The local log is made a prefix of the source's.
    Preparing,
    /// Records are copied.
    Mirroring,
    /// Fetching is being ended, to pause.
    Pausing,
    /// Nothing is copied; still read-only.
    Paused,
    /// Failover in progress.
    Stopping,
    /// Failed over: an ordinary, writable partition. Final until the operator adds the topic again.
    Stopped,
    /// Cannot go on; carries a text and an attempt counter.
    Failed,
    /// A batch waits until the local leader epoch has been raised above the source's.
    EpochFencing,
    /// The source diverged (unclean election there); the common prefix is being found.
    UleRecovery,
    /// No state is on record.
    Unknown,
}

/// Name and byte of one state in one dialect.
type Shown = (&'static str, i8);

/// One row per state: ours (name, byte), then early, late and next.
const TABLE: [(MirrorState, Shown, Shown, Shown, Shown); 10] = {
    use MirrorState::*;
    [
        (
            Preparing,
            ("PREPARING", 0),
            ("PREPARING", 0),
            ("LOG_TRUNCATION", 0),
            ("LOG_ALIGNMENT", 0),
        ),
        (
            Mirroring,
            ("MIRRORING", 1),
            ("MIRRORING", 1),
            ("MIRRORING", 2),
            ("MIRRORING", 3),
        ),
        (
            Pausing,
            ("PAUSING", 2),
            ("PAUSING", 2),
            ("PAUSING", 3),
            ("PAUSING", 4),
        ),
        (
            Paused,
            ("PAUSED", 3),
            ("PAUSED", 3),
            ("PAUSED", 4),
            ("PAUSED", 5),
        ),
        (
            Stopping,
            ("STOPPING", 4),
            ("STOPPING", 4),
            ("STOPPING", 5),
            ("STOPPING", 6),
        ),
        (
            Stopped,
            ("STOPPED", 5),
            ("STOPPED", 5),
            ("STOPPED", 6),
            ("STOPPED", 7),
        ),
        (
            Failed,
            ("FAILED", 6),
            ("FAILED", 6),
            ("FAILED", 7),
            ("FAILED", 8),
        ),
        (
            EpochFencing,
            ("EPOCH_FENCING", 8),
            ("MIRRORING", 1),
            ("EPOCH_FENCING", 1),
            ("EPOCH_FENCING", 1),
        ),
        (
            UleRecovery,
            ("ULE_RECOVERY", 9),
            ("MIRRORING", 1),
            ("LOG_TRUNCATION", 0),
            ("ULE_RECOVERY", 2),
        ),
        (
            Unknown,
            ("UNKNOWN", 16),
            ("UNKNOWN", 16),
            ("UNKNOWN", -1),
            ("UNKNOWN", -1),
        ),
    ]
};

impl MirrorState {
    /// Every state.
    pub const ALL: [MirrorState; 10] = {
        use MirrorState::*;
        [
            Preparing,
            Mirroring,
            Pausing,
            Paused,
            Stopping,
            Stopped,
            Failed,
            EpochFencing,
            UleRecovery,
            Unknown,
        ]
    };

    fn row(self) -> &'static (MirrorState, Shown, Shown, Shown, Shown) {
        // ALL and TABLE have the same order; the test `tables_are_complete` guards it.
        &TABLE[MirrorState::ALL
            .iter()
            .position(|s| *s == self)
            .unwrap_or(9)]
    }

    /// Our own name (logs, our tool's details).
    pub fn name(self) -> &'static str {
        self.row().1.0
    }

    /// Our own stable byte: what is persisted, and what our brokers tell each other.
    pub fn byte(self) -> i8 {
        self.row().1.1
    }

    /// Reads our own byte. Anything unassigned is "don't know".
    pub fn from_byte(byte: i8) -> MirrorState {
        TABLE
            .iter()
            .find(|r| r.1.1 == byte)
            .map_or(MirrorState::Unknown, |r| r.0)
    }

    /// Name shown to a caller of this dialect.
    pub fn name_for(self, dialect: Dialect) -> &'static str {
        self.shown(dialect).0
    }

    /// Byte shown to a caller of this dialect (Read/WriteMirrorStates).
    pub fn byte_for(self, dialect: Dialect) -> i8 {
        self.shown(dialect).1
    }

    fn shown(self, dialect: Dialect) -> Shown {
        match dialect {
            Dialect::Early => self.row().2,
            Dialect::Late => self.row().3,
            Dialect::Next => self.row().4,
        }
    }

    /// Reads a byte written in this dialect. 16 and −1 mean UNKNOWN everywhere.
    pub fn from_byte_for(dialect: Dialect, byte: i8) -> MirrorState {
        let column = |r: &(MirrorState, Shown, Shown, Shown, Shown)| match dialect {
            Dialect::Early => r.2.1,
            Dialect::Late => r.3.1,
            Dialect::Next => r.4.1,
        };
        // Rows that share a byte are ordered so that the plain state comes first.
        TABLE
            .iter()
            .find(|r| column(r) == byte)
            .map_or(MirrorState::Unknown, |r| r.0)
    }

    /// Whether records may come in from the source in this state.
    pub fn is_fetching(self) -> bool {
        matches!(self, MirrorState::Mirroring | MirrorState::EpochFencing)
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the operator wants for a topic: part of the membership record in the metadata log.
pub use tarn_metadata::DesiredState as Desired;

/// Every wish.
pub const WISHES: [Desired; 3] = [Desired::Mirroring, Desired::Paused, Desired::Stopped];

/// The actual state that fulfils a wish.
pub fn target(desired: Desired) -> MirrorState {
    match desired {
        Desired::Mirroring => MirrorState::Mirroring,
        Desired::Paused => MirrorState::Paused,
        Desired::Stopped => MirrorState::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/mirror-protocol.md §5.
    #[test]
    fn names_and_bytes_are_the_documented_ones() {
        let page = include_str!("../../../docs/mirror-protocol.md");
        for (_, ours, early, late, next) in TABLE {
            let cell = |(name, byte): (&str, i8)| format!("{name} | {byte}");
            let cells = [ours, early, late, next].map(cell).join(" | ");
            let row = format!("| {cells} |").replace("-1", "−1");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn tables_are_complete() {
        for (i, s) in MirrorState::ALL.iter().enumerate() {
            assert_eq!(TABLE[i].0, *s);
            assert_eq!(MirrorState::from_byte(s.byte()), *s);
        }
        let mut bytes: Vec<i8> = MirrorState::ALL.iter().map(|s| s.byte()).collect();
        bytes.sort_unstable();
        bytes.dedup();
        assert_eq!(bytes.len(), 10, "persisted bytes are unique");
    }

    #[test]
    fn early_callers_see_no_state_they_do_not_know() {
        let names: Vec<&str> = MirrorState::ALL
            .iter()
            .map(|s| s.name_for(Dialect::Early))
            .collect();
        assert!(!names.contains(&"EPOCH_FENCING") && !names.contains(&"ULE_RECOVERY"));
        assert_eq!(
            MirrorState::UleRecovery.name_for(Dialect::Late),
            "LOG_TRUNCATION"
        );
        assert_eq!(
            MirrorState::Preparing.name_for(Dialect::Next),
            "LOG_ALIGNMENT"
        );
    }

    #[test]
    fn late_bytes_read_back_and_sixteen_is_unknown() {
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Late, 2),
            MirrorState::Mirroring
        );
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Late, 0),
            MirrorState::Preparing
        );
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Late, 1),
            MirrorState::EpochFencing
        );
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Late, 16),
            MirrorState::Unknown
        );
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Late, -1),
            MirrorState::Unknown
        );
        assert_eq!(
            MirrorState::from_byte_for(Dialect::Early, 1),
            MirrorState::Mirroring
        );
    }

    #[test]
    fn wishes_use_the_bytes_of_our_enum() {
        for desired in WISHES {
            assert_eq!(desired.code(), target(desired).byte());
            assert_eq!(desired.name(), target(desired).name());
        }
    }
}
