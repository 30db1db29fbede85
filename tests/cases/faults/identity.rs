//! Faults found from outside: what is on disk after crashes, lost directories and edited side files: the log and the metadata decide.
