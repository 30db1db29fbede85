//! The `fetch` crate: the engine that fetches partitions from the brokers that lead them.
//!
//! A [`FetcherManager`] keeps one [fetcher](FetcherKey) for each broker and index: a task with a
//! connection of its own that asks for its partitions, hands the records on piece by piece while
//! they arrive, and asks again. What to ask for, what to do with a response and what an error means
//! is the [`FetchPolicy`] of its user: a mirror, which copies from another cluster.
//!
//! The engine owns fetch sessions ([`FetchSession`], KIP-227), how much one Fetch asks for
//! (`sizing`), when the next one goes out before the response is complete (`pipelining`), and the
//! pauses after responses that bring nothing (`held_back`).
//!
//! Invariants:
//! * a fetcher never holds more than one piece of records, and its work grows with the partitions
//!   that changed, not with all of them;
//! * what happens to one partition stays with that partition; an error of the connection ends the
//!   fetcher, and its user decides what follows;
//! * every wait ends: a fetcher that waits wakes up when its assignment changes.
//!
//! May use: `wire` and `client`. Knows no log, no metadata, no mirror and no replica; opens no
//! connection but through its user.

mod assignment;
mod bounds;
mod fetcher;
mod held_back;
mod manager;
mod pipelining;
mod placement;
mod policy;
mod session;
mod sizing;
mod stalls;

pub use bounds::{LogBounds, NoOffset, bounds_request, read_bounds};
pub use fetcher::FetcherEnd;
pub use held_back::HeldBackReason;
pub use manager::{Ended, FetcherManager, Outcome, Pause};
pub use pipelining::estimate;
pub use placement::{FetcherKey, Placement};
pub use policy::{
    AfterError, AskLimits, Asked, FetchOptions, FetchPolicy, FetchedPartition, Finished, NextAsk,
};
pub use session::{Ask, FetchSession, Plan, Wants};
pub use stalls::{Patience, StallCounter};
