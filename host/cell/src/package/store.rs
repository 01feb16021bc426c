//! The store of the packages of one source: a folder for each dependency tree, either complete or absent. A tree is
//! removed once it is neither current nor in use. Files that an interrupted installation has fetched are kept for the
//! next one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::digest::Digest;
use portcullis_core::name::SourceName;
use portcullis_core::private;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// The prefix of folders that are incomplete or about to be removed.
const STAGE: &str = "stage-";

/// The name of the folder in which an installer keeps fetched files.
const CACHE: &str = "cache";

/// The folder `packages` of one source. No other source reads what this one installs. A tree may have hundreds of
/// thousands of files, so none is removed on a thread of the runtime.
#[derive(Debug, Clone)]
pub(super) struct PackageStore {
    folder: PathBuf,
}

/// The right to install for a source, held by one broker of all that share the data folder, until all clones of this are
/// dropped.
#[derive(Debug, Clone)]
pub(super) struct InstallLock {
    _guard: Arc<File>,
}

/// A folder for one step, which is removed with this value unless it is kept.
#[derive(Debug)]
pub(super) struct Stage(Option<TempDir>);

impl Stage {
    pub(super) fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Removes the folder, and waits until it is gone.
    pub(super) async fn remove(mut self) {
        let folder = self.0.take();
        // A folder that cannot be removed is left to the next turn.
        let _ = spawn_blocking(move || drop(folder)).await;
    }
}

/// Removes the folder of a step that was given up.
impl Drop for Stage {
    fn drop(&mut self) {
        if let (Some(folder), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(folder));
        }
    }
}

impl PackageStore {
    /// Returns the store of a source. Makes no folder yet.
    pub(super) fn new(data_dir: &Path, source: &SourceName) -> Self {
        Self { folder: data_dir.join("sources").join(source.as_str()).join("packages") }
    }

    /// Waits until nothing else installs for this source, then removes what an interrupted installation left. Calls
    /// `waits` before a wait.
    pub(super) async fn install_lock(&self, waits: impl FnOnce() + Send + 'static) -> io::Result<InstallLock> {
        super::super::make_private_folder(&self.folder).map_err(io::Error::other)?;
        let (store, path) = (self.clone(), self.folder.join("guard"));
        let wait = move || {
            let guard = private::lock_file(&path)?;
            if flock(&guard, FlockOperation::NonBlockingLockExclusive).is_err() {
                waits();
                flock(&guard, FlockOperation::LockExclusive)?;
            }
            for unfinished in store.folders().filter(|path| is_stage(path)) {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(unfinished);
            }
            Ok::<_, io::Error>(InstallLock { _guard: Arc::new(guard) })
        };
        spawn_blocking(wait).await.map_err(io::Error::other).flatten()
    }

    /// Returns the folder in which an installer keeps fetched files until the package is installed. An interrupted
    /// installation is continued from it. No other source uses it, and no second installation of this one.
    pub(super) fn cache(&self, _lock: &InstallLock) -> io::Result<PathBuf> {
        let cache = self.folder.join(CACHE);
        super::super::make_private_folder(&cache).map_err(io::Error::other)?;
        Ok(cache)
    }

    /// Removes what an installer has fetched, once the package is installed.
    pub(super) async fn discard_cache(&self, lock: &InstallLock) {
        self.removing(lock, |store| {
            let cache = store.folder.join(CACHE);
            if cache.is_dir() {
                store.remove_tree(&cache);
            }
        })
        .await;
    }

    /// Makes a folder for one step.
    pub(super) fn stage(&self) -> io::Result<Stage> {
        self.temporary().map(|folder| Stage(Some(folder)))
    }

    fn temporary(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix(STAGE).tempdir_in(&self.folder)
    }

    /// Moves the folder of a finished step to the place of its tree.
    pub(super) fn keep(&self, mut stage: Stage, tree: &Digest) -> io::Result<()> {
        stage.0.take().map_or(Ok(()), |folder| fs::rename(folder.keep(), self.place(tree)))
    }

    /// Returns the folder that a tree is installed in.
    pub(super) fn place(&self, tree: &Digest) -> PathBuf {
        // The whole digest: the content of this path counts as that tree.
        self.folder.join(tree.to_string().trim_start_matches("sha256:"))
    }

    /// Keeps an installed tree in place while the returned file is open. Call this only while holding a
    /// [`InstallLock`].
    pub(super) fn hold(&self, tree: &Digest) -> io::Result<File> {
        let folder = File::open(self.place(tree))?;
        flock(&folder, FlockOperation::LockShared)?;
        Ok(folder)
    }

    /// Removes all trees except `kept` and those that are held.
    pub(super) async fn remove_unused(&self, kept: &Digest, lock: &InstallLock) {
        let kept = self.place(kept);
        self.removing(lock, move |store| {
            for old in store.folders().filter(|path| *path != kept && is_tree(path) && is_free(path)) {
                store.remove_tree(&old);
            }
        })
        .await;
    }

    /// Removes something. Nothing else installs before it is removed, even if the caller goes away.
    async fn removing(&self, lock: &InstallLock, remove: impl FnOnce(&Self) + Send + 'static) {
        let (store, lock) = (self.clone(), lock.clone());
        let removed = spawn_blocking(move || {
            let _lock = lock;
            remove(&store);
        });
        if let Err(error) = removed.await {
            tracing::debug!(%error, "an old folder of packages cannot be removed");
        }
    }

    /// Removes a folder. It is renamed first, so that a half-removed one is never taken for a complete one; the next
    /// turn removes the rest.
    fn remove_tree(&self, folder: &Path) {
        let moved = self.temporary().and_then(|trash| fs::rename(folder, trash.path()));
        if let Err(error) = moved {
            tracing::debug!(folder = %folder.display(), %error, "an old folder of packages cannot be removed");
        }
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
    }
}

/// Reports whether no process holds the tree.
fn is_free(tree: &Path) -> bool {
    File::open(tree).is_ok_and(|folder| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn is_tree(path: &Path) -> bool {
    !is_stage(path) && !path.ends_with(CACHE)
}

fn is_stage(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(STAGE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};

    use super::*;

    fn waits(future: Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn a_guard_that_is_a_link_empties_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path(), &"files".parse().unwrap());
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir_all(&store.folder).unwrap();
        std::os::unix::fs::symlink(&victim, store.folder.join("guard")).unwrap();
        let refused = store.install_lock(|| {}).await.unwrap_err().to_string();
        assert!(refused.contains("symbolic link") && refused.contains("guard'`"), "{refused}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[tokio::test]
    async fn old_trees_go_once_nobody_holds_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = PackageStore::new(dir.path(), &"files".parse().unwrap());
        let lock = store.install_lock(|| {}).await.unwrap();
        let trees = [b"old", b"run", b"new"].map(|name| Digest::of(name));
        for tree in &trees {
            let stage = store.stage().unwrap();
            fs::create_dir(stage.path().join("package")).unwrap();
            store.keep(stage, tree).unwrap();
        }
        let [old, running, new] = &trees;
        let held = store.hold(running).unwrap();
        store.remove_unused(new, &lock).await;
        assert!(!store.place(old).exists());
        assert!(store.place(running).join("package").exists(), "a source runs from it");
        assert!(store.place(new).join("package").exists());
        drop(held);
        store.remove_unused(new, &lock).await;
        assert!(!store.place(running).exists());

        // A broker that was killed during an installation leaves a stage folder, and the fetched files.
        let given_up = store.temporary().unwrap().keep();
        let fetched = store.cache(&lock).unwrap().join("archive");
        fs::write(&fetched, "bytes").unwrap();
        drop(lock);
        let lock = store.install_lock(|| {}).await.unwrap();
        assert!(!given_up.exists());
        store.remove_unused(new, &lock).await;
        assert_eq!(store.cache(&lock).unwrap().join("archive"), fetched);
        assert!(fetched.exists(), "the next installation goes on with it");
        store.discard_cache(&lock).await;
        assert_eq!(store.folders().collect::<Vec<_>>(), [store.place(new)]);
    }

    #[test]
    fn trees_are_removed_on_no_thread_of_the_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let store = PackageStore::new(dir.path(), &"files".parse().unwrap());
            let lock = &store.install_lock(|| {}).await.unwrap();
            // The only other thread is busy until it is told.
            let busy = || {
                let (done, wait) = std::sync::mpsc::channel::<()>();
                drop(spawn_blocking(move || wait.recv()));
                done
            };
            let idle = async || spawn_blocking(|| {}).await.unwrap();
            let [old, new] = [b"old", b"new"].map(|name| Digest::of(name));
            let old = store.keep(store.stage().unwrap(), &old).map(|()| store.place(&old)).unwrap();
            let fetched = store.cache(lock).unwrap();
            let (ended, given_up) = (store.stage().unwrap(), store.stage().unwrap());
            let stages = [ended.path().to_owned(), given_up.path().to_owned()];

            let done = busy();
            let mut unused = pin!(store.remove_unused(&new, lock));
            let mut discarded = pin!(store.discard_cache(lock));
            let mut removed = pin!(ended.remove());
            drop(given_up);
            assert!(waits(unused.as_mut()) && waits(discarded.as_mut()));
            assert!(waits(removed.as_mut()));
            assert!(old.exists() && fetched.exists() && stages.iter().all(|stage| stage.exists()));
            drop(done);
            ((), (), ()) = (unused.await, discarded.await, removed.await);
            idle().await;
            assert!(!old.exists() && !fetched.exists() && !stages.iter().any(|stage| stage.exists()));

            let others = PackageStore::new(dir.path(), &"others".parse().unwrap());
            drop(others.install_lock(|| {}).await.unwrap());
            let unfinished = others.temporary().unwrap().keep();
            let done = busy();
            assert!(waits(pin!(others.install_lock(|| {}))));
            drop(done);
            idle().await;
            assert!(!unfinished.exists(), "the thread that waited for the lock has removed it");
        });
    }
}
