//! The store of downloads, by digest: a file for each manifest and each component.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use portcullis_core::digest::Digest;
use portcullis_core::limits;
use portcullis_core::private::regular_file::{self, Symlinks};

use super::OciError;

/// The store of downloads, by digest. The default keeps nothing.
#[derive(Debug, Clone, Default)]
pub struct ComponentStore {
    folder: Option<PathBuf>,
}

impl ComponentStore {
    /// Creates the store in `components` of a data folder. It creates no files or folders yet.
    pub fn new(data_dir: &Path) -> Self {
        Self { folder: Some(data_dir.join("components")) }
    }

    /// Returns the bytes with this digest, or `None` if they are missing or altered; they are then downloaded again.
    pub(super) async fn get(&self, digest: Digest) -> Result<Option<Vec<u8>>, OciError> {
        self.work(digest, move |path| match read(&path) {
            Ok(bytes) if Digest::of(&bytes) == digest => Ok(Some(bytes)),
            Ok(_) => {
                tracing::warn!(file = %path.display(), "a fetched component was altered; fetching it again");
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err((path, error)),
        })
        .await
        .map(Option::flatten)
    }

    /// Atomically stores bytes whose digest was checked.
    pub(super) async fn put(&self, digest: Digest, bytes: &[u8]) -> Result<(), OciError> {
        let bytes = bytes.to_vec();
        self.work(digest, move |path| write(&path, &bytes).map_err(|error| (path, error))).await.map(drop)
    }

    /// Returns the signatures that are kept of the component whose manifest has this digest. They must be checked
    /// again.
    pub(super) async fn signatures(&self, digest: Digest) -> Result<Option<Vec<u8>>, OciError> {
        self.work(digest, |path| match read(&signatures_of(&path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err((signatures_of(&path), error)),
        })
        .await
        .map(Option::flatten)
    }

    /// Keeps the signatures of the component whose manifest has this digest.
    pub(super) async fn put_signatures(&self, digest: Digest, bytes: Vec<u8>) -> Result<(), OciError> {
        let write = move |path: PathBuf| write(&signatures_of(&path), &bytes).map_err(|error| (path, error));
        self.work(digest, write).await.map(drop)
    }

    /// Runs file operations on a blocking thread; returns `None` if the store has no folder.
    async fn work<T: Send + 'static>(
        &self,
        digest: Digest,
        work: impl FnOnce(PathBuf) -> Result<T, (PathBuf, io::Error)> + Send + 'static,
    ) -> Result<Option<T>, OciError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let path = folder.join(digest.to_string().replace(':', "-"));
        let failed = path.clone();
        let done = tokio::task::spawn_blocking(move || work(path)).await;
        let done = done.unwrap_or_else(|error| Err((failed, io::Error::other(error))));
        done.map(Some).map_err(|(path, error)| OciError::Io { path, error })
    }
}

/// Returns the file of the signatures of a manifest.
fn signatures_of(manifest: &Path) -> PathBuf {
    manifest.with_extension("sig")
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A file with more bytes than the largest component was altered.
    regular_file::read(path, Symlinks::Refuse, limits::COMPONENT_BYTES)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}
