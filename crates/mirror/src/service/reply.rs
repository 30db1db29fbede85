//! Answers in the caller's dialect. The only place where symbolic errors become numbers and states
//! become names.

use tarn_wire::messages as m;
use tarn_wire::messages::{
    bump_leader_epochs_response as early_bump, late_bump_leader_epochs_response as late_bump,
};
use tarn_wire::{ApiKey, ErrorCode, Frame, Str, WireError, answer_frame, encode_body};

use super::forms::VERSION;
use crate::commands::{BumpRefusal, TopicResult};
use crate::dialect::{Dialect, MirrorError};

/// An answer that is ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorReply {
    key: ApiKey,
    body: Body,
}

macro_rules! bodies {
    ($($name:ident,)*) => {
        /// The message inside, by dialect.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Body {
            $($name(m::$name),)*
        }

        $(impl From<m::$name> for Body {
            fn from(message: m::$name) -> Body {
                Body::$name(message)
            }
        })*

        impl MirrorReply {
            /// The whole response with length and header. One that cannot be encoded tells `code`
            /// instead, and the reason comes along. Errors: not even that can be encoded.
            pub fn frame(
                &self,
                correlation_id: i32,
                code: ErrorCode,
            ) -> Result<(Frame, Option<WireError>), WireError> {
                match &self.body {
                    $(Body::$name(message) => {
                        answer_frame(self.key, correlation_id, VERSION, message, code)
                    })*
                }
            }

            /// The body alone.
            pub fn bytes(&self) -> Result<Frame, WireError> {
                match &self.body {
                    $(Body::$name(message) => encode_body(message, VERSION),)*
                }
            }
        }
    };
}

bodies! {
    CreateMirrorResponse,
    AddTopicsToMirrorResponse,
    RemoveTopicsFromMirrorResponse,
    PauseMirrorTopicsResponse,
    ResumeMirrorTopicsResponse,
    StartMirrorTopicsResponse,
    StopMirrorTopicsResponse,
    LatePauseMirrorTopicsResponse,
    LateResumeMirrorTopicsResponse,
    ListMirrorsResponse,
    ListClusterMirrorsResponse,
    DescribeMirrorsResponse,
    DescribeClusterMirrorsResponse,
    ReadMirrorStatesResponse,
    LateReadMirrorStatesResponse,
    WriteMirrorStatesResponse,
    LateWriteMirrorStatesResponse,
    DeleteMirrorResponse,
    DeleteClusterMirrorResponse,
    BumpLeaderEpochsResponse,
    LateBumpLeaderEpochsResponse,
}

impl MirrorReply {
    pub(super) fn new(key: ApiKey, body: impl Into<Body>) -> MirrorReply {
        MirrorReply {
            key,
            body: body.into(),
        }
    }

    /// The message inside.
    pub fn body(&self) -> &Body {
        &self.body
    }
}

/// Code and text at the top of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Top {
    pub(super) code: i16,
    pub(super) message: Option<Str>,
}

impl Top {
    pub(super) fn of(error: Option<&MirrorError>, dialect: Dialect) -> Top {
        match error {
            None => Top::default(),
            Some(error) => Top {
                code: error.code(dialect),
                message: Some(Str::from(error.to_string())),
            },
        }
    }
}

macro_rules! error_answer {
    ($response:ident, $key:expr, $top:expr) => {
        MirrorReply::new(
            $key,
            m::$response {
                error_code: $top.code,
                error_message: $top.message,
                ..Default::default()
            },
        )
    };
}

/// The answer of a request that failed as a whole (or could not even be read).
pub(super) fn refusal(key: ApiKey, dialect: Dialect, error: &MirrorError) -> MirrorReply {
    let top = Top::of(Some(error), dialect);
    let late = dialect != Dialect::Early;
    match key {
        ApiKey::LIST_MIRRORS if late => error_answer!(ListClusterMirrorsResponse, key, top),
        ApiKey::LIST_MIRRORS => error_answer!(ListMirrorsResponse, key, top),
        ApiKey::DESCRIBE_MIRRORS if late => error_answer!(DescribeClusterMirrorsResponse, key, top),
        ApiKey::DESCRIBE_MIRRORS => error_answer!(DescribeMirrorsResponse, key, top),
        ApiKey::READ_MIRROR_STATES if late => error_answer!(LateReadMirrorStatesResponse, key, top),
        ApiKey::READ_MIRROR_STATES => error_answer!(ReadMirrorStatesResponse, key, top),
        ApiKey::WRITE_MIRROR_STATES if late => {
            error_answer!(LateWriteMirrorStatesResponse, key, top)
        }
        ApiKey::WRITE_MIRROR_STATES => error_answer!(WriteMirrorStatesResponse, key, top),
        ApiKey::CREATE_MIRROR | ApiKey::DELETE_MIRROR | ApiKey::BUMP_LEADER_EPOCHS => {
            plain(key, dialect, Some(error))
        }
        _ => topics(key, dialect, &Str::EMPTY, Some(error), &[]),
    }
}

/// Answers 105: nothing but a result when all went well, and otherwise each refused partition with
/// its reason. The top-level code is an error of the whole, or the first refusal when nothing else
/// was asked.
pub(super) fn bumped(
    dialect: Dialect,
    outcome: Result<(Vec<BumpRefusal>, usize), MirrorError>,
) -> MirrorReply {
    let key = ApiKey::BUMP_LEADER_EPOCHS;
    let refused = match outcome {
        Ok((refused, _)) if refused.is_empty() => return plain(key, dialect, None),
        Ok((refused, asked)) => (refused, asked),
        Err(error) => return plain(key, dialect, Some(&error)),
    };
    let (refused, asked) = refused;
    let whole = refused.first().filter(|_| refused.len() == asked);
    let top = Top::of(whole.map(|r| &r.error), dialect);
    if dialect == Dialect::Early {
        let topic = |r: &BumpRefusal| early_bump::BumpTopicResult {
            topic_name: r.topic.clone(),
            partitions: vec![early_bump::BumpPartitionResult {
                partition_index: r.partition,
                error_code: r.error.code(dialect),
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = m::BumpLeaderEpochsResponse {
            error_code: top.code,
            topics: refused.iter().map(topic).collect(),
            ..Default::default()
        };
        return MirrorReply::new(key, response);
    }
    let topic = |r: &BumpRefusal| late_bump::BumpTopicResult {
        topic_name: r.topic.clone(),
        partitions: vec![late_bump::BumpPartitionResult {
            partition_index: r.partition,
            error_code: r.error.code(dialect),
            error_message: Some(Str::from(r.error.to_string())),
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = m::LateBumpLeaderEpochsResponse {
        error_code: top.code,
        error_message: top.message,
        topics: refused.iter().map(topic).collect(),
        ..Default::default()
    };
    MirrorReply::new(key, response)
}

/// Answers that have nothing but a result: 94, 104, 105.
pub(super) fn plain(key: ApiKey, dialect: Dialect, error: Option<&MirrorError>) -> MirrorReply {
    let Top { code, message } = Top::of(error, dialect);
    match (key, dialect) {
        (ApiKey::CREATE_MIRROR, _) => MirrorReply::new(
            key,
            m::CreateMirrorResponse {
                error_code: code,
                error_message: message,
                ..Default::default()
            },
        ),
        (ApiKey::DELETE_MIRROR, Dialect::Early) => MirrorReply::new(
            key,
            m::DeleteMirrorResponse {
                error_code: code,
                error_message: message,
                ..Default::default()
            },
        ),
        (ApiKey::DELETE_MIRROR, _) => MirrorReply::new(
            key,
            m::DeleteClusterMirrorResponse {
                error_code: code,
                error_message: message,
                ..Default::default()
            },
        ),
        (_, Dialect::Early) => MirrorReply::new(
            key,
            m::BumpLeaderEpochsResponse {
                error_code: code,
                ..Default::default()
            },
        ),
        _ => MirrorReply::new(
            key,
            m::LateBumpLeaderEpochsResponse {
                error_code: code,
                error_message: message,
                ..Default::default()
            },
        ),
    }
}

/// A response with results per topic, of the schema module beside it.
macro_rules! topic_answer {
    ($response:ident, $module:ident, $with:expr $(, $mirror:expr)?) => {{
        let With { key, dialect, top, results } = $with;
        let topics = results
            .iter()
            .map(|t| {
                let top = Top::of(t.error.as_ref(), dialect);
                m::$module::MirrorTopicResult {
                    name: t.name.clone(),
                    error_code: top.code,
                    error_message: top.message,
                    ..Default::default()
                }
            })
            .collect();
        MirrorReply::new(
            key,
            m::$response {
                error_code: top.code,
                error_message: top.message,
                topics,
                $(mirror_name: $mirror.clone(),)?
                ..Default::default()
            },
        )
    }};
}

/// What every answer with topics is made of.
struct With<'a> {
    key: ApiKey,
    dialect: Dialect,
    top: Top,
    results: &'a [TopicResult],
}

/// Answers with a result per topic: 95, 96, 102, 103. The top-level code is the error of the whole,
/// or one of the topics' when none of them succeeded: a client that looks only there must not take
/// a request that did something for a failed one.
pub(super) fn topics(
    key: ApiKey,
    dialect: Dialect,
    mirror: &Str,
    error: Option<&MirrorError>,
    results: &[TopicResult],
) -> MirrorReply {
    let common = error.cloned().or_else(|| common_error(results));
    let top = Top::of(common.as_ref(), dialect);
    let with = With {
        key,
        dialect,
        top,
        results,
    };
    if dialect == Dialect::Early {
        early_topics(with, mirror)
    } else {
        late_topics(with)
    }
}

/// What a request says as a whole whose topics all failed: the first error that is about a topic of
/// a mirror. A pattern over all topics of the cluster names ordinary ones too, and "unknown mirror"
/// would be wrong about the mirror.
fn common_error(results: &[TopicResult]) -> Option<MirrorError> {
    let errors: Option<Vec<&MirrorError>> = results.iter().map(|t| t.error.as_ref()).collect();
    let errors = errors?;
    let about_a_member = errors
        .iter()
        .find(|e| !matches!(e, MirrorError::TopicInNoMirror(_)));
    match about_a_member.or(errors.first())? {
        MirrorError::TopicInNoMirror(_) => errors
            .first()
            .map(|e| MirrorError::TopicNotInMirror(e.to_string())),
        error => Some((*error).clone()),
    }
}

fn early_topics(with: With<'_>, mirror: &Str) -> MirrorReply {
    match with.key {
        ApiKey::REMOVE_TOPICS_FROM_MIRROR => topic_answer!(
            RemoveTopicsFromMirrorResponse,
            remove_topics_from_mirror_response,
            with,
            mirror
        ),
        ApiKey::PAUSE_MIRROR_TOPICS => {
            topic_answer!(
                PauseMirrorTopicsResponse,
                pause_mirror_topics_response,
                with,
                mirror
            )
        }
        ApiKey::RESUME_MIRROR_TOPICS => {
            topic_answer!(
                ResumeMirrorTopicsResponse,
                resume_mirror_topics_response,
                with,
                mirror
            )
        }
        _ => topic_answer!(
            AddTopicsToMirrorResponse,
            add_topics_to_mirror_response,
            with,
            mirror
        ),
    }
}

fn late_topics(with: With<'_>) -> MirrorReply {
    match with.key {
        ApiKey::REMOVE_TOPICS_FROM_MIRROR => {
            topic_answer!(StopMirrorTopicsResponse, stop_mirror_topics_response, with)
        }
        ApiKey::PAUSE_MIRROR_TOPICS => {
            topic_answer!(
                LatePauseMirrorTopicsResponse,
                late_pause_mirror_topics_response,
                with
            )
        }
        ApiKey::RESUME_MIRROR_TOPICS => {
            topic_answer!(
                LateResumeMirrorTopicsResponse,
                late_resume_mirror_topics_response,
                with
            )
        }
        _ => topic_answer!(
            StartMirrorTopicsResponse,
            start_mirror_topics_response,
            with
        ),
    }
}
