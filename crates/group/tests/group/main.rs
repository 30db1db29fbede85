//! The group coordinator over real partitions: wire requests in, wire responses out, in every
//! version.

mod groups;
mod offsets;
mod world;
