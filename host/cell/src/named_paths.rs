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
    /// The file or folder outside the cell, under its real name.
    path: PathBuf,
}

impl NamedPaths {
    /// Returns the paths that a command names which starts in `cwd`. Of the relative words, those count that lead to
    /// something there: any other may be a word like `stdio`, or the name of a package. Reads the file system.
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
            let found = cwd.filter(|_| !is_here).and_then(|cwd| cwd.join(word).canonicalize().ok());
            named.relative.extend(found.map(|path| RelativePath { word: word.to_owned(), path }));
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
        let command = ["npx", "-y", "@scope/docs", "./docs", "--notes=notes.d/", "stdio", ".", "/abs", "../beside"];
        let command = command.map(str::to_owned);
        let named = NamedPaths::of(&command, Some(&root.join("work")));
        let expected = [Path::new("/abs"), &root.join("work/docs"), &root.join("work/notes.d"), &root.join("beside")];
        assert_eq!(named.all().collect::<Vec<_>>(), expected);
        for (text, found) in [
            ("Cannot access directory /home/me/docs, skipping", &["work/docs"][..]),
            ("cannot access directory docs", &["work/docs"]),
            ("ENOENT: './notes.d' and '/home/beside/x'", &["work/notes.d", "beside"]),
            ("my-docs, docsx, .docs, /a/docs_old and the docstring", &[]),
        ] {
            let found: Vec<PathBuf> = found.iter().map(|path| root.join(path)).collect();
            assert_eq!(named.named_relatively_in(text), found, "{text}");
        }
        assert_eq!(NamedPaths::of(&command, None).all().collect::<Vec<_>>(), [Path::new("/abs")]);
    }
}
