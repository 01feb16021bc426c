//! Copies of a ledger: the files that somebody needs to read and verify it elsewhere.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use portcullis_core::private::regular_file::{self, Symlinks};

use super::files::names_in;
use super::segment::{self, Segments};
use super::storage::{Storage as _, StorageLimits, StorageLock};
use super::{LedgerError, chain, evidence, legacy, sealed_body, state};

/// The files of a ledger, which nobody removes until this is dropped. Brokers may continue to write.
pub struct LedgerFiles {
    data_dir: PathBuf,
    _nothing_is_removed: Option<StorageLock>,
}

impl LedgerFiles {
    /// Finds the ledger in a data folder, and keeps its files from being removed. The keys of payloads' hashes, and
    /// grants, are not among them; the data keys of sealed bodies are, encrypted as they are.
    ///
    /// # Errors
    /// [`LedgerError::Missing`] if there is no ledger; [`LedgerError::File`] if an earlier version wrote a part of it
    /// in its format, which has no separate files; otherwise the [`LedgerError`] that occurred.
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
        if names_in(&segment::folder(data_dir))?.iter().all(|name| name.starts_with('.')) {
            return Err(LedgerError::Missing(data_dir.to_owned()));
        }
        Ok(Self { data_dir: data_dir.to_owned(), _nothing_is_removed: nothing_is_removed })
    }

    /// Calls `copy` with the path of each file in the data folder and its content, and returns their number. The record
    /// of a chain's length is copied before the files of chains are listed, so that the copy has at least that much.
    ///
    /// # Errors
    /// The error of `copy`, or the [`LedgerError`] that occurred.
    pub fn copy_each<E: From<LedgerError>>(
        &self,
        mut copy: impl FnMut(&Path, &mut File) -> Result<(), E>,
    ) -> Result<usize, E> {
        let none = Path::new("");
        let folders = [PathBuf::from(chain::FOLDER), evidence::folder(none), segment::folder(none)];
        let mut count = 0;
        for folder in folders.into_iter().chain([sealed_body::folder(none)]) {
            let mut names = names_in(&self.data_dir.join(&folder))?;
            names.retain(|name| !name.starts_with('.'));
            names.sort_unstable();
            for name in names.iter().map(|name| folder.join(name)) {
                let path = self.data_dir.join(&name);
                let opened = regular_file::open(&path, Symlinks::Refuse);
                // Without a file, a chain ended meanwhile, and its lock file has another name.
                let failed = |error| LedgerError::file("read", &path, io::Error::from(error));
                if let Some(mut file) = opened.map_err(failed)? {
                    copy(&name, &mut file)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

impl fmt::Debug for LedgerFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerFiles").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}
