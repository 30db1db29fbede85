//! Requests in every dialect become one form here, by strict decoding (mirror-rpcs.md §3). What a body proves about its dialect is put
//! into the connection's memory.

use bytes::Bytes;
use tarn_wire::messages as m;
use tarn_wire::{ApiKey, Message, Str, Uuid, decode_exact};

use crate::commands::Wish;
use crate::dialect::{Dialect, DialectMemory, MirrorError};

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
        /// Stored (late form).
        include: Vec<Str>,
        /// Stored (late form).
        exclude: Vec<Str>,
        /// Late form: names are stored too when there are no patterns.
        store_names: bool,
        /// Replicas of new topics.
        replication_factor: Option<i16>,
        /// Only say what would be done.
        validate_only: bool,
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
        /// The asking cluster, for look-ups.
        cluster_id: Option<Str>,
        /// Partitions whose last mirror epoch is wanted.
        lookups: Vec<(Uuid, Vec<i32>)>,
    },
    /// 100.
    ReadStates(m::ReadMirrorStatesRequest),
    /// 101.
    WriteStates(m::WriteMirrorStatesRequest),
    /// 104.
    Delete {
        /// The mirror.
        mirror: Str,
    },
    /// 105.
    Bump(m::BumpLeaderEpochsRequest),
}

fn strict<M: Message>(body: &Bytes) -> Option<M> {
    decode_exact::<M>(body.clone(), VERSION).ok()
}

/// A candidate form: the dialect it proves (`None` = it fits several), and the request.
type Parsed = (Option<Dialect>, MirrorRequest);

/// Reads a body. `Err` is always an invalid request: the body fits no dialect that is allowed here.
pub fn parse(
    key: ApiKey,
    body: &Bytes,
    memory: &mut DialectMemory,
) -> Result<(Dialect, MirrorRequest), MirrorError> {
    memory.note_mirror_key();
    for dialect in memory.candidates() {
        let parsed = match dialect {
            Dialect::Early => early(key, body),
            Dialect::Late => late(key, body),
            Dialect::Next => next(key, body),
        };
        if let Some((proven, request)) = parsed {
            if let Some(proven) = proven {
                memory.prove(proven);
                return Ok((proven, request));
            }
            return Ok((memory.assumed(), request));
        }
    }
    Err(MirrorError::InvalidRequest(format!(
        "this body is not a {} request in any known form",
        key.name()
    )))
}

fn early(key: ApiKey, body: &Bytes) -> Option<Parsed> {
    let early = |request| Some((Some(Dialect::Early), request));
    match key {
        ApiKey::CREATE_MIRROR => strict(body).and_then(create),
        ApiKey::ADD_TOPICS_TO_MIRROR => early(early_add(strict(body)?)),
        ApiKey::REMOVE_TOPICS_FROM_MIRROR => early(early_remove(strict(body)?)),
        ApiKey::PAUSE_MIRROR_TOPICS => early(early_pause(strict(body)?)),
        ApiKey::RESUME_MIRROR_TOPICS => early(early_resume(strict(body)?)),
        ApiKey::LIST_MIRRORS => {
            strict::<m::ListMirrorsRequest>(body)?;
            early(MirrorRequest::List { names: false })
        }
        ApiKey::DESCRIBE_MIRRORS => describe(body),
        ApiKey::READ_MIRROR_STATES => Some((None, MirrorRequest::ReadStates(strict(body)?))),
        ApiKey::WRITE_MIRROR_STATES => Some((None, MirrorRequest::WriteStates(strict(body)?))),
        ApiKey::DELETE_MIRROR => {
            let r: m::DeleteMirrorRequest = strict(body)?;
            early(MirrorRequest::Delete {
                mirror: r.mirror_name.detach(),
            })
        }
        ApiKey::BUMP_LEADER_EPOCHS => Some((None, MirrorRequest::Bump(strict(body)?))),
        _ => None,
    }
}

fn late(key: ApiKey, body: &Bytes) -> Option<Parsed> {
    let late = |request| Some((Some(Dialect::Late), request));
    match key {
        ApiKey::ADD_TOPICS_TO_MIRROR => late(late_start(strict(body)?)),
        ApiKey::REMOVE_TOPICS_FROM_MIRROR => {
            let r: m::StopMirrorTopicsRequest = strict(body)?;
            let topics = r.topics.iter().map(|t| &t.topic_name);
            late(late_change(
                Wish::Remove,
                r.mirror_name,
                names(topics),
                detached(&r.patterns),
            ))
        }
        ApiKey::PAUSE_MIRROR_TOPICS => {
            let r: m::LatePauseMirrorTopicsRequest = strict(body)?;
            let topics = r.topics.iter().map(|t| &t.topic_name);
            late(late_change(
                Wish::Pause,
                r.mirror_name,
                names(topics),
                Vec::new(),
            ))
        }
        ApiKey::RESUME_MIRROR_TOPICS => {
            let r: m::LateResumeMirrorTopicsRequest = strict(body)?;
            let topics = r.topics.iter().map(|t| &t.topic_name);
            late(late_change(
                Wish::Resume,
                r.mirror_name,
                names(topics),
                Vec::new(),
            ))
        }
        ApiKey::LIST_MIRRORS => {
            let r: m::ListClusterMirrorsRequest = strict(body)?;
            late(MirrorRequest::List {
                names: r.include_topic_names,
            })
        }
        ApiKey::DELETE_MIRROR => {
            let r: m::DeleteClusterMirrorRequest = strict(body)?;
            late(MirrorRequest::Delete {
                mirror: r.mirror_name.detach(),
            })
        }
        // The bodies of these are the same in both; the memory decides what the caller speaks.
        _ => early(key, body),
    }
}

/// The next generation's forms are accepted where they are unambiguous; none of them differs strictly from late in what we serve yet.
fn next(key: ApiKey, body: &Bytes) -> Option<Parsed> {
    late(key, body).map(|(_, request)| (Some(Dialect::Next), request))
}

fn detached(list: &[Str]) -> Vec<Str> {
    list.iter().map(Str::detach).collect()
}

fn names<'a>(topics: impl Iterator<Item = &'a Str>) -> Vec<NamedTopic> {
    topics
        .map(|name| NamedTopic {
            name: name.detach(),
            id: Uuid::ZERO,
        })
        .collect()
}

fn create(r: m::CreateMirrorRequest) -> Option<Parsed> {
    let configs = r
        .config
        .iter()
        .map(|c| (c.name.detach(), c.value.as_ref().map(Str::detach)))
        .collect();
    let allow_unreachable = r.allow_unreachable;
    Some((
        None,
        MirrorRequest::Create {
            mirror: r.mirror_name.detach(),
            configs,
            allow_unreachable,
        },
    ))
}

fn early_add(r: m::AddTopicsToMirrorRequest) -> MirrorRequest {
    MirrorRequest::Add {
        mirror: r.mirror_name.detach(),
        topics: r
            .topics
            .iter()
            .map(|t| NamedTopic {
                name: t.topic_name.detach(),
                id: t.topic_id,
            })
            .collect(),
        patterns: detached(&r.patterns),
        without: detached(&r.exclude_patterns),
        include: Vec::new(),
        exclude: Vec::new(),
        store_names: false,
        replication_factor: (r.replication_factor > 0).then_some(r.replication_factor),
        validate_only: r.validate_only,
    }
}

fn late_start(r: m::StartMirrorTopicsRequest) -> MirrorRequest {
    MirrorRequest::Add {
        mirror: r.mirror_name.detach(),
        topics: r
            .topics
            .iter()
            .map(|t| NamedTopic {
                name: t.topic_name.detach(),
                id: t.topic_id,
            })
            .collect(),
        patterns: Vec::new(),
        without: Vec::new(),
        include: detached(&r.include_patterns),
        exclude: detached(&r.exclude_patterns),
        store_names: true,
        replication_factor: None,
        validate_only: false,
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
                    .map(|t| NamedTopic {
                        name: t.topic_name.detach(),
                        id: t.topic_id,
                    })
                    .collect(),
                patterns: detached(&r.patterns),
                all: r.all_topics,
                stored_patterns: Vec::new(),
                validate_only: r.validate_only,
            }
        }
    };
}

early_change!(early_remove, RemoveTopicsFromMirrorRequest, Wish::Remove);
early_change!(early_pause, PauseMirrorTopicsRequest, Wish::Pause);
early_change!(early_resume, ResumeMirrorTopicsRequest, Wish::Resume);

fn late_change(
    wish: Wish,
    mirror: Str,
    topics: Vec<NamedTopic>,
    stored_patterns: Vec<Str>,
) -> MirrorRequest {
    MirrorRequest::Change {
        wish,
        mirror: mirror.detach(),
        topics,
        patterns: Vec::new(),
        all: false,
        stored_patterns,
        validate_only: false,
    }
}

/// 99 has the same untagged fields in both; a look-up proves late. A null list (next) means all.
fn describe(body: &Bytes) -> Option<Parsed> {
    let request = |mirrors, cluster_id, lookups| MirrorRequest::Describe {
        mirrors,
        cluster_id,
        lookups,
    };
    match strict::<m::DescribeClusterMirrorsRequest>(body) {
        Some(r) => {
            let tagged = r.cluster_id.is_some() || !r.last_mirror_epoch_lookups.is_empty();
            let lookups = r
                .last_mirror_epoch_lookups
                .into_iter()
                .map(|l| (l.topic_id, l.partitions))
                .collect();
            let cluster_id = r.cluster_id.as_ref().map(Str::detach);
            Some((
                tagged.then_some(Dialect::Late),
                request(detached(&r.mirror_names), cluster_id, lookups),
            ))
        }
        None if body.first() == Some(&0) && body.len() == 3 => {
            // A null array, the flag, no tags.
            Some((Some(Dialect::Next), request(Vec::new(), None, Vec::new())))
        }
        None => None,
    }
}
