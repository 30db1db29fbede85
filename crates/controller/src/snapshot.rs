//! Snapshots of the image in Kafka's form: `<end offset>-<epoch>.checkpoint`, a header control
//! record, the image's records in batches, a footer.
//!
//! Owns reading, writing and choosing them. A snapshot without its footer, or with a bad batch,
//! does not count: the next older one is taken.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tarn_metadata::{Image, Replay};
use tarn_raft::LogEnd;
use tarn_records::{
    BatchBuilder, BatchView, ControlType, control_batch, parse_control_record, records,
};
use tarn_wire::messages::{SnapshotFooterRecord, SnapshotHeaderRecord};
use tarn_wire::{Message, Writer};
use tracing::warn;

use crate::journal::{RECORD_BYTES_MAX, decode_records};
use crate::{ControllerError, atomic_file};

/// Suffix of a whole snapshot.
const SUFFIX: &str = ".checkpoint";
/// Uncompressed bytes of one batch in a snapshot.
const BATCH_BYTES: usize = 1 << 20;

/// Snapshots in a metadata log's directory, the newest first.
pub(crate) fn list(log_dir: &Path) -> Result<Vec<(LogEnd, PathBuf)>, ControllerError> {
    let entries = match fs::read_dir(log_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ControllerError::file("list", log_dir, error)),
        Ok(entries) => entries,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| ControllerError::file("list", log_dir, error))?;
        let name = entry.file_name();
        if let Some(end) = name.to_str().and_then(parse_name) {
            found.push((end, entry.path()));
        }
    }
    found.sort_by_key(|(end, _)| std::cmp::Reverse((end.offset, end.epoch)));
    Ok(found)
}

/// The newest snapshot that can be read, and what is in it.
pub(crate) fn load_newest(log_dir: &Path) -> Result<Option<(LogEnd, Image)>, ControllerError> {
    let all = list(log_dir)?;
    let mut first_error = None;
    for (end, path) in all {
        match load(end, &path) {
            Ok(image) => return Ok(Some((end, image))),
            Err(error) => {
                warn!(path = %path.display(), %error, "metadata snapshot cannot be used, trying an older one");
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(None), Err)
}

/// Writes a snapshot of `image`; on return it is on disk. Gives the offset and epoch in its name.
pub(crate) fn write(log_dir: &Path, image: &Image, now_ms: i64) -> Result<LogEnd, ControllerError> {
    let end = LogEnd {
        offset: image.offset() + 1,
        epoch: image.epoch(),
    };
    let mut content = Vec::new();
    let mut offset = 0;
    let header = SnapshotHeaderRecord {
        version: 0,
        last_contained_log_timestamp: now_ms,
        ..Default::default()
    };
    let header = control_batch(
        ControlType::SnapshotHeader,
        &control_value(&header)?,
        0,
        end.epoch,
        now_ms,
    )?;
    push(&mut content, &mut offset, end.epoch, header)?;
    let mut batch = BatchBuilder::new();
    for record in image.to_records() {
        batch.add(now_ms, None, Some(&record.encode()?), &[]);
        if batch.size() >= BATCH_BYTES {
            push(&mut content, &mut offset, end.epoch, batch.build()?)?;
            batch = BatchBuilder::new();
        }
    }
    if !batch.is_empty() {
        push(&mut content, &mut offset, end.epoch, batch.build()?)?;
    }
    let footer = SnapshotFooterRecord {
        version: 0,
        ..Default::default()
    };
    let footer = control_batch(
        ControlType::SnapshotFooter,
        &control_value(&footer)?,
        0,
        end.epoch,
        now_ms,
    )?;
    push(&mut content, &mut offset, end.epoch, footer)?;
    atomic_file::replace(&log_dir.join(name(end)), &content)?;
    Ok(end)
}

/// Deletes snapshots older than the newest `keep` and whatever half-written one is left; gives the
/// end of the oldest kept.
pub(crate) fn delete_old(log_dir: &Path, keep: usize) -> Result<Option<LogEnd>, ControllerError> {
    let all = list(log_dir)?;
    for (_, path) in all.iter().skip(keep) {
        fs::remove_file(path).map_err(|error| ControllerError::file("remove", path, error))?;
    }
    Ok(all.into_iter().take(keep).next_back().map(|(end, _)| end))
}

pub(crate) fn name(end: LogEnd) -> String {
    format!("{:020}-{:010}{SUFFIX}", end.offset, end.epoch)
}

fn parse_name(name: &str) -> Option<LogEnd> {
    let (offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    if offset.len() != 20 || epoch.len() != 10 {
        return None;
    }
    Some(LogEnd {
        offset: offset.parse().ok()?,
        epoch: epoch.parse().ok()?,
    })
}

fn load(end: LogEnd, path: &Path) -> Result<Image, ControllerError> {
    let bad = |reason: String| ControllerError::BadFile {
        path: path.to_owned(),
        reason: format!("snapshot cannot be used: {reason}"),
    };
    let content =
        Bytes::from(fs::read(path).map_err(|error| ControllerError::file("read", path, error))?);
    let mut replay = Replay::default();
    let mut position = 0;
    let mut controls = Vec::new();
    while position < content.len() {
        let rest = content.slice(position..);
        let view = BatchView::first(&rest)?;
        view.check_crc()?;
        let size = view.header.size();
        if view.header.is_control() {
            for record in records(&rest.slice(..size), RECORD_BYTES_MAX)? {
                controls.push(parse_control_record(&record?)?.kind);
            }
        } else {
            replay.batch(
                decode_records(&rest.slice(..size))?,
                end.offset - 1,
                end.epoch,
            )?;
        }
        position += size;
    }
    let whole = controls.first() == Some(&ControlType::SnapshotHeader)
        && controls.last() == Some(&ControlType::SnapshotFooter);
    if !whole || replay.in_transaction() {
        return Err(bad("it has no header or no footer".to_owned()));
    }
    Ok(replay.finish().0)
}

fn push(
    content: &mut Vec<u8>,
    offset: &mut i64,
    epoch: i32,
    mut batch: Vec<u8>,
) -> Result<(), ControllerError> {
    tarn_records::patch_base_offset_and_leader_epoch(&mut batch, *offset, epoch)?;
    *offset = BatchView::first(&batch)?.header.next_offset();
    content.extend_from_slice(&batch);
    Ok(())
}

pub(crate) fn control_value<M: Message>(message: &M) -> Result<Bytes, ControllerError> {
    let mut w = Writer::with_capacity(64);
    let encoded = message.encode(&mut w, 0);
    encoded.map_err(|source| tarn_metadata::MetadataError::Encode {
        name: M::NAME,
        source,
    })?;
    Ok(w.finish().to_bytes().unwrap_or_default())
}
