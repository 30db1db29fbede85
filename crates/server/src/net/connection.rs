//! One connection: frames in, answers out in the order of the requests.
//!
//! A request is decided before the next one is read; only what it still has to wait for (the
//! acknowledgement of a Produce) may overlap with the next requests, and the order of the answers
//! is kept by a short queue. While that queue is empty, answers leave straight from the reading
//! side, and those of produce requests that arrived together leave together.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_wire::{ApiKey, Frame, Segment};

use tarn_mirror::dialect::WireDialect;
#[cfg(any(target_os = "linux", target_os = "android"))]
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::budget::{ByteBudget, Charge};
use super::frames::{FrameReader, ReadEnd, ReadLimits};
use super::listener::ConnectionSlot;
use super::meter::AnswerMeter;
use super::write::{try_write_inline, write_frame};
use crate::dispatch::{self, Answer};
use crate::log_limit::LogLimit;
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
    /// Bytes of requests in memory.
    pub(crate) requests: ByteBudget,
    /// Bytes of large answers in memory.
    pub(crate) answers: ByteBudget,
    /// `response.max.bytes`.
    pub(crate) answer_bytes_max: usize,
    /// `socket.unread.response.max.bytes`.
    pub(crate) unread_bytes_max: usize,
    /// `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`, when they were set by hand.
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
}

/// How long answers may still leave after the peer has closed its side: who only reads on gets what
/// is ready, nothing is waited for much longer.
const HANGUP_GRACE: Duration = Duration::from_secs(10);

/// An answer on its way, with what it and its request were charged with.
struct Outstanding<'a> {
    answer: Answer,
    _charges: Charges,
    /// Its place among the bytes that the peer has not taken yet.
    _unread: Option<SemaphorePermit<'a>>,
}

/// What a request and its answer were charged with.
type Charges = (Option<Charge>, Option<Charge>);

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
        AnswerMeter::new(settings.answers.share(peer.ip()), settings.answer_bytes_max),
    ));
    let (mut read_half, write_half) = stream.split();
    let write_half: &TcpStream = write_half.as_ref();
    let queued = AtomicUsize::new(0);
    let unread = Semaphore::new(settings.unread_bytes_max);
    let (sender, mut receiver) = mpsc::channel::<Outstanding<'_>>(ANSWERS_OUTSTANDING_MAX);
    let answers = Answers {
        stream: write_half,
        held: Vec::new(),
        held_bytes: 0,
        queued: &queued,
        unread: &unread,
        unread_bytes_max: settings.unread_bytes_max,
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
    let reason = tokio::select! {
        () = stop.cancelled() => "the server stops".to_owned(),
        reason = both_sides(reading, writing) => reason,
    };
    tracing::debug!(%peer, listener = %settings.listener, reason, "connection closed");
}

/// Runs both sides of a connection until nothing is left to do, or until its peer has hung up and
/// had its grace; gives the reason.
async fn both_sides(
    reading: impl Future<Output = End>,
    writing: impl Future<Output = io::Result<()>>,
) -> String {
    let (mut reading, mut writing) = (pin!(reading), pin!(writing));
    let end = tokio::select! {
        written = &mut writing => {
            return written.err().map_or_else(|| "nothing left to write".to_owned(), |e| e.to_string());
        }
        end = &mut reading => end,
    };
    let written = if end.by_peer {
        match tokio::time::timeout(HANGUP_GRACE, writing).await {
            Ok(written) => written,
            Err(_) => return "closed by the peer, with answers outstanding".to_owned(),
        }
    } else {
        writing.await
    };
    written.map_or_else(|error| error.to_string(), |()| end.reason)
}

/// Why the reading side ended.
struct End {
    reason: String,
    /// The peer hung up: nobody waits for what is not ready.
    by_peer: bool,
}

impl From<String> for End {
    fn from(reason: String) -> End {
        End {
            reason,
            by_peer: false,
        }
    }
}

/// Resolves when the peer has closed its side, also behind requests that were not read yet; reads
/// nothing.
async fn hung_up(stream: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let ready = stream.ready(Interest::PRIORITY).await;
        if ready.is_err() || ready.is_ok_and(|ready| ready.is_read_closed()) {
            return;
        }
    }
    // Urgent data, which nobody sends, would be reported again and again.
    let _ = stream;
    std::future::pending().await
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
    /// Answers given to the writing side that are not written yet. Both sides are one task, so this
    /// needs no order of memory.
    queued: &'a AtomicUsize,
    /// Bytes of answers that may still be queued before no further request is read.
    unread: &'a Semaphore,
    unread_bytes_max: usize,
    sender: mpsc::Sender<Outstanding<'a>>,
}

impl<'a> Answers<'a> {
    /// Sends an answer behind all earlier ones. `more`: another answer follows at once, so this one
    /// may wait for it.
    async fn put(&mut self, answer: Answer, charges: Charges, more: bool) -> io::Result<()> {
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
                self.queue(answer, charges).await
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
        let rest = Answer::Ready(Frame { segments, len });
        self.queue(rest, (None, None)).await
    }

    async fn queue(&mut self, answer: Answer, charges: Charges) -> io::Result<()> {
        let unread = match &answer {
            Answer::Ready(frame) => {
                let bytes = inline_bytes(frame).min(self.unread_bytes_max) as u32;
                // Never closed.
                self.unread.acquire_many(bytes).await.ok()
            }
            Answer::Later(_) | Answer::Nothing => None,
        };
        self.queued.fetch_add(1, Ordering::Relaxed);
        let outstanding = Outstanding {
            answer,
            _charges: charges,
            _unread: unread,
        };
        let sent = self.sender.send(outstanding).await;
        sent.map_err(|_| io::Error::other("the answers could not be written"))
    }
}

/// Bytes of a frame that are in memory: file ranges are not.
fn inline_bytes(frame: &Frame) -> usize {
    let bytes = |segment: &Segment| match segment {
        Segment::Bytes(bytes) => bytes.len(),
        Segment::File(_) => 0,
    };
    frame.segments.iter().map(bytes).sum()
}

async fn read_requests(
    read_half: &mut tokio::net::tcp::ReadHalf<'_>,
    node: &Arc<Node>,
    info: &Arc<ConnectionInfo>,
    settings: &ConnectionSettings,
    mut answers: Answers<'_>,
) -> End {
    let mut reader = FrameReader::new(settings.limits.clone());
    let share = settings.requests.share(info.peer.ip());
    let mut stopping = pin!(node.stop.cancelled());
    loop {
        let read = tokio::select! {
            biased;
            read = reader.next(read_half, &share) => read,
            () = &mut stopping => return "the server stops".to_owned().into(),
        };
        let frame = match read {
            Ok(frame) => frame,
            Err(end) => return read_ended(info, &end),
        };
        let waits = dispatch::waits(&frame.bytes);
        let handled = tokio::select! {
            biased;
            handled = dispatch::handle(node, info, frame.bytes) => handled,
            () = hung_up(answers.stream), if waits => {
                return End {
                    reason: "closed by the peer while its request waited".to_owned(),
                    by_peer: true,
                };
            }
        };
        let (answer, charge) = match handled {
            Ok(handled) => handled,
            Err(refusal) => {
                // What was answered before still leaves.
                let _ = answers.flush().await;
                if let Some(suppressed) = refusal.log_limit().pass() {
                    tracing::warn!(peer = %info.peer, listener = %settings.listener, reason = %refusal, suppressed, "request refused, connection closed");
                }
                return refusal.to_string().into();
            }
        };
        // Only a Produce is decided without waiting for anything, so only in front of one an answer
        // may be held back.
        let more = reader.next_key() == Some(ApiKey::PRODUCE.0);
        let charges = (frame.charge, charge);
        if let Err(error) = answers.put(answer, charges, more).await {
            return error.to_string().into();
        }
    }
}

/// Notes why no further frame comes.
fn read_ended(info: &ConnectionInfo, end: &ReadEnd) -> End {
    static SHORTAGES: LogLimit = LogLimit::new();
    let by_peer = matches!(end, ReadEnd::Closed | ReadEnd::Cut);
    if matches!(end, ReadEnd::NoBudget) {
        if let Some(suppressed) = SHORTAGES.pass() {
            tracing::warn!(peer = %info.peer, %end, suppressed, "connection closed");
        }
    } else if !matches!(end, ReadEnd::Closed) {
        tracing::debug!(peer = %info.peer, %end, "frame refused");
    }
    End {
        reason: end.to_string(),
        by_peer,
    }
}
