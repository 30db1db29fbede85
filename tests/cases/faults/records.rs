//! Faults found from outside: what Produce takes and refuses, and what internal topics keep.
