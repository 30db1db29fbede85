//! Answers that could not be encoded: one line a kind and minute at ERROR, however often it
//! happens.
//!
//! It is a fault of this broker, which a client can repeat as fast as it likes.
//!
//! Guards F-10: every announced version answers on every error path.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tarn_wire::{ApiKey, WireError};

/// Shortest time between two lines of one kind.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// Kinds that are told apart; beyond it kinds share one entry. There are at most a few for each API
/// and version.
const KINDS_MAX: usize = 1024;

/// API and version of an answer, and what was wrong with it.
type Kind = (ApiKey, i16, String);

/// When a kind was last reported, and how often it happened since.
struct Reported {
    at: Instant,
    since: u64,
}

static REPORTED: Mutex<BTreeMap<Kind, Reported>> = Mutex::new(BTreeMap::new());

/// Tells of an answer that could not be encoded, unless this kind was reported within the last
/// minute.
#[cold]
pub(crate) fn report(key: ApiKey, version: i16, error: &WireError) {
    let due = due(
        &mut REPORTED.lock(),
        (key, version, name(error)),
        Instant::now(),
    );
    if let Some(unreported) = due {
        tracing::error!(api = %key, version, %error, unreported, "an answer could not be encoded, the client got an error instead");
    }
}

/// The error without its figures, which would make a kind of each of them.
fn name(error: &WireError) -> String {
    match error {
        WireError::FieldNotInVersion { field, .. } | WireError::NullField { field, .. } => {
            format!("{:?} {field}", discriminant(error))
        }
        other => format!("{:?}", discriminant(other)),
    }
}

/// How many went unreported since the last line when one is due now.
fn due(reported: &mut BTreeMap<Kind, Reported>, kind: Kind, now: Instant) -> Option<u64> {
    let kind = if reported.len() >= KINDS_MAX && !reported.contains_key(&kind) {
        (ApiKey::default(), -1, String::new())
    } else {
        kind
    };
    match reported.get_mut(&kind) {
        Some(last) if now.duration_since(last.at) < REPEAT_AFTER => {
            last.since += 1;
            None
        }
        Some(last) => Some(std::mem::replace(last, Reported { at: now, since: 0 }).since),
        None => {
            reported.insert(kind, Reported { at: now, since: 0 });
            Some(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 125,887 lines in four minutes became one line a kind and minute.
    #[test]
    fn a_kind_is_reported_once_a_minute_with_what_was_left_out() {
        let mut reported = BTreeMap::new();
        let start = Instant::now();
        let kind = || {
            let error = WireError::FieldNotInVersion {
                field: "LeaderEpoch",
                version: 3,
            };
            (ApiKey::LIST_OFFSETS, 3, name(&error))
        };
        assert_eq!(due(&mut reported, kind(), start), Some(0));
        for second in 0..59 {
            let now = start + Duration::from_secs(second);
            assert_eq!(due(&mut reported, kind(), now), None);
        }
        let other = (ApiKey::FETCH, 11, name(&WireError::TooLong(40_000)));
        assert_eq!(due(&mut reported, other, start), Some(0));
        let next = start + REPEAT_AFTER;
        assert_eq!(due(&mut reported, kind(), next), Some(59));
    }

    #[test]
    fn kinds_are_bounded_and_lengths_make_none() {
        assert_eq!(
            name(&WireError::TooLong(1 << 20)),
            name(&WireError::TooLong(70_000))
        );
        let mut reported = BTreeMap::new();
        for version in 0..2000 {
            let _ = due(
                &mut reported,
                (ApiKey::FETCH, version, String::new()),
                Instant::now(),
            );
        }
        assert!(reported.len() <= KINDS_MAX + 1);
    }
}
