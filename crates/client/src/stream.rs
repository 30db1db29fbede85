//! The transport below the protocol. One variant per kind of security, so that users of a
//! connection never change.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::address::plain;
use crate::{ClientError, Peer, Result};

/// How a connection is secured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Security {
    /// `security.protocol=PLAINTEXT`.
    #[default]
    Plaintext,
}

/// An open transport.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP without any security.
    Plain(TcpStream),
}

impl Stream {
    /// Connects to the first socket address that takes the connection; gives how long that one
    /// took, which is a round trip to whoever listens there. `limit` covers all of it.
    pub(crate) async fn connect(
        peer: &Peer,
        security: &Security,
        receive_buffer: Option<u32>,
        limit: Duration,
    ) -> Result<(Stream, Duration)> {
        let work = async {
            let mut last = None;
            for address in peer.resolve(limit).await? {
                let begun = Instant::now();
                match connect_one(address, receive_buffer).await {
                    Ok(tcp) => {
                        let Security::Plaintext = security;
                        return Ok((Stream::Plain(tcp), begun.elapsed()));
                    }
                    Err(e) => last = Some(e),
                }
            }
            let detail = last.as_ref().map_or_else(String::new, plain);
            Err(ClientError::Connect {
                peer: peer.clone(),
                detail,
            })
        };
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(ClientError::timed_out(peer, "take the connection", limit)))
    }
}

async fn connect_one(
    address: std::net::SocketAddr,
    receive_buffer: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        tokio::net::TcpSocket::new_v4()?
    } else {
        tokio::net::TcpSocket::new_v6()?
    };
    // A fixed buffer switches the kernel's auto-tuning off, so it is set only when somebody asked
    // for it.
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
        }
    }
}
