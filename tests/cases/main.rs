//! The black-box cases: each says one thing that must hold between a real Apache Kafka and Tarn,
//! seen from outside.

mod broker;
mod clients;
mod crash;
mod damage;
mod describe;
mod failover;
mod faults;
mod fidelity;
mod fixture;
mod garbage;
mod harness;
mod life;
mod long_line;
mod read_only;
mod readd;
mod readers;
mod scale;
mod server;
mod source;
mod tools;
mod versions;
