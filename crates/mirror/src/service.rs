//! The mirror APIs (keys 94–96, 98–105): requests in every dialect to decisions and back.

pub mod forms;
pub mod reply;
