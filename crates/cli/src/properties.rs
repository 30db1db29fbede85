//! Owns reading the properties files that the mirror tools are given. The text format itself is the
//! server room's.

use std::path::Path;

use tarn_server::config::properties::parse;

use crate::CliError;

/// The entries of a properties file in their order; of a key that occurs twice the last value, as
/// in Java.
///
/// # Errors
/// The file cannot be read, or a line is no properties text.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>, CliError> {
    let bytes = std::fs::read(path)
        .map_err(|e| CliError::Failed(format!("cannot read {}: {e}", path.display())))?;
    let entries = parse(&bytes)
        .map_err(|e| CliError::Failed(format!("{}:{}: {}", path.display(), e.line, e.message)))?;
    let mut out: Vec<(String, String)> = Vec::new();
    for entry in entries {
        match out.iter_mut().find(|(key, _)| *key == entry.key) {
            Some(known) => known.1 = entry.value,
            None => out.push((entry.key, entry.value)),
        }
    }
    Ok(out)
}
