//! The generations of the mirror RPCs (docs/mirror-protocol.md §3, §6): which one a connection
//! speaks, and how our symbolic errors are numbered for it. The same key and version carry
//! different bodies, so a dialect is proven by strict decoding and remembered, for the connection
//! here and for the caller in [`callers`].

pub mod callers;

use std::borrow::Cow;

use tarn_wire::ErrorCode;

pub use self::callers::{Caller, CallerDialects};

/// How the clients of this product name themselves in ApiVersions.
const OWN_SOFTWARE_NAME: &str = "tarn";

/// How Java clients name themselves in ApiVersions; the prototypes' tools and brokers are some of
/// them.
const JAVA_SOFTWARE_NAME: &str = "apache-kafka-java";

/// A generation of request and response bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The seed's names and bodies (default).
    Early,
    /// Renamed RPCs, patterns, per-topic messages.
    Late,
    /// The direction after that; only where unambiguous.
    Next,
}

impl Dialect {
    /// As `mirror.wire.dialect` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Early => "early",
            Dialect::Late => "late",
            Dialect::Next => "next",
        }
    }

    /// Reads what [`Dialect::name`] wrote.
    pub fn parse(name: &str) -> Option<Dialect> {
        [Dialect::Early, Dialect::Late, Dialect::Next]
            .into_iter()
            .find(|d| d.name() == name)
    }
}

/// Setting `mirror.wire.dialect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireDialect {
    /// Try early, late, next.
    #[default]
    Auto,
    /// Accept only this one.
    Only(Dialect),
}

impl WireDialect {
    /// Parses the config value.
    pub fn parse(text: &str) -> Option<WireDialect> {
        match text {
            "auto" => Some(WireDialect::Auto),
            name => Dialect::parse(name).map(WireDialect::Only),
        }
    }
}

/// What one connection has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialectMemory {
    configured: WireDialect,
    proven: Option<Dialect>,
    sent_mirror_key: bool,
    own_product: bool,
    java: bool,
}

impl DialectMemory {
    /// A fresh connection under this setting.
    pub fn new(configured: WireDialect) -> DialectMemory {
        DialectMemory {
            configured,
            ..DialectMemory::default()
        }
    }

    /// `mirror.wire.dialect`.
    pub fn configured(&self) -> WireDialect {
        self.configured
    }

    /// What this connection has proven.
    pub fn proven(&self) -> Option<Dialect> {
        self.proven
    }

    /// A request proved a dialect. The first proof stays.
    pub fn prove(&mut self, dialect: Dialect) {
        self.proven.get_or_insert(dialect);
    }

    /// Any key ≥ 94 arrived: this peer knows the prototype's error numbers (134 for read-only).
    pub fn note_mirror_key(&mut self) {
        self.sent_mirror_key = true;
    }

    /// Whether error 134 may be sent instead of 44 (docs/mirror-protocol.md §6).
    pub fn knows_read_only_error(&self) -> bool {
        self.sent_mirror_key
    }

    /// The software at the other end named itself (ApiVersions 3 and up).
    pub fn note_software(&mut self, name: &str) {
        self.own_product = name == OWN_SOFTWARE_NAME;
        self.java = name == JAVA_SOFTWARE_NAME;
    }

    /// Whether the other end may need the mirror keys announced: it is of this product, it is a
    /// Java client (a prototype cannot be told from a stock one before it sends such a key, and
    /// sends none that is not announced), or it has sent one.
    pub fn may_speak_mirror(&self) -> bool {
        self.own_product || self.java || self.sent_mirror_key
    }

    /// Whether the other end is a client of this product.
    pub fn is_own_product(&self) -> bool {
        self.own_product
    }
}

/// Why a mirror request, or one topic of it, is refused. Symbolic: numbers exist only at the
/// connection's edge ([`MirrorError::code`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// The name breaks the rules.
    #[error("{0}")]
    InvalidName(String),
    /// No such mirror.
    #[error("Mirror '{0}' not found")]
    UnknownMirror(String),
    /// Create of one that exists.
    #[error("Mirror '{0}' already exists")]
    AlreadyExists(String),
    /// A bad configuration key or value.
    #[error("{0}")]
    InvalidConfig(String),
    /// The request itself makes no sense.
    #[error("{0}")]
    InvalidRequest(String),
    /// The topic is a member of another mirror, or of this one already.
    #[error("{0}")]
    TopicAlreadyInMirror(String),
    /// The topic is in no mirror, or in another one.
    #[error("{0}")]
    TopicNotInMirror(String),
    /// The topic exists and is in no mirror.
    #[error("Topic '{0}' is in no mirror")]
    TopicInNoMirror(String),
    /// Resume of a topic that is not paused.
    #[error("Topic '{0}' is not paused")]
    TopicNotPaused(String),
    /// Pause or resume of a topic that is being removed or has been.
    #[error("Topic '{0}' has been removed from mirroring; add it again to mirror it")]
    TopicBeingRemoved(String),
    /// Delete while topics are active or paused.
    #[error("Mirror '{mirror}' still has active or paused topic '{topic}'")]
    NotEmpty {
        /// The mirror.
        mirror: String,
        /// One topic that holds it.
        topic: String,
    },
    /// The state does not fit (late only).
    #[error("{0}")]
    InvalidStates(String),
    /// The topic is paused, not stopped (late only).
    #[error("Topic '{0}' is paused in this mirror; resume it instead")]
    TopicNotStopped(String),
    /// The request's topic id is not that of the topic.
    #[error("{0}")]
    InconsistentTopicId(String),
    /// The id or the name belongs to another topic.
    #[error("{0}")]
    TopicExists(String),
    /// No such topic.
    #[error("Topic '{0}' does not exist")]
    UnknownTopic(String),
    /// The source does not have the topic.
    #[error("Topic '{0}' does not exist at the source")]
    NotAtSource(String),
    /// The source cannot say now whether it has the topic.
    #[error("the source cannot say now whether it has topic '{topic}', try again: {reason}")]
    SourceUndecided {
        /// The topic.
        topic: String,
        /// What the source said.
        reason: String,
    },
    /// The id of no topic.
    #[error("no topic has the id {0}")]
    UnknownTopicId(String),
    /// A name no topic may have, or one that clashes.
    #[error("{0}")]
    InvalidTopic(String),
    /// Cannot place the replicas.
    #[error("{0}")]
    InvalidReplicationFactor(String),
    /// The source has to be asked and cannot be.
    #[error("Cannot reach the source of mirror '{mirror}': {reason}")]
    SourceUnreachable {
        /// The mirror.
        mirror: String,
        /// Why.
        reason: String,
    },
    /// A loop of mirrors would close.
    #[error("{0}")]
    Loop(String),
    /// The feature is off.
    #[error("Cluster mirroring requires mirror.version >= 1.")]
    FeatureOff,
    /// The coordinator is replaying its log.
    #[error("the mirror coordinator is loading; retry")]
    CoordinatorLoading,
    /// Another broker coordinates this key.
    #[error("this broker does not coordinate that mirror partition")]
    NotCoordinator,
    /// Only brokers may ask this, and the caller is not known to be one.
    #[error(
        "{0} is accepted from brokers of this cluster only: on the listener of inter.broker.listener.name or from this host"
    )]
    BrokersOnly(&'static str),
    /// A write that leaves a fence out.
    #[error(
        "a mirror state is written under a leader epoch, a state epoch and a change offset; the {fence} is missing"
    )]
    Unfenced {
        /// What is missing.
        fence: &'static str,
    },
    /// The writer claims an epoch or a wish that this coordinator has not heard of.
    #[error("{what} {given} is not known here, the newest is {known}")]
    UnknownFence {
        /// Which number.
        what: &'static str,
        /// Of the writer.
        given: i64,
        /// In this node's metadata.
        known: i64,
    },
    /// The writer is not the newest leader.
    #[error("leader epoch {given} is older than {known}")]
    FencedLeaderEpoch {
        /// Of the writer.
        given: i32,
        /// On record.
        known: i32,
    },
    /// The writer acts under a wish that is not the newest.
    #[error("the wish of metadata offset {given} is older than {known}")]
    FencedWish {
        /// Of the writer.
        given: i64,
        /// On record.
        known: i64,
    },
    /// Compare-and-set lost.
    #[error("state epoch {given} expected, {known} on record")]
    FencedStateEpoch {
        /// Expected by the writer.
        given: i32,
        /// On record.
        known: i32,
    },
    /// An error of another room, with its Kafka code.
    #[error("{text}")]
    Other {
        /// Kafka's code.
        code: ErrorCode,
        /// For the caller.
        text: String,
    },
}

/// Numbers of mirror errors in the early generation (late renumbered most of them).
mod early {
    pub(super) const INVALID_MIRROR_NAME: i16 = 135;
    pub(super) const UNKNOWN_MIRROR: i16 = 136;
    pub(super) const TOPIC_ALREADY_IN_MIRROR: i16 = 137;
    pub(super) const TOPIC_NOT_IN_MIRROR: i16 = 138;
    pub(super) const MIRROR_TOPIC_NOT_PAUSED: i16 = 140;
    pub(super) const MIRROR_TOPIC_BEING_REMOVED: i16 = 141;
    pub(super) const MIRROR_NOT_EMPTY: i16 = 142;
}

/// Numbers of mirror errors in the late generation.
mod late {
    pub(super) const CLUSTER_MIRROR_ALREADY_EXISTS: i16 = 136;
    pub(super) const UNKNOWN_CLUSTER_MIRROR: i16 = 137;
    pub(super) const TOPIC_ALREADY_IN_CLUSTER_MIRROR: i16 = 138;
    pub(super) const TOPIC_NOT_IN_CLUSTER_MIRROR: i16 = 139;
    pub(super) const MIRROR_TOPIC_NOT_PAUSED: i16 = 141;
    pub(super) const MIRROR_TOPIC_BEING_STOPPED: i16 = 142;
    pub(super) const CLUSTER_MIRROR_NOT_EMPTY: i16 = 143;
    pub(super) const INVALID_CLUSTER_MIRROR_STATES: i16 = 145;
    pub(super) const MIRROR_TOPIC_NOT_STOPPED: i16 = 146;
}

impl MirrorError {
    /// The number for a caller of this dialect (docs/mirror-protocol.md §6, with the late-only ones
    /// mapped for early callers).
    pub fn code(&self, dialect: Dialect) -> i16 {
        use MirrorError as E;
        let invalid = ErrorCode::INVALID_REQUEST.0;
        let (early_code, late_code) = match self {
            E::InvalidName(_) => (early::INVALID_MIRROR_NAME, invalid),
            E::UnknownMirror(_) | E::TopicInNoMirror(_) => {
                (early::UNKNOWN_MIRROR, late::UNKNOWN_CLUSTER_MIRROR)
            }
            E::AlreadyExists(_) => (invalid, late::CLUSTER_MIRROR_ALREADY_EXISTS),
            E::TopicAlreadyInMirror(_) => (
                early::TOPIC_ALREADY_IN_MIRROR,
                late::TOPIC_ALREADY_IN_CLUSTER_MIRROR,
            ),
            E::TopicNotInMirror(_) => (
                early::TOPIC_NOT_IN_MIRROR,
                late::TOPIC_NOT_IN_CLUSTER_MIRROR,
            ),
            E::TopicNotPaused(_) => (
                early::MIRROR_TOPIC_NOT_PAUSED,
                late::MIRROR_TOPIC_NOT_PAUSED,
            ),
            E::TopicBeingRemoved(_) => (
                early::MIRROR_TOPIC_BEING_REMOVED,
                late::MIRROR_TOPIC_BEING_STOPPED,
            ),
            E::NotEmpty { .. } => (early::MIRROR_NOT_EMPTY, late::CLUSTER_MIRROR_NOT_EMPTY),
            E::InvalidStates(_) | E::Loop(_) => (invalid, late::INVALID_CLUSTER_MIRROR_STATES),
            E::TopicNotStopped(_) => (invalid, late::MIRROR_TOPIC_NOT_STOPPED),
            other => return other.stock_code(),
        };
        if dialect == Dialect::Early {
            early_code
        } else {
            late_code
        }
    }

    /// Errors that have Kafka's own numbers in every dialect.
    fn stock_code(&self) -> i16 {
        use MirrorError as E;
        match self {
            E::InvalidConfig(_) => ErrorCode::INVALID_CONFIG.0,
            E::InconsistentTopicId(_) => ErrorCode::INCONSISTENT_TOPIC_ID.0,
            E::TopicExists(_) => ErrorCode::TOPIC_ALREADY_EXISTS.0,
            E::UnknownTopic(_) | E::NotAtSource(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
            E::InvalidTopic(_) => ErrorCode::INVALID_TOPIC_EXCEPTION.0,
            E::InvalidReplicationFactor(_) => ErrorCode::INVALID_REPLICATION_FACTOR.0,
            E::FeatureOff => ErrorCode::UNSUPPORTED_VERSION.0,
            E::CoordinatorLoading => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0,
            E::NotCoordinator => ErrorCode::NOT_COORDINATOR.0,
            E::BrokersOnly(_) => ErrorCode::CLUSTER_AUTHORIZATION_FAILED.0,
            E::FencedLeaderEpoch { .. } | E::FencedWish { .. } | E::Unfenced { .. } => {
                ErrorCode::FENCED_LEADER_EPOCH.0
            }
            E::UnknownFence { .. } => ErrorCode::UNKNOWN_LEADER_EPOCH.0,
            E::UnknownTopicId(_) => ErrorCode::UNKNOWN_TOPIC_ID.0,
            E::FencedStateEpoch { .. } => ErrorCode::FENCED_STATE_EPOCH.0,
            E::Other { code, .. } => code.0,
            // The text carries the reason; a number of its own would be unknown to every client.
            _ => ErrorCode::INVALID_REQUEST.0,
        }
    }

    /// Text for the caller.
    pub fn message(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/mirror-protocol.md §6.
    #[test]
    fn numbers_are_the_documented_ones() {
        let page = include_str!("../../../docs/mirror-protocol.md");
        let x = || "x".to_owned();
        let not_empty = MirrorError::NotEmpty {
            mirror: x(),
            topic: x(),
        };
        for (meaning, error) in [
            ("a name breaks the rules", MirrorError::InvalidName(x())),
            (
                "unknown mirror; a topic in no mirror",
                MirrorError::UnknownMirror(x()),
            ),
            ("the mirror exists already", MirrorError::AlreadyExists(x())),
            (
                "the topic is in a mirror already",
                MirrorError::TopicAlreadyInMirror(x()),
            ),
            (
                "the topic is not in this mirror",
                MirrorError::TopicNotInMirror(x()),
            ),
            ("the topic is not paused", MirrorError::TopicNotPaused(x())),
            (
                "the topic is being removed, or has been",
                MirrorError::TopicBeingRemoved(x()),
            ),
            ("the mirror is not empty", not_empty),
            (
                "the state does not fit; a loop of mirrors",
                MirrorError::InvalidStates(x()),
            ),
            (
                "the topic is paused, not stopped",
                MirrorError::TopicNotStopped(x()),
            ),
        ] {
            let [early, late, next] =
                [Dialect::Early, Dialect::Late, Dialect::Next].map(|d| error.code(d));
            let row = format!("| {meaning} | {early} | {late} |");
            assert!(page.contains(&row), "{row}");
            assert_eq!(late, next);
        }
    }
}
