//! Owns a TCP relay in front of a broker that keeps every request frame it sees: real requests of
//! real clients, to be broken later.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest frame that is kept; bulk data is relayed only.
const KEPT_BYTES_MAX: usize = 4096;

/// Frames that went through, without their length prefix, in order.
#[derive(Debug, Clone, Default)]
pub struct Frames(Arc<Mutex<Vec<Vec<u8>>>>);

impl Frames {
    /// All frames so far.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Relays connections from `port` to `to` (both on loopback) for the rest of the process.
///
/// # Panics
/// When the port is taken.
#[must_use]
pub fn relay(port: u16, to: u16) -> Frames {
    far_relay(port, to, Duration::ZERO)
}

/// As [`relay`], but every request is held back for so long, as if the broker were far away.
///
/// # Panics
/// When the port is taken.
#[must_use]
pub fn far_relay(port: u16, to: u16, delay: Duration) -> Frames {
    let frames = Frames::default();
    let listener =
        TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).expect("port of the relay");
    let kept = frames.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))) else {
                continue;
            };
            let (Ok(client_back), Ok(server_back)) = (client.try_clone(), server.try_clone())
            else {
                continue;
            };
            let kept = kept.clone();
            thread::spawn(move || requests(client, server, &kept, delay));
            thread::spawn(move || bytes(server_back, client_back));
        }
    });
    frames
}

fn requests(mut from: TcpStream, mut to: TcpStream, kept: &Frames, delay: Duration) {
    loop {
        let mut length = [0; 4];
        if from.read_exact(&mut length).is_err() {
            break;
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        thread::sleep(delay);
        let sent = to.write_all(&length).and_then(|()| to.write_all(&frame));
        if sent.is_err() {
            break;
        }
        if frame.len() <= KEPT_BYTES_MAX {
            kept.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(frame);
        }
    }
    to.shutdown(Shutdown::Both).ok();
}

fn bytes(mut from: TcpStream, mut to: TcpStream) {
    std::io::copy(&mut from, &mut to).ok();
    to.shutdown(Shutdown::Both).ok();
}

/// A relay whose far end can be changed: another cluster behind the same address.
#[derive(Debug)]
pub struct Switch {
    far: Arc<AtomicU16>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Switch {
    /// Relays connections from `port` to `to` (both on loopback) until told otherwise.
    ///
    /// # Panics
    /// When the port is taken.
    #[must_use]
    pub fn start(port: u16, to: u16) -> Self {
        let listener =
            TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).expect("port of the relay");
        let switch = Self {
            far: Arc::new(AtomicU16::new(to)),
            open: Arc::default(),
        };
        let (far, open) = (switch.far.clone(), switch.open.clone());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let to = far.load(Ordering::SeqCst);
                let Ok(other) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))) else {
                    continue;
                };
                let ends = [
                    near.try_clone(),
                    other.try_clone(),
                    near.try_clone(),
                    other.try_clone(),
                ];
                let [Ok(a), Ok(b), Ok(kept_near), Ok(kept_far)] = ends else {
                    continue;
                };
                let mut kept = open.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend([kept_near, kept_far]);
                drop(kept);
                thread::spawn(move || bytes(near, other));
                thread::spawn(move || bytes(b, a));
            }
        });
        switch
    }

    /// From now on `to` is behind the address; what is open ends.
    pub fn to(&self, to: u16) {
        self.far.store(to, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for end in open.drain(..) {
            end.shutdown(Shutdown::Both).ok();
        }
    }
}
