//! Owns the choice of loopback ports for servers under test. Ports are taken from below the range
//! that the kernel gives to outgoing connections, so that a port stays ours between two starts of
//! the same server.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

const FIRST: u16 = 15_000;
const COUNT: u16 = 15_000;

static TAKEN: Mutex<Option<(u16, HashSet<u16>)>> = Mutex::new(None);

/// A loopback port that nobody listens on and that this process has not handed out before.
///
/// # Panics
/// When all ports of the range are in use.
#[must_use]
pub fn free_port() -> u16 {
    let mut guard = TAKEN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // Two test processes that run at once start at different places.
    let (next, taken) = guard.get_or_insert_with(|| {
        (
            (std::process::id().wrapping_mul(7919) % u32::from(COUNT)) as u16,
            HashSet::new(),
        )
    });
    for _ in 0..COUNT {
        let port = FIRST + *next;
        *next = (*next + 1) % COUNT;
        if !taken.contains(&port)
            && TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).is_ok()
        {
            taken.insert(port);
            return port;
        }
    }
    panic!(
        "no free loopback port between {FIRST} and {}",
        FIRST + COUNT
    );
}
