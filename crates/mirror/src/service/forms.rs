//! Requests in every dialect become one form here, by strict decoding (docs/mirror-protocol.md §3).
//! One table says which forms there are and what each proves about its sender; not here: what is
//! done with the proof.

use bytes::Bytes;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Message, Reader, Str, Uuid};

use crate::commands::Wish;
use crate::config::SOURCE_CLUSTER_ID;
use crate::dialect::{Dialect, MirrorError, WireDialect};

/// All mirror bodies are version 0.
pub(super) const VERSION: i16 = 0;

/// A topic of an add request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTopic {
    /// Name.
    pub name: Str,
    /// Id; zero = none given.
    pub id: Uuid,
}

/// A request, whatever its dialect.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorRequest {
    /// 94.
    Create {
        /// Name asked for.
        mirror: Str,
        /// Keys and values.
        configs: Vec<(Str, Option<Str>)>,
        /// Store it although the source cannot be reached.
        allow_unreachable: bool,
    },
    /// 95.
    Add {
        /// The mirror.
        mirror: Str,
        /// Topics by name.
        topics: Vec<NamedTopic>,
        /// Resolved once over the source's topics, not stored (early form).
        patterns: Vec<Str>,
        /// Taken out of `patterns`, not stored (early form).
        without: Vec<Str>,
        /// Stored (late form, and our own tool's).
        include: Vec<Str>,
        /// Stored (late form, and our own tool's).
        exclude: Vec<Str>,
        /// Late form: names are stored too when there are no patterns.
        store_names: bool,
        /// Replicas of new topics.
        replication_factor: Option<i16>,
        /// Only say what would be done.
        validate_only: bool,
        /// Metadata offset up to which the caller has looked at the topics; `None` = it has not.
        checked_at: Option<i64>,
    },
    /// 96, 102, 103.
    Change {
        /// Which.
        wish: Wish,
        /// The mirror.
        mirror: Str,
        /// Topics by name.
        topics: Vec<NamedTopic>,
        /// Resolved over the mirror's own topics (early form).
        patterns: Vec<Str>,
        /// Every topic of the mirror.
        all: bool,
        /// Taken out of the stored patterns (late form of 96).
        stored_patterns: Vec<Str>,
        /// Only say what would be done.
        validate_only: bool,
        /// Metadata offset up to which the caller has looked at the topics; `None` = it has not.
        checked_at: Option<i64>,
    },
    /// 98.
    List {
        /// Topic names are wanted (late).
        names: bool,
    },
    /// 99.
    Describe {
        /// Mirrors asked for; empty = all.
        mirrors: Vec<Str>,
        /// The authorised operations are wanted (late).
        operations: bool,
        /// The asking cluster, for look-ups.
        cluster_id: Option<Str>,
        /// Partitions whose last mirror epoch is wanted.
        lookups: Vec<(Uuid, Vec<i32>)>,
        /// Only the look-ups are wanted, not the mirrors.
        lookups_only: bool,
    },
    /// 100.
    ReadStates(m::ReadMirrorStatesRequest),
    /// 101.
    WriteStates(m::WriteMirrorStatesRequest),
    /// 104.
    Delete {
        /// The mirror.
        mirror: Str,
        /// Metadata offset up to which the caller has looked at the topics; `None` = it has not.
        checked_at: Option<i64>,
    },
    /// 105.
    Bump(m::BumpLeaderEpochsRequest),
}

/// Most elements in the lists of one request: as the other requests have it by default
/// (`request.max.elements`).
const ELEMENTS_MAX: usize = 100_000;

fn strict<M: Message>(body: &Bytes) -> Option<M> {
    let mut reader = Reader::with_elements_max(body.clone(), ELEMENTS_MAX);
    let message = M::decode(&mut reader, VERSION).ok()?;
    (reader.remaining() == 0).then_some(message)
}

/// Who sends a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Senders {
    /// One generation only: the form alone is the proof.
    Only(Dialect),
    /// Every generation: at most what is inside tells.
    All,
}

/// One row: a body that is accepted under a key.
struct Form {
    key: ApiKey,
    senders: Senders,
    read: fn(&Bytes) -> Option<MirrorRequest>,
    /// What the content of a form of [`Senders::All`] tells.
    tells: fn(&MirrorRequest) -> Option<Dialect>,
}

/// A request, and the generation it proves.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The request.
    pub request: MirrorRequest,
    /// What it proves.
    pub proof: Proof,
}

/// How much a request tells about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing.
    Nothing,
    /// What is inside makes one generation likely; a connection that has proven another one is
    /// believed.
    Content(Dialect),
    /// Only this generation sends it.
    Form(Dialect),
}

const fn only(dialect: Dialect, key: ApiKey, read: fn(&Bytes) -> Option<MirrorRequest>) -> Form {
    Form {
        key,
        senders: Senders::Only(dialect),
        read,
        tells: nothing,
    }
}

const fn all(
    key: ApiKey,
    read: fn(&Bytes) -> Option<MirrorRequest>,
    tells: fn(&MirrorRequest) -> Option<Dialect>,
) -> Form {
    Form {
        key,
        senders: Senders::All,
        read,
        tells,
    }
}

/// What is accepted, and what each form proves. Tried from top to bottom: the first that decodes to
/// the last byte is it. The next generation's forms differ strictly from late in nothing that is
/// served yet.
static FORMS: &[Form] = {
    use Dialect::{Early, Late};
    &[
        all(
            ApiKey::CREATE_MIRROR,
            |b| strict(b).map(create),
            create_tells,
        ),
        only(Early, ApiKey::ADD_TOPICS_TO_MIRROR, |b| {
            strict(b).map(early_add)
        }),
        only(Late, ApiKey::ADD_TOPICS_TO_MIRROR, |b| {
            strict(b).map(late_start)
        }),
        only(Early, ApiKey::REMOVE_TOPICS_FROM_MIRROR, |b| {
            strict(b).map(early_remove)
        }),
        only(Late, ApiKey::REMOVE_TOPICS_FROM_MIRROR, |b| {
            strict(b).map(late_stop)
        }),
        only(Early, ApiKey::LIST_MIRRORS, |b| {
            strict::<m::ListMirrorsRequest>(b).map(|_| MirrorRequest::List { names: false })
        }),
        only(Late, ApiKey::LIST_MIRRORS, |b| {
            strict::<m::ListClusterMirrorsRequest>(b).map(|r| MirrorRequest::List {
                names: r.include_topic_names,
            })
        }),
        all(ApiKey::DESCRIBE_MIRRORS, describe, describe_tells),
        only(Dialect::Next, ApiKey::DESCRIBE_MIRRORS, describe_all),
        all(
            ApiKey::READ_MIRROR_STATES,
            |b| strict(b).map(MirrorRequest::ReadStates),
            nothing,
        ),
        all(
            ApiKey::WRITE_MIRROR_STATES,
            |b| strict(b).map(MirrorRequest::WriteStates),
            nothing,
        ),
        only(Early, ApiKey::PAUSE_MIRROR_TOPICS, |b| {
            strict(b).map(early_pause)
        }),
        only(Late, ApiKey::PAUSE_MIRROR_TOPICS, |b| {
            strict(b).map(late_pause)
        }),
        only(Early, ApiKey::RESUME_MIRROR_TOPICS, |b| {
            strict(b).map(early_resume)
        }),
        only(Late, ApiKey::RESUME_MIRROR_TOPICS, |b| {
            strict(b).map(late_resume)
        }),
        only(Early, ApiKey::DELETE_MIRROR, |b| {
            strict(b).map(early_delete)
        }),
        only(Late, ApiKey::DELETE_MIRROR, |b| strict(b).map(late_delete)),
        all(
            ApiKey::BUMP_LEADER_EPOCHS,
            |b| strict(b).map(MirrorRequest::Bump),
            nothing,
        ),
    ]
};

impl Form {
    fn is_accepted(&self, configured: WireDialect) -> bool {
        match (configured, self.senders) {
            (WireDialect::Auto, _) | (_, Senders::All) => true,
            (WireDialect::Only(Dialect::Early), Senders::Only(dialect)) => {
                dialect == Dialect::Early
            }
            // The null list of a describe is harmless, and late knows everything else that next
            // sends.
            (WireDialect::Only(_), Senders::Only(dialect)) => dialect != Dialect::Early,
        }
    }

    fn proof(&self, configured: WireDialect, request: &MirrorRequest) -> Proof {
        let named = |dialect| match configured {
            WireDialect::Only(Dialect::Next) => Dialect::Next,
            _ => dialect,
        };
        match self.senders {
            Senders::Only(dialect) => Proof::Form(named(dialect)),
            Senders::All => (self.tells)(request).map_or(Proof::Nothing, |d| {
                // A look-up can be answered in no other form.
                match request {
                    MirrorRequest::Describe { .. } => Proof::Form(named(d)),
                    _ => Proof::Content(named(d)),
                }
            }),
        }
    }
}

/// Reads a body. `Err` is always an invalid request: the body fits no form that is accepted here.
pub fn parse(key: ApiKey, body: &Bytes, configured: WireDialect) -> Result<Parsed, MirrorError> {
    let forms = FORMS
        .iter()
        .filter(|f| f.key == key && f.is_accepted(configured));
    for form in forms {
        if let Some(request) = (form.read)(body) {
            let proof = form.proof(configured, &request);
            return Ok(Parsed { request, proof });
        }
    }
    Err(MirrorError::InvalidRequest(format!(
        "this body is not a {} request in any known form",
        key.name()
    )))
}

/// Keys that brokers send to each other and nobody else sends.
pub fn is_for_brokers(key: ApiKey) -> bool {
    matches!(
        key,
        ApiKey::READ_MIRROR_STATES | ApiKey::WRITE_MIRROR_STATES | ApiKey::BUMP_LEADER_EPOCHS
    )
}

fn nothing(_: &MirrorRequest) -> Option<Dialect> {
    None
}

/// Late tools ask the source for its id and put it into the definition; early tools send the
/// operator's file as it is.
fn create_tells(request: &MirrorRequest) -> Option<Dialect> {
    let MirrorRequest::Create { configs, .. } = request else {
        return None;
    };
    configs
        .iter()
        .any(|(key, _)| *key == *SOURCE_CLUSTER_ID)
        .then_some(Dialect::Late)
}

/// Early callers know no look-up.
fn describe_tells(request: &MirrorRequest) -> Option<Dialect> {
    let MirrorRequest::Describe {
        cluster_id,
        lookups,
        ..
    } = request
    else {
        return None;
    };
    (cluster_id.is_some() || !lookups.is_empty()).then_some(Dialect::Late)
}

/// A metadata offset of a request; −1 = not checked.
fn checked_at(offset: i64) -> Option<i64> {
    (offset >= 0).then_some(offset)
}

fn detached(list: &[Str]) -> Vec<Str> {
    list.iter().map(Str::detach).collect()
}

fn named(name: &Str, id: Uuid) -> NamedTopic {
    NamedTopic {
        name: name.detach(),
        id,
    }
}

fn create(r: m::CreateMirrorRequest) -> MirrorRequest {
    let configs = r
        .config
        .iter()
        .map(|c| (c.name.detach(), c.value.as_ref().map(Str::detach)))
        .collect();
    MirrorRequest::Create {
        mirror: r.mirror_name.detach(),
        configs,
        allow_unreachable: r.allow_unreachable,
    }
}

fn early_delete(r: m::DeleteMirrorRequest) -> MirrorRequest {
    MirrorRequest::Delete {
        mirror: r.mirror_name.detach(),
        checked_at: None,
    }
}

fn late_delete(r: m::DeleteClusterMirrorRequest) -> MirrorRequest {
    MirrorRequest::Delete {
        mirror: r.mirror_name.detach(),
        checked_at: checked_at(r.state_validation_offset),
    }
}

fn early_add(r: m::AddTopicsToMirrorRequest) -> MirrorRequest {
    let stored = |list: &[Str]| {
        if r.store_patterns {
            detached(list)
        } else {
            Vec::new()
        }
    };
    MirrorRequest::Add {
        mirror: r.mirror_name.detach(),
        topics: r
            .topics
            .iter()
            .map(|t| named(&t.topic_name, t.topic_id))
            .collect(),
        patterns: detached(&r.patterns),
        without: detached(&r.exclude_patterns),
        include: stored(&r.patterns),
        exclude: stored(&r.exclude_patterns),
        store_names: false,
        replication_factor: (r.replication_factor > 0).then_some(r.replication_factor),
        validate_only: r.validate_only,
        checked_at: None,
    }
}

fn late_start(r: m::StartMirrorTopicsRequest) -> MirrorRequest {
    MirrorRequest::Add {
        mirror: r.mirror_name.detach(),
        topics: r
            .topics
            .iter()
            .map(|t| named(&t.topic_name, t.topic_id))
            .collect(),
        patterns: Vec::new(),
        without: Vec::new(),
        include: detached(&r.include_patterns),
        exclude: detached(&r.exclude_patterns),
        store_names: true,
        replication_factor: None,
        validate_only: false,
        checked_at: checked_at(r.state_validation_offset),
    }
}

macro_rules! early_change {
    ($name:ident, $message:ident, $wish:expr) => {
        fn $name(r: m::$message) -> MirrorRequest {
            MirrorRequest::Change {
                wish: $wish,
                mirror: r.mirror_name.detach(),
                topics: r
                    .topics
                    .iter()
                    .map(|t| named(&t.topic_name, t.topic_id))
                    .collect(),
                patterns: detached(&r.patterns),
                all: r.all_topics,
                stored_patterns: Vec::new(),
                validate_only: r.validate_only,
                checked_at: None,
            }
        }
    };
}

early_change!(early_remove, RemoveTopicsFromMirrorRequest, Wish::Remove);
early_change!(early_pause, PauseMirrorTopicsRequest, Wish::Pause);
early_change!(early_resume, ResumeMirrorTopicsRequest, Wish::Resume);

macro_rules! late_change {
    ($name:ident, $message:ident, $wish:expr, $patterns:expr) => {
        fn $name(r: m::$message) -> MirrorRequest {
            let patterns: fn(&m::$message) -> Vec<Str> = $patterns;
            MirrorRequest::Change {
                wish: $wish,
                mirror: r.mirror_name.detach(),
                topics: r
                    .topics
                    .iter()
                    .map(|t| named(&t.topic_name, Uuid::ZERO))
                    .collect(),
                patterns: Vec::new(),
                all: false,
                stored_patterns: patterns(&r),
                validate_only: false,
                checked_at: checked_at(r.state_validation_offset),
            }
        }
    };
}

late_change!(late_stop, StopMirrorTopicsRequest, Wish::Remove, |r| {
    detached(&r.patterns)
});
late_change!(
    late_pause,
    LatePauseMirrorTopicsRequest,
    Wish::Pause,
    |_| { Vec::new() }
);
late_change!(
    late_resume,
    LateResumeMirrorTopicsRequest,
    Wish::Resume,
    |_| Vec::new()
);

/// 99 has the same untagged fields in both.
fn describe(body: &Bytes) -> Option<MirrorRequest> {
    let r = strict::<m::DescribeClusterMirrorsRequest>(body)?;
    let lookups = r
        .last_mirror_epoch_lookups
        .into_iter()
        .map(|l| (l.topic_id, l.partitions))
        .collect();
    Some(MirrorRequest::Describe {
        mirrors: detached(&r.mirror_names),
        operations: r.include_authorized_operations,
        cluster_id: r.cluster_id.as_ref().map(Str::detach),
        lookups,
        lookups_only: r.lookups_only,
    })
}

/// A null list (next) means all: a null array, the flag, no tags.
fn describe_all(body: &Bytes) -> Option<MirrorRequest> {
    let [0, operations, 0] = **body else {
        return None;
    };
    Some(MirrorRequest::Describe {
        mirrors: Vec::new(),
        operations: operations != 0,
        cluster_id: None,
        lookups: Vec::new(),
        lookups_only: false,
    })
}

#[cfg(test)]
mod tests;
