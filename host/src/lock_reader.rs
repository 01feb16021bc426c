//! The lock file of a running broker. It is kept in memory, and read again after a change, on a thread that may block.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::lockfile::{CachedLockfile, LockError, Lockfile};

/// The lock file of a data folder, for tasks.
#[derive(Debug)]
pub(crate) struct LockReader {
    kept: CachedLockfile,
    /// Locked while a task has the file read, so that many tasks have it read once.
    turn: tokio::sync::Mutex<()>,
}

impl LockReader {
    pub(crate) fn new(data_dir: &Path) -> Arc<Self> {
        Arc::new(Self { kept: CachedLockfile::new(data_dir), turn: tokio::sync::Mutex::default() })
    }

    /// Returns the current lock file. Blocks no thread of the runtime.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Arc<Lockfile>, LockError> {
        if let Some(unchanged) = self.kept.unchanged() {
            return Ok(unchanged);
        }
        let _turn = self.turn.lock().await;
        self.blocking(|reader| reader.kept.read()).await
    }

    /// Returns the current lock file. Blocks the thread if it has changed.
    ///
    /// # Errors
    /// As for [`current`](Self::current).
    pub(crate) fn current_blocking(&self) -> Result<Arc<Lockfile>, LockError> {
        self.kept.read()
    }

    /// Changes the lock file, and keeps other processes from changing it meanwhile.
    ///
    /// # Errors
    /// If it cannot be read or written; then nothing was changed.
    pub(crate) async fn change(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Lockfile) + Send + 'static,
    ) -> Result<(), LockError> {
        self.blocking(|reader| Lockfile::change(reader.kept.data_dir(), change)).await
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, LockError> {
        let reader = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&reader)).await;
        done.unwrap_or_else(|error| {
            Err(LockError::Io { path: Lockfile::path(self.kept.data_dir()), error: io::Error::other(error) })
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::pin::pin;
    use std::sync::mpsc;

    use futures_util::poll;

    use super::*;
    use crate::digest::Digest;

    #[test]
    fn a_lock_file_is_read_and_written_on_no_thread_of_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let reader = LockReader::new(dir.path());
            // The only other thread is busy until it is told.
            let busy = || {
                let (done, wait) = mpsc::channel::<()>();
                drop(tokio::task::spawn_blocking(move || wait.recv()));
                done
            };
            let done = busy();
            assert!(reader.current().await.unwrap().items().is_empty(), "a file that is not there is not read");
            let mut change = pin!(reader.change(|lock| _ = lock.pin_component("one", Digest::of(b""))));
            assert!(poll!(change.as_mut()).is_pending());
            drop(done);
            change.await.unwrap();
            let done = busy();
            let mut read = pin!(reader.current());
            assert!(poll!(read.as_mut()).is_pending());
            drop(done);
            assert_eq!(read.await.unwrap().components().len(), 1);
        });
    }
}
