//! The `server` room. See docs/architecture.md.
