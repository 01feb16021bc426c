//! Known vulnerabilities and malicious packages, from the records of OSV, in a file on this machine.
//!
//! [`OsvDatabase::build`] reads the data of the OSV project, or a copy of it, and writes one indexed file; [`fetch`]
//! downloads it first. [`OsvDatabase::check`] looks up installed packages without a network. All input is treated as
//! hostile: its size, number and depth are limited.

mod affected;
mod archive;
mod build;
mod check;
mod database;
mod fetch;

use std::path::{Path, PathBuf};

pub use affected::Ecosystem;
pub use archive::{ArchiveError, open_archive};
pub use check::{OsvCheck, OsvEdition, OsvMatch};
pub use database::OsvDatabase;
pub use fetch::{DEFAULT_ADDRESS, fetch};
use portcullis_core::escape::shell_word;

/// The name of the database in the user's state folder.
const FILE: &str = "osv.sqlite";

/// Returns the file of the user's database in a state folder. It need not exist.
#[must_use]
pub fn file_in(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// An error that says why a database cannot be fetched, built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OsvError {
    /// The file or folder of the records cannot be read.
    #[error("{path}: {why}")]
    Input {
        /// The file, folder or address.
        path: String,
        /// The reason.
        why: String,
    },
    /// No record is about a package of npm or of Python.
    #[error(
        "{0} holds no record of OSV about npm or PyPI: name a folder of its JSON records, or a ZIP archive of them"
    )]
    Empty(String),
    /// The database is not what this version wrote.
    #[error(
        "the database of known vulnerabilities {path} cannot be used: {why}; run `portcullis evaluate --update-osv`, or remove it with `rm {word}`",
        word = shell_word(.path)
    )]
    Damaged {
        /// The database.
        path: String,
        /// The reason.
        why: String,
    },
    /// The database, or its folder, is not private to this user.
    #[error(transparent)]
    Private(#[from] portcullis_core::private::NotPrivate),
}

impl OsvError {
    fn input(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Input { path: path.display().to_string(), why: why.to_string() }
    }

    fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Damaged { path: path.display().to_string(), why: why.to_string() }
    }
}
