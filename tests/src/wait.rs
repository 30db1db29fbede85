//! Owns waiting for something to become true, with a deadline and a sentence for the failure.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);

/// Calls `probe` until it gives a value.
///
/// # Panics
/// When `limit` passes first; the text names `what` and the last reason that the probe gave.
pub fn until<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(reason) => assert!(
                Instant::now() < deadline,
                "{what}: not within {limit:?}; last seen: {reason}"
            ),
        }
        std::thread::sleep(POLL);
    }
}

/// Checks that `probe` stays `Ok` for the whole of `span`.
///
/// # Panics
/// At the first `Err`.
pub fn stays(span: Duration, what: &str, mut probe: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        if let Err(reason) = probe() {
            panic!("{what}: {reason}");
        }
        std::thread::sleep(POLL);
    }
}
