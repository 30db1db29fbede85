//! When an append counts as done: the setting `log.ack.durability`.

use std::str::FromStr;

/// What acks=all waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The records are on disk.
    #[default]
    Disk,
    /// The records are in the page cache, as with a default Kafka: a power failure can lose
    /// acknowledged records.
    PageCache,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disk" => Ok(Durability::Disk),
            "page-cache" => Ok(Durability::PageCache),
            other => Err(format!(
                "log.ack.durability must be disk or page-cache, not {other}"
            )),
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Disk => "disk",
            Durability::PageCache => "page-cache",
        })
    }
}
