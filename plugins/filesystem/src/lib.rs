//! A tool source as a component: `list`, `read`, `write` and `search` in the folders that its cell grants.
//!
//! Paths are not checked here: whatever it asks for, the component can reach no file outside those folders. A path is
//! the same inside the component as outside.

use std::fmt::Write as _;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};

use portcullis_plugin::{Effect, Failure, Tools, arguments, settings, text_result, tool};
use serde_json::json;

mod search;

/// The most bytes of a file that one call reads, and the default: what fits into a model's context.
const READ_BYTES: u64 = 256 << 10;

/// The most bytes of a character in UTF-8.
const CHARACTER: u64 = 4;

/// The most entries that one call lists.
const LIST_ENTRIES: usize = 1000;

struct Filesystem {
    folders: Vec<PathBuf>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    path: Option<PlainPath>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    path: PlainPath,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    path: PlainPath,
    text: String,
}

/// A path without `..`. A policy compares the text of a path, and such a part leads elsewhere than the text suggests.
#[derive(serde::Deserialize)]
#[serde(try_from = "PathBuf")]
struct PlainPath(PathBuf);

impl TryFrom<PathBuf> for PlainPath {
    type Error = &'static str;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        let leads_up = path.components().any(|part| part == Component::ParentDir);
        if leads_up { Err("a path must not have `..` in it; name the file or folder itself") } else { Ok(Self(path)) }
    }
}

impl Deref for PlainPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Tools for Filesystem {
    type Session = ();
    const KEEPS_STATE: bool = false;

    fn configure(settings: &str) -> Result<Self, String> {
        settings::none(settings).map(|()| Self { folders: granted() })
    }

    fn definitions(&self) -> Result<String, String> {
        let path =
            json!({ "type": "string", "description": "An absolute path without `..`, within a granted folder." });
        let number = |text| json!({ "type": "integer", "minimum": 0, "description": text });
        let tools = json!([
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
                    "offset": number("Bytes to skip, up to the beginning of a character."),
                    "limit": number("The most bytes to read, up to 262144, which is also the default. One character at least is read."),
                }),
                &["path"],
                Effect::Reads,
            ),
            tool(
                "write",
                "Writes a text file. An existing file is replaced by a new one, with the permissions of new files. Missing folders \
                 are created.",
                json!({ "path": path, "text": { "type": "string" } }),
                &["path", "text"],
                Effect::Overwrites,
            ),
            tool(
                "search",
                "Finds files by a glob over their names, and lines of text files by a text that they contain.",
                json!({
                    "path": { "type": "string", "description": "Where to search, an absolute path without `..`; without it, in all granted folders." },
                    "name": { "type": "string", "description": "A glob over file names, such as *.md." },
                    "text": { "type": "string", "description": "The text that a line must contain; case is ignored." },
                }),
                &[],
                Effect::Reads,
            ),
        ]);
        Ok(tools.to_string())
    }

    fn open(&self) -> Result<(), String> {
        Ok(())
    }

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
        let Some(path) = path.as_deref() else {
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
    let path: &Path = path;
    let broken = |error| failed("read", path, &error);
    if !fs::metadata(path).map_err(broken)?.is_file() {
        return Err(format!("{} is not a file; `list` shows what is in a folder", path.display()));
    }
    let mut file = fs::File::open(path).map_err(broken)?;
    let size = file.metadata().map_err(broken)?.len();
    file.seek(SeekFrom::Start(*offset)).map_err(broken)?;
    let limit = limit.unwrap_or(READ_BYTES).min(READ_BYTES);
    let mut bytes = Vec::new();
    // Beyond the wanted bytes: the end of a character at the offset, and a whole one, however low the limit is.
    file.take(limit + 2 * CHARACTER).read_to_end(&mut bytes).map_err(broken)?;
    let is_middle = |byte: &&u8| *offset > 0 && **byte & 0b1100_0000 == 0b1000_0000;
    let skipped = bytes.iter().take(3).take_while(is_middle).count();
    let start = offset + skipped as u64;
    let is_cut = offset + (bytes.len() as u64) < size;
    let rest = bytes.get(skipped..).unwrap_or_default();
    let text = match std::str::from_utf8(rest) {
        Ok(text) => text,
        // The bytes read may end within a character.
        Err(error) if error.error_len().is_none() && is_cut => {
            rest.get(..error.valid_up_to()).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
        }
        Err(_) => return Err(format!("{} is not text: its {size} bytes are not UTF-8", path.display())),
    };
    let limit = text.floor_char_boundary(usize::try_from(limit).unwrap_or(usize::MAX));
    let text = text.get(..limit.max(text.chars().next().map_or(0, char::len_utf8))).unwrap_or_default();
    let end = start + text.len() as u64;
    let rest = if end < size {
        format!("\n[{} of {size} bytes follow; go on with offset {end}]", size - end)
    } else {
        String::new()
    };
    Ok(format!("{text}{rest}"))
}

/// Writes a file. Concurrent readers see the old file or the new one; of several concurrent writers, one comes last.
fn write(Write { path, text }: &Write) -> Result<String, String> {
    let path: &Path = path;
    let broken = |error| failed("written", path, &error);
    let (Some(folder), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} does not name a file", path.display()));
    };
    fs::create_dir_all(folder).map_err(broken)?;
    // The name is random, so that no other writer uses it, and `create_new` overwrites nothing.
    let fresh = folder.join(format!(".portcullis-{:016x}.new", RandomState::new().hash_one(path)));
    let mut file = fs::File::create_new(&fresh).map_err(broken)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&fresh, path));
    written.map_err(|error| {
        // The incomplete file is useless. If it cannot be removed, the first error is still the one that matters.
        let _ = fs::remove_file(&fresh);
        broken(error)
    })?;
    Ok(format!("{} has {} bytes", path.display(), text.len()))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be {what}: {error}; `list` without a path names the granted folders", path.display())
}

/// Returns the folders that the cell grants.
#[cfg(target_os = "wasi")]
fn granted() -> Vec<PathBuf> {
    wasip2::filesystem::preopens::get_directories().into_iter().map(|(_, path)| path.into()).collect()
}

/// Returns no folders: outside a component nothing is granted.
#[cfg(not(target_os = "wasi"))]
fn granted() -> Vec<PathBuf> {
    Vec::new()
}

portcullis_plugin::export_tools!(Filesystem);
portcullis_plugin::describe!(include_str!("../description.json"));

#[cfg(test)]
mod tests;
