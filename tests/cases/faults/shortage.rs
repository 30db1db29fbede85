//! Faults found from outside: descriptors, disks, memory and time run short, or bits rot: an answer, never a death.
