//! The `controller` room. See docs/architecture.md.
