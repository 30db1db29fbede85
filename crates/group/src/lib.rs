//! The `group` room. See docs/architecture.md.
