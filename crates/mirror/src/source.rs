//! Data plane: one source cluster, its connections and the questions asked of it.
