//! The harness of the black-box tests: real Kafka brokers, the `tarn` binary as a process, standard
//! clients, and comparers.
//!
//! It may touch processes, sockets and files below a temporary folder; it never links the server.
//! What is right is said by the cases in `tests/cases`, not here. Every process that it starts ends
//! with the value that owns it, also when a test panics; JVMs end even when the test process is
//! killed, because they watch their standard input.

pub mod driver;
pub mod jars;
pub mod kafka;
pub mod librdkafka;
pub mod not_run;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod records;
pub mod schema;
pub mod segments;
pub mod tarn;
pub mod tools;
pub mod wait;
