//! The `wire` room. See docs/architecture.md.
