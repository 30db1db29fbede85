//! The black-box cases: each says one thing that must hold between a real Apache Kafka and Tarn, seen from outside.

mod harness;
