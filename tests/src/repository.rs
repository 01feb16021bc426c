//! Access to the files of the repository.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns all Rust files of the workspace.
pub(crate) fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["host", "plugins", "tests", "examples"] {
        collect(&root().join(folder), "rs", &mut files);
    }
    files
}

/// Returns all documents for people: those at the top of the repository, and everything under `docs`.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(&root().join("docs"), "md", &mut files);
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    files.extend(top.filter(|path| path.is_file() && path.extension().is_some_and(|found| found == "md")));
    files.sort();
    files
}

fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    /// Folders that hold what was built or installed.
    const MADE: [&str; 3] = ["target", "node_modules", "book"];
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            if !MADE.iter().any(|name| entry.file_name() == *name) {
                collect(&path, extension, files);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}
