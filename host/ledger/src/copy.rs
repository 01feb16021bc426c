//! Copies of a ledger: the files that somebody needs to read and verify it elsewhere.

use std::fmt;
use std::path::{Path, PathBuf};

use super::files::names_in;
use super::segment::{self, Segments};
use super::storage::{Storage as _, StorageLimits, StorageLock};
use super::{LedgerError, chain, evidence, legacy, sealed_body, state};

/// The files of a ledger, which nobody removes until this is dropped. Brokers may go on writing.
pub struct LedgerFiles {
    /// The files, by their paths in the data folder, in the order in which they have to be copied: what says how far a
    /// chain had come is read before the chain, so that the copy has at least that much.
    pub paths: Vec<PathBuf>,
    _nothing_is_removed: Option<StorageLock>,
}

impl LedgerFiles {
    /// Lists the files of the ledger in a data folder. The keys of payloads' hashes, and grants, are not among them; the
    /// data keys of sealed bodies are, encrypted as they are.
    ///
    /// # Errors
    /// [`LedgerError::Missing`] if there is no ledger; [`LedgerError::File`] if an earlier version wrote a part of it in
    /// its format, which has no files of its own; otherwise the [`LedgerError`] that occurred.
    pub fn of(data_dir: &Path) -> Result<Self, LedgerError> {
        let storage = Segments::new(data_dir, StorageLimits::default());
        let nothing_is_removed = storage.lock_for_reading()?;
        let has_legacy = state::open_reader(data_dir)
            .and_then(|conn| legacy::is_present(&conn).map_err(|error| state::error(data_dir, &error)));
        let has_legacy = match has_legacy {
            Err(error) if state::is_dispensable(&error) => false,
            has_legacy => has_legacy?,
        };
        if has_legacy {
            let cause =
                "an earlier version wrote a part of it into ledger.sqlite; copy the data folder while no broker runs";
            return Err(LedgerError::file("copy", data_dir, cause));
        }
        let mut paths = Vec::new();
        let none = Path::new("");
        let folders = [PathBuf::from(chain::FOLDER), evidence::folder(none), segment::folder(none)];
        for folder in folders.into_iter().chain([sealed_body::folder(none)]) {
            let mut names = names_in(&data_dir.join(&folder))?;
            names.retain(|name| !name.starts_with('.'));
            names.sort_unstable();
            paths.extend(names.into_iter().map(|name| folder.join(name)));
        }
        if !paths.iter().any(|path| path.starts_with(segment::folder(Path::new("")))) {
            return Err(LedgerError::Missing(data_dir.to_owned()));
        }
        Ok(Self { paths, _nothing_is_removed: nothing_is_removed })
    }
}

impl fmt::Debug for LedgerFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerFiles").field("paths", &self.paths).finish_non_exhaustive()
    }
}
