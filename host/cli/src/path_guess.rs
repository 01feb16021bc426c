//! Guesses of the files that an unknown server needs, from the paths that its client gave it. A person reviews each.

use std::path::{Path, PathBuf};

use portcullis::cell::is_credential;
use portcullis::config::{Endpoint, SourceConfig};
use portcullis_learn::{CellKey, CellLine};

/// The beginnings of words in the names of options whose paths are written, as in `--output-dir` and `--dbpath`.
const WRITTEN: [&str; 10] = ["out", "write", "dest", "save", "log", "db", "data", "storage", "cache", "memory"];

/// The paths of a server's command, sorted into those that its cell may be given and those that a person must decide.
#[derive(Default)]
pub(crate) struct PathGuess {
    /// The lines of the cell, each with its reason as evidence.
    pub(crate) lines: Vec<CellLine>,
    /// Paths that are not proposed, each with the reason.
    pub(crate) refused: Vec<String>,
}

impl PathGuess {
    /// Guesses from the arguments and the working directory. The broker's own files are given to no source.
    pub(crate) fn of(source: &SourceConfig, own: &[PathBuf]) -> Self {
        let mut guess = Self::default();
        let Endpoint::Command { argv, cwd, .. } = &source.endpoint else { return guess };
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        if let Some(cwd) = cwd.as_deref() {
            guess.add(cwd, CellKey::Read, "it is the working directory in the client", home.as_deref(), own);
        }
        let mut option = "";
        for word in argv.iter().skip(1) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if word.starts_with('-') => (name, value),
                _ => (option, word.as_str()),
            };
            option = if word.starts_with('-') && !word.contains('=') { word } else { "" };
            let named = Path::new(value).is_absolute() || value.starts_with('.');
            let path = cwd.as_deref().unwrap_or(Path::new("/")).join(value);
            if !named || (cwd.is_none() && !Path::new(value).is_absolute()) {
                continue;
            }
            let lower = name.to_ascii_lowercase();
            let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
            let is_written = words.any(|word| WRITTEN.iter().any(|beginning| word.starts_with(beginning)));
            let key = if is_written { CellKey::Write } else { CellKey::Read };
            guess.add(&path, key, "it is an argument", home.as_deref(), own);
        }
        guess
    }

    fn add(&mut self, path: &Path, key: CellKey, why: &str, home: Option<&Path>, own: &[PathBuf]) {
        let Ok(mut found) = path.canonicalize() else { return };
        if key == CellKey::Write && found.is_file() {
            // A database creates files next to itself.
            found = found.parent().map_or_else(|| found.clone(), Path::to_owned);
        }
        let Some(text) = found.to_str().map(str::to_owned) else { return };
        let is_too_wide = found.parent().is_none() || home.is_some_and(|home| home.starts_with(&found));
        let line = CellLine { key, value: text, evidence: vec![why.to_owned()], remark: None };
        let refused = if is_too_wide {
            "holds much more than a server works on"
        } else if is_credential(&found, home) || line.opens_any(own) {
            "holds credentials or the broker's own files"
        } else {
            self.keep(line);
            return;
        };
        self.refused.push(format!("{} is not proposed, since it {refused}", line.value));
    }

    /// Adds a line unless another opens it already, and takes out those that it contains.
    fn keep(&mut self, line: CellLine) {
        let within = |inner: &CellLine, outer: &CellLine| {
            Path::new(&inner.value).starts_with(&outer.value) && (outer.key == CellKey::Write || inner.key == outer.key)
        };
        if !self.lines.iter().any(|known| within(&line, known)) {
            self.lines.retain(|known| !within(known, &line));
            self.lines.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis::config::Config;

    use super::*;

    #[test]
    fn a_path_is_written_only_if_a_word_of_its_option_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let path = folder.path().canonicalize().unwrap().join(name);
            std::fs::create_dir(&path).unwrap();
            path.display().to_string()
        };
        let (catalog, layout, output, db) = (dir("a"), dir("b"), dir("c"), dir("d"));
        let text = format!(
            "[sources.s]\ncommand = [\"x\", \"--catalog\", \"{catalog}\", \"--layout={layout}\", \"--output-dir\", \
             \"{output}\", \"--dbpath={db}\"]\n"
        );
        let config = Config::parse(&text, &folder.path().join("portcullis.toml")).unwrap();
        let guess = PathGuess::of(config.sources.values().next().unwrap(), &[]);
        let lines: Vec<_> = guess.lines.into_iter().map(|line| (line.key, line.value)).collect();
        let read = |path| (CellKey::Read, path);
        let write = |path| (CellKey::Write, path);
        assert_eq!(lines, [read(catalog), read(layout), write(output), write(db)]);
    }
}
