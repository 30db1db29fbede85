//! How files and directories are called. Kafka's names, parsed strictly: what is not ours is left
//! alone.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

/// Longest file name the file systems in question take.
const FILE_NAME_BYTES_MAX: usize = 255;
const OFFSET_DIGITS: usize = 20;

pub(crate) const LOG: &str = "log";
pub(crate) const OFFSET_INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const TXN_INDEX: &str = "txnindex";
/// Checksum of a whole `.txnindex`, whose entries have none. Kafka does not know the file, and
/// leaves it alone.
pub(crate) const TXN_INDEX_CRC: &str = "txnindex.crc";
pub(crate) const SNAPSHOT: &str = "snapshot";
/// What the cleaner writes, and what is of no use when it is found at start.
pub(crate) const CLEANED: &str = "log.cleaned";
/// What the cleaner has finished: it takes the place of what it was made from, at start too.
pub(crate) const SWAP: &str = "log.swap";
const DELETE_SUFFIX: &str = "-delete";
const STRAY_SUFFIX: &str = "-stray";

/// `dir/<20 digits>.<extension>`
pub(crate) fn segment_file(dir: &Path, base_offset: i64, extension: &str) -> PathBuf {
    dir.join(format!("{base_offset:020}.{extension}"))
}

/// Base offset and extension of a segment's file.
pub(crate) fn parse_segment_file(name: &str) -> Option<(i64, &str)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != OFFSET_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, extension))
}

/// `<topic>-<partition>`
pub(crate) fn partition_dir(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// Topic and partition of a directory name; `None` for foreign ones and those being deleted.
pub(crate) fn parse_partition_dir(name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = name.rsplit_once('-')?;
    let canonical = partition.bytes().all(|b| b.is_ascii_digit())
        && (partition == "0" || !partition.starts_with('0'));
    if topic.is_empty() || !canonical {
        return None;
    }
    Some((topic, partition.parse().ok()?))
}

/// A name for a partition directory on its way out, unique, within the file system's limit.
pub(crate) fn deleted_dir(topic: &str, partition: i32) -> String {
    unique_dir(topic, partition, DELETE_SUFFIX)
}

/// A name for a partition directory that is set aside, unique, within the file system's limit.
pub(crate) fn stray_dir(topic: &str, partition: i32) -> String {
    unique_dir(topic, partition, STRAY_SUFFIX)
}

fn unique_dir(topic: &str, partition: i32, suffix: &str) -> String {
    let unique = || RandomState::new().build_hasher().finish();
    let suffix = format!("-{partition}.{:016x}{:016x}{suffix}", unique(), unique());
    let mut keep = topic.len().min(FILE_NAME_BYTES_MAX - suffix.len());
    while !topic.is_char_boundary(keep) {
        keep -= 1;
    }
    format!("{}{suffix}", &topic[..keep])
}

/// Whether [`deleted_dir`] (or Kafka) made this name.
pub(crate) fn is_deleted_dir(name: &str) -> bool {
    let Some((front, unique)) = name
        .strip_suffix(DELETE_SUFFIX)
        .and_then(|n| n.rsplit_once('.'))
    else {
        return false;
    };
    unique.len() == 32 && unique.bytes().all(|b| b.is_ascii_hexdigit()) && front.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_foreign_ones_do_not() {
        assert_eq!(
            parse_segment_file("00000000003000000000.timeindex"),
            Some((3_000_000_000, "timeindex"))
        );
        assert_eq!(parse_segment_file("0.log"), None);
        assert_eq!(parse_partition_dir("a-b-12"), Some(("a-b", 12)));
        for foreign in [
            "a",
            "-1",
            "a-",
            "a-01",
            "a-x",
            "a-1.0123-delete",
            "a-99999999999",
        ] {
            assert_eq!(parse_partition_dir(foreign), None, "{foreign}");
        }
        let long = deleted_dir(&"t".repeat(249), 100_000);
        assert!(long.len() <= 255 && is_deleted_dir(&long));
        // A stray of a topic with the longest name could not be renamed.
        let stray = stray_dir(&"t".repeat(249), 100_000);
        assert!(stray.len() <= 255 && parse_partition_dir(&stray).is_none());
        assert!(!is_deleted_dir("t-0") && !is_deleted_dir("my-delete"));
    }
}
