//! The `mirror` crate: everything that makes this broker the destination of cluster mirroring
//! (KIP-1279).
//!
//! Two halves, one seam ([`seam`]):
//!
//! * **control plane**: states and their table ([`state`]), the fenced store of actual states on
//!   `__mirror_state` ([`store`]), controller decisions ([`commands`]), mirror configuration keys
//!   ([`config`]), the mirror RPCs in every dialect ([`dialect`], [`service`]), the life cycle of
//!   each partition led here ([`lifecycle`], [`stop`]), the refresh of each mirror from its source
//!   ([`refresh`]), describe;
//! * **data plane**: the connection to a source ([`source`]), fetching ([`fetcher`]), truncation at
//!   preparation ([`prepare`], [`lookup`]), whether two logs are of one history (`content`).
//!
//! Invariants (docs/invariants.md):
//!
//! * M-1 a mirrored log is a byte-exact prefix of the source's log until the topic is stopped;
//! * M-2 nothing but the mirror appends to a partition whose actual state is not STOPPED;
//! * M-3 STOPPED is final: nothing that happens at a source makes a stopped topic read-only again;
//! * M-4 nothing destructive happens on an absence (unknown topic, −1, coordinator loading);
//! * M-5 intent (metadata records) and fact (`__mirror_state` records) are apart and are compared
//!   again and again;
//! * M-6 a source that is down stops no failover and no other mirror;
//! * M-7 content decides between two histories, never numbers that another cluster can repeat;
//! * M-9 STOPPED is stored only for a log without open transactions, of which everything is on
//!   disk.
//!
//! May use: `controller` (decisions through `submit`), `replica` (partitions, guard), `coordinator`
//! (runtime of the store), `client`. Knows neither sockets of clients nor other coordinators.

mod claims;
mod content;
pub mod fetcher;
pub mod lookup;
pub mod prepare;
pub mod seam;
pub mod source;

pub mod commands;
pub mod config;
pub mod describe;
pub mod dialect;
pub mod epochs;
pub mod lifecycle;
pub mod local;
pub mod metadata;
pub mod placement;
pub mod refresh;
pub mod service;
pub mod state;
pub mod stop;
pub mod stop_point;
pub mod store;
mod survive;
pub mod transition;
