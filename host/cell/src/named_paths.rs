//! The paths that a source's command names, as a person wrote them: absolute ones, and those relative to its `cwd`.

use std::path::{Component, Path, PathBuf};

/// The paths that a command names.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedPaths {
    absolute: Vec<PathBuf>,
    relative: Vec<RelativePath>,
}

/// A path that a command names relative to the source's `cwd`.
#[derive(Debug, Clone)]
struct RelativePath {
    /// The word without a leading `./`, as messages repeat it.
    word: String,
    /// The file or folder outside the cell, under its real name if it is there.
    path: PathBuf,
}

impl NamedPaths {
    /// Returns the paths that a command names which starts in `cwd`. Words that begin with `./` or `../` count always, so
    /// that nothing follows from them about what is there. Any other relative word may be one like `stdio`, or the name of
    /// a package: it counts if it leads to something in `cwd`. Reads the file system.
    pub(crate) fn of(command: &[String], cwd: Option<&Path>) -> Self {
        let words = command.iter().skip(1);
        let values = words.map(|word| word.rsplit_once('=').map_or(word.as_str(), |(_, value)| value));
        let mut named = Self::default();
        for value in values {
            if value.starts_with('/') {
                named.absolute.push(PathBuf::from(value));
                continue;
            }
            let word = value.trim_start_matches("./").trim_end_matches('/');
            let is_here = word.is_empty() || word.starts_with('-') || word == ".";
            let Some(cwd) = cwd.filter(|_| !is_here) else { continue };
            let is_path = value.starts_with("./") || value.starts_with("../");
            let path = cwd.join(word).canonicalize().ok().or_else(|| is_path.then(|| without_dots(&cwd.join(word))));
            named.relative.extend(path.map(|path| RelativePath { word: word.to_owned(), path }));
        }
        named
    }

    /// Returns all of them, absolute.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        self.absolute.iter().chain(self.relative.iter().map(|named| &named.path)).map(PathBuf::as_path)
    }

    /// Returns what a text names by the relative word of the command. A source that does not start in its `cwd` looks
    /// for the word in its private home, and its message has the path there, or the word alone.
    pub(crate) fn named_relatively_in(&self, text: &str) -> Vec<PathBuf> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let is_in = |word: &str| {
            text.match_indices(word).any(|(at, _)| {
                let (before, after) = text.split_at(at);
                let after = after.get(word.len()..).unwrap_or_default();
                !before.ends_with(|c| is_part(c) || c == '.') && !after.starts_with(is_part)
            })
        };
        let leads_up = |word: &str| Path::new(word).components().any(|part| part == Component::ParentDir);
        // A program resolves `..` before it names the path.
        let said = |named: &&RelativePath| {
            let name = named.path.file_name().map(|name| name.to_string_lossy());
            if leads_up(&named.word) { name.is_some_and(|name| is_in(&name)) } else { is_in(&named.word) }
        };
        self.relative.iter().filter(said).map(|named| named.path.clone()).collect()
    }
}

/// Returns a path that is not there without `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_relative_word_is_what_it_leads_to_in_the_working_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["work/docs", "work/notes.d", "beside"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        let command = [
            "npx",
            "-y",
            "@scope/docs",
            "./docs",
            "--notes=notes.d/",
            "stdio",
            ".",
            "/abs",
            "../beside",
            "./absent/x",
            "../gone",
        ];
        let command = command.map(str::to_owned);
        let named = NamedPaths::of(&command, Some(&root.join("work")));
        let expected = ["work/docs", "work/notes.d", "beside", "work/absent/x", "gone"].map(|path| root.join(path));
        let expected: Vec<&Path> =
            [Path::new("/abs")].into_iter().chain(expected.iter().map(PathBuf::as_path)).collect();
        assert_eq!(named.all().collect::<Vec<_>>(), expected);
        for (text, found) in [
            ("Cannot access directory /home/me/docs, skipping", &["work/docs"][..]),
            ("cannot access directory docs", &["work/docs"]),
            ("/home/me/absent/x is not there", &["work/absent/x"]),
            ("ENOENT: './notes.d' and '/home/beside/x'", &["work/notes.d", "beside"]),
            ("my-docs, docsx, .docs, /a/docs_old and the docstring", &[]),
        ] {
            let found: Vec<PathBuf> = found.iter().map(|path| root.join(path)).collect();
            assert_eq!(named.named_relatively_in(text), found, "{text}");
        }
        assert_eq!(NamedPaths::of(&command, None).all().collect::<Vec<_>>(), [Path::new("/abs")]);
    }
}
