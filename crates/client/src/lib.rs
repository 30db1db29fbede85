//! The `client` room. See docs/architecture.md.
