//! Membership of topics in mirrors: the *wanted* side of mirroring (the actual state of partitions
//! is in `__mirror_state`).

use tarn_wire::{Str, Uuid};

/// What an operator wants of a mirror topic. The bytes are those of the internal state enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum DesiredState {
    /// Copy from the source.
    Mirroring = 1,
    /// Keep what is there, read-only.
    Paused = 3,
    /// Failed over: an ordinary topic once every partition is STOPPED.
    Stopped = 5,
}

impl DesiredState {
    /// The state of a byte, if it is one of ours.
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            1 => Some(Self::Mirroring),
            3 => Some(Self::Paused),
            5 => Some(Self::Stopped),
            _ => None,
        }
    }

    /// The byte in the membership record.
    pub fn code(self) -> i8 {
        self as i8
    }

    /// Name shown to callers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mirroring => "MIRRORING",
            Self::Paused => "PAUSED",
            Self::Stopped => "STOPPED",
        }
    }
}

/// A topic's place in a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Local topic name.
    pub topic: Str,
    /// Local topic id; zero while the topic is only wanted and does not exist yet.
    pub topic_id: Uuid,
    /// The mirror.
    pub mirror: Str,
    /// What the operator wants.
    pub desired: DesiredState,
    /// Id at the source; zero if the source has no topic ids or is not known yet.
    pub source_topic_id: Uuid,
    /// True once every partition was STOPPED: leaders accept writes without asking anyone.
    pub stopped: bool,
    /// Metadata offset of the last change of the desired state, against which conditional requests
    /// are checked.
    pub change_offset: i64,
}

impl Membership {
    /// True while the topic does not exist yet.
    pub fn is_wanted(&self) -> bool {
        self.topic_id.is_zero()
    }

    /// True if clients must not write to the topic, as far as metadata can tell.
    pub fn is_read_only(&self) -> bool {
        !self.stopped
    }
}
