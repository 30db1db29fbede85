//! Data plane: fetching from source leaders and appending unchanged batches to local logs.
