//! The `cli` room. See docs/architecture.md.
