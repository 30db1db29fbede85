//! The `metadata` room. See docs/architecture.md.
