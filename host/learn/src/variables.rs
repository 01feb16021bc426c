//! The variables that a source's own code reads.
//!
//! No system call shows that a program looks up a variable, as the environment is in its memory. The code of a server
//! in JavaScript or Python does: it is read when the server starts, and it names them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use portcullis_cell::{AttemptAction, AttemptAvailability, AttemptSubject, RecordedAttempt};
use rustix::fs::OFlags;

/// The largest number of files that are searched, and the longest part of one, in bytes.
const MAX_FILES: usize = 400;
const MAX_FILE_BYTES: u64 = 8 << 20;

/// The largest number of variables that are named.
const MAX_VARIABLES: usize = 32;

/// The expressions before a name: between quotation marks after the first ones, and as a member after the others.
const QUOTED: [&str; 7] =
    ["process.env[", "os.environ[", "os.environ.get(", "os.environ.pop(", "os.getenv(", "getenv(", "Deno.env.get("];
const MEMBERS: [&str; 3] = ["process.env.", "import.meta.env.", "Bun.env."];

/// Variables that runtimes, shells and their libraries read, whatever the server does. An entry that ends in `_` covers
/// all names that begin with it.
const COMMON: &[&str] = &[
    "ALL_PROXY",
    "APPDATA",
    "CI",
    "CLICOLOR_",
    "COLORTERM",
    "COLUMNS",
    "CURL_CA_BUNDLE",
    "DEBUG",
    "DEBUG_",
    "EDITOR",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "HOME",
    "HOMEDRIVE",
    "HOMEPATH",
    "HOSTNAME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JEST_",
    "LANG",
    "LC_",
    "LOCALAPPDATA",
    "LOGNAME",
    "NETRC",
    "NODE_",
    "NO_COLOR",
    "NO_PROXY",
    "PATH",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PWD",
    "PYTHON_",
    "PYTHONPATH",
    "READABLE_STREAM",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_",
    "SSLKEYLOGFILE",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TERM_",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "USERNAME",
    "USERPROFILE",
    "VIRTUAL_ENV",
    "VITEST",
    "WINDIR",
    "WS_NO_",
    "XDG_",
];

/// A variable that a source's own code reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableUse {
    /// The name of the variable.
    pub name: String,
    /// The first file that reads it.
    pub file: PathBuf,
    /// The line in that file, counted from 1.
    pub line: usize,
}

/// Returns the variables that the code of a source reads, in the order of their names, at most 32. The code consists of
/// the files in JavaScript or Python that the source loaded, except those of libraries and of the runtime. `package` is
/// the package that the source comes from, with its ecosystem (`npm:tavily-mcp`), and `named` are the files and folders
/// that its command names.
#[must_use]
pub fn variables_read(attempts: &[RecordedAttempt], package: Option<&str>, named: &[PathBuf]) -> Vec<VariableUse> {
    let mut uses: BTreeMap<String, (PathBuf, usize)> = BTreeMap::new();
    let loaded = attempts.iter().filter(|attempt| {
        attempt.availability == AttemptAvailability::Granted
            && matches!(attempt.action, AttemptAction::Read | AttemptAction::Look)
    });
    let mut files: Vec<PathBuf> = loaded.filter_map(|attempt| source_file(&attempt.subject)).collect();
    files.sort();
    files.dedup();
    let own = OwnCode { package, named };
    for file in files.into_iter().filter(|file| own.contains(file)).take(MAX_FILES) {
        for (name, line) in names_in(&beginning(&file)) {
            uses.entry(name).or_insert_with(|| (file.clone(), line));
        }
    }
    let uses = uses.into_iter().take(MAX_VARIABLES);
    uses.map(|(name, (file, line))| VariableUse { name, file, line }).collect()
}

/// Returns the path of code in JavaScript or Python. A compiled module of Python counts as its source.
fn source_file(subject: &AttemptSubject) -> Option<PathBuf> {
    let AttemptSubject::Path(path) = subject else { return None };
    match path.extension()?.to_str()? {
        "js" | "mjs" | "cjs" | "ts" | "mts" | "py" => Some(path.clone()),
        "pyc" => {
            let module = path.file_name()?.to_str()?.split('.').next()?;
            Some(path.parent()?.parent()?.join(module).with_extension("py"))
        }
        _ => None,
    }
}

/// The rule that tells a source's own code from that of its libraries.
struct OwnCode<'a> {
    package: Option<&'a str>,
    named: &'a [PathBuf],
}

impl OwnCode<'_> {
    fn contains(&self, file: &Path) -> bool {
        let parts: Vec<&OsStr> = file
            .components()
            .filter_map(|part| match part {
                Component::Normal(part) => Some(part),
                _ => None,
            })
            .collect();
        let is_library_folder =
            |part: &&OsStr| ["node_modules", "site-packages", "dist-packages"].iter().any(|name| **part == **name);
        let Some(at) = parts.iter().rposition(is_library_folder) else {
            // A server that is not a package: its code lies next to the file that the command names.
            let folders = self
                .named
                .iter()
                .map(|named| if named.is_dir() { named.as_path() } else { named.parent().unwrap_or(named) });
            return folders.into_iter().any(|folder| file.starts_with(folder));
        };
        let below: PathBuf = parts.iter().skip(at + 1).collect();
        match self.package.and_then(|package| package.split_once(':')) {
            // Of a package within another one, there is a library folder between them.
            Some(("npm", name)) => below.starts_with(name),
            Some((_, name)) => {
                let folder: PathBuf = Path::new("/").join(parts.iter().take(at + 1).collect::<PathBuf>());
                lists(&folder, name, &below)
            }
            None => false,
        }
    }
}

/// Reports whether a distribution of Python lists a module among its own, by the record in its `dist-info` folder.
fn lists(folder: &Path, distribution: &str, file: &Path) -> bool {
    let folders = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let normal = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
    let is_of_distribution = |name: &str| {
        name.strip_suffix(".dist-info")
            .and_then(|name| name.rsplit_once('-'))
            .is_some_and(|(name, _)| normal(name) == normal(distribution))
    };
    let info = folders
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(OsStr::to_str).is_some_and(is_of_distribution));
    let record = info.map(|info| beginning(&info.join("RECORD"))).unwrap_or_default();
    record.lines().any(|line| line.split(',').next().is_some_and(|listed| Path::new(listed) == file))
}

/// Returns the beginning of a file, or nothing if it cannot be read. Since it was loaded, the source may have put a
/// link or a named pipe in its place: no link is followed, and nothing is waited for.
fn beginning(file: &Path) -> String {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(file).ok();
    let opened = opened.filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()));
    let mut bytes = Vec::new();
    let read = opened.and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok());
    if read.is_some() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// Returns the names of variables in a piece of code, each with its line.
fn names_in(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        // The line of a bundle may be the whole program.
        for (pattern, is_quoted) in
            QUOTED.iter().map(|pattern| (*pattern, true)).chain(MEMBERS.iter().map(|pattern| (*pattern, false)))
        {
            for (at, _) in line.match_indices(pattern) {
                let after = line.get(at + pattern.len()..).unwrap_or_default();
                let after = match is_quoted {
                    true => after.trim_start().strip_prefix(['"', '\'', '`']),
                    false => Some(after),
                };
                let name: String =
                    after.unwrap_or_default().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if is_telling(&name) {
                    found.push((name, number + 1));
                }
            }
        }
    }
    found
}

/// Reports whether a variable is one that a person may set for this server.
fn is_telling(name: &str) -> bool {
    let shaped = name.len() > 2 && name.starts_with(|c: char| c.is_ascii_uppercase());
    let shaped = shaped && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let is_common = |common: &&str| name == *common || common.ends_with('_') && name.starts_with(*common);
    shaped && !COMMON.iter().any(is_common)
}

#[cfg(test)]
mod tests;
