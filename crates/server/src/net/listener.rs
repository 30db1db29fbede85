//! Binding and accepting: caps on connections in total and per address, back-off when the process
//! runs out of descriptors.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::log_limit::LogLimit;

/// Pause after an accept that failed for want of descriptors or memory; the client waits in the
/// backlog.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Shortages in a row that are told once.
const SHORT_ACCEPTS_TOLD: u64 = 100;

/// Caps on connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionCaps {
    /// `max.connections`, lowered to what the descriptor limit leaves besides the files of the
    /// logs.
    pub(crate) total: usize,
    /// `max.connections.per.ip`.
    pub(crate) per_ip: usize,
    /// `max.connections.per.ip.overrides`.
    pub(crate) overrides: HashMap<IpAddr, usize>,
}

/// Counts open connections; shared by all listeners.
#[derive(Debug)]
pub(crate) struct ConnectionCounter {
    caps: RwLock<ConnectionCaps>,
    open: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

impl ConnectionCounter {
    pub(crate) fn new(caps: ConnectionCaps) -> Arc<ConnectionCounter> {
        Arc::new(ConnectionCounter {
            caps: RwLock::new(caps),
            open: Mutex::new((0, HashMap::new())),
        })
    }

    /// Other caps hold from now on, for connections that come.
    pub(crate) fn set_caps(&self, caps: ConnectionCaps) {
        *self.caps.write() = caps;
    }

    /// A place for a connection from `peer`, or `None` when a cap is reached.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let ip = counted_as(peer);
        let mut open = self.open.lock();
        let caps = self.caps.read();
        let per_ip = caps
            .overrides
            .get(&peer.to_canonical())
            .copied()
            .unwrap_or(caps.per_ip);
        if open.0 >= caps.total || open.1.get(&ip).copied().unwrap_or(0) >= per_ip {
            return None;
        }
        open.0 += 1;
        *open.1.entry(ip).or_insert(0) += 1;
        Some(ConnectionSlot {
            counter: self.clone(),
            ip,
        })
    }
}

/// IPv6 addresses are counted per /64: one host owns a whole one.
fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into())
        }
        ip => ip,
    }
}

/// The place of one connection; gives it back on drop.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    counter: Arc<ConnectionCounter>,
    ip: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.counter.open.lock();
        open.0 = open.0.saturating_sub(1);
        if let Some(count) = open.1.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                open.1.remove(&self.ip);
            }
        }
    }
}

/// Binds `host:port`; an empty host binds all interfaces, IPv4 and IPv6 where the machine has both.
pub(crate) async fn bind(host: &str, port: u16, backlog: u32) -> io::Result<TcpListener> {
    if host.is_empty() {
        return match listen(SocketAddr::from(([0u16; 8], port)), backlog) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                listen(SocketAddr::from(([0u8; 4], port)), backlog)
            }
            bound => bound,
        };
    }
    let mut last = io::Error::new(
        io::ErrorKind::NotFound,
        format!("`{host}` does not resolve"),
    );
    for address in tokio::net::lookup_host((host, port)).await? {
        match listen(address, backlog) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

static REFUSED: LogLimit = LogLimit::new();

/// Accepts until `stop`; `serve` gets every admitted connection and must not block.
pub(crate) async fn accept_loop(
    listener: TcpListener,
    counter: Arc<ConnectionCounter>,
    stop: CancellationToken,
    serve: impl Fn(TcpStream, SocketAddr, ConnectionSlot),
) {
    let mut short = 0_u64;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match counter.admit(peer.ip()) {
                Some(slot) => serve(stream, peer, slot),
                // Dropping the stream closes it: the client sees a refused connection and tries
                // again later.
                None => {
                    if let Some(suppressed) = REFUSED.pass() {
                        tracing::warn!(%peer, suppressed, "connection refused: too many connections (max.connections, max.connections.per.ip)");
                    }
                }
            },
            Err(error) if tarn_log::is_shortage(&error) => {
                if short.is_multiple_of(SHORT_ACCEPTS_TOLD) {
                    tracing::warn!(%error, "no connection can be accepted at the moment");
                }
                short += 1;
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
            // Of one connection that is gone again: the next one is not to blame.
            Err(error) => tracing::debug!(%error, "accept failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(total: usize, per_ip: usize) -> Arc<ConnectionCounter> {
        ConnectionCounter::new(ConnectionCaps {
            total,
            per_ip,
            overrides: HashMap::new(),
        })
    }

    #[test]
    fn caps_hold_and_places_come_back() {
        let counter = counter(3, 2);
        let a: IpAddr = "10.0.0.1".parse().unwrap();
        let b: IpAddr = "10.0.0.2".parse().unwrap();
        let first = counter.admit(a).unwrap();
        let _second = counter.admit(a).unwrap();
        assert!(counter.admit(a).is_none(), "per address");
        let _third = counter.admit(b).unwrap();
        assert!(counter.admit(b).is_none(), "in total");
        drop(first);
        assert!(counter.admit(a).is_some());
    }

    #[test]
    fn ipv6_is_counted_per_network() {
        let counter = counter(10, 1);
        let _one = counter.admit("2001:db8::1".parse().unwrap()).unwrap();
        assert!(counter.admit("2001:db8::2".parse().unwrap()).is_none());
        assert!(counter.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
    }
}
