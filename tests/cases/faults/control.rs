//! Faults found from outside: the mirror and its source over time: verdicts expire, one bad item spoils only itself, reasons are on show.
