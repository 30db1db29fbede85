//! The `records` room. See docs/architecture.md.
