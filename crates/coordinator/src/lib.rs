//! The `coordinator` room. See docs/architecture.md.
