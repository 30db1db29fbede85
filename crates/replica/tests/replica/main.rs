//! The replica room over a real log in a temporary directory and an image made by hand.

mod append;
mod durable;
mod fetch;
mod lifecycle;
mod mirror;
mod offsets;
mod world;
