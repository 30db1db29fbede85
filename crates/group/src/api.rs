//! Requests of the wire and their responses, one file per kind. Each translates, asks the shard,
//! translates back.

mod admin;
mod find;
mod membership;
mod offset_commit;
mod offset_fetch;
