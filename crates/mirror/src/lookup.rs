//! Data plane: the last-mirror-epoch look-up at a source that mirrored from us (mirroring.md §11).
