//! Faults found from outside: the public prototype's tools and brokers against this broker.
