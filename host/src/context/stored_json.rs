//! Files of JSON that one broker keeps for the next. Only their user can read or write them.

use std::io::{self, Read as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::private;

/// Reads the value that is stored in a file. One that is missing, damaged, a symbolic link, open to others or longer
/// than `max` bytes counts as none.
pub(super) fn read<T: DeserializeOwned>(path: &Path, max: u64) -> Option<T> {
    let file = private::open(path).ok().flatten()?;
    let mut text = Vec::new();
    let length = file.take(max.saturating_add(1)).read_to_end(&mut text).ok()?;
    if length as u64 > max {
        return None;
    }
    serde_json::from_slice(&text).ok()
}

/// Stores a value, replacing the earlier one, and creates the folder of the file. A value of more than `max` bytes is
/// not stored.
///
/// # Errors
/// If the file cannot be written, or others could write into its folder.
pub(super) fn write<T: Serialize>(path: &Path, value: &T, max: u64) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    if text.len() as u64 > max {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    // An earlier version made folders that others can read.
    private::narrow_folder(folder)
        .and_then(|()| private::folder(folder))
        .and_then(|()| private::replace(path, &text))
        .map_err(io::Error::other)
}
