//! The `replica` room. See docs/architecture.md.
