//! Faults found from outside: what every announced version answers, and what stock clients of every language expect.

mod sweep;
