//! Files that are either the old one or the new one, whatever happens: write beside, sync, rename,
//! sync the directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::ControllerError;

/// Replaces `path` by `content`; on return it is on disk.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), ControllerError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = Path::new(&beside);
    let written = tarn_log::private::create_file(beside).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(|error| ControllerError::file("write", beside, error))?;
    fs::rename(beside, path).map_err(|error| ControllerError::file("replace", path, error))?;
    sync_parent(path)
}

/// Makes renames and removals in the file's directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), ControllerError> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| ControllerError::file("sync", parent, error))
}
