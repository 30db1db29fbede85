//! The `mirror` room. See docs/architecture.md.
