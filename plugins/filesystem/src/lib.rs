//! A source that is a component: `list`, `read`, `write` and `search` in the folders that its cell grants.
//!
//! Paths are not checked here: the component sees those folders and no file beside them, whatever it asks for. A path is what it
//! is outside.

use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use portcullis_plugin::{Effect, Failure, Tools, arguments, settings, text_result, tool};
use serde_json::json;

mod search;

/// Bytes of a file that one call reads, unless it asks for less: what fits into a context.
const READ_BYTES: u64 = 256 << 10;

/// Entries that one call lists.
const LIST_ENTRIES: usize = 1000;

struct Filesystem {
    folders: Vec<PathBuf>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    path: Option<PathBuf>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    path: PathBuf,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    path: PathBuf,
    text: String,
}

impl Tools for Filesystem {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(settings: &str) -> Result<Self, String> {
        settings::none(settings).map(|()| Self { folders: granted() })
    }

    fn definitions(&self) -> String {
        let path = json!({ "type": "string", "description": "An absolute path, within a granted folder." });
        let number = |text| json!({ "type": "integer", "minimum": 0, "description": text });
        json!([
            tool(
                "list",
                "Lists a folder; without a path, the granted folders.",
                json!({ "path": path }),
                &[],
                Effect::Reads
            ),
            tool(
                "read",
                "Reads a text file.",
                json!({
                    "path": path,
                    "offset": number("Bytes to skip."),
                    "limit": number("Bytes to read at most; 262144 unless less."),
                }),
                &["path"],
                Effect::Reads,
            ),
            tool(
                "write",
                "Writes a text file; one of that name is replaced by a new one, with the permissions of new files. Missing folders \
                 are made.",
                json!({ "path": path, "text": { "type": "string" } }),
                &["path", "text"],
                Effect::Overwrites,
            ),
            tool(
                "search",
                "Finds files by a glob over their names, and lines of text files by words in them.",
                json!({
                    "path": { "type": "string", "description": "Where to search; without it, in all granted folders." },
                    "name": { "type": "string", "description": "A glob over file names, such as *.md." },
                    "text": { "type": "string", "description": "What a line holds, whatever its case." },
                }),
                &[],
                Effect::Reads,
            ),
        ])
        .to_string()
    }

    fn open(&self) {}

    fn call(&self, (): &mut (), tool: &str, arguments: &str) -> Result<String, Failure> {
        let said = match tool {
            "list" => self.list(&self::arguments::<List>(arguments)?),
            "read" => read(&self::arguments::<Read>(arguments)?),
            "write" => write(&self::arguments::<Write>(arguments)?),
            "search" => self::arguments::<search::Search>(arguments)?.run(&self.folders),
            _ => return Err(Failure::UnknownTool),
        };
        said.map(|said| text_result(&said)).map_err(Failure::Failed)
    }
}

impl Filesystem {
    fn list(&self, List { path }: &List) -> Result<String, String> {
        let Some(path) = path else {
            let folders = self.folders.iter().map(|folder| format!("{}/\n", folder.display()));
            return Ok(folders.collect());
        };
        let mut lines = Vec::new();
        for entry in fs::read_dir(path).map_err(|error| failed("listed", path, &error))? {
            let entry = entry.map_err(|error| failed("listed", path, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            lines.push(match entry.metadata() {
                Ok(data) if data.is_dir() => format!("{name}/"),
                Ok(data) if data.is_file() => format!("{name} ({} bytes)", data.len()),
                _ => format!("{name} (neither a file nor a folder)"),
            });
        }
        lines.sort();
        let more = lines.len().saturating_sub(LIST_ENTRIES);
        lines.truncate(LIST_ENTRIES);
        let mut said = lines.join("\n");
        if more > 0 {
            let _ = write!(said, "\nand {more} more");
        }
        Ok(said)
    }
}

fn read(Read { path, offset, limit }: &Read) -> Result<String, String> {
    let broken = |error| failed("read", path, &error);
    if !fs::metadata(path).map_err(broken)?.is_file() {
        return Err(format!("{} is no file; `list` tells what is in a folder", path.display()));
    }
    let mut file = fs::File::open(path).map_err(broken)?;
    let size = file.metadata().map_err(broken)?.len();
    file.seek(SeekFrom::Start(*offset)).map_err(broken)?;
    let mut bytes = Vec::new();
    let limit = limit.unwrap_or(READ_BYTES).min(READ_BYTES);
    file.take(limit).read_to_end(&mut bytes).map_err(broken)?;
    let end = offset + bytes.len() as u64;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // The limit may have cut a character.
        Err(error) if error.error_len().is_none() && end < size => {
            bytes.get(..error.valid_up_to()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
        }
        Err(_) => return Err(format!("{} is no text: it has {size} bytes that are not UTF-8", path.display())),
    };
    let end = offset + text.len() as u64;
    let rest = if end < size {
        format!("\n[{} of {size} bytes follow; go on with offset {end}]", size - end)
    } else {
        String::new()
    };
    Ok(format!("{text}{rest}"))
}

/// Whoever reads meanwhile sees the old file or the new one. Of several who write at once, one is the last.
fn write(Write { path, text }: &Write) -> Result<String, String> {
    let broken = |error| failed("written", path, &error);
    let (Some(folder), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} names no file", path.display()));
    };
    fs::create_dir_all(folder).map_err(broken)?;
    // By chance, so that nobody else has it; and nothing that is there is written over.
    let fresh = folder.join(format!(".portcullis-{:016x}.new", RandomState::new().hash_one(path)));
    let mut file = fs::File::create_new(&fresh).map_err(broken)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&fresh, path));
    written.map_err(|error| {
        // It is of no use to anybody; the error that matters is the first.
        let _ = fs::remove_file(&fresh);
        broken(error)
    })?;
    Ok(format!("{} has {} bytes", path.display(), text.len()))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be {what}: {error}; `list` without a path names the granted folders", path.display())
}

/// The folders of the cell.
#[cfg(target_os = "wasi")]
fn granted() -> Vec<PathBuf> {
    wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path.into()).collect()
}

/// Outside a component nothing is granted.
#[cfg(not(target_os = "wasi"))]
fn granted() -> Vec<PathBuf> {
    Vec::new()
}

portcullis_plugin::export_tools!(Filesystem);

#[cfg(test)]
mod tests;
