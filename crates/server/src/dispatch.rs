//! From a frame to an answer: header, version check, the one table of routes, and the fall-back
//! forms of errors.
//!
//! Versions come from `tarn_wire::apis`; an API without a route here is not announced. Not here:
//! what an API does (`handlers`).

pub(crate) mod failures;
mod routes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tarn_wire::{
    ApiKey, ErrorCode, ErrorForm, Frame, Message, Reader, Request, Str, VersionRange, WireError,
};

use crate::log_limit::LogLimit;
use crate::net::budget::Charge;
use crate::node::{ConnectionInfo, Node};

pub(crate) use routes::ROUTES;

/// A boxed future, for the table of handlers.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a handler gives back.
pub(crate) enum Answer {
    /// A whole frame.
    Ready(Frame),
    /// A frame that needs something first, without holding up the requests behind it. `Ok(None)` =
    /// no answer; `Err` = close.
    Later(BoxFuture<Result<Option<Frame>, &'static str>>),
    /// The request wants no answer.
    Nothing,
}

/// Why a request gets no answer; the connection is closed, as Kafka does.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("bad request header: {0}")]
    Header(WireError),
    #[error("{key} version {version} is not supported")]
    Unsupported { key: ApiKey, version: i16 },
    #[error(
        "the lists of {key} version {version} have more than {max} elements (request.max.elements)"
    )]
    Elements {
        key: ApiKey,
        version: i16,
        max: usize,
    },
    #[error("bad body of {key} version {version}: {error}")]
    Body {
        key: ApiKey,
        version: i16,
        error: WireError,
    },
    #[error("the answer of {key} version {version} could not be encoded: {error}")]
    Encode {
        key: ApiKey,
        version: i16,
        error: WireError,
    },
    #[error("{0}")]
    Close(&'static str),
}

impl Refusal {
    /// The limit of log lines of this kind.
    pub(crate) fn log_limit(&self) -> &'static LogLimit {
        static LIMITS: [LogLimit; 6] = [const { LogLimit::new() }; 6];
        match self {
            Refusal::Header(_) => &LIMITS[0],
            Refusal::Unsupported { .. } => &LIMITS[1],
            Refusal::Body { .. } => &LIMITS[2],
            Refusal::Encode { .. } => &LIMITS[3],
            Refusal::Close(_) => &LIMITS[4],
            Refusal::Elements { .. } => &LIMITS[5],
        }
    }
}

/// One request, without its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<Str>,
    pub(crate) connection: Arc<ConnectionInfo>,
    /// `request.max.elements`.
    elements_max: usize,
}

impl Call {
    /// Counts `bytes` more of the answer, before they are encoded and kept. The code is for the
    /// part that then stays out of the answer.
    pub(crate) fn room(&self, bytes: usize) -> Result<(), ErrorCode> {
        self.connection.meter.take(bytes)
    }

    /// The client's id, empty when it gave none.
    pub(crate) fn client_id(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }

    /// Encodes a response in the version that was asked. What cannot be said in it becomes an
    /// answer that tells an error.
    pub(crate) fn encode<M: Message + ErrorForm>(&self, response: &M) -> Result<Frame, Refusal> {
        let (key, version) = (self.key, self.version);
        let code = ErrorCode::UNKNOWN_SERVER_ERROR;
        let (frame, failed) =
            tarn_wire::answer_frame(key, self.correlation_id, version, response, code)
                .map_err(|error| self.not_encoded(error))?;
        if let Some(error) = failed {
            failures::report(key, version, &error);
        }
        Ok(frame)
    }

    /// The refusal that is left when not even an error can be encoded.
    pub(crate) fn not_encoded(&self, error: WireError) -> Refusal {
        failures::report(self.key, self.version, &error);
        Refusal::Encode {
            key: self.key,
            version: self.version,
            error,
        }
    }

    /// Decodes the body. Bytes behind a stock body are ignored, as Kafka does.
    pub(crate) fn decode<R: Request>(&self, body: Bytes) -> Result<R, Refusal> {
        let mut reader = Reader::with_elements_max(body, self.elements_max);
        let (key, version) = (self.key, self.version);
        R::decode(&mut reader, version).map_err(|error| match error {
            WireError::ElementsOverLimit { max } => Refusal::Elements { key, version, max },
            error => Refusal::Body {
                key,
                version,
                error,
            },
        })
    }
}

/// How an answer comes that may have to be waited for.
pub(crate) type Deciding = BoxFuture<Result<Answer, Refusal>>;

/// The outcome of a handler that decides at once when it can.
pub(crate) enum Decision {
    /// It could.
    Made(Answer),
    /// The decision takes time on other threads.
    Pending(Deciding),
}

/// What a route does with a body.
pub(crate) enum Run {
    /// Mostly decided without waiting for anything.
    Now(fn(&Arc<Node>, Call, Bytes) -> Result<Decision, Refusal>),
    /// May wait before it is decided.
    Waiting(fn(Arc<Node>, Call, Bytes) -> Deciding),
}

/// One row: an API that is implemented.
pub(crate) struct Route {
    pub(crate) key: ApiKey,
    pub(crate) run: Run,
    /// Highest version accepted beyond the announced ones (unstable versions of peers).
    pub(crate) accepted_max: Option<i16>,
}

impl Route {
    /// Versions to announce on a listener; `None` when the API does not belong there now.
    pub(crate) fn announced(&self, mirror_enabled: bool, controller: bool) -> Option<VersionRange> {
        let api = self.key.api()?;
        let served = if controller {
            api.listeners.controller
        } else {
            api.listeners.broker
        };
        if !served || (api.flags.mirror && !mirror_enabled) {
            return None;
        }
        let mut versions = api.versions;
        if self.key == ApiKey::CREATE_TOPICS && mirror_enabled {
            versions.max = CREATE_TOPICS_WITH_MIRROR;
        }
        Some(versions)
    }

    fn accepts(&self, version: i16, mirror_enabled: bool, controller: bool) -> bool {
        let Some(mut versions) = self.announced(mirror_enabled, controller) else {
            return false;
        };
        versions.max = versions.max.max(self.accepted_max.unwrap_or(versions.max));
        let codec = self.key.api().map_or(versions, |api| api.codec());
        versions.contains(version) && codec.contains(version)
    }
}

/// The version of CreateTopics that carries `MirrorInfo`.
pub(crate) const CREATE_TOPICS_WITH_MIRROR: i16 = 8;

/// Whether the request in this frame may wait for something that only others can bring about, so
/// that it ends when its client hangs up. Requests that change something are never cut short.
pub(crate) fn waits(frame: &[u8]) -> bool {
    let Some(key) = frame.first_chunk() else {
        return false;
    };
    matches!(
        ApiKey(i16::from_be_bytes(*key)),
        ApiKey::FETCH | ApiKey::JOIN_GROUP | ApiKey::SYNC_GROUP
    )
}

/// Answers one frame; gives what the answer was charged with too.
pub(crate) async fn handle(
    node: &Arc<Node>,
    connection: &Arc<ConnectionInfo>,
    frame: Bytes,
) -> Result<(Answer, Option<Charge>), Refusal> {
    // An ApiVersions request of a future version may have a header nobody knows: what is needed
    // stands at fixed places.
    if let Some((ApiKey::API_VERSIONS, version, correlation_id)) = tarn_wire::peek_request(&frame) {
        let versions = ApiKey::API_VERSIONS.api().map(|api| api.versions);
        if !versions.is_some_and(|versions| versions.contains(version)) {
            let call = Call {
                key: ApiKey::API_VERSIONS,
                version: 0,
                correlation_id,
                client_id: None,
                connection: connection.clone(),
                elements_max: node.elements_max,
            };
            let answer = call.encode(&crate::handlers::api_versions::unsupported())?;
            return Ok((Answer::Ready(answer), None));
        }
    }
    let (header, body) = tarn_wire::decode_request_header(frame).map_err(Refusal::Header)?;
    let (key, version) = (header.key, header.version);
    let route = ROUTES.iter().find(|route| route.key == key);
    let Some(route) =
        route.filter(|route| route.accepts(version, node.mirror_enabled(), connection.controller))
    else {
        return Err(Refusal::Unsupported { key, version });
    };
    // Detached: a client id must not keep the whole frame in memory, nor stand in the way of
    // changing it in place.
    let client_id = header.client_id.as_ref().map(Str::detach);
    drop(header.unknown_tagged);
    drop(header.client_id);
    let call = Call {
        key,
        version,
        correlation_id: header.correlation_id,
        client_id,
        connection: connection.clone(),
        elements_max: node.elements_max,
    };
    let answer = match route.run {
        Run::Now(run) => match run(node, call, body)? {
            Decision::Made(answer) => Ok(answer),
            Decision::Pending(decision) => decision.await,
        },
        Run::Waiting(run) => run(node.clone(), call, body).await,
    };
    let charge = connection.meter.finish();
    Ok((answer?, charge))
}
