//! The `raft` room. See docs/architecture.md.
