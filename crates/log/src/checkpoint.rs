//! Kafka's small text files: offset checkpoints and the epoch checkpoint; and how a file is
//! replaced without ever being half there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::private;
use crate::types::EpochEntry;

/// Per directory: everything below is synced.
pub(crate) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Per directory: high watermarks.
pub(crate) const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// Per directory: log start offsets above the first segment's base. Kept for Kafka and its tools;
/// ours stand in `partition.metadata`.
pub(crate) const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Per partition: leader epochs and their start offsets.
pub(crate) const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";

const FORMAT_VERSION: &str = "0";

/// Replaces `path` by `content`: temp file, fsync, rename, fsync of the directory (the last two
/// syncs only if `durable`).
pub(crate) fn replace(path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
    let temp = path.with_added_extension("tmp");
    let mut f = private::create_file(&temp)?;
    f.write_all(content)?;
    if durable {
        f.sync_all()?;
    }
    drop(f);
    fs::rename(&temp, path)?;
    match path.parent() {
        Some(dir) if durable => File::open(dir)?.sync_all(),
        _ => Ok(()),
    }
}

/// `topic partition offset` lines.
pub(crate) fn format_offsets(offsets: &BTreeMap<(String, i32), i64>) -> Vec<u8> {
    let mut out = format!("{FORMAT_VERSION}\n{}\n", offsets.len());
    for ((topic, partition), offset) in offsets {
        out.push_str(&format!("{topic} {partition} {offset}\n"));
    }
    out.into_bytes()
}

/// Reads an offset checkpoint; `Err` says what is wrong with it.
pub(crate) fn parse_offsets(text: &str) -> Result<BTreeMap<(String, i32), i64>, String> {
    let mut out = BTreeMap::new();
    for line in lines(text)? {
        let [topic, partition, offset] = fields::<3>(line)?;
        let partition = number::<i32>(partition, line)?;
        out.insert((topic.to_owned(), partition), number::<i64>(offset, line)?);
    }
    Ok(out)
}

/// `epoch start` lines.
pub(crate) fn format_epochs(epochs: &[EpochEntry]) -> Vec<u8> {
    let mut out = format!("{FORMAT_VERSION}\n{}\n", epochs.len());
    for e in epochs {
        out.push_str(&format!("{} {}\n", e.epoch, e.start_offset));
    }
    out.into_bytes()
}

/// Reads an epoch checkpoint; both columns must rise.
pub(crate) fn parse_epochs(text: &str) -> Result<Vec<EpochEntry>, String> {
    let mut out: Vec<EpochEntry> = Vec::new();
    for line in lines(text)? {
        let [epoch, start] = fields::<2>(line)?;
        let entry = EpochEntry {
            epoch: number(epoch, line)?,
            start_offset: number(start, line)?,
        };
        if out
            .last()
            .is_some_and(|l| l.epoch >= entry.epoch || l.start_offset > entry.start_offset)
        {
            return Err(format!("line \"{line}\" does not rise"));
        }
        out.push(entry);
    }
    Ok(out)
}

/// Body lines after checking version and count, so that a half-written file is noticed.
fn lines(text: &str) -> Result<Vec<&str>, String> {
    let mut all = text.lines();
    let version = all.next().ok_or("file is empty")?;
    if version.trim() != FORMAT_VERSION {
        return Err(format!("unknown version \"{version}\""));
    }
    let count: usize = number(all.next().ok_or("no count line")?, "count")?;
    let body: Vec<&str> = all.filter(|l| !l.trim().is_empty()).collect();
    if body.len() != count || !text.ends_with('\n') {
        return Err(format!(
            "{count} lines announced, {} whole ones there",
            body.len()
        ));
    }
    Ok(body)
}

fn fields<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let parts: Vec<&str> = line.split_whitespace().collect();
    parts
        .try_into()
        .map_err(|_| format!("line \"{line}\" does not have {N} fields"))
}

fn number<T: std::str::FromStr>(text: &str, line: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("line \"{line}\" has a bad number"))
}
