//! The `log` room. See docs/architecture.md.
