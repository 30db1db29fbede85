//! One connection to one broker, used by one task.
//!
//! Kafka answers the requests of a connection in order, so answers are matched to the queue of what
//! was sent; an answer with another correlation id breaks the connection. Requests can be sent
//! while answers are outstanding. A Fetch answer can be taken piece by piece
//! ([`Connection::next_fetch_event`]); the next request may be sent before that answer is complete.
//! For many users of one connection see `handle`.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tarn_wire::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use tarn_wire::messages::{ApiVersionsRequest, ApiVersionsResponse, FetchRequest};
use tarn_wire::{
    ApiKey, ErrorCode, Frame, Request, Segment, Str, Writer, decode_exact, decode_response_header,
    request_frame, response_header_version,
};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::address::plain;
use crate::inbound::{Inbound, Limit};
use crate::stream::{Security, Stream};
use crate::versions::Versions;
use crate::{ClientError, Peer, Result};

/// Requests that may wait for an answer on one connection.
const IN_FLIGHT_MAX: usize = 128;
/// Longest answer accepted before the peer has proven to be a Kafka.
const HANDSHAKE_BYTES_MAX: usize = 256 * 1024;
/// How to connect and how long to wait.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Sent in every request header.
    pub client_id: Str,
    /// How the connection is secured.
    pub security: Security,
    /// Limit for resolving, connecting and the handshake.
    pub connect_timeout: Duration,
    /// Limit for an answer to begin, and for each further piece of it.
    pub request_timeout: Duration,
    /// Longest answer that is accepted, bytes.
    pub response_bytes_max: usize,
    /// Fixed receive buffer, bytes; `None` lets the system tune it.
    pub receive_buffer_bytes: Option<u32>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            client_id: Str::from("tarn"),
            security: Security::Plaintext,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            response_bytes_max: 100 * 1024 * 1024,
            receive_buffer_bytes: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    correlation_id: i32,
    key: ApiKey,
    version: i16,
    /// For the answer to begin.
    limit: Limit,
}

/// A connection with negotiated versions.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    round_trip: Duration,
    peer: Peer,
    options: ConnectionOptions,
    versions: Versions,
    next_correlation_id: i32,
    in_flight: VecDeque<InFlight>,
    inbound: Inbound,
    fetch: Option<ActiveFetch>,
    /// Set while a frame is being written and after any error: the stream may be in the middle of a
    /// frame.
    torn: bool,
}

/// A Fetch answer that is being taken piece by piece.
#[derive(Debug)]
struct ActiveFetch {
    parser: FetchStream,
    begun: Instant,
    taken: u64,
}

impl Connection {
    /// Connects and negotiates versions.
    ///
    /// # Errors
    /// Says whether the name does not resolve, nobody listens, nobody answers, or whoever answers
    /// is not a Kafka.
    pub async fn open(peer: Peer, options: ConnectionOptions) -> Result<Connection> {
        let limit = options.connect_timeout;
        let (stream, round_trip) = Stream::connect(
            &peer,
            &options.security,
            options.receive_buffer_bytes,
            limit,
        )
        .await?;
        let mut connection = Connection {
            stream,
            round_trip,
            peer,
            options,
            versions: Versions::default(),
            next_correlation_id: 0,
            in_flight: VecDeque::new(),
            inbound: Inbound::new(),
            fetch: None,
            torn: false,
        };
        connection.handshake(limit).await?;
        Ok(connection)
    }

    /// Whom this connection goes to.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// How long the network took to connect: one round trip, and more where a packet was lost or
    /// this machine was busy. Names are looked up before.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// What the broker announced.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Highest version of `R` both sides have, within what our codec knows.
    ///
    /// # Errors
    /// [`ClientError::Unsupported`].
    pub fn version<R: Request>(&self) -> Result<i16> {
        self.versions.require::<R>(&self.peer, R::VERSIONS)
    }

    /// Number of requests without a complete answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + usize::from(self.fetch.is_some())
    }

    async fn handshake(&mut self, limit: Duration) -> Result<()> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from("tarn"),
            client_software_version: Str::from(env!("CARGO_PKG_VERSION")),
            ..ApiVersionsRequest::default()
        };
        let mut response = self.ask_versions(&request, 3, limit).await?;
        if response.error_code == ErrorCode::UNSUPPORTED_VERSION.0 {
            response = self
                .ask_versions(&ApiVersionsRequest::default(), 0, limit)
                .await?;
        }
        if response.error_code != ErrorCode::NONE.0 {
            return Err(ClientError::refused(
                &self.peer,
                "ApiVersions",
                response.error_code,
                None,
            ));
        }
        self.versions = Versions::from_response(&response);
        if self.versions.is_empty() {
            return Err(self.not_kafka("it announced no request at all"));
        }
        Ok(())
    }

    fn not_kafka(&self, detail: impl ToString) -> ClientError {
        ClientError::NotKafka {
            peer: self.peer.clone(),
            detail: detail.to_string(),
        }
    }

    async fn ask_versions(
        &mut self,
        request: &ApiVersionsRequest,
        version: i16,
        limit: Duration,
    ) -> Result<ApiVersionsResponse> {
        self.send_within(request, version, limit).await?;
        let frame = self
            .receive_frame(HANDSHAKE_BYTES_MAX)
            .await
            .map_err(|e| match e {
                ClientError::Closed { detail, .. } => {
                    self.not_kafka(format!("it closed the connection: {detail}"))
                }
                ClientError::TooLarge { .. } | ClientError::Garbage { .. } => {
                    self.not_kafka("its answer is not a Kafka frame")
                }
                ClientError::TimedOut { .. } => {
                    ClientError::timed_out(&self.peer, "answer the first request", limit)
                }
                other => other,
            })?;
        // A broker that does not know the version answers in version 0, with the error code in
        // front.
        let (_, body) = decode_response_header(frame, 0).map_err(|e| self.not_kafka(e))?;
        let of_version = if body.starts_with(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes()) {
            0
        } else {
            version
        };
        decode_exact::<ApiVersionsResponse>(body, of_version).map_err(|e| self.not_kafka(e))
    }

    /// Sends a request and waits for its answer; no other request may be waiting for one.
    ///
    /// # Errors
    /// Any [`ClientError`]; after one that is not `Unsupported` or `Encode` the connection is of no
    /// use any more.
    pub async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response> {
        let version = self.version::<R>()?;
        self.call_at(request, version).await
    }

    /// As [`Connection::call`], in a version the caller chose with [`Versions::require`].
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_at<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        if self.in_flight() > 0 {
            // Also what a cancelled call leaves behind: its answer would be taken for ours.
            return Err(ClientError::closed(
                &self.peer,
                "an earlier exchange was not completed",
            ));
        }
        self.send(request, version).await?;
        self.receive::<R>().await
    }

    /// Sends a request without waiting for its answer.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn send<R: Request>(&mut self, request: &R, version: i16) -> Result<()> {
        self.send_within(request, version, self.options.request_timeout)
            .await
    }

    /// Sends a Fetch; the answer may take the request's own wait on top of the request timeout.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn send_fetch(&mut self, request: &FetchRequest, version: i16) -> Result<()> {
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        self.send_within(request, version, self.options.request_timeout + wait)
            .await
    }

    async fn send_within<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<()> {
        self.check_usable()?;
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Err(ClientError::closed(
                &self.peer,
                format!("{IN_FLIGHT_MAX} requests have no answer yet"),
            ));
        }
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1) & i32::MAX;
        let frame = encode(correlation_id, &self.options.client_id, version, request)?;
        let limit = Limit::from_now(limit);
        self.torn = true;
        let written =
            tokio::time::timeout_at(limit.until, write_frame(&mut self.stream, &frame)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(ClientError::closed(&self.peer, plain(&e))),
            Err(_) => {
                return Err(ClientError::timed_out(
                    &self.peer,
                    "take a request",
                    limit.length,
                ));
            }
        }
        self.torn = false;
        self.in_flight.push_back(InFlight {
            correlation_id,
            key: R::KEY,
            version,
            limit,
        });
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        if self.torn {
            return Err(ClientError::closed(
                &self.peer,
                "an earlier exchange was not completed",
            ));
        }
        Ok(())
    }

    /// The answer to the oldest request without one, which must be an `R`. May be cancelled and
    /// called again.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn receive<R: Request>(&mut self) -> Result<R::Response> {
        let version = self.due(R::KEY)?.version;
        let frame = self.receive_frame(self.options.response_bytes_max).await?;
        decode::<R>(&self.peer, frame, version).inspect_err(|_| self.torn = true)
    }

    /// The oldest request without an answer, which must be of this kind.
    fn due(&self, key: ApiKey) -> Result<InFlight> {
        self.check_usable()?;
        match self.in_flight.front() {
            Some(first) if first.key == key && self.fetch.is_none() => Ok(*first),
            _ => Err(ClientError::closed(
                &self.peer,
                "no request of this kind is waiting for an answer",
            )),
        }
    }

    /// A whole answer, from the correlation id on.
    async fn receive_frame(&mut self, len_max: usize) -> Result<Bytes> {
        let got = async {
            let len = self.await_answer(len_max).await?;
            let timeout = self.options.request_timeout;
            self.inbound
                .take_answer(&mut self.stream, &self.peer, len, timeout)
                .await
        };
        let frame = got.await.inspect_err(|_| self.torn = true)?;
        self.in_flight.pop_front();
        Ok(frame)
    }

    /// Waits until an answer has begun, checks that it is the one that is due, and gives its
    /// length. Takes nothing.
    async fn await_answer(&mut self, len_max: usize) -> Result<usize> {
        let Some(first) = self.in_flight.front() else {
            return Err(ClientError::closed(
                &self.peer,
                "no request is waiting for an answer",
            ));
        };
        let (len, id) = self
            .inbound
            .peek_answer(&mut self.stream, &self.peer, Some(first.limit), len_max)
            .await?;
        if id != first.correlation_id {
            let detail = format!(
                "it has correlation id {id}, due was {}",
                first.correlation_id
            );
            return Err(ClientError::Garbage {
                peer: self.peer.clone(),
                api: "a request",
                detail,
            });
        }
        Ok(len)
    }

    /// The next event of the Fetch answer that is due, in wire order, ending with
    /// [`FetchEvent::End`].
    ///
    /// Pieces of records are at most 256 KiB. Another request may be sent between two events. May
    /// be cancelled and called again. `limits` counts from the first event of an answer.
    ///
    /// # Errors
    /// Any [`ClientError`]; the connection is of no use after one.
    pub async fn next_fetch_event(&mut self, limits: FetchLimits) -> Result<FetchEvent> {
        let event = self
            .advance_fetch(limits)
            .await
            .inspect_err(|_| self.torn = true)?;
        if matches!(event, FetchEvent::End { .. }) {
            self.fetch = None;
        }
        Ok(event)
    }

    /// Bytes of the Fetch answer that is being received which are still to come; 0 when none is.
    pub fn fetch_bytes_to_come(&self) -> u64 {
        self.fetch
            .as_ref()
            .map_or(0, |active| active.parser.bytes_to_come())
    }

    async fn advance_fetch(&mut self, limits: FetchLimits) -> Result<FetchEvent> {
        self.check_usable()?;
        if self.fetch.is_none() {
            self.begin_fetch(limits).await?;
        }
        let Some(active) = &mut self.fetch else {
            return Err(ClientError::closed(
                &self.peer,
                "no fetch is being answered",
            ));
        };
        loop {
            let event = active
                .parser
                .next_event()
                .map_err(|e| ClientError::bad_fetch(&self.peer, &e))?;
            if let Some(event) = event {
                return Ok(event);
            }
            if self.inbound.len() == 0 {
                let limit =
                    Limit::for_next_piece(active.begun, active.taken, self.options.request_timeout);
                active.taken += self
                    .inbound
                    .fill(&mut self.stream, &self.peer, Some(limit))
                    .await? as u64;
            }
            let due = usize::try_from(active.parser.bytes_to_come()).unwrap_or(usize::MAX);
            active
                .parser
                .push(self.inbound.take(due))
                .map_err(|e| ClientError::bad_fetch(&self.peer, &e))?;
        }
    }

    async fn begin_fetch(&mut self, limits: FetchLimits) -> Result<()> {
        let version = self.due(ApiKey::FETCH)?.version;
        // A streamed answer costs no memory, so its length needs no limit: one batch may be larger
        // than all that was asked for.
        let len = self.await_answer(i32::MAX as usize).await?;
        let parser = FetchStream::after_correlation_id(version, len as u64 - 4, limits)
            .map_err(|e| ClientError::bad_fetch(&self.peer, &e))?;
        let _ = self.inbound.take(8);
        self.in_flight.pop_front();
        self.fetch = Some(ActiveFetch {
            parser,
            begun: Instant::now(),
            taken: 0,
        });
        Ok(())
    }

    /// Takes the connection apart for the task of a shared handle.
    pub(crate) fn into_parts(self) -> (Stream, Peer, ConnectionOptions, Versions, Inbound) {
        (
            self.stream,
            self.peer,
            self.options,
            self.versions,
            self.inbound,
        )
    }
}

pub(crate) fn encode<R: Request>(
    correlation_id: i32,
    client_id: &str,
    version: i16,
    request: &R,
) -> Result<Frame> {
    request_frame(correlation_id, Some(client_id), version, request).map_err(|e| {
        ClientError::Encode {
            api: R::NAME,
            detail: e.to_string(),
        }
    })
}

/// A request whose body the caller encoded. Header version 2 when `flexible`, else 1.
pub(crate) fn encode_raw(
    correlation_id: i32,
    client_id: &str,
    key: ApiKey,
    version: i16,
    flexible: bool,
    body: Bytes,
) -> Result<Frame> {
    let len = 10 + client_id.len() + usize::from(flexible) + body.len();
    let too_long = |_| ClientError::Encode {
        api: "a raw request",
        detail: "the body is too long".to_string(),
    };
    let mut w = Writer::with_capacity(4 + len);
    w.i32(i32::try_from(len).map_err(too_long)?);
    w.i16(key.0);
    w.i16(version);
    w.i32(correlation_id);
    let encode_error = |e: tarn_wire::WireError| ClientError::Encode {
        api: "a raw request",
        detail: e.to_string(),
    };
    w.nullable_str(false, Some(client_id.as_bytes()))
        .map_err(encode_error)?;
    if flexible {
        w.uvarint(0);
    }
    w.raw(&body);
    Ok(w.finish())
}

/// The body of an answer whose frame starts with the correlation id.
pub(crate) fn decode<R: Request>(peer: &Peer, frame: Bytes, version: i16) -> Result<R::Response> {
    let api = R::NAME.strip_suffix("Request").unwrap_or(R::NAME);
    let (_, body) = decode_response_header(frame, response_header_version::<R>(version))
        .map_err(|e| ClientError::undecodable(peer, api, &e))?;
    decode_exact::<R::Response>(body, version).map_err(|e| ClientError::undecodable(peer, api, &e))
}

pub(crate) async fn write_frame(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    frame: &Frame,
) -> std::io::Result<()> {
    for segment in &frame.segments {
        match segment {
            Segment::Bytes(bytes) => stream.write_all(bytes).await?,
            Segment::File(_) => return Err(std::io::Error::other("requests hold no file ranges")),
        }
    }
    stream.flush().await
}
