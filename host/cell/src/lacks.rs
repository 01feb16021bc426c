//! Finds what a cell may lack when something in it fails, and the line that would add it.
//!
//! The texts for agents say what was refused or named, and never whether a path exists outside.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::process_cell::{Described, ProcessCell};
use super::system;

/// Folders of which every cell has its own.
const OWN: [&str; 7] = ["/dev", "/etc", "/home/source", "/proc", "/run", "/sys", "/tmp"];

/// Words by which programs say that a file is missing or must not be changed.
const MISSING: [&str; 9] = [
    "enoent",
    "no such file",
    "not found",
    "does not exist",
    "cannot find",
    "eacces",
    "eperm",
    "permission denied",
    "denied",
];
const READ_ONLY: [&str; 2] = ["erofs", "read-only file system"];

/// The largest number of lacks that a message names.
const MAX_LACKS: usize = 4;

/// The number of bytes of a failure's text that are searched for paths and names.
const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// The longest path that a message repeats, in bytes. A longer one is no path that a person named.
const MAX_SHOWN_BYTES: usize = 256;

/// The fewest letters of a variable's name. Shorter words in capitals are abbreviations.
const MIN_NAME_BYTES: usize = 6;

/// Beginnings of words in capitals that are no variables: errors of the system, and what runtimes print about themselves.
const NO_VARIABLES: [&str; 8] =
    ["ERR_", "UND_ERR", "SIG", "NODE_OPTIONS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "MODULE_NOT_FOUND"];

/// Something that a cell may lack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// A host that was refused, as `host:port`.
    Host(String),
    /// A path that a message names and the cell does not have.
    Read(PathBuf),
    /// A path that a message names and that the source may only read.
    Write(PathBuf),
    /// An environment variable that a message names and the source does not have.
    Variable(String),
}

impl fmt::Display for Lack {
    /// Says what was refused, the line of the configuration, and the switch of `wrap`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Path| portcullis_core::escape::escape_hidden(&path.to_string_lossy()).into_owned();
        match self {
            Self::Host(host) => {
                write!(
                    f,
                    "its cell refused {host}: `network = [\"{host}\"]` in its `cell`, or --network {host}, allows it"
                )
            }
            Self::Read(file) => {
                let file = path(file);
                write!(
                    f,
                    "its cell does not have {file}: `read = [\"{file}\"]` in its `cell`, or --read {file}, opens it"
                )
            }
            Self::Write(file) => {
                let file = path(file);
                write!(
                    f,
                    "its cell may only read {file}: `write = [\"{file}\"]` in its `cell`, or --write {file}, opens it"
                )
            }
            Self::Variable(name) => {
                write!(f, "it was not given {name}: add it to its `env`, or --env {name}=…, if it needs it")
            }
        }
    }
}

impl Lack {
    /// Returns the text for the person who runs the broker. Only they learn that a path exists outside.
    pub(crate) fn for_the_person(&self) -> String {
        match self {
            Self::Read(path) if path.symlink_metadata().is_ok() => format!("{self} (it exists outside)"),
            _ => self.to_string(),
        }
    }
}

impl ProcessCell {
    /// Returns what the source may have lacked when something failed: hosts that it was refused since `then`, and paths
    /// that the text of the failure names. Paths that exist outside are also logged, for the person who runs the broker.
    pub fn lacks(&self, then: Instant, failure: &str) -> Vec<Lack> {
        let mut lacks: Vec<Lack> = self.refused().since(then).into_iter().map(Lack::Host).collect();
        if let Some(described) = self.described() {
            lacks.extend(files_in(cut(failure), &described));
        }
        lacks.truncate(MAX_LACKS);
        self.tell(&lacks);
        lacks
    }

    /// As [`Self::lacks`], for a source that did not start; that also names variables which its message names.
    pub fn lacks_at_start(&self, then: Instant, failure: &str) -> Vec<Lack> {
        let mut lacks = self.lacks(then, failure);
        let missing = |name: &String| !self.has_variable(name);
        lacks.extend(variables_in(cut(failure)).into_iter().filter(missing).map(Lack::Variable));
        lacks.truncate(MAX_LACKS);
        lacks
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_SEARCHED_BYTES.min(text.len()))).unwrap_or_default()
}

/// Returns the paths that a failure names and that the source cannot use.
fn files_in(failure: &str, described: &Described) -> Vec<Lack> {
    let lower = failure.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let (missing, read_only) = (says(&MISSING), says(&READ_ONLY));
    let (grant, profile) = (&described.grant, &described.profile);
    let within = |path: &Path, all: &[PathBuf]| all.iter().any(|known| path.starts_with(known));
    let mut found = Vec::new();
    for path in paths_in(failure) {
        let own = system::holds(&path) || OWN.iter().any(|folder| path.starts_with(folder));
        // What is granted may lie in a folder that would be the cell's own.
        let readable = within(&path, &grant.read) || profile.read.iter().any(|known| path.starts_with(known));
        let lack = match within(&path, &grant.write) {
            true => continue,
            false if read_only && readable => Lack::Write(path),
            false if missing && !readable && !own => Lack::Read(path),
            false => continue,
        };
        if !found.contains(&lack) {
            found.push(lack);
        }
    }
    found
}

/// Returns the absolute paths in a text.
fn paths_in(text: &str) -> Vec<PathBuf> {
    let ends = |c: char| c.is_whitespace() || "'\"`,;:()[]{}<>|\\".contains(c);
    let words = text
        .split(ends)
        .filter(|word| word.starts_with('/') && (2..=MAX_SHOWN_BYTES).contains(&word.len()) && !word.starts_with("//"));
    words.map(|word| PathBuf::from(word.trim_end_matches(['.', '/']))).collect()
}

/// Returns the names in a text that look like environment variables: capitals, digits and at least one underscore. Each
/// is returned once, in the order of the text.
#[must_use]
pub fn variables_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let word = word.trim_matches('_');
        let capitals = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        let shaped =
            word.len() >= MIN_NAME_BYTES && word.contains('_') && word.starts_with(|c: char| c.is_ascii_uppercase());
        let other = NO_VARIABLES.iter().any(|other| word.starts_with(other));
        if capitals && shaped && !other && !names.iter().any(|known| known == word) {
            names.push(word.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_from_other_words_in_capitals() {
        let text = "Error: BRAVE_API_KEY environment variable is required (code ERR_MODULE_NOT_FOUND, ENOENT, HTTP)\n\
                    set BRAVE_API_KEY or TAVILY_API_KEY=…, not SIGTERM_X";
        assert_eq!(variables_in(text), ["BRAVE_API_KEY", "TAVILY_API_KEY"]);
    }

    #[test]
    fn paths_are_found_between_the_marks_that_programs_put_around_them() {
        let text = "ENOENT: no such file or directory, open '/data/a b/c.md' (/srv/x.db) see https://example.com/y /z.";
        let found: Vec<_> = paths_in(text).into_iter().map(|path| path.display().to_string()).collect();
        assert_eq!(found, ["/data/a", "/srv/x.db", "/z"]);
    }
}
