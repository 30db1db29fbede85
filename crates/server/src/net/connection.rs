//! One connection: frames in, answers out in the order of the requests.
//!
//! A request is decided before the next one is read; only what it still has to wait for (the acknowledgement of a Produce) may overlap with
//! the next requests, and the order of the answers is kept by a short queue. While that queue is empty, answers leave straight from the
//! reading side, and those of produce requests that arrived together leave together.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_wire::{ApiKey, Frame, Segment};

use tarn_mirror::dialect::WireDialect;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::budget::ByteBudget;
use super::frames::{FrameReader, ReadEnd, ReadLimits};
use super::listener::ConnectionSlot;
use super::write::{try_write_inline, write_frame};
use crate::dispatch::{self, Answer};
use crate::node::{ConnectionInfo, Node};

/// Answers of one connection that may be outstanding; beyond it the connection is not read.
const ANSWERS_OUTSTANDING_MAX: usize = 16;
/// How long a client may take no bytes of an answer before the connection counts as dead.
const WRITE_STALL_MAX: Duration = Duration::from_secs(120);

/// Bytes of answers that may be held back to leave together.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSettings {
    /// Listener name.
    pub(crate) listener: Arc<str>,
    /// Whether it is a controller listener.
    pub(crate) controller: bool,
    /// Whether only brokers of this cluster use it.
    pub(crate) inter_broker: bool,
    /// `mirror.wire.dialect`.
    pub(crate) dialect: WireDialect,
    pub(crate) limits: ReadLimits,
    pub(crate) budget: ByteBudget,
    /// `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`, when they were set by hand.
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
}

/// An answer on its way, with the request's share of the byte budget.
struct Outstanding {
    answer: Answer,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Serves one connection until it ends or `stop` is cancelled.
pub(crate) async fn serve(
    mut stream: TcpStream,
    peer: SocketAddr,
    _slot: ConnectionSlot,
    node: Arc<Node>,
    settings: ConnectionSettings,
    stop: CancellationToken,
) {
    configure(&stream, &settings);
    let info = Arc::new(ConnectionInfo::new(
        peer,
        settings.listener.clone(),
        settings.controller,
        settings.inter_broker,
        settings.dialect,
    ));
    let (mut read_half, write_half) = stream.split();
    let write_half: &TcpStream = write_half.as_ref();
    let (sender, mut receiver) = mpsc::channel::<Outstanding>(ANSWERS_OUTSTANDING_MAX);
    let queued = AtomicUsize::new(0);
    let answers = Answers {
        stream: write_half,
        held: Vec::new(),
        held_bytes: 0,
        queued: &queued,
        sender,
    };
    let reading = read_requests(&mut read_half, &node, &info, &settings, answers);
    let writing = async {
        while let Some(outstanding) = receiver.recv().await {
            let frame = match outstanding.answer {
                Answer::Ready(frame) => Some(frame),
                Answer::Later(pending) => match pending.await {
                    Ok(frame) => frame,
                    Err(reason) => return Err(io::Error::other(reason)),
                },
                Answer::Nothing => None,
            };
            if let Some(frame) = frame {
                write_frame(write_half, frame, WRITE_STALL_MAX).await?;
            }
            queued.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    };
    tokio::pin!(reading, writing);
    let mut read_end = None;
    let reason = tokio::select! {
        () = stop.cancelled() => "the server stops".to_owned(),
        reason = async {
            loop {
                tokio::select! {
                    end = &mut reading, if read_end.is_none() => read_end = Some(end),
                    written = &mut writing => break match (written, read_end) {
                        (Err(error), _) => error.to_string(),
                        (Ok(()), Some(end)) => end,
                        (Ok(()), None) => "nothing left to write".to_owned(),
                    },
                }
            }
        } => reason,
    };
    tracing::debug!(%peer, listener = %settings.listener, reason, "connection closed");
}

fn configure(stream: &TcpStream, settings: &ConnectionSettings) {
    // A socket that refuses an option still works; the options only tune it.
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    if let Some(bytes) = settings.send_buffer {
        let _ = socket.set_send_buffer_size(bytes);
    }
    if let Some(bytes) = settings.receive_buffer {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

/// The way of answers out of the reading side.
struct Answers<'a> {
    stream: &'a TcpStream,
    /// Pieces of answers that are ready and wait for the next one.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// Answers given to the writing side that are not written yet. Both sides are one task, so this needs no order of memory.
    queued: &'a AtomicUsize,
    sender: mpsc::Sender<Outstanding>,
}

impl Answers<'_> {
    /// Sends an answer behind all earlier ones. `more`: another answer follows at once, so this one may wait for it.
    async fn put(
        &mut self,
        answer: Answer,
        permit: Option<OwnedSemaphorePermit>,
        more: bool,
    ) -> io::Result<()> {
        match answer {
            Answer::Nothing if more => Ok(()),
            Answer::Nothing => self.flush().await,
            Answer::Ready(frame) if self.may_go_directly(&frame) => {
                for segment in frame.segments {
                    if let Segment::Bytes(bytes) = segment {
                        self.held_bytes += bytes.len();
                        self.held.push(bytes);
                    }
                }
                if more && self.held_bytes < HELD_BYTES_MAX {
                    return Ok(());
                }
                self.flush().await
            }
            answer => {
                self.flush().await?;
                self.queue(answer, permit).await
            }
        }
    }

    fn may_go_directly(&self, frame: &Frame) -> bool {
        let inline = |segment: &Segment| matches!(segment, Segment::Bytes(_));
        self.queued.load(Ordering::Relaxed) == 0 && frame.segments.iter().all(inline)
    }

    /// Writes what is held back; what the socket does not take goes to the writing side.
    async fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.held_bytes = 0;
        if try_write_inline(self.stream, &mut self.held)? {
            return Ok(());
        }
        let segments: Vec<Segment> = self.held.drain(..).map(Segment::Bytes).collect();
        let len = segments.iter().map(Segment::len).sum();
        self.queue(Answer::Ready(Frame { segments, len }), None)
            .await
    }

    async fn queue(
        &mut self,
        answer: Answer,
        permit: Option<OwnedSemaphorePermit>,
    ) -> io::Result<()> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let outstanding = Outstanding {
            answer,
            _permit: permit,
        };
        let sent = self.sender.send(outstanding).await;
        sent.map_err(|_| io::Error::other("the answers could not be written"))
    }
}

async fn read_requests(
    read_half: &mut tokio::net::tcp::ReadHalf<'_>,
    node: &Arc<Node>,
    info: &Arc<ConnectionInfo>,
    settings: &ConnectionSettings,
    mut answers: Answers<'_>,
) -> String {
    let mut reader = FrameReader::new(settings.limits.clone());
    let mut stopping = pin!(node.stop.cancelled());
    loop {
        let read = tokio::select! {
            biased;
            read = reader.next(read_half, &settings.budget) => read,
            () = &mut stopping => return "the server stops".to_owned(),
        };
        let frame = match read {
            Ok(frame) => frame,
            Err(ReadEnd::Closed) => return ReadEnd::Closed.to_string(),
            Err(end) => {
                tracing::debug!(peer = %info.peer, %end, "frame refused");
                return end.to_string();
            }
        };
        let answer = match dispatch::handle(node, info, frame.bytes).await {
            Ok(answer) => answer,
            Err(refusal) => {
                // What was answered before still leaves.
                let _ = answers.flush().await;
                tracing::warn!(peer = %info.peer, listener = %settings.listener, reason = %refusal, "request refused, connection closed");
                return refusal.to_string();
            }
        };
        // Only a Produce is decided without waiting for anything, so only in front of one an answer may be held back.
        let more = reader.next_key() == Some(ApiKey::PRODUCE.0);
        if let Err(error) = answers.put(answer, frame.permit, more).await {
            return error.to_string();
        }
    }
}
