//! Searches for files by name, and for lines by their text.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_plugin::Glob;

/// The most results that one call returns.
const FINDINGS: usize = 200;

/// The most files that one call examines. A larger search is a job for another tool.
const FILES: usize = 20_000;

/// The deepest nesting of folders that is searched.
const DEPTH: usize = 32;

/// The largest file that is searched for text, in bytes. Larger files are hardly text written by people.
const TEXT_BYTES: u64 = 4 << 20;

/// The bytes of a line that are shown.
const LINE_BYTES: usize = 300;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    path: Option<super::PlainPath>,
    name: Option<Glob>,
    text: Option<String>,
}

/// The results so far.
#[derive(Default)]
struct Found {
    lines: Vec<String>,
    files: usize,
}

impl Search {
    pub(crate) fn run(&self, folders: &[PathBuf]) -> Result<String, String> {
        let text = self.text.as_ref().map(|text| text.to_lowercase());
        let mut found = Found::default();
        match self.path.as_deref() {
            Some(path) => {
                // A folder that disappears during the search is skipped, but one that was asked for must exist.
                fs::read_dir(path).map_err(|error| super::failed("searched", path, &error))?;
                self.folder(path, text.as_deref(), 0, &mut found);
            }
            None => folders.iter().for_each(|folder| self.folder(folder, text.as_deref(), 0, &mut found)),
        }
        if found.lines.is_empty() {
            return Ok(format!("nothing found in {} files", found.files));
        }
        if found.full() {
            found.lines.push("[there may be more: search a smaller folder or for more words]".to_owned());
        }
        Ok(found.lines.join("\n"))
    }

    fn folder(&self, folder: &Path, text: Option<&str>, depth: usize, found: &mut Found) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if found.full() {
                return;
            }
            // This is the type of a link itself, so no link is followed.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEPTH {
                self.folder(&entry.path(), text, depth + 1, found);
            } else if kind.is_file() {
                found.files += 1;
                let named = entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| self.name.as_ref().is_none_or(|glob| glob.matches(name)));
                match text {
                    _ if !named => {}
                    None => found.lines.push(entry.path().display().to_string()),
                    Some(text) => lines(&entry.path(), text, found),
                }
            }
        }
    }
}

impl Found {
    fn full(&self) -> bool {
        self.lines.len() >= FINDINGS || self.files >= FILES
    }
}

/// Adds the lines of a text file that contain `text`, which is in lower case.
fn lines(path: &Path, text: &str, found: &mut Found) {
    if fs::metadata(path).is_ok_and(|data| data.len() > TEXT_BYTES) {
        return;
    }
    let Ok(content) = fs::read_to_string(path) else { return };
    for (number, line) in content.lines().enumerate().filter(|(_, line)| line.to_lowercase().contains(text)) {
        if found.full() {
            return;
        }
        let shown = line.get(..line.floor_char_boundary(LINE_BYTES)).unwrap_or_default();
        found.lines.push(format!("{}:{}: {shown}", path.display(), number + 1));
    }
}
