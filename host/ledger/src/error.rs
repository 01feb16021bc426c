//! The errors of the ledger.

use std::fmt;
use std::path::{Path, PathBuf};

use super::record::MAX_RECORD_BYTES;
use super::work::QUEUE;

/// The free space in bytes below which a ledger cannot be opened: the size that SQLite maps next to a database with a
/// write-ahead log.
const LEAST_SPACE: u64 = 32 * 1024;

/// An error of the ledger: why something could not be recorded or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A file or folder next to the database cannot be used.
    #[error("cannot {act} {path:?}: {cause}")]
    File {
        /// The action that was attempted, such as `create`, `read` or `lock`.
        act: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        cause: String,
    },
    /// Other users may write to the data folder, so they could replace the ledger.
    #[error("data folder {path:?} can be written by others (mode {mode:o}): run `chmod 700` on it or name another")]
    OpenFolder {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// There is no ledger to read.
    #[error("no ledger at {0:?}: no broker has run on this data folder yet")]
    Missing(PathBuf),
    /// The ledger was written by a later version.
    #[error(
        "ledger {path:?} has format {found} and this version knows {known}: use a newer portcullis or another data folder"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The format that this version knows.
        known: i64,
    },
    /// The file is the database of another program.
    #[error("{0:?} is a database, but not a ledger: move it away or use another data folder")]
    Foreign(PathBuf),
    /// The disk is full.
    #[error("no space left for ledger {0:?}: calls stop until there is some")]
    Full(PathBuf),
    /// The disk is full, so that the ledger cannot be opened.
    #[error(
        "the ledger in {folder:?} cannot be opened, as its disk is full ({free} bytes free): make room, or use another `data-dir` \
         ({cause})"
    )]
    NoSpace {
        /// The data folder.
        folder: PathBuf,
        /// The bytes that are free.
        free: u64,
        /// The error of the system or of the database.
        cause: String,
    },
    /// The file that the broker writes is no longer in its place.
    #[error(
        "ledger {0:?} is not the file that this broker writes: it was moved, deleted or replaced, and calls stop; put it back, \
         or end this broker and start it again (`portcullis audit verify` then names what is missing)"
    )]
    Moved(PathBuf),
    /// The file is shorter than it was.
    #[error(
        "ledger {path:?} was cut while this broker wrote it ({cause}), and calls stop: end this broker, restore the file from a \
         copy or move it away, and start the broker again (`portcullis audit verify` names what is missing)"
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// The part that is missing.
        cause: String,
    },
    /// Another program has locked the database.
    #[error("ledger {0:?} is locked by another program: end whatever has it open")]
    Busy(PathBuf),
    /// The file is not a database, or contradicts itself.
    #[error("ledger {path:?} is damaged ({cause}): run `portcullis audit verify`")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, and its place.
        cause: String,
    },
    /// The index for searches cannot be used.
    #[error("index {path:?} of the ledger failed: {cause}; it holds no record, so it can be deleted")]
    Index {
        /// The file.
        path: PathBuf,
        /// The database's error.
        cause: String,
    },
    /// Any other failure of the database.
    #[error("ledger {path:?} failed: {cause}")]
    Store {
        /// The file.
        path: PathBuf,
        /// The database's error.
        cause: String,
    },
    /// The record is larger than 4 MiB.
    #[error("record of {size} bytes is larger than the limit of {MAX_RECORD_BYTES} bytes")]
    TooLarge {
        /// The size of the record, in bytes.
        size: usize,
    },
    /// A body must be sealed, but no recipient is configured.
    #[error("there is no recipient to seal bodies for: set `recipients` in `[ledger]`")]
    NoRecipient,
    /// The body of the record has no canonical form.
    #[error("record cannot be written: {0}")]
    Body(String),
    /// The grant is used up, expired, or was given for something else.
    #[error("grant {0:?} is spent, has expired, or was given for something else: ask again")]
    GrantSpent(String),
    /// More records are waiting than the queue holds.
    #[error("more than {QUEUE} records wait for the disk")]
    Overloaded,
    /// The ledger was closed with [`Ledger::close`](crate::Ledger::close).
    #[error("the ledger is closed")]
    Closed,
}

impl LedgerError {
    /// Returns a general description of the error, for agents and others who may not know where the ledger is.
    #[doc(hidden)]
    #[must_use]
    pub fn in_general(&self) -> &'static str {
        match self {
            Self::Full(_) | Self::NoSpace { .. } => "there is no space left for the ledger",
            Self::Busy(_) => "the ledger is locked by another program",
            Self::Moved(_) => "the ledger was moved, deleted or replaced",
            Self::Cut { .. } | Self::Damaged { .. } | Self::Foreign(_) => "the ledger is damaged",
            _ => "the ledger cannot be written",
        }
    }

    /// Returns the error of a ledger that was being opened. A database on a full disk may report any failure of the disk.
    pub(super) fn at_open(self, data_dir: &Path) -> Self {
        if !matches!(self, Self::File { .. } | Self::Full(_) | Self::Store { .. }) {
            return self;
        }
        let Ok(space) = rustix::fs::statvfs(data_dir) else { return self };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free >= LEAST_SPACE {
            return self;
        }
        Self::NoSpace { folder: data_dir.to_owned(), free, cause: self.to_string() }
    }

    pub(super) fn file(act: &'static str, path: &Path, cause: impl fmt::Display) -> Self {
        Self::File { act, path: path.to_owned(), cause: cause.to_string() }
    }
}
