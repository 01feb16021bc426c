//! The facts about a source by which a proposal judges its attempts.

use std::path::{Path, PathBuf};

/// The facts about a source besides its attempts.
#[derive(Debug, Clone, Default)]
pub struct SourceFacts {
    /// Existing files and folders that the source's command and variables name: the things that a person asked it to
    /// work on.
    pub named: Vec<PathBuf>,
    /// Files that they name and that do not exist, in folders that do. Such a name asks for the file alone, whatever
    /// else its folder holds.
    pub missing: Vec<PathBuf>,
    /// The paths that the cell opens already, besides the system: grants, and what the program needs.
    pub inside: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
}

impl SourceFacts {
    /// Adds a path that the source's command or variables name.
    pub fn name(&mut self, path: &Path) {
        if let Ok(path) = path.canonicalize() {
            self.named.push(path);
        } else if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            self.missing.extend(parent.canonicalize().ok().map(|parent| parent.join(name)));
        }
    }
}
