//! The paths that a source's command names, as a person wrote them: absolute ones, and those relative to its `cwd`.

use std::path::{Component, Path, PathBuf};

use super::plan::HOME;

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
    /// The file or folder outside the cell.
    path: PathBuf,
    /// True if the word need not be a path: it may be one like `stdio`.
    is_bare: bool,
}

impl NamedPaths {
    /// Returns the paths that a command names which starts in `cwd`. Every relative word counts, whether it leads to
    /// something or not, so that the result reveals nothing about the files there.
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
            // Switches, the folder itself, scoped packages and addresses.
            let is_other = word.is_empty() || word == "." || word.starts_with(['-', '@']) || word.contains("://");
            let Some(cwd) = cwd.filter(|_| !is_other) else { continue };
            let path = without_dots(&cwd.join(word));
            named.relative.push(RelativePath { word: word.to_owned(), path, is_bare: !value.contains('/') });
        }
        named
    }

    /// Returns all of them, absolute.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        self.absolute.iter().chain(self.relative.iter().map(|named| &named.path)).map(PathBuf::as_path)
    }

    /// Returns what a text names by a relative word of the command. A source that does not start in its `cwd` looks for
    /// the word in its private home, and its message has the path there, or, for a word that must be a path, only the
    /// word.
    pub(crate) fn named_relatively_in(&self, text: &str) -> Vec<PathBuf> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        let is_in = |word: &str| {
            text.match_indices(word).any(|(at, _)| {
                let (before, after) = text.split_at(at);
                let after = after.get(word.len()..).unwrap_or_default();
                let goes_on = after.trim_start_matches('.').starts_with(is_part);
                !before.ends_with(|c| is_part(c) || c == '.') && !goes_on
            })
        };
        let leads_up = |word: &str| Path::new(word).components().any(|part| part == Component::ParentDir);
        let said = |named: &&RelativePath| {
            if named.is_bare {
                return is_in(&format!("{HOME}/{}", named.word));
            }
            // A program resolves `..` before it names the path.
            let name = named.path.file_name().map(|name| name.to_string_lossy());
            if leads_up(&named.word) { name.is_some_and(|name| is_in(&name)) } else { is_in(&named.word) }
        };
        self.relative.iter().filter(said).map(|named| named.path.clone()).collect()
    }
}

/// Returns a path without `.` and `..`.
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
            "https://docs.example/x",
        ];
        let command = command.map(str::to_owned);
        // There is no such folder: files outside make no difference.
        let named = NamedPaths::of(&command, Some(Path::new("/no/work")));
        let expected =
            ["/abs", "/no/work/docs", "/no/work/notes.d", "/no/work/stdio", "/no/beside", "/no/work/absent/x"];
        assert_eq!(named.all().collect::<Vec<_>>(), expected.map(Path::new));
        for (text, found) in [
            ("Cannot access directory /home/source/docs, skipping", &["work/docs"][..]),
            ("cannot access directory docs.", &["work/docs"]),
            ("/home/source/absent/x is not there", &["work/absent/x"]),
            ("ENOENT: './notes.d' and '/home/beside/x'", &["work/notes.d", "beside"]),
            ("cannot open /home/source/stdio", &["work/stdio"]),
            ("stdio failed in /home/source/lib/stdio and /home/source/stdio.js", &[]),
            ("my-docs, docsx, .docs, docs.txt, /a/docs_old and the docstring", &[]),
        ] {
            let found: Vec<PathBuf> = found.iter().map(|path| Path::new("/no").join(path)).collect();
            assert_eq!(named.named_relatively_in(text), found, "{text}");
        }
        assert_eq!(NamedPaths::of(&command, None).all().collect::<Vec<_>>(), [Path::new("/abs")]);
    }
}
