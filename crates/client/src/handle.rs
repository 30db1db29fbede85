//! One connection to one broker, shared by many users.
//!
//! A task of its own writes requests as they come and hands answers back in the order of the
//! requests. The task ends with the last clone of the handle, or when the connection breaks;
//! whoever waits then gets an error at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_wire::{ApiKey, Frame, Request, Str, VersionRange, decode_response_header};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::connection::{Connection, decode, encode, encode_raw, write_frame};
use crate::inbound::Inbound;
use crate::stream::Stream;
use crate::versions::Versions;
use crate::{ClientError, Peer, Result};

/// Requests that may wait to be written.
const QUEUE_MAX: usize = 64;
/// Requests that may wait for an answer.
const IN_FLIGHT_MAX: usize = 1024;

/// A shared connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    peer: Peer,
    versions: Versions,
    client_id: Str,
    request_timeout: Duration,
    next_correlation_id: AtomicI32,
    calls: mpsc::Sender<Call>,
    task: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Call {
    correlation_id: i32,
    frame: Frame,
    answer: oneshot::Sender<Result<Bytes>>,
}

struct Waiting {
    correlation_id: i32,
    answer: oneshot::Sender<Result<Bytes>>,
}

impl Handle {
    /// Makes a connection sharable. `idle_max` closes it after that time without any request;
    /// `None` never does.
    pub fn new(connection: Connection, idle_max: Option<Duration>) -> Handle {
        let (stream, peer, options, versions, inbound) = connection.into_parts();
        let (read_half, write_half) = tokio::io::split(stream);
        let (calls, queue) = mpsc::channel(QUEUE_MAX);
        let driver = Driver {
            peer: peer.clone(),
            waiting: Arc::default(),
            response_bytes_max: options.response_bytes_max,
            request_timeout: options.request_timeout,
            idle_max,
        };
        let task = tokio::spawn(driver.run(read_half, write_half, inbound, queue)).abort_handle();
        let shared = Shared {
            peer,
            versions,
            client_id: options.client_id,
            request_timeout: options.request_timeout,
            // The handshake used the first few.
            next_correlation_id: AtomicI32::new(8),
            calls,
            task,
        };
        Handle {
            shared: Arc::new(shared),
        }
    }

    /// Whom this connection goes to.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// What the broker announced.
    pub fn versions(&self) -> &Versions {
        &self.shared.versions
    }

    /// True when the connection is gone; it does not come back.
    pub fn is_closed(&self) -> bool {
        self.shared.calls.is_closed()
    }

    /// Sends a request in the highest version both sides have and waits for its answer.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response> {
        self.call_within(request, R::VERSIONS).await
    }

    /// As [`Handle::call`], with the version limited to `wanted`.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        wanted: VersionRange,
    ) -> Result<R::Response> {
        self.call_for(request, wanted, self.shared.request_timeout)
            .await
    }

    /// As [`Handle::call_within`], with a limit of its own instead of the request timeout.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_for<R: Request>(
        &self,
        request: &R,
        wanted: VersionRange,
        limit: Duration,
    ) -> Result<R::Response> {
        let version = self
            .shared
            .versions
            .require::<R>(&self.shared.peer, wanted)?;
        let encoder = |id| encode(id, &self.shared.client_id, version, request);
        let frame = self.exchange(encoder, limit).await?;
        decode::<R>(&self.shared.peer, frame, version).inspect_err(|_| self.shared.task.abort())
    }

    /// Sends a body the caller encoded and gives the body of the answer, for APIs whose dialects
    /// are told apart by decoding. `flexible` says whether headers carry tagged fields.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn call_raw(
        &self,
        key: ApiKey,
        version: i16,
        flexible: bool,
        body: Bytes,
    ) -> Result<Bytes> {
        let shared = &*self.shared;
        let encoder = |id| encode_raw(id, &shared.client_id, key, version, flexible, body);
        let frame = self.exchange(encoder, shared.request_timeout).await?;
        let (_, body) = decode_response_header(frame, i16::from(flexible)).map_err(|e| {
            shared.task.abort();
            ClientError::undecodable(&shared.peer, "a raw request", &e)
        })?;
        Ok(body)
    }

    /// Sends a frame and waits for the answer, from the correlation id on.
    async fn exchange(
        &self,
        encoder: impl FnOnce(i32) -> Result<Frame>,
        limit: Duration,
    ) -> Result<Bytes> {
        let shared = &*self.shared;
        let correlation_id = shared.next_correlation_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let frame = encoder(correlation_id)?;
        let (answer, answered) = oneshot::channel();
        let gone = || ClientError::closed(&shared.peer, "the connection was lost");
        let exchange = async {
            let call = Call {
                correlation_id,
                frame,
                answer,
            };
            shared.calls.send(call).await.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => {
                // A late answer would block those behind it just as long: give the connection up,
                // as Kafka's clients do.
                shared.task.abort();
                Err(ClientError::timed_out(&shared.peer, "answer", limit))
            }
        }
    }
}

struct Driver {
    peer: Peer,
    waiting: Arc<Mutex<VecDeque<Waiting>>>,
    response_bytes_max: usize,
    request_timeout: Duration,
    idle_max: Option<Duration>,
}

impl Driver {
    async fn run(
        self,
        mut read_half: ReadHalf<Stream>,
        mut write_half: WriteHalf<Stream>,
        mut inbound: Inbound,
        mut queue: mpsc::Receiver<Call>,
    ) {
        let error = tokio::select! {
            error = self.read_answers(&mut read_half, &mut inbound) => error,
            error = self.write_calls(&mut write_half, &mut queue) => error,
        };
        queue.close();
        for waiting in self.waiting.lock().drain(..) {
            let _ = waiting.answer.send(Err(error.clone()));
        }
        while let Ok(call) = queue.try_recv() {
            let _ = call.answer.send(Err(error.clone()));
        }
    }

    async fn write_calls(
        &self,
        stream: &mut WriteHalf<Stream>,
        queue: &mut mpsc::Receiver<Call>,
    ) -> ClientError {
        loop {
            let next = match self.idle_max {
                None => queue.recv().await,
                Some(limit) => match tokio::time::timeout(limit, queue.recv()).await {
                    Ok(next) => next,
                    Err(_) if self.waiting.lock().is_empty() => {
                        return ClientError::closed(&self.peer, "it was idle");
                    }
                    Err(_) => continue,
                },
            };
            let Some(call) = next else {
                return ClientError::closed(&self.peer, "nobody uses it any more");
            };
            if self.waiting.lock().len() >= IN_FLIGHT_MAX {
                let full = ClientError::closed(
                    &self.peer,
                    format!("{IN_FLIGHT_MAX} requests have no answer yet"),
                );
                let _ = call.answer.send(Err(full));
                continue;
            }
            // Enqueued before it is written: the answer cannot overtake it.
            self.waiting.lock().push_back(Waiting {
                correlation_id: call.correlation_id,
                answer: call.answer,
            });
            if let Err(e) = write_frame(stream, &call.frame).await {
                return ClientError::closed(&self.peer, crate::address::plain(&e));
            }
        }
    }

    async fn read_answers(
        &self,
        stream: &mut ReadHalf<Stream>,
        inbound: &mut Inbound,
    ) -> ClientError {
        loop {
            match self.read_one(stream, inbound).await {
                Ok((correlation_id, frame)) => {
                    let first = self.waiting.lock().pop_front();
                    match first {
                        Some(first) if first.correlation_id == correlation_id => {
                            let _ = first.answer.send(Ok(frame));
                        }
                        first => {
                            let due = first.as_ref().map_or(-1, |f| f.correlation_id);
                            let detail =
                                format!("it has correlation id {correlation_id}, due was {due}");
                            let error = ClientError::Garbage {
                                peer: self.peer.clone(),
                                api: "a request",
                                detail,
                            };
                            if let Some(first) = first {
                                let _ = first.answer.send(Err(error.clone()));
                            }
                            return error;
                        }
                    }
                }
                Err(e) => return e,
            }
        }
    }

    async fn read_one(
        &self,
        stream: &mut ReadHalf<Stream>,
        inbound: &mut Inbound,
    ) -> Result<(i32, Bytes)> {
        let (len, correlation_id) = inbound
            .peek_answer(stream, &self.peer, None, self.response_bytes_max)
            .await?;
        let frame = inbound
            .take_answer(stream, &self.peer, len, self.request_timeout)
            .await?;
        Ok((correlation_id, frame))
    }
}
