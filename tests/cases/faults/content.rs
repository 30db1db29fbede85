//! Faults found from outside: the copy is the source: content decides between two histories.
