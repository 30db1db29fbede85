//! Everything that can go wrong between this process and a Kafka broker, in words that say what to
//! do.

use std::time::Duration;

use tarn_wire::fetch_stream::FetchStreamError;
use tarn_wire::{ErrorCode, Str, WireError};

use crate::Peer;

/// Why a call to a broker has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A configured address is not `host:port`.
    #[error("`{0}` is not an address of the form host:port")]
    BadAddress(String),
    /// The name of the host is not known.
    #[error("{peer} does not resolve{}", hint(detail))]
    Unresolvable {
        /// Whom we wanted to reach.
        peer: Peer,
        /// What the resolver said.
        detail: String,
    },
    /// Nothing listens there, or the host says no.
    #[error("cannot connect to {peer}: {detail}")]
    Connect {
        /// Whom we wanted to reach.
        peer: Peer,
        /// What the system said.
        detail: String,
    },
    /// The peer did not take the connection in time, or took it and never answered.
    #[error("{peer} did not {what} within {} ms", limit.as_millis())]
    TimedOut {
        /// Whom we waited for.
        peer: Peer,
        /// What it should have done.
        what: &'static str,
        /// How long we waited.
        limit: Duration,
    },
    /// The peer closed the connection during the handshake or answered something else.
    #[error(
        "{peer} does not speak the Kafka protocol in plain text ({detail}): check port and listener (TLS or SASL?)"
    )]
    NotKafka {
        /// Who answered.
        peer: Peer,
        /// What was seen.
        detail: String,
    },
    /// The connection ended while an answer was due.
    #[error("{peer} closed the connection: {detail}")]
    Closed {
        /// Who closed.
        peer: Peer,
        /// What was seen.
        detail: String,
    },
    /// The broker lacks a request or offers only versions we do not speak.
    #[error("{peer} does not support {api} {wanted} (it offers {offered})")]
    Unsupported {
        /// Who was asked.
        peer: Peer,
        /// Name of the request.
        api: &'static str,
        /// Versions we need.
        wanted: String,
        /// Versions it offers.
        offered: String,
    },
    /// An answer is longer than the limit.
    #[error("{peer} announced an answer of {len} bytes, at most {max} are accepted")]
    TooLarge {
        /// Who answered.
        peer: Peer,
        /// Announced length.
        len: i64,
        /// The limit.
        max: usize,
    },
    /// An answer cannot be decoded.
    #[error("{peer} sent an answer to {api} that cannot be read: {detail}")]
    Garbage {
        /// Who answered.
        peer: Peer,
        /// Name of the request.
        api: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// A request of ours cannot be encoded in the negotiated version.
    #[error("cannot encode {api}: {detail}")]
    Encode {
        /// Name of the request.
        api: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The broker answered with an error code.
    #[error("{peer} refused {api}: {} {}", code.name(), detail)]
    Refused {
        /// Who answered.
        peer: Peer,
        /// Name of the request.
        api: &'static str,
        /// The code.
        code: ErrorCode,
        /// Text of the broker, or the meaning of the code.
        detail: String,
    },
    /// The cluster has no such broker (any more).
    #[error("node {0} is not among the brokers the cluster names")]
    UnknownNode(i32),
    /// Another cluster answers there.
    #[error("{peer} answered as cluster {found}, not as {expected}")]
    WrongCluster {
        /// Who answered.
        peer: Peer,
        /// Its cluster id.
        found: Str,
        /// The id that was to answer.
        expected: Str,
    },
    /// Every address was tried in vain.
    #[error("no broker of the cluster can be reached: {0}")]
    NoBroker(String),
    /// Connecting to this address failed a moment ago and is not tried again yet.
    #[error("{0}")]
    BackingOff(String),
}

/// Longest text of a peer that is kept, in bytes: enough to read, too little to hurt whoever
/// stores, logs or sends it on.
pub const FOREIGN_TEXT_BYTES_MAX: usize = 1024;

/// A text that a peer wrote, cut where it is too long.
pub fn text_cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(FOREIGN_TEXT_BYTES_MAX)]
}

fn hint(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

impl ClientError {
    /// True when the request certainly never reached a broker, so that it may be sent to another
    /// one.
    pub fn is_before_sending(&self) -> bool {
        matches!(
            self,
            ClientError::BadAddress(_)
                | ClientError::Unresolvable { .. }
                | ClientError::Connect { .. }
                | ClientError::NotKafka { .. }
                | ClientError::NoBroker(_)
                | ClientError::UnknownNode(_)
                | ClientError::BackingOff(_)
        )
    }

    /// True when the broker could not be talked to, as opposed to a broker that said no.
    pub fn is_connectivity(&self) -> bool {
        self.is_before_sending()
            || matches!(
                self,
                ClientError::Closed { .. } | ClientError::TimedOut { .. }
            )
    }

    /// The error code of the broker, when it answered with one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn closed(peer: &Peer, detail: impl ToString) -> Self {
        ClientError::Closed {
            peer: peer.clone(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn timed_out(peer: &Peer, what: &'static str, limit: Duration) -> Self {
        ClientError::TimedOut {
            peer: peer.clone(),
            what,
            limit,
        }
    }

    pub(crate) fn undecodable(peer: &Peer, api: &'static str, e: &WireError) -> Self {
        ClientError::Garbage {
            peer: peer.clone(),
            api,
            detail: e.to_string(),
        }
    }

    pub(crate) fn bad_fetch(peer: &Peer, e: &FetchStreamError) -> Self {
        ClientError::Garbage {
            peer: peer.clone(),
            api: "Fetch",
            detail: e.to_string(),
        }
    }

    /// A refusal with the broker's text, or with the meaning of the code when it gave none.
    pub fn refused(peer: &Peer, api: &'static str, code: i16, message: Option<&str>) -> Self {
        let code = ErrorCode(code);
        let detail = message
            .filter(|m| !m.is_empty())
            .map_or_else(|| code.message().to_string(), |m| text_cut(m).to_string());
        ClientError::Refused {
            peer: peer.clone(),
            api,
            code,
            detail,
        }
    }
}
