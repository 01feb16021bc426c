//! Opens a ZIP archive that somebody else made.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;

use memchr::memmem;

/// The signature before each entry of an archive's directory.
const ENTRY: &[u8; 4] = b"PK\x01\x02";

/// An error that says why an archive is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It is larger than the limit.
    #[error("it has {size} bytes; at most {limit} are read")]
    Size {
        /// The size of the archive, in bytes.
        size: u64,
        /// The largest size, in bytes.
        limit: u64,
    },
    /// It has more entries than the limit.
    #[error("it has more than {0} entries")]
    Entries(usize),
    /// It is not an archive, for this reason.
    #[error("it is not a ZIP archive: {0}")]
    Format(String),
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<zip::result::ZipError> for ArchiveError {
    fn from(error: zip::result::ZipError) -> Self {
        Self::Format(error.to_string())
    }
}

/// Opens an archive of at most `max_bytes` and `max_entries`. The entries are counted before any memory is used for
/// them; bytes of a file that look like an entry count, too.
///
/// # Errors
/// [`ArchiveError`]
pub fn open_archive(
    path: &Path,
    max_bytes: u64,
    max_entries: usize,
) -> Result<zip::ZipArchive<BufReader<File>>, ArchiveError> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > max_bytes {
        return Err(ArchiveError::Size { size, limit: max_bytes });
    }
    let overlap = ENTRY.len() - 1;
    let mut window = Vec::new();
    let mut entries = 0;
    while (&mut file).take(1 << 20).read_to_end(&mut window)? > 0 {
        entries += memmem::find_iter(&window, ENTRY).count();
        if entries > max_entries {
            return Err(ArchiveError::Entries(max_entries));
        }
        // A signature may lie across the border.
        window.drain(..window.len().saturating_sub(overlap));
    }
    file.rewind()?;
    Ok(zip::ZipArchive::new(BufReader::new(file))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_entries_of_an_archive_are_counted_before_they_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut zip = zip::ZipWriter::new(file.reopen().unwrap());
        for at in 0..100 {
            zip.start_file(format!("{at}.json"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&[at; 20_000]).unwrap();
        }
        zip.finish().unwrap();
        let size = file.path().metadata().unwrap().len();
        assert_eq!(open_archive(file.path(), size, 100).unwrap().len(), 100);
        assert!(matches!(open_archive(file.path(), size, 99), Err(ArchiveError::Entries(99))));
        assert!(matches!(open_archive(file.path(), size - 1, 100), Err(ArchiveError::Size { .. })));
        // Entries that cross the borders of the read blocks are counted.
        let mut wide = vec![0; (1 << 20) - 2];
        wide.extend(ENTRY);
        std::fs::write(file.path(), &wide).unwrap();
        assert!(matches!(open_archive(file.path(), 1 << 30, 0), Err(ArchiveError::Entries(0))));
    }
}
