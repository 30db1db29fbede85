//! Behaviour of the typed commands.
