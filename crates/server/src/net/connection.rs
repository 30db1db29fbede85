//! One connection: frames in, answers out in the order of the requests.
//!
//! A request is decided before the next one is read; only what it still has to wait for (the acknowledgement of a Produce) may overlap with
//! the next requests, and the order of the answers is kept by a short queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tarn_mirror::dialect::WireDialect;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::budget::ByteBudget;
use super::frames::{ReadEnd, ReadLimits, read_frame};
use super::listener::ConnectionSlot;
use super::write::write_frame;
use crate::dispatch::{self, Answer};
use crate::node::{ConnectionInfo, Node};

/// Answers of one connection that may be outstanding; beyond it the connection is not read.
const ANSWERS_OUTSTANDING_MAX: usize = 16;
/// How long a client may take no bytes of an answer before the connection counts as dead.
const WRITE_STALL_MAX: Duration = Duration::from_secs(120);

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSettings {
    /// Listener name.
    pub(crate) listener: Arc<str>,
    /// Whether it is a controller listener.
    pub(crate) controller: bool,
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
        settings.dialect,
    ));
    let (mut read_half, write_half) = stream.split();
    let (sender, mut receiver) = mpsc::channel::<Outstanding>(ANSWERS_OUTSTANDING_MAX);
    let reading = async {
        let end = read_requests(&mut read_half, &node, &info, &settings, &sender).await;
        drop(sender);
        end
    };
    let writing = async {
        while let Some(outstanding) = receiver.recv().await {
            let frame = match outstanding.answer {
                Answer::Ready(frame) => Some(frame),
                Answer::Later(pending) => match pending.await {
                    Ok(frame) => frame,
                    Err(reason) => return Err(std::io::Error::other(reason)),
                },
                Answer::Nothing => None,
            };
            if let Some(frame) = frame {
                write_frame(write_half.as_ref(), frame, WRITE_STALL_MAX).await?;
            }
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

async fn read_requests(
    read_half: &mut tokio::net::tcp::ReadHalf<'_>,
    node: &Arc<Node>,
    info: &Arc<ConnectionInfo>,
    settings: &ConnectionSettings,
    sender: &mpsc::Sender<Outstanding>,
) -> String {
    loop {
        let read = tokio::select! {
            () = node.stop.cancelled() => return "the server stops".to_owned(),
            read = read_frame(read_half, &settings.limits, &settings.budget) => read,
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
                tracing::warn!(peer = %info.peer, listener = %settings.listener, reason = %refusal, "request refused, connection closed");
                return refusal.to_string();
            }
        };
        if sender
            .send(Outstanding {
                answer,
                _permit: frame.permit,
            })
            .await
            .is_err()
        {
            return "the answers could not be written".to_owned();
        }
    }
}
